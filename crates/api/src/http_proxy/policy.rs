//! Timeouts, retries, load balancing and health checks.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::skip::is_default;

use crate::open_enum::open_enum;

/// How long requests may take. A timeout is a duration, such as `30s` or `1m30s`, or `infinity` for none. Empty or `0` stands
/// for the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TimeoutPolicy {
    /// How long the whole response may take, from the end of the request. By default, 15 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// How long a request may be without activity in either direction. By default, an hour, or the
    /// timeout of the response if that is longer.
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
    /// The maximum number of retries. 0 stands for 1, and -1 for none.
    #[serde(default = "RetryPolicy::one")]
    #[cfg_attr(feature = "schema", schemars(range(min = -1, max = 4_294_967_295i64)))]
    pub count: i64,
    /// How long one attempt may take; by default, only the timeout of the whole response applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_try_timeout: Option<String>,
    /// The results after which requests are retried, in Envoy's words for `x-envoy-retry-on`; by default, `5xx`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 16)))]
    pub retry_on: Vec<RetryOn>,
    /// The response codes after which requests are retried, if `retryOn` has `retriable-status-codes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 64), inner(range(min = 100, max = 599)))
    )]
    pub retriable_status_codes: Vec<u32>,
}

impl RetryPolicy {
    fn one() -> i64 {
        1
    }
}

open_enum! {
    /// A result after which a request is retried.
    pub enum RetryOn {
        /// A response with a code from 500, or none.
        ServerError = "5xx",
        /// A response with the code 502, 503 or 504.
        GatewayError = "gateway-error",
        /// No response: the connection was reset, or the request timed out.
        Reset = "reset",
        /// No response, before the request was sent.
        ResetBeforeRequest = "reset-before-request",
        /// The connection failed.
        ConnectFailure = "connect-failure",
        /// A response with the code 409.
        Retriable4xx = "retriable-4xx",
        /// The endpoint refused the stream.
        RefusedStream = "refused-stream",
        /// A response with one of `retriableStatusCodes`.
        RetriableStatusCodes = "retriable-status-codes",
        /// A response with certain headers.
        RetriableHeaders = "retriable-headers",
        /// A response that Envoy's rate limit caused.
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
    /// `WeightedLeastRequest` (the default), `RoundRobin`, `Random`, `Cookie` or `RequestHash`. `Cookie` sends all
    /// requests of a client's session to the same endpoint, by a cookie that Envoy sets. `RequestHash` sends requests
    /// with the same hash to the same endpoint. Anything else is reported and counts as `RoundRobin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub strategy: Option<LoadBalancerStrategy>,
    /// What the hash of a request consists of, for the strategy `RequestHash`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub request_hash_policies: Vec<RequestHashPolicy>,
}

open_enum! {
    /// How an endpoint is chosen.
    pub enum LoadBalancerStrategy {
        /// Each in turn.
        RoundRobin = "RoundRobin",
        /// The one with fewer active requests, of two random ones.
        WeightedLeastRequest = "WeightedLeastRequest",
        /// A random one.
        Random = "Random",
        /// By a cookie that Envoy sets.
        Cookie = "Cookie",
        /// By a hash of parts of the request.
        RequestHash = "RequestHash",
    }
}

/// A part of a request's hash: exactly one of `headerHashOptions`, `queryParameterHashOptions` and `hashSourceIP`. An
/// entry with none or several of them is reported and ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequestHashPolicy {
    /// Whether the following entries are left out of the hash if the request has this part.
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

/// Requests that test the health of endpoints. Unhealthy ones get no requests.
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
    /// The value of the requests' header `Host`. By default, `service.namespace`.
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
    /// The code after the last one of the range.
    #[cfg_attr(feature = "schema", schemars(range(min = 101, max = 600)))]
    pub end: i64,
}

/// Connections that test the health of endpoints. Unhealthy ones get no connections.
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

/// The slow start of new endpoints: their share of requests grows over a while. Only with the strategies `RoundRobin` and
/// `WeightedLeastRequest`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SlowStartPolicy {
    /// How long the slow start takes: a duration, such as `30s`.
    pub window: String,
    /// How fast the share grows: a positive decimal number, such as `1.0`, with which it grows evenly. With a larger one
    /// it grows faster at first.
    #[serde(default = "SlowStartPolicy::even")]
    pub aggression: String,
    /// The smallest share of requests that a new endpoint gets, in percent of its full share.
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
