//! HTTPProxy: the routes, TLS and policies of a host, which other HTTPProxies may include.
//!
//! In: objects with Contour's field names, so that Contour's HTTPProxies can be applied unchanged. Out: typed fields.
//! Strings with a syntax of their own, such as durations and regular expressions, stay strings: translation reads them
//! and reports invalid ones in the status. Field docs become the descriptions in the CRD.

mod access;
mod condition;
mod headers;
mod jwt;
mod policy;
mod rate_limit;
mod redirect;
mod route;
mod service;
mod status;
mod tcp_proxy;
mod virtual_host;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check::{self, Check};
use crate::decode::DecodeError;
use crate::meta::Meta;
use crate::named::Named;
use crate::object::resource;

pub use access::{
    AllowedHeader, AuthorizationPolicy, AuthorizationServer, AuthorizationServiceType,
    ExtensionServiceReference, HttpAuthorization, IpFilter, IpFilterSource, RequestBodyBuffer,
};
pub use condition::{HeaderMatchCondition, MatchCondition, QueryParameterMatchCondition};
pub use headers::{
    CookieRewrite, CookieRewritePolicy, CorsPolicy, HeadersPolicy, PathRewritePolicy,
    ReplacePrefix, SameSite,
};
pub use jwt::{DnsLookupFamily, JwtProvider, JwtVerificationPolicy, LocalJwks, RemoteJwks};
pub use policy::{
    HeaderHashOptions, HttpHealthCheckPolicy, HttpStatusRange, LoadBalancerPolicy,
    LoadBalancerStrategy, QueryParameterHashOptions, RequestHashPolicy, RetryOn, RetryPolicy,
    SlowStartPolicy, TcpHealthCheckPolicy, TimeoutPolicy,
};
pub use rate_limit::{
    GenericKeyDescriptor, GlobalRateLimitPolicy, LocalRateLimitPolicy, RateLimitDescriptor,
    RateLimitDescriptorEntry, RateLimitPolicy, RateLimitUnit, RemoteAddressDescriptor,
    RequestHeaderDescriptor, RequestHeaderValueMatchDescriptor,
};
pub use redirect::{
    CrossSchemeRedirect, DirectResponsePolicy, InternalRedirectPolicy, RequestRedirectPolicy,
};
pub use route::HttpProxyRoute;
pub use service::{HttpProxyService, ServiceProtocol, UpstreamValidation};
pub use status::{
    HttpProxyState, HttpProxyStatus, LoadBalancerIngress, LoadBalancerPortStatus,
    LoadBalancerStatus,
};
pub use tcp_proxy::{TcpProxy, TcpProxyInclude};
pub use virtual_host::{
    ForwardClientCertificate, HttpProxyClientValidation, HttpProxyTls, HttpProxyVirtualHost,
};

/// A virtual host's routes, TLS settings and policies, or a part of them that other HTTPProxies include.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HTTPProxy {
    /// The metadata.
    #[serde(rename = "metadata")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::metadata"))]
    pub meta: Meta,
    /// The host, its routes and its policies.
    pub spec: HttpProxySpec,
    /// The status, as reported by Sesame.
    #[serde(default, skip_serializing_if = "HttpProxyStatus::is_empty")]
    pub status: HttpProxyStatus,
}

resource! { HTTPProxy {
    fn check(&self) -> Check {
        check::at("spec", check::http_proxy::spec(&self.spec))
    }

    fn references(&self, named: &mut Named) {
        named.by_http_proxy(self);
    }
} }

impl HTTPProxy {
    /// The TLS settings, if they enable the fallback certificate.
    pub fn fallback_tls(&self) -> Option<&HttpProxyTls> {
        let tls = self.spec.virtual_host.as_deref()?.tls.as_deref()?;
        tls.enable_fallback_certificate.then_some(tls)
    }
}

/// The host, its routes and its policies.
///
/// With `virtualhost`, an HTTPProxy is a root and serves that host. Otherwise, it takes effect only where another
/// HTTPProxy includes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HttpProxySpec {
    /// The host to serve, with its TLS settings and the policies for all its requests. An HTTPProxy with a host is a
    /// root: others can't include it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "virtualhost"
    )]
    pub virtual_host: Option<Box<HttpProxyVirtualHost>>,
    /// The routes of HTTP requests. The most specific match applies, regardless of the order in this list: exact paths
    /// before regular expressions before prefixes, then longer paths, then routes with more conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(
        length(max = 1024),
        extend("x-kubernetes-validations" = [{
            "rule": "self.map(route, has(route.services) ? size(route.services) : 0).sum() <= 4096",
            "message": "the routes have more than 4096 services",
        }]),
    ))]
    pub routes: Vec<HttpProxyRoute>,
    /// Forwards the host's connections instead of HTTP requests. Requires TLS: the SNI identifies the host's
    /// connections. `routes` then apply only to requests without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "tcpproxy")]
    pub tcp_proxy: Option<Box<TcpProxy>>,
    /// Other HTTPProxies whose routes this one includes, each with additional conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub includes: Vec<HttpProxyInclude>,
    /// The class of the HTTPProxy, unless an annotation sets it. Sesame ignores HTTPProxies of classes that it isn't
    /// configured to serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_class_name: Option<Arc<str>>,
    /// The limit that the spec exceeded when it was decoded, with the field. Its routes then have only their conditions; if
    /// they are empty, it has only the class and the host, with its TLS settings.
    #[serde(skip)]
    pub exceeded: Option<Arc<DecodeError>>,
}

/// The inclusion of another HTTPProxy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HttpProxyInclude {
    /// The name of the included HTTPProxy.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: Arc<str>,
    /// The namespace of the included HTTPProxy; by default, the namespace of the including HTTPProxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 63)))]
    pub namespace: Option<Arc<str>>,
    /// Conditions that are added to the conditions of every included route. A prefix is prepended to the paths of the
    /// included routes; exact paths and regular expressions aren't allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 32)))]
    pub conditions: Vec<MatchCondition>,
}
