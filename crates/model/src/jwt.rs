use std::sync::Arc;
use std::time::Duration;

use crate::ClusterKey;

/// An issuer of JSON Web Tokens, and how its tokens are verified.
#[derive(Clone, Debug, PartialEq)]
pub struct JwtProvider {
    /// The name that routes use to require its tokens; unique within a fleet.
    pub name: Arc<str>,
    /// The required issuer of tokens; `None` for any.
    pub issuer: Option<Arc<str>>,
    /// The accepted audiences, of which a token must have at least one; empty for any.
    pub audiences: Vec<Arc<str>>,
    /// The keys that verify tokens.
    pub keys: JwtKeys,
    /// Whether the token is forwarded to backends; if false, it is removed from the request.
    pub forward: bool,
}

/// The keys that verify tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum JwtKeys {
    /// A JWKS with at least one valid key, as JSON.
    Inline(Arc<str>),
    /// A server that provides them.
    Remote(RemoteKeys),
}

/// A server that provides keys.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteKeys {
    /// The server.
    pub cluster: ClusterKey,
    /// The URI of the keys; its host is the server.
    pub uri: Arc<str>,
    /// The timeout of a fetch.
    pub timeout: Duration,
    /// How long they are cached.
    pub cache: Duration,
}
