//! Timeouts and retries of a rule.

use std::time::Duration;

use sesame_api::{HttpRouteRetry, HttpRouteTimeouts};
use sesame_model::Retry;

use crate::gateway_api::route::rules::Limits;
use crate::problem::FieldError;

/// Reads timeouts and retries.
///
/// # Errors
/// If the per-try timeout exceeds the request timeout.
pub(super) fn read(
    field: &str,
    limits: Option<&HttpRouteTimeouts>,
    retries: Option<&HttpRouteRetry>,
) -> Result<Limits, FieldError> {
    let (request, each_try) = timeouts(&format!("{field}.timeouts"), limits)?;
    Ok(Limits {
        request,
        each_try,
        retry: retry(retries),
    })
}

/// The timeouts for the request and for each try (GEP-1742); `0s` means no timeout. A zero request timeout is kept,
/// since it also disables implicit limits.
fn timeouts(
    field: &str,
    timeouts: Option<&HttpRouteTimeouts>,
) -> Result<(Option<Duration>, Option<Duration>), FieldError> {
    let Some(timeouts) = timeouts else {
        return Ok((None, None));
    };
    let request = timeouts.request.as_ref().map(sesame_api::Duration::as_std);
    let each_try = timeouts.backend_request.as_ref();
    let each_try = each_try
        .map(sesame_api::Duration::as_std)
        .filter(|each_try| !each_try.is_zero());
    if let (Some(request), Some(each_try)) = (request, each_try)
        && !request.is_zero()
        && each_try > request
    {
        return Err(FieldError::new(
            format!("{field}.backendRequest"),
            "must not be longer than timeouts.request; shorten it, or lengthen timeouts.request",
        ));
    }
    Ok((request, each_try))
}

/// Retries (GEP-1731); 0 attempts disables retries, even for failed connections.
fn retry(retry: Option<&HttpRouteRetry>) -> Option<Retry> {
    let retry = retry.filter(|retry| retry.attempts > 0)?;
    let mut codes = retry.codes.clone();
    codes.sort_unstable();
    codes.dedup();
    let backoff = retry.backoff.as_ref().filter(|backoff| !backoff.is_zero());
    Some(Retry {
        attempts: retry.attempts,
        on: Vec::new(),
        codes,
        backoff: backoff.map(sesame_api::Duration::as_std),
    })
}
