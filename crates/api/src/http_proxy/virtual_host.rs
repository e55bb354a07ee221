//! The host of a root, and its TLS settings.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::skip::is_default;

use super::{AuthorizationServer, CorsPolicy, IpFilter, JwtProvider, RateLimitPolicy};

/// The host that a root serves, and the settings for all its requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.ipAllowPolicy) && size(self.ipAllowPolicy) > 0 && has(self.ipDenyPolicy) && size(self.ipDenyPolicy) > 0)",
    "message": "ipAllowPolicy and ipDenyPolicy are mutually exclusive",
}])))]
#[serde(rename_all = "camelCase")]
pub struct HttpProxyVirtualHost {
    /// The name of the host, without a port. Only one HTTPProxy may serve it. With a leading `*.`, it matches all hosts
    /// with exactly one more label.
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(min = 1, max = 253),
            regex(
                pattern = r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
            )
        )
    )]
    pub fqdn: Arc<str>,
    /// TLS for client connections; none by default. With TLS, plaintext requests are redirected to HTTPS, except on
    /// routes that permit them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Box<HttpProxyTls>>,
    /// The external service that decides whether a request is authorized, with or without TLS. Not for hosts whose
    /// connections are forwarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Box<AuthorizationServer>>,
    /// The cross-origin requests that are allowed (CORS). By default, Envoy leaves CORS to the backends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cors_policy: Option<Box<CorsPolicy>>,
    /// Rate limits for routes without limits of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit_policy: Option<Box<RateLimitPolicy>>,
    /// The issuers of JSON Web Tokens that routes can require. Requires TLS terminated by Envoy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub jwt_providers: Vec<JwtProvider>,
    /// The addresses from which requests are allowed; all others are rejected. Mutually exclusive with `ipDenyPolicy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub ip_allow_policy: Vec<IpFilter>,
    /// The addresses from which requests are rejected; all others are allowed. Mutually exclusive with `ipAllowPolicy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub ip_deny_policy: Vec<IpFilter>,
}

/// TLS for client connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HttpProxyTls {
    /// The Secret with the host's certificate and private key, in the HTTPProxy's namespace. `namespace/name` refers to
    /// a Secret in another namespace; a TLSCertificateDelegation there must allow it. Required unless `passthrough` is
    /// set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<Arc<str>>,
    /// The lowest TLS version that clients may use, `1.2` or `1.3`. Sesame's own minimum still applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_protocol_version: Option<Arc<str>>,
    /// The highest TLS version that clients may use, `1.2` or `1.3`. Sesame's own maximum still applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_protocol_version: Option<Arc<str>>,
    /// Whether connections are forwarded without terminating TLS. Requires `tcpproxy`. Mutually exclusive with
    /// `secretName`, `clientValidation` and `enableFallbackCertificate`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub passthrough: bool,
    /// Validation of client certificates. By default, Envoy doesn't request client certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_validation: Option<Box<HttpProxyClientValidation>>,
    /// Whether the host is also served, with Sesame's fallback certificate, on TLS connections without SNI or with an
    /// unknown server name. Mutually exclusive with `clientValidation`, `passthrough` and `tcpproxy`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub enable_fallback_certificate: bool,
}

/// Validation of client certificates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HttpProxyClientValidation {
    /// The Secret whose `ca.crt` entry holds the CA certificates that verify client certificates. `namespace/name`
    /// refers to a Secret in another namespace; a TLSCertificateDelegation there must allow it. Required unless
    /// `skipClientCertValidation` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<Arc<str>>,
    /// Whether client certificates are requested but not verified, so that an authorization service can verify them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub skip_client_cert_validation: bool,
    /// The parts of a client certificate that are sent to backends in the `x-forwarded-client-cert` header. By default,
    /// the header is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_client_certificate: Option<ForwardClientCertificate>,
    /// The Secret whose `crl.pem` entry holds the certificate revocation lists (CRLs). `namespace/name` refers to a
    /// Secret in another namespace; a TLSCertificateDelegation there must allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crl_secret: Option<Arc<str>>,
    /// Whether only the client's own certificate is checked against the CRLs. By default, there must be a CRL for each
    /// CA in the chain.
    #[serde(default, skip_serializing_if = "is_default")]
    pub crl_only_verify_leaf_cert: bool,
    /// Whether clients without a certificate are accepted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub optional_client_certificate: bool,
}

/// The parts of a client certificate that are sent to backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForwardClientCertificate {
    /// The subject.
    #[serde(default, skip_serializing_if = "is_default")]
    pub subject: bool,
    /// The whole certificate, as URL-encoded PEM.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cert: bool,
    /// The whole chain, as URL-encoded PEM.
    #[serde(default, skip_serializing_if = "is_default")]
    pub chain: bool,
    /// The DNS names in the subject alternative names.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dns: bool,
    /// The first URI in the subject alternative names.
    #[serde(default, skip_serializing_if = "is_default")]
    pub uri: bool,
}
