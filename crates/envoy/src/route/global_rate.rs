//! Global rate limits, which a service enforces.
//!
//! Envoy's rate limit filter names its service in the listener. To add services without changing a listener, a
//! composite filter contains the rate limit filter and is configured per route. The descriptors are part of the route's
//! action: if they are in the filter's own configuration, some versions of Envoy count each request twice.

use envoy_types::pb::envoy::config::core::v3::ApiVersion;
use envoy_types::pb::envoy::config::ratelimit::v3::RateLimitServiceConfig;
use envoy_types::pb::envoy::config::route::v3 as pb;
use envoy_types::pb::envoy::config::route::v3::rate_limit::{Action, action};
use envoy_types::pb::envoy::extensions::filters::http::composite::v3 as composite;
use envoy_types::pb::envoy::extensions::filters::http::ratelimit::v3 as filter;
use envoy_types::pb::envoy::r#type::v3::{HttpStatus, StatusCode};
use envoy_types::pb::google::protobuf::Any;
use filter::rate_limit::XRateLimitHeadersRfcVersion;
use sesame_model::{GlobalRate, RateEntry, RateService};

use super::auth;
use super::matching::{header_matcher, header_name};
use crate::{names, wire};

/// Configuration of [`GLOBAL_RATE`](crate::hcm::GLOBAL_RATE) for a route.
pub(super) fn of_route(rate: &GlobalRate) -> Any {
    let filter = wire::extension("envoy.filters.http.ratelimit", filter(&rate.service));
    auth::execute(Some(composite::ExecuteFilterAction {
        filter_chain: Some(composite::FilterChainConfiguration {
            typed_config: vec![filter],
        }),
        ..Default::default()
    }))
}

fn filter(service: &RateService) -> filter::RateLimit {
    let cluster = &service.cluster;
    filter::RateLimit {
        domain: service.domain.to_string(),
        timeout: Some(wire::duration(service.timeout)),
        failure_mode_deny: !service.fail_open,
        rate_limited_as_resource_exhausted: service.resource_exhausted,
        rate_limit_service: Some(RateLimitServiceConfig {
            grpc_service: Some(auth::grpc_service(
                names::cluster(cluster),
                names::authority(cluster),
            )),
            transport_api_version: ApiVersion::V3.into(),
        }),
        enable_x_ratelimit_headers: match service.headers {
            true => XRateLimitHeadersRfcVersion::DraftVersion03,
            false => XRateLimitHeadersRfcVersion::Off,
        }
        .into(),
        disable_x_envoy_ratelimited_header: true,
        // Distinguishes a failed service from failed backends.
        status_on_error: Some(HttpStatus {
            code: StatusCode::ServiceUnavailable.into(),
        }),
        ..Default::default()
    }
}

/// The descriptors, for the route's action.
pub(super) fn descriptors(rate: &GlobalRate) -> Vec<pb::RateLimit> {
    let descriptors = rate.descriptors.iter().map(|entries| pb::RateLimit {
        actions: entries.iter().map(entry).collect(),
        ..Default::default()
    });
    descriptors.collect()
}

fn entry(entry: &RateEntry) -> Action {
    use action::ActionSpecifier;
    let specifier = match entry {
        RateEntry::Fixed { key, value } => ActionSpecifier::GenericKey(action::GenericKey {
            descriptor_key: key.clone(),
            descriptor_value: value.clone(),
            ..Default::default()
        }),
        RateEntry::Header { name, key } => {
            ActionSpecifier::RequestHeaders(action::RequestHeaders {
                header_name: header_name(name),
                descriptor_key: key.clone(),
                ..Default::default()
            })
        }
        RateEntry::Matching {
            headers,
            expected,
            value,
        } => ActionSpecifier::HeaderValueMatch(action::HeaderValueMatch {
            descriptor_value: value.clone(),
            expect_match: wire::boolean(*expected),
            headers: headers
                .iter()
                .map(|header| header_matcher(&header.name, &header.value))
                .collect(),
            ..Default::default()
        }),
        RateEntry::ClientAddress => ActionSpecifier::RemoteAddress(action::RemoteAddress {}),
    };
    Action {
        action_specifier: Some(specifier),
    }
}
