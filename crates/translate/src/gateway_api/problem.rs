//! What is wrong with an object, as data: it becomes a condition, never a log line.

use std::fmt;

use sesame_api::Condition;

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

impl Problem {
    /// The condition `type_` that tells of it: for most types it is False, for those that are named after something bad True.
    pub fn condition(&self, type_: &'static str, status: bool, generation: i64) -> Condition {
        Condition::new(type_, status, self.reason, self.message.clone(), generation)
    }

    /// The condition `type_` that is False and tells of the problem, or True with this reason and message if there is none.
    pub fn or_true(
        problem: Option<&Problem>,
        type_: &'static str,
        (reason, message): (&'static str, &str),
        generation: i64,
    ) -> Condition {
        match problem {
            Some(problem) => problem.condition(type_, false, generation),
            None => Condition::new(type_, true, reason, message, generation),
        }
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
