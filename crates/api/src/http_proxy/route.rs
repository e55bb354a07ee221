//! Routes.

use serde::{Deserialize, Serialize};

use crate::skip::is_default;

use super::{
    AuthorizationPolicy, CookieRewritePolicy, DirectResponsePolicy, HeadersPolicy,
    HttpHealthCheckPolicy, HttpProxyService, InternalRedirectPolicy, IpFilter,
    JwtVerificationPolicy, LoadBalancerPolicy, MatchCondition, PathRewritePolicy, RateLimitPolicy,
    RequestRedirectPolicy, RetryPolicy, TimeoutPolicy,
};

/// A route: conditions, and what happens to requests that satisfy them. Exactly one of `services`,
/// `requestRedirectPolicy` and `directResponsePolicy` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "[has(self.services) && size(self.services) > 0, has(self.requestRedirectPolicy), has(self.directResponsePolicy)].filter(set, set).size() == 1",
        "message": "exactly one of services, requestRedirectPolicy and directResponsePolicy is required",
    },
    {
        "rule": "!(has(self.ipAllowPolicy) && size(self.ipAllowPolicy) > 0 && has(self.ipDenyPolicy) && size(self.ipDenyPolicy) > 0)",
        "message": "ipAllowPolicy and ipDenyPolicy are mutually exclusive",
    },
])))]
#[serde(rename_all = "camelCase")]
pub struct HttpProxyRoute {
    /// The conditions. A request must satisfy all of them. Without a path condition, every path matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 32)))]
    pub conditions: Vec<MatchCondition>,
    /// The Services that requests are sent to, in proportion to their weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 32)))]
    pub services: Vec<HttpProxyService>,
    /// Whether clients may upgrade to WebSocket.
    #[serde(default, skip_serializing_if = "is_default")]
    pub enable_websockets: bool,
    /// Whether requests without TLS are served too, if the host has TLS. By default, they are redirected to HTTPS.
    #[serde(default, skip_serializing_if = "is_default")]
    pub permit_insecure: bool,
    /// Authorization settings for this route. Overrides the host's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_policy: Option<Box<AuthorizationPolicy>>,
    /// Timeouts for requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_policy: Option<Box<TimeoutPolicy>>,
    /// When requests are retried; not at all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Box<RetryPolicy>>,
    /// HTTP health checks of the Services' endpoints; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check_policy: Option<Box<HttpHealthCheckPolicy>>,
    /// How an endpoint of a Service is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer_policy: Option<Box<LoadBalancerPolicy>>,
    /// Changes to the path of requests sent to the Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_rewrite_policy: Option<Box<PathRewritePolicy>>,
    /// Changes to the headers of requests. A Service can define additional changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_headers_policy: Option<Box<HeadersPolicy>>,
    /// Changes to the headers of responses. A Service can define additional changes. The `Host` header can't be
    /// changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_headers_policy: Option<Box<HeadersPolicy>>,
    /// Changes to the attributes of cookies in responses. At most one entry for each cookie name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub cookie_rewrite_policies: Vec<CookieRewritePolicy>,
    /// Rate limits. Overrides the host's limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit_policy: Option<Box<RateLimitPolicy>>,
    /// Answers requests with a redirect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_redirect_policy: Option<Box<RequestRedirectPolicy>>,
    /// Answers requests with a fixed response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_response_policy: Option<Box<DirectResponsePolicy>>,
    /// The redirects that Envoy follows itself when a Service returns them, instead of passing them to the client; none
    /// by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_redirect_policy: Option<Box<InternalRedirectPolicy>>,
    /// The JSON Web Tokens that requests need. Overrides the host's default provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt_verification_policy: Option<Box<JwtVerificationPolicy>>,
    /// The addresses from which requests are allowed. Overrides the host's filters. Mutually exclusive with
    /// `ipDenyPolicy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub ip_allow_policy: Vec<IpFilter>,
    /// The addresses from which requests are rejected. Overrides the host's filters. Mutually exclusive with
    /// `ipAllowPolicy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub ip_deny_policy: Vec<IpFilter>,
}
