//! Statistics that Envoys keep.

use envoy_types::pb::envoy::config::metrics::v3 as metrics;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    ListStringMatcher, StringMatcher, string_matcher::MatchPattern,
};

/// The statistics to keep. Keeping all would double a cluster's memory, dominate the time to add a cluster, and
/// produce responses of tens of megabytes.
pub(super) fn kept() -> metrics::StatsMatcher {
    // The number of these statistics doesn't depend on the number of routes.
    let prefixes = [
        "cluster.xds.",
        "cluster_manager.",
        "control_plane.",
        "http.",
        "listener.",
        "listener_manager.",
        "overload.",
        "server.",
    ];
    // One of each per cluster.
    let suffixes = [
        ".membership_healthy",
        ".membership_total",
        ".upstream_cx_active",
        ".upstream_cx_connect_fail",
        ".upstream_cx_connect_timeout",
        ".upstream_cx_total",
        ".upstream_rq_1xx",
        ".upstream_rq_2xx",
        ".upstream_rq_3xx",
        ".upstream_rq_4xx",
        ".upstream_rq_5xx",
        ".upstream_rq_active",
        ".upstream_rq_per_try_timeout",
        ".upstream_rq_retry",
        ".upstream_rq_time",
        ".upstream_rq_timeout",
        ".upstream_rq_total",
    ];
    let prefixes = prefixes.map(|text| MatchPattern::Prefix(text.to_owned()));
    let suffixes = suffixes.map(|text| MatchPattern::Suffix(text.to_owned()));
    metrics::StatsMatcher {
        stats_matcher: Some(metrics::stats_matcher::StatsMatcher::InclusionList(
            ListStringMatcher {
                patterns: prefixes
                    .into_iter()
                    .chain(suffixes)
                    .map(|pattern| StringMatcher {
                        match_pattern: Some(pattern),
                        ..Default::default()
                    })
                    .collect(),
            },
        )),
    }
}
