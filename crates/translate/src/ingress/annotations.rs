//! The annotations of an Ingress, except its class and the namespace of its certificates.

use std::time::Duration;

use sesame_api::{Ingress, RetryOn};
use sesame_model::{Retry, TlsVersion, TlsVersions};

use crate::problem::Notices;
use crate::shared::durations::{self, Limit};
use crate::shared::service_annotations;

const NUM_RETRIES: &str = "projectsesame.io/num-retries";
const RETRY_ON: &str = "projectsesame.io/retry-on";
const PER_TRY_TIMEOUT: &str = "projectsesame.io/per-try-timeout";
const RESPONSE_TIMEOUT: &str = "projectsesame.io/response-timeout";
/// The old name of [`RESPONSE_TIMEOUT`].
const REQUEST_TIMEOUT: &str = "projectsesame.io/request-timeout";
const TLS_MIN: &str = "projectsesame.io/tls-minimum-protocol-version";
const TLS_MAX: &str = "projectsesame.io/tls-maximum-protocol-version";
pub(super) const FORCE_SSL_REDIRECT: &str = "ingress.kubernetes.io/force-ssl-redirect";
pub(super) const ALLOW_HTTP: &str = "kubernetes.io/ingress.allow-http";

/// The options for all routes of an Ingress.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RouteOptions {
    /// The timeout of the whole request; zero means no limit.
    pub(super) timeout: Option<Duration>,
    /// The timeout of each attempt.
    pub(super) try_timeout: Option<Duration>,
    pub(super) retry: Option<Retry>,
}

/// How requests without TLS are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlainHttp {
    /// Requests are served.
    Served,
    /// Requests are redirected to HTTPS.
    Redirected,
    /// Requests can't use the routes of this Ingress.
    Refused,
}

/// Reads how requests without TLS are handled.
pub(super) fn plain_http(ingress: &Ingress) -> PlainHttp {
    let is = |name, value| get(ingress, name) == Some(value);
    if is(FORCE_SSL_REDIRECT, "true") {
        PlainHttp::Redirected
    } else if is(ALLOW_HTTP, "false") {
        PlainHttp::Refused
    } else {
        PlainHttp::Served
    }
}

/// Reads the TLS versions; `None` for the default.
pub(super) fn versions(ingress: &Ingress, notices: &mut Notices) -> Option<TlsVersions> {
    let mut version = |name| match get(ingress, name)? {
        "1.2" => Some(TlsVersion::V1_2),
        "1.3" => Some(TlsVersion::V1_3),
        other => {
            let message = format!("{other:?} is not supported; use \"1.2\" or \"1.3\"");
            notices.warning(field(name), message);
            None
        }
    };
    let (min, max) = (version(TLS_MIN), version(TLS_MAX));
    if min.is_none() && max.is_none() {
        return None;
    }
    let min = min.unwrap_or(TlsVersion::V1_2);
    let max = max.unwrap_or(TlsVersion::V1_3);
    if max < min {
        let message = "is older than the minimum version, so it is ignored; remove it";
        notices.warning(field(TLS_MAX), message);
    }
    Some(TlsVersions {
        min,
        max: max.max(min),
    })
}

/// Warns of annotations for Services.
pub(super) fn misplaced(ingress: &Ingress, notices: &mut Notices) {
    for name in service_annotations::names() {
        if ingress.meta.annotations.contains_key(name) {
            let message = "has no effect on an Ingress; set it on its Services";
            notices.warning(field(name), message);
        }
    }
}

/// Reads timeouts and retries.
pub(super) fn route_options(ingress: &Ingress, notices: &mut Notices) -> RouteOptions {
    let mut limit = |name| match durations::read_limit(get(ingress, name)?) {
        Some(limit) => Some(limit),
        None => {
            let message = format!("is not a valid duration; {}", durations::EXPECTED);
            notices.warning(field(name), message);
            None
        }
    };
    let response = limit(RESPONSE_TIMEOUT).or_else(|| limit(REQUEST_TIMEOUT));
    let each_try = limit(PER_TRY_TIMEOUT);
    let retry = retry(ingress, notices);
    if retry.is_none() {
        for name in [NUM_RETRIES, PER_TRY_TIMEOUT] {
            if get(ingress, name).is_some_and(|text| text != "-1") {
                let message = format!("has no effect without the {RETRY_ON} annotation");
                notices.warning(field(name), message);
            }
        }
    }
    RouteOptions {
        timeout: match response {
            Some(Limit::After(duration)) => Some(duration),
            Some(Limit::Infinite) => Some(Duration::ZERO),
            Some(Limit::Default) | None => None,
        },
        try_timeout: match each_try {
            Some(Limit::After(duration)) if retry.is_some() => Some(duration),
            _ => None,
        },
        retry,
    }
}

fn retry(ingress: &Ingress, notices: &mut Notices) -> Option<Retry> {
    let list = get(ingress, RETRY_ON)?;
    let mut on = Vec::new();
    for name in list.split(',').map(str::trim) {
        match name {
            "" => {}
            name if RetryOn::KNOWN.contains(&name) => on.push(name.to_owned()),
            unknown => {
                let known = RetryOn::KNOWN.join(", ");
                let message = format!("unknown condition {unknown:?} is ignored; use {known}");
                notices.warning(field(RETRY_ON), message);
            }
        }
    }
    on.sort();
    on.dedup();
    let attempts = match get(ingress, NUM_RETRIES).map(str::parse::<i64>) {
        None | Some(Ok(0)) => 1,
        Some(Ok(-1)) => return None,
        Some(Ok(number)) if u32::try_from(number).is_ok() => u32::try_from(number).unwrap_or(1),
        Some(_) => {
            let message = "expected a number of retries, or -1 for none; using 1 retry";
            notices.warning(field(NUM_RETRIES), message);
            1
        }
    };
    // With an empty list, the default conditions would apply.
    (!on.is_empty()).then_some(Retry {
        attempts,
        on,
        codes: Vec::new(),
        backoff: None,
    })
}

/// The value of an annotation, if it isn't empty.
fn get<'a>(ingress: &'a Ingress, name: &str) -> Option<&'a str> {
    let text = ingress.meta.annotations.get(name)?.trim();
    (!text.is_empty()).then_some(text)
}

/// The field path of an annotation.
pub(super) fn field(name: &str) -> String {
    format!("metadata.annotations[{name}]")
}

#[cfg(test)]
mod tests;
