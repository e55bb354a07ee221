//! What is wrong with an object, as data: it becomes a condition, never a log line.

use std::fmt;

/// Longest message of a condition, in bytes: the API server's limit is 32,768, and nobody reads a page.
const MAX_MESSAGE: usize = 2_000;

/// Why a condition is not as its object's owner would like it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// One of the reasons of [`sesame_api::reason`].
    pub reason: &'static str,
    /// What is wrong, where, and how to mend it.
    pub message: String,
}

impl Problem {
    /// A problem from its parts.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// One problem for several: the first one's reason and all messages.
    pub fn merge(problems: Vec<Problem>) -> Option<Self> {
        let reason = problems.first()?.reason;
        let mut messages: Vec<String> = Vec::new();
        for problem in problems {
            if !messages.contains(&problem.message) {
                messages.push(problem.message);
            }
        }
        Some(Self {
            reason,
            message: bounded(messages.join("; ")),
        })
    }
}

/// Cuts a message where a person stops reading.
pub fn bounded(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        let mut end = MAX_MESSAGE;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push('…');
    }
    message
}

/// A field that can't be as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Where: `spec.rules[0].matches[1].path.value`.
    pub field: String,
    /// What is wrong with it and what would be right.
    pub message: String,
}

impl FieldError {
    /// An error from its parts.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
