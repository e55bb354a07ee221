//! Timeouts, retries, load balancing and health checks.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::skip::is_default;

use crate::open_enum::open_enum;

/// Timeouts for requests. A timeout is a duration, such as `30s` or `1m30s`, or `infinity` for none. Empty or `0` means
/// the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TimeoutPolicy {
    /// The maximum time from the end of the request to the end of the response. By default, 15 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// How long a request may be idle, without data in either direction. By default, an hour, or the response timeout if that
    /// is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<String>,
    /// How long a connection to an endpoint stays open without requests. By default, one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_connection: Option<String>,
}

/// When and how often requests are retried.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RetryPolicy {
    /// The maximum number of retries. 0 means one retry, and -1 means none.
    #[serde(default = "RetryPolicy::one")]
    #[cfg_attr(feature = "schema", schemars(range(min = -1, max = 4_294_967_295i64)))]
    pub count: i64,
    /// The timeout of each attempt; by default, only the response timeout applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_try_timeout: Option<String>,
    /// The outcomes to retry, as named by Envoy's `x-envoy-retry-on` header; `5xx` by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 16)))]
    pub retry_on: Vec<RetryOn>,
    /// The response codes to retry, if `retryOn` contains `retriable-status-codes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 64), inner(range(min = 100, max = 599)))
    )]
    pub retriable_status_codes: Vec<i64>,
}

impl RetryPolicy {
    fn one() -> i64 {
        1
    }
}

open_enum! {
    /// An outcome to retry.
    pub enum RetryOn {
        /// A 5xx response, or no response.
        ServerError = "5xx",
        /// A 502, 503 or 504 response.
        GatewayError = "gateway-error",
        /// No response: the connection was reset, or the request timed out.
        Reset = "reset",
        /// No response: the connection was reset before the request was sent.
        ResetBeforeRequest = "reset-before-request",
        /// The connection failed.
        ConnectFailure = "connect-failure",
        /// A 409 response.
        Retriable4xx = "retriable-4xx",
        /// The endpoint refused the stream.
        RefusedStream = "refused-stream",
        /// A response with a code in `retriableStatusCodes`.
        RetriableStatusCodes = "retriable-status-codes",
        /// A response with certain headers.
        RetriableHeaders = "retriable-headers",
        /// A response from Envoy's rate limiting.
        EnvoyRateLimited = "envoy-ratelimited",
        /// HTTP/3 failed after the connection was established.
        Http3PostConnectFailure = "http3-post-connect-failure",
        /// gRPC: the call was cancelled.
        Cancelled = "cancelled",
        /// gRPC: the deadline was exceeded.
        DeadlineExceeded = "deadline-exceeded",
        /// gRPC: an internal error.
        Internal = "internal",
        /// gRPC: a resource is exhausted.
        ResourceExhausted = "resource-exhausted",
        /// gRPC: the service is unavailable.
        Unavailable = "unavailable",
    }
}

/// How an endpoint is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerPolicy {
    /// `WeightedLeastRequest` (the default), `RoundRobin`, `Random`, `Cookie` or `RequestHash`. `Cookie` sends all requests
    /// of a client's session to the same endpoint, using a cookie that Envoy sets. `RequestHash` sends requests with the same
    /// hash to the same endpoint. Other values are reported and treated as `RoundRobin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub strategy: Option<LoadBalancerStrategy>,
    /// The parts of a request that are hashed, for the `RequestHash` strategy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub request_hash_policies: Vec<RequestHashPolicy>,
}

open_enum! {
    /// How an endpoint is chosen.
    pub enum LoadBalancerStrategy {
        /// Each in turn.
        RoundRobin = "RoundRobin",
        /// Of two random endpoints, the one with fewer active requests.
        WeightedLeastRequest = "WeightedLeastRequest",
        /// A random one.
        Random = "Random",
        /// By a cookie that Envoy sets.
        Cookie = "Cookie",
        /// By a hash of parts of the request.
        RequestHash = "RequestHash",
    }
}

