//! Forwarding to backends.

use std::iter;
use std::time::Duration;

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{HeaderMutation, header_mutation};
use envoy_types::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::config::route::v3 as pb;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::{
    ClusterNotFoundResponseCode, ClusterSpecifier, HostRewriteSpecifier, RequestMirrorPolicy,
};
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::cluster_weight;
use envoy_types::pb::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use envoy_types::util::pack_any;
use sesame_model::{CookieChange, Forward, PathMatch, Retry, Target, WeightedTarget};

use super::cookies;
use super::headers::changes;
use super::matching::share;
use super::options;
use super::rewrite::{Rewrite, rewrite};
use super::session::session;
use super::virtual_host::respond;
use crate::{hcm, names, wire};

/// The maximum number of retries of a request.
const MAX_RETRIES: u32 = 100;
/// How often the load balancer tries to pick an endpoint that has not been tried yet.
const OTHER_HOST_ATTEMPTS: i64 = 5;

/// The route action.
pub(super) fn forward(forward: &Forward, matched: &PathMatch) -> Action {
    let options = forward.options.as_deref();
    let cookies = options.map_or(&[][..], |options| &options.cookies);
    let cookies = cookies.iter().map(|changes| &**changes);
    let targets: Vec<_> = forward
        .targets
        .iter()
        .zip(cookies.chain(iter::repeat(&[][..])))
        .filter(|(target, _)| target.weight > 0)
        .collect();
    let refused = targets
        .iter()
        .filter(|(target, _)| target.target == Target::Refused)
        .count();
    if refused == targets.len() {
        return respond(forward.refused_status);
    }
    let mut action = pb::RouteAction {
        cluster_specifier: Some(cluster_specifier(&targets)),
        host_rewrite_specifier: forward
            .host_rewrite
            .as_deref()
            .map(|host| HostRewriteSpecifier::HostRewriteLiteral(host.to_owned())),
        // Explicit even without a timeout: Envoy's default is 15 s.
        timeout: Some(wire::duration(forward.timeout.unwrap_or_default())),
        idle_timeout: idle_timeout(forward).map(wire::duration),
        retry_policy: retry_policy(forward),
        request_mirror_policies: mirrors(forward),
        ..Default::default()
    };
    if let Some(options) = &forward.options {
        options::apply(options, &mut action);
    }
    if refused > 0 && forward.refused_status == 500 {
        action.cluster_not_found_response_code =
            ClusterNotFoundResponseCode::InternalServerError.into();
    }
    let path = forward
        .path_rewrite
        .as_ref()
        .and_then(|change| rewrite(matched, change));
    match path {
        Some(Rewrite::Matched(replacement)) => action.prefix_rewrite = replacement,
        Some(Rewrite::Regex {
            pattern,
            substitution,
        }) => action.regex_rewrite = Some(Rewrite::message(&pattern, substitution)),
        None => {}
    }
    Action::Route(action)
}

/// A target, and the changes to the cookies that it sets.
type TargetOf<'a> = (&'a WeightedTarget, &'a [CookieChange]);

