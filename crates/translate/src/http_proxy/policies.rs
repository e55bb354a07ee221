//! Timeouts and retries for a route, and slow start.

use std::sync::Arc;
use std::time::Duration;

use sesame_api::{RetryPolicy, SlowStartPolicy, TimeoutPolicy};
use sesame_model::{Balancing, ConnectionSettings, Retry, SlowStart};

use super::findings::{About, Findings};
use crate::shared::durations::{self, EXPECTED, Limit};

/// The default response timeout.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// The default for `retryOn`.
const DEFAULT_RETRY: &str = "5xx";

/// The `retryOn` value that makes `retriableStatusCodes` apply.
const BY_STATUS: &str = "retriable-status-codes";

/// The timeouts of a route; zero means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeouts {
    pub(super) response: Duration,
    /// `None` for the default.
    pub(super) idle: Option<Duration>,
    /// `None` for the default.
    pub(super) idle_connection: Option<Duration>,
}

/// Reads the timeouts of a route.
pub(super) fn timeouts(
    field: &str,
    policy: Option<&TimeoutPolicy>,
    findings: &mut Findings,
) -> Timeouts {
    let mut limit = |part: &str, text: Option<&String>| {
        let field = format!("{field}.timeoutPolicy.{part}");
        self::limit(About::TIMEOUT, &field, text, findings)
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

/// Reads a timeout: zero means no limit, `None` means the default.
pub(super) fn limit(
    about: About,
    field: &str,
    text: Option<&String>,
    findings: &mut Findings,
) -> Option<Duration> {
    let text = text.map_or("", String::as_str);
    match durations::read_limit(text) {
        Some(Limit::Default) => None,
        Some(Limit::Infinite) => Some(Duration::ZERO),
        Some(Limit::After(duration)) => Some(duration),
        None => {
            let message = format!("{text:?} is not a duration; {EXPECTED}");
            findings.refuse(about, field, message);
            None
        }
    }
}

/// Reads a retry policy: the retries, if any, and the timeout of each attempt.
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

/// Reads the slow start settings for a Service's endpoints.
pub(super) fn slow_start(
    field: &str,
    policy: &SlowStartPolicy,
    balancing: Option<Balancing>,
    findings: &mut Findings,
) -> Option<SlowStart> {
    let field = format!("{field}.slowStartPolicy");
    let before = findings.refusals();
    if matches!(balancing, Some(Balancing::Random | Balancing::Hash)) {
        let message = "needs the RoundRobin or WeightedLeastRequest strategy; remove this field or change the strategy";
        findings.refuse(About::SLOW_START, &field, message);
    }
    let window = durations::read(&policy.window).filter(|window| !window.is_zero());
    if window.is_none() {
        let message = format!("{:?} is not a duration; use one such as 30s", policy.window);
        findings.refuse(About::SLOW_START, &format!("{field}.window"), message);
    }
    // Converted to thousandths below, with a minimum of one.
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
