//! Rate limits.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::skip::is_default;

use super::HeaderMatchCondition;
use crate::http_filter::HttpHeader;
use crate::open_enum::open_enum;

/// Rate limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RateLimitPolicy {
    /// A limit that each Envoy enforces independently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<Box<LocalRateLimitPolicy>>,
    /// Limits that Sesame's rate limit service enforces across all Envoys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global: Option<Box<GlobalRateLimitPolicy>>,
}

/// A limit that each Envoy enforces independently.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LocalRateLimitPolicy {
    /// The number of requests allowed per unit of time.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub requests: u32,
    /// The unit of time.
    pub unit: RateLimitUnit,
    /// The number of additional requests allowed in a short burst.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 4_294_967_295i64)))]
    pub burst: i64,
    /// The status code of responses to rejected requests; 429 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 400, max = 599)))]
    pub response_status_code: Option<u32>,
    /// The headers to add to responses to rejected requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 10)))]
    pub response_headers_to_add: Vec<HttpHeader>,
}

open_enum! {
    /// A unit of time.
    pub enum RateLimitUnit {
        /// A second.
        Second = "second",
        /// A minute.
        Minute = "minute",
        /// An hour.
        Hour = "hour",
    }
}

/// Limits that a rate limit service enforces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GlobalRateLimitPolicy {
    /// For a route: whether the limits of its host are disabled. For a host: whether the default limits of the Sesame instance
    /// are disabled.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disabled: bool,
    /// The descriptors to send to the service. A request is rejected if any descriptor is over its limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 32)))]
    pub descriptors: Vec<RateLimitDescriptor>,
}

/// A descriptor for the rate limit service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RateLimitDescriptor {
    /// The entries of the descriptor. If a request has no value for one of the entries, the descriptor is omitted.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 16)))]
    pub entries: Vec<RateLimitDescriptorEntry>,
}

/// An entry of a descriptor. Exactly one field must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
// A CEL rule would cost too much in such deeply nested lists.
#[cfg_attr(feature = "schema", schemars(extend("minProperties" = 1, "maxProperties" = 1)))]
#[serde(rename_all = "camelCase")]
pub struct RateLimitDescriptorEntry {
    /// A fixed key and value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generic_key: Option<GenericKeyDescriptor>,
    /// The value of a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_header: Option<RequestHeaderDescriptor>,
    /// A fixed value for requests whose headers satisfy the given conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_header_value_match: Option<Box<RequestHeaderValueMatchDescriptor>>,
    /// The IP address of the client, with the key `remote_address`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_address: Option<RemoteAddressDescriptor>,
}

/// An entry with a fixed key and value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GenericKeyDescriptor {
    /// The key; `generic_key` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Arc<str>>,
    /// The value.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub value: Arc<str>,
}

/// An entry with the value of a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequestHeaderDescriptor {
    /// The name of the header, case-insensitive.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub header_name: Arc<str>,
    /// The key of the entry.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub descriptor_key: Arc<str>,
}

/// An entry with the key `header_match` and a fixed value, for requests whose headers satisfy the given conditions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequestHeaderValueMatchDescriptor {
    /// The conditions.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 16), transform = crate::crd::one_of_matchers)
    )]
    pub headers: Vec<HeaderMatchCondition>,
    /// Whether the entry applies to requests that satisfy all conditions. If false, it applies to all other requests.
    #[serde(default = "RequestHeaderValueMatchDescriptor::expected")]
    pub expect_match: bool,
    /// The value.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub value: Arc<str>,
}

impl RequestHeaderValueMatchDescriptor {
    fn expected() -> bool {
        true
    }
}

/// An entry with the client's IP address. It has no settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemoteAddressDescriptor {}
