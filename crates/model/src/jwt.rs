use std::sync::Arc;
use std::time::Duration;

use crate::ClusterKey;

/// An issuer of JSON Web Tokens, and how its tokens are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtProvider {
    /// The name that routes use to require its tokens; unique within a fleet.
    pub name: Arc<str>,
    /// The required issuer of tokens; `None` for any.
    pub issuer: Option<Arc<str>>,
    /// The accepted audiences: a token must have at least one of them. If empty, any audience is accepted.
    pub audiences: Vec<Arc<str>>,
    /// The issuer's JWKS.
    pub keys: JwtKeys,
    /// Whether the token is forwarded to backends; if false, it is removed from the request.
    pub forward: bool,
}

/// An issuer's JWKS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwtKeys {
    /// The JWKS itself, as JSON, with at least one valid key.
    Inline(Arc<str>),
    /// A server that provides the JWKS.
    Remote(RemoteKeys),
}

/// A server that provides a JWKS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteKeys {
    /// The server.
    pub cluster: ClusterKey,
    /// The URI of the JWKS; its host is the server.
    pub uri: Arc<str>,
    /// The timeout for a fetch.
    pub timeout: Duration,
    /// How long the JWKS is cached.
    pub cache: Duration,
}
