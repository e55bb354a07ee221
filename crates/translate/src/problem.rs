//! Errors in objects, as data: they become conditions, not log lines.

use std::borrow::Cow;
use std::fmt;

use sesame_api::Condition;

/// The maximum length of a message, in bytes, to keep it readable. The API server's limit for conditions is 32,768.
const MAX_MESSAGE: usize = 2_000;

/// The reason and message of a condition that reports a problem. Boxed, since most objects have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem(Box<(&'static str, String)>);

impl Problem {
    /// Creates a problem from its parts.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new((reason, message.into())))
    }

    /// Merges problems: the first one's reason, and all messages.
    pub fn merge(problems: Vec<Problem>) -> Option<Self> {
        let reason = problems.first()?.reason();
        let mut messages: Vec<&str> = Vec::new();
        for problem in &problems {
            if !messages.contains(&problem.message()) {
                messages.push(problem.message());
            }
        }
        Some(Self::new(reason, bounded(messages.join("; "))))
    }

    /// A reason from [`sesame_api::reason`].
    pub fn reason(&self) -> &'static str {
        self.0.0
    }

    /// What is wrong, where, and how to fix it.
    pub fn message(&self) -> &str {
        &self.0.1
    }
}

impl Problem {
    /// The condition `type_` that reports the problem. `status` is true for types where True means a problem,
    /// such as Conflicted.
    pub fn condition(&self, type_: &'static str, status: bool, generation: i64) -> Condition {
        let message = self.message().to_owned();
        Condition::new(type_, status, self.reason(), message, generation)
    }

    /// The condition `type_`: False with the problem, or True with the given reason and message.
    pub fn or_true(
        problem: Option<&Problem>,
        type_: &'static str,
        (reason, message): (&'static str, impl Into<Cow<'static, str>>),
        generation: i64,
    ) -> Condition {
        match problem {
            Some(problem) => problem.condition(type_, false, generation),
            None => Condition::new(type_, true, reason, message, generation),
        }
    }
}

/// Truncates a message to a readable length.
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

/// An invalid field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field's path: `spec.rules[0].matches[1].path.value`; empty for the whole object.
    pub field: String,
    /// What is wrong with it, and what would be valid.
    pub message: String,
}

impl FieldError {
    /// Creates an error from its parts.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.is_empty() {
            true => f.write_str(&self.message),
            false => write!(f, "{}: {}", self.field, self.message),
        }
    }
}

/// The maximum number of errors, and of warnings, about an object.
const MAX_NOTICES: usize = 16;

/// Errors and warnings about an object whose status can't hold them. Never empty as a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    /// Fields that have no effect, or an effect that differs from what is written.
    pub errors: Vec<FieldError>,
    /// Invalid or unnecessary settings; the object is served without them.
    pub warnings: Vec<FieldError>,
    /// Number of errors and warnings beyond [`MAX_NOTICES`].
    omitted: usize,
}

impl Notices {
    /// Adds an error.
    pub fn error(&mut self, field: impl Into<String>, message: impl Into<String>) {
        let list = &mut self.errors;
        push(list, &mut self.omitted, field.into(), message.into());
    }

    /// Adds a warning.
    pub fn warning(&mut self, field: impl Into<String>, message: impl Into<String>) {
        let list = &mut self.warnings;
        push(list, &mut self.omitted, field.into(), message.into());
    }

    /// Adds the number of omitted notices as a warning; `None` if there are no notices.
    pub fn non_empty(mut self) -> Option<Self> {
        if self.omitted > 0 {
            let message = format!("and {} more", std::mem::take(&mut self.omitted));
            self.warnings.push(FieldError::new("", message));
        }
        let any = !self.errors.is_empty() || !self.warnings.is_empty();
        any.then_some(self)
    }
}

fn push(list: &mut Vec<FieldError>, omitted: &mut usize, field: String, message: String) {
    match list.len() < MAX_NOTICES {
        true => list.push(FieldError::new(field, bounded(message))),
        false => *omitted += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_few_short_notices() {
        let mut notices = Notices::default();
        assert_eq!(notices.clone().non_empty(), None);
        for number in 0..1_000 {
            notices.warning("spec", format!("{number}"));
        }
        notices.error("spec", "x".repeat(1_000_000));
        let notices = notices.non_empty().expect("notices");
        assert!(notices.errors[0].message.len() < 3_000);
        assert_eq!(notices.warnings.len(), MAX_NOTICES + 1);
        assert_eq!(notices.warnings[MAX_NOTICES].to_string(), "and 984 more");
    }
}
