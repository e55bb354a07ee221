//! Errors in files.

use std::fmt;
use std::path::PathBuf;

use sesame_api::ObjectKey;

/// An error in a file, or a file that can't be read. Ordered by location.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileError {
    /// The file or folder, under a configured path; `<stdin>` for standard input.
    pub file: PathBuf,
    /// The line, from 1; `None` if the error concerns the whole file.
    pub line: Option<u32>,
    /// The column in characters, from 1.
    pub column: Option<u32>,
    /// The object, if known.
    pub object: Option<ObjectKey>,
    /// The error.
    pub message: String,
    /// How to fix it, or what happens meanwhile.
    pub hint: Option<String>,
}

impl FileError {
    /// An error that concerns a whole file.
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

/// `file:line:column: object: message (hint)`, omitting unknown parts.
impl fmt::Display for FileError {
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
