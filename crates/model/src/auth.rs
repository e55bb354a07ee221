use std::collections::BTreeMap;
use std::time::Duration;

use crate::{ClusterKey, HeaderChanges, List, TextMatch};

/// The maximum number of checks of a [`VirtualHost`](crate::VirtualHost). Every listener reserves room for that many, so
/// that adding one doesn't change the listener.
pub const MAX_HOST_AUTH: usize = 4;

/// A check of requests by an external service. A request that the service denies gets the service's response.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalAuth {
    /// The service.
    pub cluster: ClusterKey,
    /// How the service is queried.
    pub protocol: AuthProtocol,
    /// The part of the request's body that the service gets; `None` for nothing.
    pub body: Option<AuthBody>,
    /// The timeout of the check; zero for none.
    pub timeout: Duration,
    /// Whether requests are allowed if the service fails. If false, they get 503.
    pub fail_open: bool,
    /// Changes to the request before the check. None with [`AuthProtocol::GrpcWithContext`].
    pub before: HeaderChanges,
}

/// The part of a request's body that an authorization service gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthBody {
    /// The maximum size in bytes, at least 1.
    pub max: u32,
    /// Whether the service gets the start of a larger body. If false, the response to such a request is 413.
    pub partial: bool,
    /// Whether a service over gRPC gets bytes instead of text.
    pub bytes: bool,
}

/// How an authorization service is queried.
#[derive(Clone, Debug, PartialEq)]
pub enum AuthProtocol {
    /// By calling `envoy.service.auth.v3.Authorization`.
    Grpc {
        /// The request headers that the service gets; never an empty list.
        request_headers: List,
    },
    /// Like [`AuthProtocol::Grpc`], but the service gets all request headers, and these names and values; never empty. Only
    /// for routes, not for virtual hosts.
    GrpcWithContext(BTreeMap<String, String>),
    /// By sending a copy of the request's head; status 200 permits the request. The service also gets the Host, the method,
    /// the path, and the headers Content-Length and Authorization.
    Http {
        /// Added in front of the path: empty, or with a leading slash and without a trailing one.
        path_prefix: String,
        /// The names of other request headers that the service gets.
        request_headers: Vec<TextMatch>,
        /// The names of response headers that replace those of the request; `None` for all.
        response_headers: Option<Vec<TextMatch>>,
    },
}
