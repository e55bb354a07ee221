//! What could not be read, for a person: where, what, and what to do.

use std::fmt;
use std::path::PathBuf;

use sesame_api::ObjectKey;

/// A mistake in a file, or a file that could not be read.
///
/// The order is that of the places, so that a sorted list reads from top to bottom.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file or folder, as it was given or found below what was given; `<stdin>` for standard input.
    pub file: PathBuf,
    /// The line, counted from 1, if the problem has a place inside the file.
    pub line: Option<u32>,
    /// The column in characters, counted from 1.
    pub column: Option<u32>,
    /// The object, where it is known.
    pub object: Option<ObjectKey>,
    /// What is wrong.
    pub message: String,
    /// What to do about it, or what is done meanwhile.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem with a file as a whole.
    pub(super) fn of_file(file: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line: None,
            column: None,
            object: None,
            message: message.into(),
            hint: None,
        }
    }

    pub(super) fn at(mut self, (line, column): (u32, u32)) -> Self {
        self.line = Some(line);
        self.column = Some(column);
        self
    }

    pub(super) fn about(mut self, object: Option<ObjectKey>) -> Self {
        self.object = object;
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// `file:line:column: object: message (hint)`, as far as these are known.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
            if let Some(column) = self.column {
                write!(f, ":{column}")?;
            }
        }
        f.write_str(": ")?;
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}
