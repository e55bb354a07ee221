//! Timeouts, retries, load balancing and health checks of a route.

use std::sync::Arc;
use std::time::Duration;

use sesame_api::{
    HttpHealthCheckPolicy, LoadBalancerPolicy, LoadBalancerStrategy, RequestHashPolicy,
    RetryPolicy, SlowStartPolicy, TcpHealthCheckPolicy, TimeoutPolicy,
};
use sesame_model::{
    Balancing, ConnectionSettings, HashOf, HashPolicy, HealthCheck, HttpCheck, Retry, SlowStart,
};

use super::findings::{About, Findings};
use super::text::{PATH, is_authority, is_path, is_token};
use crate::shared::durations::{self, EXPECTED, Limit};

/// The cookie of the strategy `Cookie`.
const AFFINITY_COOKIE: &str = "X-Sesame-Session-Affinity";

/// The time limit of a response without a policy.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// The longest interval and timeout of health checks, in seconds: a day.
const MAX_CHECK_SECONDS: i64 = 86_400;

/// The result of a retry policy without `retryOn`.
const DEFAULT_RETRY: &str = "5xx";

/// The result that makes `retriableStatusCodes` apply.
const BY_STATUS: &str = "retriable-status-codes";

/// The time limits of a route; zero stands for none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeouts {
    pub(super) response: Duration,
    /// `None` for the default.
    pub(super) idle: Option<Duration>,
    /// `None` for the default.
    pub(super) idle_connection: Option<Duration>,
}

/// Reads the time limits of a route.
pub(super) fn timeouts(
    field: &str,
    policy: Option<&TimeoutPolicy>,
    findings: &mut Findings,
) -> Timeouts {
    let mut limit = |part: &str, text: Option<&String>| {
        let text = text.map_or("", String::as_str);
        match durations::read_limit(text) {
            Some(Limit::Default) => None,
            Some(Limit::Infinite) => Some(Duration::ZERO),
            Some(Limit::After(duration)) => Some(duration),
            None => {
                let field = format!("{field}.timeoutPolicy.{part}");
                let message = format!("{text:?} is not a duration; {EXPECTED}");
                findings.refuse(About::TIMEOUT, &field, message);
                None
            }
        }
    };
    let response = limit(
        "response",
        policy.and_then(|policy| policy.response.as_ref()),
    );
    Timeouts {
        response: response.unwrap_or(RESPONSE_TIMEOUT),
        idle: limit("idle", policy.and_then(|policy| policy.idle.as_ref())),
        idle_connection: limit(
            "idleConnection",
            policy.and_then(|policy| policy.idle_connection.as_ref()),
        ),
    }
}

/// Reads a retry policy: the retries, if any, and the time limit of each attempt.
pub(super) fn retry(
    field: &str,
    policy: Option<&RetryPolicy>,
    findings: &mut Findings,
) -> (Option<Retry>, Option<Duration>) {
    let Some(policy) = policy else {
        return (None, None);
    };
    let field = format!("{field}.retryPolicy");
    let try_timeout = policy.per_try_timeout.as_deref().unwrap_or_default();
    let try_timeout = match durations::read_limit(try_timeout) {
        Some(Limit::After(duration)) => Some(duration),
        Some(Limit::Default | Limit::Infinite) => None,
        None => {
            let message = format!("{try_timeout:?} is not a duration; {EXPECTED}");
            findings.refuse(About::RETRY, &format!("{field}.perTryTimeout"), message);
            None
        }
    };
    let attempts = match policy.count {
        -1 => 0,
        0 => 1,
        count => u32::try_from(count).unwrap_or_else(|_| {
            let message =
                format!("{count} is not valid; use -1 for no retries, or a positive number");
            findings.refuse(About::RETRY, &format!("{field}.count"), message);
            0
        }),
    };
    let mut on: Vec<String> = Vec::new();
    for (index, result) in policy.retry_on.iter().enumerate() {
        let text = result.as_str();
        if !sesame_api::RetryOn::KNOWN.contains(&text) {
            let message =
                format!("unknown result {text:?}; use one of Envoy's, such as {DEFAULT_RETRY}");
            findings.refuse(About::RETRY, &format!("{field}.retryOn[{index}]"), message);
        }
        on.push(text.to_owned());
    }
    if on.is_empty() {
        on.push(DEFAULT_RETRY.to_owned());
    }
    on.sort();
    on.dedup();
    let mut codes = Vec::new();
    for (index, &code) in policy.retriable_status_codes.iter().enumerate() {
        match u16::try_from(code) {
            Ok(code @ 100..600) => codes.push(code),
            _ => {
                let field = format!("{field}.retriableStatusCodes[{index}]");
                let message = format!("{code} is not a status code; use one from 100 to 599");
                findings.refuse(About::RETRY, &field, message);
            }
        }
    }
    codes.sort_unstable();
    codes.dedup();
    if !codes.is_empty() && !on.iter().any(|on| on == BY_STATUS) {
        let message = format!("has no effect unless retryOn contains {BY_STATUS}");
        findings.warn(
            About::RETRY,
            &format!("{field}.retriableStatusCodes"),
            message,
        );
        codes.clear();
    }
    let retry = (attempts > 0).then_some(Retry {
        attempts,
        on,
        codes,
        backoff: None,
    });
    (retry, try_timeout)
}

