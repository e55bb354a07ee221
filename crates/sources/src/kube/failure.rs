//! Why a request came to nothing, in the few ways that are told apart.

use std::error::Error as _;

use ::kube::core::Status;

/// The longest message that is passed on, in characters.
const MAX_MESSAGE: usize = 500;

/// Why a request came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No answer, or one that is not an API server's.
    Unreachable(String),
    /// 401 or 403.
    Forbidden(String),
    /// 404: there is no such object or no such kind.
    Missing,
    /// 410: the server does not remember so far back.
    Gone,
    /// 400 or 422: the server does not understand the request.
    Invalid(String),
    /// The server can't answer now: it is busy, starting, or broken.
    Refused(String),
}

impl Failure {
    /// What an error of the client comes to.
    pub(super) fn of(error: &::kube::Error) -> Self {
        match error {
            ::kube::Error::Api(status) => Self::of_status(status),
            other => Self::Unreachable(chain(other)),
        }
    }

    /// What an answer comes to.
    pub(super) fn of_status(status: &Status) -> Self {
        let said = || short(format!("{} (status {})", status.message, status.code));
        match status.code {
            401 | 403 => Self::Forbidden(said()),
            404 => Self::Missing,
            410 => Self::Gone,
            400 | 422 => Self::Invalid(said()),
            _ => Self::Refused(said()),
        }
    }

    /// Whether the server has an opinion at all.
    pub(super) fn reached(&self) -> bool {
        !matches!(self, Self::Unreachable(_))
    }
}

/// An error with what it stems from: the outermost alone often says nothing.
fn chain(error: &::kube::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        // Many print what they stem from themselves.
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
    fn answers_are_told_apart_by_their_code() {
        let of = |code| Failure::of_status(&Status::failure("why", "Reason").with_code(code));
        assert_eq!(of(403), Failure::Forbidden("why (status 403)".to_owned()));
        assert_eq!(of(404), Failure::Missing);
        assert_eq!(of(410), Failure::Gone);
        assert_eq!(of(422), Failure::Invalid("why (status 422)".to_owned()));
        assert_eq!(of(503), Failure::Refused("why (status 503)".to_owned()));
    }

    #[test]
    fn an_error_says_what_it_stems_from_and_is_not_endless() {
        let inner = std::io::Error::other("x".repeat(1000));
        let Failure::Unreachable(text) = Failure::of(&::kube::Error::ReadEvents(inner)) else {
            panic!("not unreachable")
        };
        assert!(text.contains("xxx"));
        assert_eq!(text.chars().count(), MAX_MESSAGE + 1);
    }
}
