use std::collections::BTreeMap;
use std::time::Duration;

use crate::{ClusterKey, HeaderChanges, List, TextMatch};

/// The maximum number of authorization checks per [`VirtualHost`](crate::VirtualHost). Every listener reserves room for
/// this many, so adding a check doesn't change the listener.
pub const MAX_HOST_AUTH: usize = 4;

/// An authorization check by an external service. The service provides the response to requests that it denies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAuth {
    /// The service.
    pub cluster: ClusterKey,
    /// How the service is queried.
    pub protocol: AuthProtocol,
    /// The part of the request body that is sent to the service; `None` sends no body.
    pub body: Option<AuthBody>,
    /// The timeout for the check; zero for no timeout.
    pub timeout: Duration,
    /// Whether requests are allowed if the service fails. If false, they get 503.
    pub fail_open: bool,
    /// Changes to the request before the check. Empty with [`AuthProtocol::GrpcWithContext`].
    pub before: HeaderChanges,
}

/// The part of a request body that is sent to an authorization service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthBody {
    /// The maximum size in bytes, at least 1.
    pub max: u32,
    /// Whether the service gets the start of a larger body. If false, requests with a larger body get 413.
    pub partial: bool,
    /// Whether a gRPC service gets the body as bytes instead of text.
    pub bytes: bool,
}

/// How an authorization service is queried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthProtocol {
    /// By calling `envoy.service.auth.v3.Authorization`.
    Grpc {
        /// The request headers that are sent to the service; never an empty list.
        request_headers: List,
    },
    /// Like [`AuthProtocol::Grpc`], but the service gets all request headers, and a context of these names and values,
    /// which is never empty. Only for routes, not for virtual hosts.
    GrpcWithContext(BTreeMap<String, String>),
    /// By sending a copy of the request's head; status 200 permits the request. The service always gets the Host, the
    /// method, the path, and the headers Content-Length and Authorization.
    Http {
        /// Prepended to the path: empty, or with a leading slash and without a trailing one.
        path_prefix: String,
        /// The names of other request headers that are sent to the service.
        request_headers: Vec<TextMatch>,
        /// The names of the headers to copy from the service's response, replacing those of the request; `None` for all
        /// headers.
        response_headers: Option<Vec<TextMatch>>,
    },
}
