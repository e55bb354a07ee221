//! Verification of JSON Web Tokens.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::skip::is_default;

use super::UpstreamValidation;
use crate::open_enum::open_enum;

/// An issuer of JSON Web Tokens, and how its tokens are verified. Exactly one of `remoteJWKS` and `localJWKS` is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.remoteJWKS) != has(self.localJWKS)",
    "message": "exactly one of remoteJWKS and localJWKS is required",
}])))]
#[serde(rename_all = "camelCase")]
pub struct JwtProvider {
    /// The name that routes use to refer to the provider, unique in the HTTPProxy.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: Arc<str>,
    /// Whether routes require a token from this provider by default. A host can have at most one default provider.
    #[serde(default, skip_serializing_if = "is_default")]
    pub default: bool,
    /// The required issuer of the tokens; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<Arc<str>>,
    /// The accepted audiences, of which a token must have at least one; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub audiences: Vec<Arc<str>>,
    /// The server from which Envoy fetches the keys that verify tokens.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "remoteJWKS"
    )]
    pub remote_jwks: Option<Box<RemoteJwks>>,
    /// The Secret with the keys that verify tokens.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "localJWKS")]
    pub local_jwks: Option<Box<LocalJwks>>,
    /// Whether the token is forwarded to backends. By default, it is removed from requests.
    #[serde(default, skip_serializing_if = "is_default", rename = "forwardJWT")]
    pub forward_jwt: bool,
}

/// A server with an issuer's keys (JWKS).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RemoteJwks {
    /// The URI of the keys.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 2048)))]
    pub uri: Arc<str>,
    /// How the server's certificate is verified. By default, it isn't verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Box<UpstreamValidation>>,
    /// The timeout of a fetch: a duration, such as `5s`; one second by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// How long the keys are cached: a duration, such as `10m`; five minutes by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_duration: Option<String>,
    /// The IP versions to use when resolving the server's name; `all` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_lookup_family: Option<DnsLookupFamily>,
}

open_enum! {
    /// The IP versions to use when resolving a name.
    pub enum DnsLookupFamily {
        /// IPv6, or IPv4 if there are no IPv6 addresses.
        Auto = "auto",
        /// Only IPv4.
        V4 = "v4",
        /// Only IPv6.
        V6 = "v6",
        /// Both.
        All = "all",
    }
}

/// A Secret with an issuer's keys (JWKS).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LocalJwks {
    /// The name of the Secret. `namespace/name` refers to a Secret in another namespace; a TLSCertificateDelegation
    /// there must allow it.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 317)))]
    pub secret_name: Arc<str>,
    /// The Secret's entry with the keys.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub key: Arc<str>,
}

/// The JSON Web Tokens that a route requires.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.require) && has(self.disabled) && self.disabled)",
    "message": "require and disabled are mutually exclusive",
}])))]
pub struct JwtVerificationPolicy {
    /// The name of the provider whose tokens are required. Mutually exclusive with `disabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require: Option<Arc<str>>,
    /// Whether the route requires no token, even if the host has a default provider.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disabled: bool,
}
