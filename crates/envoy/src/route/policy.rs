//! Limits on requests: allowed client addresses, rates and required tokens.

use std::collections::HashMap;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::rbac::v3 as rbac;
use envoy_types::pb::envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit;
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3 as filter;
use envoy_types::pb::envoy::r#type::v3::{HttpStatus, TokenBucket};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use rbac::principal::Identifier;
use sesame_model::{Rate, RateLimit, RoutePolicy, SourceFilter, SourceRange};

use super::matching::everything;
use super::{global_rate, jwt};
use crate::{hcm, wire};

/// The configuration of the filters for a route.
pub(super) fn filters(policy: &RoutePolicy) -> impl Iterator<Item = (String, Any)> {
    let sources = policy.sources.as_ref();
    let sources = sources.map(|filter| (hcm::SOURCES.to_owned(), pack_any(self::sources(filter))));
    let rate = match &policy.rate {
        Some(Rate::Own(limit)) => Some((hcm::RATE.to_owned(), pack_any(self::rate(limit)))),
        Some(Rate::OfHost) | None => None,
    };
    let jwt = policy.jwt.as_deref();
    let jwt = jwt.map(|provider| (hcm::JWT_PROVIDER.to_owned(), jwt::of_route(provider)));
    let global = policy.global_rate.as_deref();
    let global = global.map(|rate| (hcm::GLOBAL_RATE.to_owned(), global_rate::of_route(rate)));
    sources.into_iter().chain(rate).chain(global).chain(jwt)
}

fn sources(filter: &SourceFilter) -> filter::RbacPerRoute {
    let any = rbac::Permission {
        rule: Some(rbac::permission::Rule::Any(true)),
    };
    let policy = rbac::Policy {
        permissions: vec![any],
        principals: filter.ranges.iter().map(principal).collect(),
        ..Default::default()
    };
    let action = match filter.allow {
        true => rbac::rbac::Action::Allow,
        false => rbac::rbac::Action::Deny,
    };
    filter::RbacPerRoute {
        rbac: Some(filter::Rbac {
            rules: Some(rbac::Rbac {
                action: action.into(),
                policies: HashMap::from([("sources".to_owned(), policy)]),
                ..Default::default()
            }),
            ..Default::default()
        }),
    }
}

fn principal(range: &SourceRange) -> rbac::Principal {
    let cidr = core::CidrRange {
        address_prefix: range.address.to_string(),
        prefix_len: wire::uint32(range.prefix.into()),
    };
    rbac::Principal {
        identifier: Some(match range.peer {
            true => Identifier::DirectRemoteIp(cidr),
            false => Identifier::RemoteIp(cidr),
        }),
    }
}

/// An unlimited rate: Envoy requires a bucket in a route's or host's configuration, but doesn't use it unless the
/// filter is enabled for a share of the requests.
pub(crate) fn no_rate() -> LocalRateLimit {
    LocalRateLimit {
        stat_prefix: "rate".to_owned(),
        token_bucket: Some(TokenBucket {
            max_tokens: 1,
            fill_interval: Some(wire::duration(Duration::from_secs(1))),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// A limit; all requests with this configuration share its bucket.
pub(super) fn rate(limit: &RateLimit) -> LocalRateLimit {
    let headers = limit.response_headers.iter();
    LocalRateLimit {
        status: Some(HttpStatus {
            code: i32::from(limit.status),
        }),
        token_bucket: Some(TokenBucket {
            max_tokens: limit.requests.saturating_add(limit.burst),
            tokens_per_fill: wire::uint32(limit.requests),
            fill_interval: Some(wire::duration(limit.interval)),
        }),
        filter_enabled: Some(everything()),
        filter_enforced: Some(everything()),
        response_headers_to_add: headers
            .map(|(name, value)| core::HeaderValueOption {
                header: Some(core::HeaderValue {
                    key: name.clone(),
                    value: value.replace('%', "%%"),
                    ..Default::default()
                }),
                ..Default::default()
            })
            .collect(),
        ..no_rate()
    }
}
