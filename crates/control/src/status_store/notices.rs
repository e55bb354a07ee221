//! Notices: problems that an object's status has no field for.
//!
//! In: the notices of an object. Out: views. Pure.

use std::fmt;

use serde::Serialize;
use sesame_api::ObjectKey;
use sesame_translate::problem::{FieldError, Notices};

/// A problem with a field of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NoticeView {
    /// The object.
    #[serde(serialize_with = "super::super::event::as_text")]
    pub object: ObjectKey,
    /// Whether it affects requests.
    pub level: NoticeLevel,
    /// The field.
    pub field: String,
    /// The problem.
    pub message: String,
}

/// Whether a notice affects requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeLevel {
    /// The field has no effect, or not the intended one.
    Error,
    /// The field is invalid or unnecessary; the object is served without it.
    Warning,
}

impl NoticeView {
    fn new(object: &ObjectKey, level: NoticeLevel, error: &FieldError) -> Self {
        Self {
            object: object.clone(),
            level,
            field: error.field.clone(),
            message: error.message.clone(),
        }
    }

    /// The field and the message.
    pub fn text(&self) -> String {
        match self.field.is_empty() {
            true => self.message.clone(),
            false => format!("{}: {}", self.field, self.message),
        }
    }
}

impl fmt::Display for NoticeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.text())
    }
}

/// All notices of an object, sorted, errors first.
pub(super) fn views(object: &ObjectKey, notices: &Notices) -> Vec<NoticeView> {
    let errors = notices.errors.iter();
    let errors = errors.map(|error| NoticeView::new(object, NoticeLevel::Error, error));
    let warnings = notices.warnings.iter();
    let warnings = warnings.map(|error| NoticeView::new(object, NoticeLevel::Warning, error));
    let mut views: Vec<NoticeView> = errors.chain(warnings).collect();
    views.sort();
    views
}
