//! Services as backends, and the validation of their certificates.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::skip::is_default;

use super::{CookieRewritePolicy, HeadersPolicy, SlowStartPolicy};
use crate::open_enum::open_enum;

/// A Service that requests or connections are sent to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HttpProxyService {
    /// The name of the Service, in the HTTPProxy's namespace.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: Arc<str>,
    /// The port of the Service.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 65535)))]
    pub port: u16,
    /// The port for health checks; `port` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 65535)))]
    pub health_port: Option<u16>,
    /// The protocol of connections to the Service. By default, it is taken from the Service port's `appProtocol`, then
    /// from the Service's annotations; failing both, HTTP/1.1 without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ServiceProtocol>,
    /// The Service's share of requests: its weight divided by the sum of all weights. If all weights are 0, the shares
    /// are equal. For a mirror, the percentage of requests that are copied; 0 means 100.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1_000_000)))]
    pub weight: i64,
    /// How the certificates of the endpoints are verified, if the protocol uses TLS. By default, they aren't verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Box<UpstreamValidation>>,
    /// Whether the Service is a mirror, which gets copies of requests and whose responses are ignored. A route can have
    /// at most one mirror.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mirror: bool,
    /// Changes to the headers of requests to this Service, made after the route's changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_headers_policy: Option<Box<HeadersPolicy>>,
    /// Changes to the headers of responses from this Service, made before the route's changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_headers_policy: Option<Box<HeadersPolicy>>,
    /// Changes to the attributes of cookies that this Service sets. They override the route's changes, attribute by
    /// attribute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub cookie_rewrite_policies: Vec<CookieRewritePolicy>,
    /// Slow start for new endpoints; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_start_policy: Option<Box<SlowStartPolicy>>,
}

open_enum! {
    /// The protocol of connections to a Service.
    pub enum ServiceProtocol {
        /// HTTP/2 over TLS.
        H2 = "h2",
        /// HTTP/2 without TLS.
        H2c = "h2c",
        /// HTTP/1.1 over TLS.
        Tls = "tls",
    }
}

/// How the certificates of endpoints are verified.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.subjectNames) || size(self.subjectNames) == 0 || self.subjectNames[0] == self.subjectName",
    "message": "the first entry of subjectNames must equal subjectName",
}])))]
#[serde(rename_all = "camelCase")]
pub struct UpstreamValidation {
    /// The Secret whose `ca.crt` entry holds the CA certificates. `namespace/name` refers to a Secret in another
    /// namespace; a TLSCertificateDelegation there must allow it.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 317)))]
    pub ca_secret: Arc<str>,
    /// A name that the certificate must have among its subject alternative names.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 250)))]
    pub subject_name: Arc<str>,
    /// Accepted names: the certificate must have at least one of them. The first one must be `subjectName`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 8), inner(length(min = 1, max = 250)))
    )]
    pub subject_names: Vec<Arc<str>>,
}