fn cluster_specifier(targets: &[TargetOf<'_>]) -> ClusterSpecifier {
    if let [(only, [])] = targets
        && only.request_headers.is_empty()
        && only.response_headers.is_empty()
        && only.host_rewrite.is_none()
        && only.session.is_none()
    {
        return ClusterSpecifier::Cluster(cluster_name(only));
    }
    let weights = weights(targets);
    ClusterSpecifier::WeightedClusters(pb::WeightedCluster {
        clusters: targets
            .iter()
            .zip(weights)
            .map(|(target, weight)| weighted(*target, weight))
            .collect(),
        ..Default::default()
    })
}

/// The weights, scaled down if their sum exceeds Envoy's limit.
fn weights(targets: &[TargetOf<'_>]) -> Vec<u32> {
    let targets = || targets.iter().map(|(target, _)| u64::from(target.weight));
    let sum: u64 = targets().sum();
    // Uses twice the required divisor, since small weights are rounded up to 1.
    let divisor = sum.div_ceil(u64::from(u32::MAX));
    let divisor = if divisor > 1 { divisor * 2 } else { 1 };
    targets()
        .map(|weight| (weight / divisor).max(1) as u32)
        .collect()
}

fn weighted((target, cookies): TargetOf<'_>, weight: u32) -> ClusterWeight {
    let sessions = target.session.iter();
    let sessions = sessions.map(|rules| (hcm::STATEFUL_SESSION.to_owned(), session(rules)));
    let cookies = (!cookies.is_empty())
        .then(|| (hcm::COOKIE_CHANGES.to_owned(), cookies::of_target(cookies)));
    let request = changes(&target.request_headers);
    let response = changes(&target.response_headers);
    ClusterWeight {
        name: cluster_name(target),
        weight: wire::uint32(weight),
        request_headers_to_add: request.add,
        request_headers_to_remove: request.remove,
        response_headers_to_add: response.add,
        response_headers_to_remove: response.remove,
        host_rewrite_specifier: target
            .host_rewrite
            .as_deref()
            .map(|host| cluster_weight::HostRewriteSpecifier::HostRewriteLiteral(host.to_owned())),
        typed_per_filter_config: sessions.chain(cookies).collect(),
        ..Default::default()
    }
}

fn cluster_name(target: &WeightedTarget) -> String {
    match &target.target {
        Target::Cluster(key) => names::cluster(key),
        Target::Refused => names::REFUSED.to_owned(),
    }
}

/// Overrides the connection manager's idle timeout if it could end a stream before the route's limits allow.
fn idle_timeout(forward: &Forward) -> Option<Duration> {
    match forward.timeout {
        Some(Duration::ZERO) => Some(Duration::ZERO),
        request => request
            .max(forward.try_timeout)
            .filter(|longest| *longest > hcm::STREAM_IDLE),
    }
}

/// The per-try timeout is part of Envoy's retry policy, even without retries; a policy without `retry_on` never
/// retries.
fn retry_policy(forward: &Forward) -> Option<pb::RetryPolicy> {
    let per_try_timeout = forward.try_timeout.map(wire::duration);
    match &forward.retry {
        Some(retry) if retry.attempts > 0 => Some(pb::RetryPolicy {
            per_try_timeout,
            ..retries(retry)
        }),
        _ => per_try_timeout.map(|_| pb::RetryPolicy {
            per_try_timeout,
            ..Default::default()
        }),
    }
}

/// Retries the listed statuses and failures. If no failures are listed, retries those after which the backend can't
/// have processed the request.
fn retries(retry: &Retry) -> pb::RetryPolicy {
    let mut retry_on = match &retry.on[..] {
        [] => "connect-failure,refused-stream,reset-before-request".to_owned(),
        on => on.join(","),
    };
    if !retry.codes.is_empty() && !retry.on.iter().any(|on| on == "retriable-status-codes") {
        retry_on.push_str(",retriable-status-codes");
    }
    pb::RetryPolicy {
        retry_on,
        num_retries: wire::uint32(retry.attempts.min(MAX_RETRIES)),
        retriable_status_codes: retry.codes.iter().map(|code| u32::from(*code)).collect(),
        // The maximum defaults to ten times the base. Envoy rejects intervals below 1 ms.
        retry_back_off: retry.backoff.map(|base| pb::retry_policy::RetryBackOff {
            base_interval: Some(wire::duration(base.max(Duration::from_millis(1)))),
            ..Default::default()
        }),
        retry_host_predicate: vec![pb::retry_policy::RetryHostPredicate {
            name: "envoy.retry_host_predicates.previous_hosts".to_owned(),
            config_type: Some(
                pb::retry_policy::retry_host_predicate::ConfigType::TypedConfig(pack_any(
                    PreviousHostsPredicate {},
                )),
            ),
        }],
        host_selection_retry_max_attempts: OTHER_HOST_ATTEMPTS,
        ..Default::default()
    }
}

/// Counts a mirrored request as one more pass of an Envoy of Sesame. If a rule leads back to itself, its mirrors multiply the
/// requests with each pass.
fn passed() -> HeaderMutation {
    let header = HeaderValue {
        key: "cdn-loop".to_owned(),
        value: hcm::CDN.to_owned(),
        ..Default::default()
    };
    let append = HeaderValueOption {
        header: Some(header),
        append_action: HeaderAppendAction::AppendIfExistsOrAdd.into(),
        ..Default::default()
    };
    HeaderMutation {
        action: Some(header_mutation::Action::Append(append)),
    }
}

fn mirrors(forward: &Forward) -> Vec<RequestMirrorPolicy> {
    forward
        .mirrors
        .iter()
        .filter(|mirror| mirror.share.is_none_or(|share| share.0 > 0))
        .map(|mirror| RequestMirrorPolicy {
            cluster: names::cluster(&mirror.cluster),
            runtime_fraction: mirror.share.and_then(share),
            // By default, Envoy appends `-shadow` to the copy's Host header.
            disable_shadow_host_suffix_append: true,
            request_headers_mutations: vec![passed()],
            ..Default::default()
        })
        .collect()
}