/// How an endpoint is selected.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Selection {
    /// `None` for the default.
    pub(super) balancing: Option<Balancing>,
    /// What selects the endpoint, with [`Balancing::Hash`].
    pub(super) hash: Vec<HashPolicy>,
}

/// Reads how requests are distributed.
pub(super) fn balancing(
    field: &str,
    policy: Option<&LoadBalancerPolicy>,
    findings: &mut Findings,
) -> Selection {
    let Some(policy) = policy else {
        return Selection::default();
    };
    let field = format!("{field}.loadBalancerPolicy");
    let hash = match &policy.strategy {
        Some(LoadBalancerStrategy::Cookie) => vec![HashPolicy {
            of: HashOf::Cookie {
                name: AFFINITY_COOKIE.to_owned(),
                path: "/".to_owned(),
            },
            terminal: false,
        }],
        Some(LoadBalancerStrategy::RequestHash) => {
            let hash = hash(&field, &policy.request_hash_policies, findings);
            if hash.is_empty() {
                let message = "has no valid entry in requestHashPolicies; RoundRobin applies";
                findings.warn(About::BALANCING, &format!("{field}.strategy"), message);
                return only(Balancing::RoundRobin);
            }
            hash
        }
        other => return only_simple(&field, About::BALANCING, other.as_ref(), findings),
    };
    Selection {
        balancing: Some(Balancing::Hash),
        hash,
    }
}

/// Reads how connections are distributed: nothing of them can be hashed.
pub(super) fn balancing_of_connections(
    field: &str,
    policy: Option<&LoadBalancerPolicy>,
    findings: &mut Findings,
) -> Selection {
    let field = format!("{field}.loadBalancerPolicy");
    match policy.map(|policy| &policy.strategy) {
        None => Selection::default(),
        Some(Some(
            strategy @ (LoadBalancerStrategy::Cookie | LoadBalancerStrategy::RequestHash),
        )) => {
            let message = format!(
                "{} reads requests, which a tcpproxy doesn't; RoundRobin applies",
                strategy.as_str()
            );
            findings.warn(About::TCP_BALANCING, &format!("{field}.strategy"), message);
            only(Balancing::RoundRobin)
        }
        Some(strategy) => only_simple(&field, About::TCP_BALANCING, strategy.as_ref(), findings),
    }
}

fn only(balancing: Balancing) -> Selection {
    Selection {
        balancing: Some(balancing),
        hash: Vec::new(),
    }
}

fn only_simple(
    field: &str,
    about: About,
    strategy: Option<&LoadBalancerStrategy>,
    findings: &mut Findings,
) -> Selection {
    match strategy {
        None => Selection::default(),
        Some(LoadBalancerStrategy::RoundRobin) => only(Balancing::RoundRobin),
        Some(LoadBalancerStrategy::WeightedLeastRequest) => only(Balancing::LeastRequest),
        Some(LoadBalancerStrategy::Random) => only(Balancing::Random),
        Some(other) => {
            let message = format!(
                "unknown strategy {:?}; RoundRobin applies. Use one of {}",
                other.as_str(),
                LoadBalancerStrategy::KNOWN.join(", ")
            );
            findings.warn(about, &format!("{field}.strategy"), message);
            only(Balancing::RoundRobin)
        }
    }
}

fn hash(field: &str, policies: &[RequestHashPolicy], findings: &mut Findings) -> Vec<HashPolicy> {
    let mut hash: Vec<HashPolicy> = Vec::new();
    for (index, policy) in policies.iter().enumerate() {
        let field = format!("{field}.requestHashPolicies[{index}]");
        match part(policy) {
            Ok(of) if hash.iter().any(|other| other.of == of) => {
                let message = "repeats an earlier entry; it is ignored";
                findings.warn(About::BALANCING, &field, message);
            }
            Ok(of) => hash.push(HashPolicy {
                of,
                terminal: policy.terminal,
            }),
            Err(message) => findings.warn(About::BALANCING, &field, message),
        }
    }
    hash
}