/// A part of a request that is hashed: exactly one of `headerHashOptions`, `queryParameterHashOptions` and
/// `hashSourceIP`. An entry with none or several of them is reported and ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequestHashPolicy {
    /// Whether the hash omits the following entries if the request has this part.
    #[serde(default, skip_serializing_if = "is_default")]
    pub terminal: bool,
    /// The value of a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header_hash_options: Option<HeaderHashOptions>,
    /// The value of a query parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_parameter_hash_options: Option<QueryParameterHashOptions>,
    /// The IP address of the client.
    #[serde(default, skip_serializing_if = "is_default", rename = "hashSourceIP")]
    pub hash_source_ip: bool,
}

/// A header whose value is hashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HeaderHashOptions {
    /// The name of the header, case-insensitive.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub header_name: Arc<str>,
}

/// A query parameter whose value is hashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueryParameterHashOptions {
    /// The name of the parameter, case-sensitive.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub parameter_name: Arc<str>,
}

/// HTTP health checks of endpoints. Unhealthy endpoints get no requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HttpHealthCheckPolicy {
    /// The path of the requests.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 1024), regex(pattern = "^/"))
    )]
    pub path: Arc<str>,
    /// The `Host` header of the requests; `service.namespace` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Arc<str>>,
    /// Seconds between requests; 5 by default.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 86_400)))]
    pub interval_seconds: i64,
    /// Seconds to wait for a response; 2 by default.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 86_400)))]
    pub timeout_seconds: i64,
    /// The number of consecutive failures after which an endpoint is unhealthy; 3 by default.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 4_294_967_295i64)))]
    pub unhealthy_threshold_count: i64,
    /// The number of consecutive successes after which an endpoint is healthy again; 2 by default.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 4_294_967_295i64)))]
    pub healthy_threshold_count: i64,
    /// The response codes that count as success; only 200 by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub expected_statuses: Vec<HttpStatusRange>,
}

/// A range of response codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.start < self.end",
    "message": "start must be less than end",
}])))]
pub struct HttpStatusRange {
    /// The first code of the range.
    #[cfg_attr(feature = "schema", schemars(range(min = 100, max = 599)))]
    pub start: i64,
    /// The first code after the range.
    #[cfg_attr(feature = "schema", schemars(range(min = 101, max = 600)))]
    pub end: i64,
}

/// TCP health checks of endpoints. Unhealthy endpoints get no connections.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TcpHealthCheckPolicy {
    /// Seconds between connections; 5 by default.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 86_400)))]
    pub interval_seconds: i64,
    /// Seconds to wait for a connection; 2 by default.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 86_400)))]
    pub timeout_seconds: i64,
    /// The number of consecutive failures after which an endpoint is unhealthy; 3 by default.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 4_294_967_295i64)))]
    pub unhealthy_threshold_count: i64,
    /// The number of consecutive successes after which an endpoint is healthy again; 2 by default.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 4_294_967_295i64)))]
    pub healthy_threshold_count: i64,
}

/// Slow start for new endpoints: their share of requests grows gradually. Only with the `RoundRobin` and
/// `WeightedLeastRequest` strategies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SlowStartPolicy {
    /// How long the slow start takes: a duration, such as `30s`.
    pub window: String,
    /// How fast the share grows: a positive decimal number. With `1.0` the growth is linear; with larger numbers it is
    /// faster at first.
    #[serde(default = "SlowStartPolicy::even")]
    pub aggression: String,
    /// A new endpoint's minimum share of requests, as a percentage of its full share.
    #[serde(default = "SlowStartPolicy::tenth")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 100)))]
    pub min_weight_percent: u32,
}

impl SlowStartPolicy {
    fn even() -> String {
        "1.0".to_owned()
    }

    fn tenth() -> u32 {
        10
    }
}
