use std::time::Duration;

use crate::{ClusterKey, HeaderChanges, List};

/// The maximum number of checks of a [`VirtualHost`](crate::VirtualHost). Every listener has room for them, so that adding
/// one doesn't change the listener.
pub const MAX_HOST_AUTH: usize = 4;

/// A check of requests by an external service. A request that the service denies gets the service's response; if the
/// service fails, it gets 503.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalAuth {
    /// The service.
    pub cluster: ClusterKey,
    /// How the service is queried.
    pub protocol: AuthProtocol,
    /// The maximum size of the body in bytes, at least 1: larger requests get 413. `None`: the service gets no body.
    pub max_body: Option<u32>,
    /// The timeout of the check.
    pub timeout: Duration,
    /// Changes to the request before the check.
    pub before: HeaderChanges,
}

/// How an authorization service is queried.
#[derive(Clone, Debug, PartialEq)]
pub enum AuthProtocol {
    /// By calling `envoy.service.auth.v3.Authorization`.
    Grpc {
        /// The request headers that the service gets; never an empty list.
        request_headers: List,
    },
    /// By a copy of the request's head: status 200 permits the request. The service also gets the Host, the method, the
    /// path, and the headers Content-Length and Authorization.
    Http {
        /// Added in front of the path: empty, or with a leading slash and without a trailing one.
        path_prefix: String,
        /// Other request headers that the service gets.
        request_headers: Vec<String>,
        /// The response headers that replace those of the request; never an empty list.
        response_headers: List,
    },
}
