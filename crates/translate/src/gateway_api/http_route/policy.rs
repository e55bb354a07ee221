//! Timeouts, retries and sessions of a rule.

use std::sync::Arc;
use std::time::Duration;

use sesame_api::{
    CookieLifetime, HttpRouteRetry, HttpRouteTimeouts, NamespacedName, SessionPersistence,
    SessionPersistenceType,
};
use sesame_model::{Retry, Session};

use crate::gateway_api::problem::FieldError;

/// Limits on time: for the whole request, and for each try.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Limits {
    pub(super) request: Option<Duration>,
    pub(super) each_try: Option<Duration>,
}

/// Reads GEP-1742's timeouts: `0s` means no limit, as does saying nothing.
///
/// # Errors
/// A try that may last longer than the request of which it is a part.
pub(super) fn timeouts(
    field: &str,
    timeouts: Option<&HttpRouteTimeouts>,
) -> Result<Limits, FieldError> {
    let Some(timeouts) = timeouts else {
        return Ok(Limits::default());
    };
    let limit = |duration: &sesame_api::Duration| (!duration.is_zero()).then(|| duration.as_std());
    let limits = Limits {
        request: timeouts.request.as_ref().and_then(limit),
        each_try: timeouts.backend_request.as_ref().and_then(limit),
    };
    if let (Some(request), Some(each_try)) = (limits.request, limits.each_try)
        && each_try > request
    {
        return Err(FieldError::new(
            format!("{field}.backendRequest"),
            "is longer than the timeout of the whole request; make it shorter, or the request's longer",
        ));
    }
    Ok(limits)
}

/// Reads GEP-1731's retries: no attempts means none, for failed connections too.
pub(super) fn retry(retry: Option<&HttpRouteRetry>) -> Option<Retry> {
    let retry = retry.filter(|retry| retry.attempts > 0)?;
    let mut codes = retry.codes.clone();
    codes.sort_unstable();
    codes.dedup();
    let backoff = retry.backoff.as_ref().filter(|backoff| !backoff.is_zero());
    Some(Retry {
        attempts: retry.attempts,
        codes,
        backoff: backoff.map(sesame_api::Duration::as_std),
    })
}

/// Reads GEP-1619's session persistence of the rule at `index` of a route.
///
/// # Errors
/// Combinations that mean nothing.
pub(super) fn session(
    field: &str,
    route: &NamespacedName,
    index: usize,
    persistence: Option<&SessionPersistence>,
) -> Result<Option<Arc<Session>>, FieldError> {
    let Some(persistence) = persistence else {
        return Ok(None);
    };
    let lifetime = persistence
        .absolute_timeout
        .as_ref()
        .filter(|timeout| !timeout.is_zero())
        .map(sesame_api::Duration::as_std);
    let session = match &persistence.type_ {
        SessionPersistenceType::Cookie => {
            let cookie = persistence.cookie.as_ref();
            let name = match cookie.and_then(|cookie| cookie.name.as_deref()) {
                Some(name) => name.to_owned(),
                // Two rules of one host must not share a cookie.
                None => format!("sesame-session-{}-{}-{index}", route.namespace, route.name),
            };
            let permanent =
                cookie.is_some_and(|cookie| cookie.lifetime_type == CookieLifetime::Permanent);
            match lifetime {
                None if permanent => {
                    return Err(FieldError::new(
                        format!("{field}.absoluteTimeout"),
                        "a permanent cookie needs a time after which it ends",
                    ));
                }
                Some(_) if !permanent => return Err(endless(field)),
                _ => {}
            }
            let path = cookie.map_or("/", |cookie| &*cookie.path);
            Session::Cookie {
                name,
                path: path.to_owned(),
                lifetime,
            }
        }
        SessionPersistenceType::Header => {
            let Some(header) = &persistence.header else {
                return Err(FieldError::new(
                    format!("{field}.header"),
                    "is missing, though type Header asks for it",
                ));
            };
            if lifetime.is_some() {
                return Err(endless(field));
            }
            Session::Header {
                name: header.name.to_string(),
            }
        }
        SessionPersistenceType::Other(other) => {
            return Err(FieldError::new(
                format!("{field}.type"),
                format!("unknown type {other:?}; known are Cookie and Header"),
            ));
        }
    };
    Ok(Some(Arc::new(session)))
}

/// A session that must end can't be served as one that never does.
fn endless(field: &str) -> FieldError {
    FieldError::new(
        format!("{field}.absoluteTimeout"),
        "only a cookie of lifetimeType Permanent can be made to end; use one, or remove the timeout",
    )
}
