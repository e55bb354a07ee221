//! Load balancing and health checks.

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3 as pb;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::core::v3::health_check::{
    HealthChecker, HttpHealthCheck, TcpHealthCheck,
};
use envoy_types::pb::envoy::r#type::v3::{CodecClientType, Int64Range, Percent};
use sesame_model::{
    Balancing, ClusterKey, ConnectionSettings, HealthCheck, HttpCheck, Protocol, SlowStart,
};

use crate::{names, wire};

/// Applies settings to a cluster.
pub(super) fn apply(
    settings: &ConnectionSettings,
    key: &ClusterKey,
    protocol: Protocol,
    out: &mut pb::Cluster,
) {
    use pb::cluster::LbPolicy;
    out.lb_policy = match settings.balancing {
        Some(Balancing::RoundRobin) => LbPolicy::RoundRobin,
        Some(Balancing::Random) => LbPolicy::Random,
        Some(Balancing::Hash) => LbPolicy::RingHash,
        Some(Balancing::LeastRequest) | None => LbPolicy::LeastRequest,
    }
    .into();
    let checks = settings.health.iter();
    out.health_checks = checks.map(|check| health(check, key, protocol)).collect();
    out.lb_config = settings
        .slow_start
        .as_ref()
        .and_then(|slow| slow_start(settings.balancing, slow));
}

fn slow_start(balancing: Option<Balancing>, slow: &SlowStart) -> Option<pb::cluster::LbConfig> {
    use pb::cluster::{LbConfig, LeastRequestLbConfig, RoundRobinLbConfig, SlowStartConfig};
    let config = Some(SlowStartConfig {
        slow_start_window: Some(wire::duration(slow.window)),
        aggression: Some(core::RuntimeDouble {
            default_value: f64::from(slow.aggression) / 1_000.0,
            // Envoy requires a key.
            runtime_key: "sesame.slow_start.aggression".to_owned(),
        }),
        min_weight_percent: Some(Percent {
            value: slow.min_percent.into(),
        }),
    });
    Some(match balancing {
        Some(Balancing::LeastRequest) | None => {
            LbConfig::LeastRequestLbConfig(LeastRequestLbConfig {
                slow_start_config: config,
                ..Default::default()
            })
        }
        Some(Balancing::RoundRobin) => LbConfig::RoundRobinLbConfig(RoundRobinLbConfig {
            slow_start_config: config,
        }),
        Some(Balancing::Random | Balancing::Hash) => return None,
    })
}

fn health(check: &HealthCheck, key: &ClusterKey, protocol: Protocol) -> core::HealthCheck {
    let at_least = |duration: Duration| wire::duration(duration.max(Duration::from_millis(1)));
    core::HealthCheck {
        timeout: Some(at_least(check.timeout)),
        interval: Some(at_least(check.interval)),
        unhealthy_threshold: wire::uint32(check.unhealthy),
        healthy_threshold: wire::uint32(check.healthy),
        health_checker: Some(match &check.http {
            Some(http) => HealthChecker::HttpHealthCheck(request(http, key, protocol)),
            None => HealthChecker::TcpHealthCheck(TcpHealthCheck::default()),
        }),
        ..Default::default()
    }
}

fn request(check: &HttpCheck, key: &ClusterKey, protocol: Protocol) -> HttpHealthCheck {
    let client = match protocol {
        Protocol::Http2 => CodecClientType::Http2,
        _ => CodecClientType::Http1,
    };
    HttpHealthCheck {
        host: match check.host.is_empty() {
            true => names::authority(key),
            false => check.host.to_string(),
        },
        path: check.path.to_string(),
        expected_statuses: check
            .statuses
            .iter()
            .map(|&(start, end)| Int64Range {
                start: start.into(),
                end: end.into(),
            })
            .collect(),
        codec_client_type: client.into(),
        ..Default::default()
    }
}
