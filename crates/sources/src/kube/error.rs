//! Why a request failed.

use std::error::Error;
use std::time::Duration;

use ::kube::core::Status;

/// Maximum length of a message, in characters.
const MAX_MESSAGE: usize = 500;

/// Why a request failed, classified by how callers handle it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    /// No response, or one that isn't from an API server.
    #[error("{0}")]
    Unreachable(String),
    /// The connection closed while waiting for events. The next request shows why.
    #[error("the connection was closed")]
    Closed,
    /// 401 or 403.
    #[error("{0}")]
    Forbidden(String),
    /// 404: no such object or kind.
    #[error("not found (status 404)")]
    Missing,
    /// 410: the resourceVersion or continue token is too old.
    #[error("resource version too old (status 410)")]
    Gone,
    /// 400 or 422: the server doesn't support the request.
    #[error("{0}")]
    Invalid(String),
    /// Any other error status, with the server's `Retry-After`.
    #[error("{0}")]
    Refused(String, Option<Duration>),
}

impl RequestError {
    /// Converts an error status. `retry_after` is the header; without it, the status may contain the delay.
    pub(super) fn of_status(status: &Status, retry_after: Option<Duration>) -> Self {
        let message = || short(format!("{} (status {})", status.message, status.code));
        match status.code {
            401 | 403 => Self::Forbidden(message()),
            404 => Self::Missing,
            410 => Self::Gone,
            400 | 422 => Self::Invalid(message()),
            _ => {
                let details = status.details.as_ref();
                let seconds = details.map_or(0, |details| details.retry_after_seconds);
                let hint = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
                Self::Refused(message(), retry_after.or(hint))
            }
        }
    }

    /// Whether the server responded.
    pub(super) fn answered(&self) -> bool {
        !matches!(self, Self::Unreachable(_) | Self::Closed)
    }
}

impl From<::kube::Error> for RequestError {
    fn from(error: ::kube::Error) -> Self {
        match error {
            ::kube::Error::Api(status) => Self::of_status(&status, None),
            other => Self::Unreachable(chain(&other)),
        }
    }
}

impl From<::kube::core::request::Error> for RequestError {
    fn from(error: ::kube::core::request::Error) -> Self {
        Self::Invalid(chain(&error))
    }
}

impl From<serde_json::Error> for RequestError {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreachable(chain(&error))
    }
}

/// An error with its sources: the outermost message is often too general.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        // Many errors already print their source.
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        source = error.source();
    }
    short(text)
}

fn short(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_MESSAGE) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_classified_by_their_code() {
        let of = |code| {
            let status = Status::failure("why", "Reason").with_code(code);
            RequestError::of_status(&status, None)
        };
        let message = |code| format!("why (status {code})");
        assert_eq!(of(403), RequestError::Forbidden(message(403)));
        assert_eq!(of(404), RequestError::Missing);
        assert_eq!(of(410), RequestError::Gone);
        assert_eq!(of(422), RequestError::Invalid(message(422)));
        assert_eq!(of(503), RequestError::Refused(message(503), None));
    }

    #[test]
    fn retry_after_is_read_from_the_header_and_from_the_status() {
        let text = r#"{"code": 429, "message": "storage is (re)initializing", "details": {"retryAfterSeconds": 1}}"#;
        let status: Status = serde_json::from_str(text).unwrap();
        let retry_after = |header| match RequestError::of_status(&status, header) {
            RequestError::Refused(_, retry_after) => retry_after,
            other => panic!("{other:?}"),
        };
        assert_eq!(retry_after(None), Some(Duration::from_secs(1)));
        let header = Some(Duration::from_secs(7));
        assert_eq!(retry_after(header), header);
    }

    #[test]
    fn a_message_includes_its_sources_and_is_short() {
        let inner = std::io::Error::other("x".repeat(1000));
        let RequestError::Unreachable(text) = ::kube::Error::ReadEvents(inner).into() else {
            panic!("not unreachable")
        };
        assert!(text.contains("xxx"));
        assert_eq!(text.chars().count(), MAX_MESSAGE + 1);
    }
}