fn part(policy: &RequestHashPolicy) -> Result<HashOf, &'static str> {
    match (
        &policy.header_hash_options,
        &policy.query_parameter_hash_options,
        policy.hash_source_ip,
    ) {
        (Some(header), None, false) if is_token(&header.header_name) => {
            Ok(HashOf::Header(header.header_name.to_string()))
        }
        (Some(_), None, false) => {
            Err("headerHashOptions.headerName is not the name of a header; the entry is ignored")
        }
        (None, Some(query), false) if !query.parameter_name.is_empty() => {
            Ok(HashOf::Query(query.parameter_name.to_string()))
        }
        (None, Some(_), false) => {
            Err("queryParameterHashOptions.parameterName is empty; the entry is ignored")
        }
        (None, None, true) => Ok(HashOf::Source),
        _ => Err(
            "needs exactly one of headerHashOptions, queryParameterHashOptions and hashSourceIP; it is ignored",
        ),
    }
}

/// Reads a health check with requests.
pub(super) fn http_health(
    field: &str,
    policy: &HttpHealthCheckPolicy,
    findings: &mut Findings,
) -> HealthCheck {
    let field = format!("{field}.healthCheckPolicy");
    if !is_path(&policy.path) {
        findings.refuse(About::HEALTH, &format!("{field}.path"), PATH);
    }
    let host = policy.host.as_deref().unwrap_or_default();
    if !host.is_empty() && !is_authority(host) {
        let message = format!("{host:?} is not a valid host");
        findings.refuse(About::HEALTH, &format!("{field}.host"), message);
    }
    let mut statuses = Vec::new();
    for (index, range) in policy.expected_statuses.iter().enumerate() {
        match (u16::try_from(range.start), u16::try_from(range.end)) {
            (Ok(start), Ok(end)) if start >= 100 && start < end && end <= 600 => {
                statuses.push((start, end));
            }
            _ => {
                let field = format!("{field}.expectedStatuses[{index}]");
                let message = "expected a start from 100 to 599 and a larger end of at most 600";
                findings.refuse(About::HEALTH, &field, message);
            }
        }
    }
    HealthCheck {
        http: Some(HttpCheck {
            path: Arc::clone(&policy.path),
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

/// Reads a health check with connections.
pub(super) fn tcp_health(
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

/// The numbers are the interval, the timeout, and the thresholds of unhealthy and healthy endpoints; 0 for the default.
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

/// Reads the slow start of a Service's endpoints.
pub(super) fn slow_start(
    field: &str,
    policy: &SlowStartPolicy,
    balancing: Option<Balancing>,
    findings: &mut Findings,
) -> Option<SlowStart> {
    let field = format!("{field}.slowStartPolicy");
    let before = findings.refusals();
    if matches!(balancing, Some(Balancing::Random | Balancing::Hash)) {
        let message = "needs the strategy RoundRobin or WeightedLeastRequest; remove it or change the strategy";
        findings.refuse(About::SLOW_START, &field, message);
    }
    let window = durations::read(&policy.window).filter(|window| !window.is_zero());
    if window.is_none() {
        let message = format!("{:?} is not a duration; use one such as 30s", policy.window);
        findings.refuse(About::SLOW_START, &format!("{field}.window"), message);
    }
    // In thousandths, of which even the smallest number has one.
    let aggression: Option<f64> = policy.aggression.parse().ok();
    let aggression = aggression.filter(|number| *number > 0.0 && *number <= 1_000_000.0);
    if aggression.is_none() {
        let message = format!(
            "{:?} is not a positive number such as 1.0",
            policy.aggression
        );
        findings.refuse(About::SLOW_START, &format!("{field}.aggression"), message);
    }
    if policy.min_weight_percent > 100 {
        let message = "expected a number from 0 to 100";
        findings.refuse(
            About::SLOW_START,
            &format!("{field}.minWeightPercent"),
            message,
        );
    }
    if findings.refusals() > before {
        return None;
    }
    Some(SlowStart {
        window: window?,
        aggression: ((aggression? * 1_000.0).round() as u32).max(1),
        min_percent: policy.min_weight_percent,
    })
}

/// Connection settings, unless they are the default.
pub(super) fn unless_default(settings: ConnectionSettings) -> Option<Arc<ConnectionSettings>> {
    (settings != ConnectionSettings::default()).then(|| Arc::new(settings))
}
