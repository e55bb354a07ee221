//! Health checks of endpoints.

use std::sync::Arc;
use std::time::Duration;

use sesame_api::{HttpHealthCheckPolicy, TcpHealthCheckPolicy};
use sesame_model::{HealthCheck, HttpCheck};

use super::findings::{About, Findings};
use super::text::{PATH, is_authority, is_path};

/// The maximum interval and timeout of a health check, in seconds: one day.
const MAX_CHECK_SECONDS: i64 = 86_400;

/// Reads an HTTP health check.
pub(super) fn by_request(
    field: &str,
    policy: &HttpHealthCheckPolicy,
    findings: &mut Findings,
) -> HealthCheck {
    let field = format!("{field}.healthCheckPolicy");
    let mut path = Arc::clone(&policy.path);
    if !is_path(&path) {
        findings.refuse(About::HEALTH, &format!("{field}.path"), PATH);
        path = "/".into();
    }
    let mut host = policy.host.as_deref().unwrap_or_default();
    if !host.is_empty() && !is_authority(host) {
        let message = "expected a hostname, and optionally a port";
        findings.refuse(About::HEALTH, &format!("{field}.host"), message);
        host = "";
    }
    let mut statuses = Vec::new();
    for (index, range) in policy.expected_statuses.iter().enumerate() {
        match (u16::try_from(range.start), u16::try_from(range.end)) {
            (Ok(start), Ok(end)) if start >= 100 && start < end && end <= 600 => {
                statuses.push((start, end));
            }
            _ => {
                let field = format!("{field}.expectedStatuses[{index}]");
                let message = "start must be from 100 to 599, and end must be greater than start and at most 600";
                findings.refuse(About::HEALTH, &field, message);
            }
        }
    }
    HealthCheck {
        http: Some(HttpCheck {
            path,
            host: host.into(),
            statuses,
        }),
        ..health(
            &field,
            [
                policy.interval_seconds,
                policy.timeout_seconds,
                policy.unhealthy_threshold_count,
                policy.healthy_threshold_count,
            ],
            findings,
        )
    }
}

/// Reads a TCP health check.
pub(super) fn by_connection(
    field: &str,
    policy: &TcpHealthCheckPolicy,
    findings: &mut Findings,
) -> HealthCheck {
    let numbers = [
        policy.interval_seconds,
        policy.timeout_seconds,
        policy.unhealthy_threshold_count,
        policy.healthy_threshold_count,
    ];
    health(&format!("{field}.healthCheckPolicy"), numbers, findings)
}

/// Reads the settings that HTTP and TCP checks share. `numbers` are the interval, the timeout, and the unhealthy and
/// healthy thresholds; 0 means the default.
fn health(field: &str, numbers: [i64; 4], findings: &mut Findings) -> HealthCheck {
    let mut number = |part: &str, number: i64, default: u32, max: i64| match u32::try_from(number) {
        Ok(0) => default,
        Ok(valid) if number <= max => valid,
        _ => {
            let message = format!("{number} is not valid; use a number from 0 to {max}");
            findings.refuse(About::HEALTH, &format!("{field}.{part}"), message);
            default
        }
    };
    let [interval, timeout, unhealthy, healthy] = numbers;
    let max = i64::from(u32::MAX);
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    HealthCheck {
        http: None,
        interval: seconds(number("intervalSeconds", interval, 5, MAX_CHECK_SECONDS)),
        timeout: seconds(number("timeoutSeconds", timeout, 2, MAX_CHECK_SECONDS)),
        unhealthy: number("unhealthyThresholdCount", unhealthy, 3, max),
        healthy: number("healthyThresholdCount", healthy, 2, max),
        port: None,
    }
}
