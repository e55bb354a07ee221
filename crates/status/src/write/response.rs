//! Classifies the API server's responses.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;
use sesame_api::LiveStatus;

use crate::failure::FailureReason;
use crate::queue::WriteFailure;

/// A classified response.
#[derive(Debug)]
pub(super) enum Response {
    /// The live object.
    Object(LiveStatus),
    /// The request's resource version is outdated.
    Conflict,
    /// The object doesn't exist.
    NotFound,
    /// Any other error.
    Failed(WriteFailure),
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    status: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: Box<str>,
    resource_version: Box<str>,
    #[serde(default)]
    generation: i64,
}

pub(super) fn read(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> Response {
    if code.is_success() {
        return match serde_json::from_slice::<Object>(body) {
            Ok(object) => Response::Object(LiveStatus {
                uid: object.metadata.uid,
                resource_version: object.metadata.resource_version,
                generation: object.metadata.generation,
                status: object.status,
            }),
            Err(error) => failed(
                FailureReason::ServerError,
                format!("cannot decode the response: {error}"),
            ),
        };
    }
    let status: Option<Status> = serde_json::from_slice(body).ok();
    let message = match &status {
        Some(status) if !status.message.is_empty() => status.message.clone(),
        _ => format!("{code}: {}", String::from_utf8_lossy(body).trim()),
    };
    let reason = match code {
        StatusCode::CONFLICT => return Response::Conflict,
        // With a `Status` body, the object doesn't exist; without one, the path doesn't.
        StatusCode::NOT_FOUND if status.is_some() => return Response::NotFound,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            FailureReason::Unavailable
        }
        // The client will renew an expired token.
        StatusCode::UNAUTHORIZED => FailureReason::Unavailable,
        StatusCode::FORBIDDEN => FailureReason::Forbidden,
        code if code.is_client_error() => FailureReason::Invalid,
        _ => FailureReason::ServerError,
    };
    let retry_after = headers.get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Response::Failed(WriteFailure {
        reason,
        message,
        retry_after: retry_after.map(Duration::from_secs),
    })
}

pub(super) fn failed(reason: FailureReason, message: String) -> Response {
    Response::Failed(WriteFailure {
        reason,
        message,
        retry_after: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(code: u16, body: &str) -> Option<FailureReason> {
        let code = StatusCode::from_u16(code).unwrap();
        match read(code, &HeaderMap::new(), body.as_bytes()) {
            Response::Failed(failure) => Some(failure.reason),
            _ => None,
        }
    }

    const STATUS: &str = r#"{"kind":"Status","status":"Failure","message":"why","code":1}"#;

    #[test]
    fn status_codes_are_classified() {
        assert_eq!(reason(403, STATUS), Some(FailureReason::Forbidden));
        assert_eq!(reason(422, STATUS), Some(FailureReason::Invalid));
        assert_eq!(reason(400, "?"), Some(FailureReason::Invalid));
        assert_eq!(reason(429, "slow down"), Some(FailureReason::Unavailable));
        assert_eq!(reason(503, ""), Some(FailureReason::Unavailable));
        assert_eq!(reason(401, STATUS), Some(FailureReason::Unavailable));
        assert_eq!(reason(500, STATUS), Some(FailureReason::ServerError));
        assert_eq!(reason(200, "{}"), Some(FailureReason::ServerError));
    }

    #[test]
    fn a_missing_object_is_not_found_and_a_missing_path_is_invalid() {
        let code = StatusCode::NOT_FOUND;
        let gone = read(code, &HeaderMap::new(), STATUS.as_bytes());
        assert!(matches!(gone, Response::NotFound));
        assert_eq!(
            reason(404, "404 page not found"),
            Some(FailureReason::Invalid)
        );
    }

    #[test]
    fn a_failure_takes_its_delay_from_the_header_and_its_message_from_the_body() {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, "7".parse().unwrap())]);
        let Response::Failed(failure) =
            read(StatusCode::TOO_MANY_REQUESTS, &headers, STATUS.as_bytes())
        else {
            panic!("expected a failure");
        };
        assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(failure.message, "why");
    }

    #[test]
    fn the_status_of_an_object_is_read_byte_for_byte() {
        let body = r#"{"kind":"X","metadata":{"uid":"u","resourceVersion":"7","generation":3,
            "managedFields":[{}]},"spec":{"a":1},"status":{"b" : 1.50}}"#;
        let Response::Object(live) = read(StatusCode::OK, &HeaderMap::new(), body.as_bytes())
        else {
            panic!("expected an object");
        };
        assert_eq!(
            (&*live.uid, &*live.resource_version, live.generation),
            ("u", "7", 3)
        );
        assert_eq!(live.status.unwrap().get(), r#"{"b" : 1.50}"#);
    }
}
