//! Client address filters, and local rate limits.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use sesame_api::{IpFilter, IpFilterSource, LocalRateLimitPolicy, RateLimitUnit};
use sesame_model::{RateLimit, SourceFilter, SourceRange};

use super::findings::{About, Findings};
use super::text::check_value;
use crate::shared::headers::check_name;

/// The maximum number of headers that Envoy adds to a rate-limited response.
const MAX_RATE_HEADERS: usize = 10;

/// The valid statuses for rate-limited responses. With any other status, Envoy rejects the whole route table.
const RATE_STATUSES: [RangeInclusive<u16>; 7] = [
    400..=417,
    421..=424,
    426..=426,
    428..=429,
    431..=431,
    500..=508,
    510..=511,
];

/// Reads the address filter of a route or host; `None` if it has none.
pub(super) fn sources(
    field: &str,
    allow: &[IpFilter],
    deny: &[IpFilter],
    findings: &mut Findings,
) -> Option<SourceFilter> {
    if !allow.is_empty() && !deny.is_empty() {
        let message = "ipAllowPolicy and ipDenyPolicy are mutually exclusive; remove one of them";
        findings.refuse(About::SOURCES, field, message);
        return None;
    }
    let (part, filters) = match deny {
        [] => ("ipAllowPolicy", allow),
        deny => ("ipDenyPolicy", deny),
    };
    let mut ranges = Vec::new();
    for (index, filter) in filters.iter().enumerate() {
        let field = format!("{field}.{part}[{index}]");
        let peer = match &filter.source {
            IpFilterSource::Peer => true,
            IpFilterSource::Remote => false,
            other => {
                let message = format!("unknown source {:?}; use Peer or Remote", other.as_str());
                findings.refuse(About::SOURCES, &format!("{field}.source"), message);
                continue;
            }
        };
        match range(&filter.cidr) {
            Some((address, prefix)) => ranges.push(SourceRange {
                address,
                prefix,
                peer,
            }),
            None => {
                let message = format!(
                    "{:?} is not an address or a range such as 10.0.0.0/8",
                    filter.cidr
                );
                findings.refuse(About::SOURCES, &format!("{field}.cidr"), message);
            }
        }
    }
    (!ranges.is_empty()).then_some(SourceFilter {
        allow: deny.is_empty(),
        ranges,
    })
}

/// Parses a range into its address and prefix length.
fn range(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        None => bits,
        Some(prefix) if prefix.bytes().all(|byte| byte.is_ascii_digit()) => prefix.parse().ok()?,
        Some(_) => return None,
    };
    (prefix <= bits).then_some((address, prefix))
}

/// Reads the local rate limit of a route or host.
pub(super) fn rate(
    about: About,
    field: &str,
    policy: &LocalRateLimitPolicy,
    findings: &mut Findings,
) -> Option<RateLimit> {
    let field = format!("{field}.rateLimitPolicy.local");
    let before = findings.refusals();
    if policy.requests == 0 {
        let message = "expected at least 1";
        findings.refuse(about, &format!("{field}.requests"), message);
    }
    let seconds = match &policy.unit {
        RateLimitUnit::Second => 1,
        RateLimitUnit::Minute => 60,
        RateLimitUnit::Hour => 3_600,
        other => {
            let message = format!(
                "unknown unit {:?}; use second, minute or hour",
                other.as_str()
            );
            findings.refuse(about, &format!("{field}.unit"), message);
            1
        }
    };
    let status = policy.response_status_code.unwrap_or(429);
    let status = match u16::try_from(status) {
        Ok(status) if RATE_STATUSES.iter().any(|range| range.contains(&status)) => status,
        _ => {
            let message =
                format!("{status} is not valid; use a registered status such as 429 or 503");
            findings.refuse(about, &format!("{field}.responseStatusCode"), message);
            429
        }
    };
    let count = policy.response_headers_to_add.len();
    if count > MAX_RATE_HEADERS {
        let message = format!("at most {MAX_RATE_HEADERS} headers are allowed, found {count}");
        findings.refuse(about, &format!("{field}.responseHeadersToAdd"), message);
    }
    let mut response_headers = Vec::new();
    for (index, header) in policy.response_headers_to_add.iter().enumerate() {
        let field = format!("{field}.responseHeadersToAdd[{index}]");
        if let Err(error) = check_name(format!("{field}.name"), &header.name) {
            findings.refuse(about, &error.field, &error.message);
        }
        if let Err(message) = check_value(&header.value) {
            findings.refuse(about, &format!("{field}.value"), message);
        }
        response_headers.push((header.name.to_string(), header.value.to_string()));
    }
    let burst = findings.count(about, &format!("{field}.burst"), policy.burst);
    (findings.refusals() == before).then_some(RateLimit {
        requests: policy.requests,
        interval: Duration::from_secs(seconds),
        burst,
        status,
        response_headers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_addresses_with_or_without_a_prefix() {
        let v4 = |prefix| Some(("10.1.2.3".parse().expect("an address"), prefix));
        assert_eq!(range("10.1.2.3"), v4(32));
        assert_eq!(range("10.1.2.3/8"), v4(8));
        assert_eq!(range("10.1.2.3/0"), v4(0));
        assert_eq!(
            range("::1"),
            Some(("::1".parse().expect("an address"), 128))
        );
        for text in [
            "",
            "10.1.2.3/33",
            "::1/129",
            "10.1.2/8",
            "10.1.2.3/+8",
            "10.1.2.3/",
            "a/8",
        ] {
            assert_eq!(range(text), None, "{text}");
        }
    }
}
