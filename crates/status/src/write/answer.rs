//! What an answer of the API server means.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;
use sesame_api::LiveStatus;

use crate::queue::Failure;
use crate::trouble::Reason;

/// An answer that was understood.
#[derive(Debug)]
pub(super) enum Read {
    /// The object as it is.
    Object(LiveStatus),
    /// It isn't the version any more that the request was about.
    Conflict,
    /// There is no such object.
    Gone,
    /// Something else.
    Failed(Failure),
}

/// What we read of an object.
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

/// Reads an answer.
pub(super) fn read(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> Read {
    if code.is_success() {
        return match serde_json::from_slice::<Object>(body) {
            Ok(object) => Read::Object(LiveStatus {
                uid: object.metadata.uid,
                resource_version: object.metadata.resource_version,
                generation: object.metadata.generation,
                status: object.status,
            }),
            Err(error) => failed(Reason::Failed, format!("an answer without sense: {error}")),
        };
    }
    let status: Option<Status> = serde_json::from_slice(body).ok();
    let message = match &status {
        Some(status) if !status.message.is_empty() => status.message.clone(),
        _ => format!("{code}: {}", String::from_utf8_lossy(body).trim()),
    };
    let reason = match code {
        StatusCode::CONFLICT => return Read::Conflict,
        // Of an object, and not of a path that isn't served.
        StatusCode::NOT_FOUND if status.is_some() => return Read::Gone,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Reason::Unanswered,
        // A token that has run out is replaced by the client some time.
        StatusCode::UNAUTHORIZED => Reason::Unanswered,
        StatusCode::FORBIDDEN => Reason::Forbidden,
        code if code.is_client_error() => Reason::Refused,
        _ => Reason::Failed,
    };
    let asked = headers.get(RETRY_AFTER);
    let asked = asked.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Read::Failed(Failure {
        reason,
        message,
        retry_after: asked.map(Duration::from_secs),
    })
}

fn failed(reason: Reason, message: String) -> Read {
    Read::Failed(Failure {
        reason,
        message,
        retry_after: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(code: u16, body: &str) -> Option<Reason> {
        let code = StatusCode::from_u16(code).unwrap();
        match read(code, &HeaderMap::new(), body.as_bytes()) {
            Read::Failed(failure) => Some(failure.reason),
            _ => None,
        }
    }

    const STATUS: &str = r#"{"kind":"Status","status":"Failure","message":"why","code":1}"#;

    #[test]
    fn each_kind_of_failure_is_told_apart() {
        assert_eq!(reason(403, STATUS), Some(Reason::Forbidden));
        assert_eq!(reason(422, STATUS), Some(Reason::Refused));
        assert_eq!(reason(400, "?"), Some(Reason::Refused));
        assert_eq!(reason(429, "slow down"), Some(Reason::Unanswered));
        assert_eq!(reason(503, ""), Some(Reason::Unanswered));
        assert_eq!(reason(401, STATUS), Some(Reason::Unanswered));
        assert_eq!(reason(500, STATUS), Some(Reason::Failed));
        assert_eq!(reason(200, "{}"), Some(Reason::Failed));
    }

    #[test]
    fn a_missing_object_is_gone_and_a_missing_path_is_refused() {
        let code = StatusCode::NOT_FOUND;
        let gone = read(code, &HeaderMap::new(), STATUS.as_bytes());
        assert!(matches!(gone, Read::Gone));
        assert_eq!(reason(404, "404 page not found"), Some(Reason::Refused));
    }

    #[test]
    fn how_long_to_wait_comes_from_the_header_and_why_from_the_body() {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, "7".parse().unwrap())]);
        let Read::Failed(failure) =
            read(StatusCode::TOO_MANY_REQUESTS, &headers, STATUS.as_bytes())
        else {
            panic!("it isn't an object");
        };
        assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(failure.message, "why");
    }

    #[test]
    fn of_an_object_only_its_status_and_versions_are_read() {
        let body = r#"{"kind":"X","metadata":{"uid":"u","resourceVersion":"7","generation":3,
            "managedFields":[{}]},"spec":{"a":1},"status":{"b" : 1.50}}"#;
        let Read::Object(live) = read(StatusCode::OK, &HeaderMap::new(), body.as_bytes()) else {
            panic!("it is an object");
        };
        assert_eq!(
            (&*live.uid, &*live.resource_version, live.generation),
            ("u", "7", 3)
        );
        assert_eq!(live.status.unwrap().get(), r#"{"b" : 1.50}"#);
    }
}
