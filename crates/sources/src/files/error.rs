//! Errors in files.

use std::fmt;
use std::path::{Path, PathBuf};

use sesame_api::ObjectKey;

/// Maximum number of errors per file.
pub(super) const MAX_ERRORS: usize = 100;

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

/// The errors of a file: the first [`MAX_ERRORS`], and the number of further ones.
#[derive(Debug, Default)]
pub(super) struct FileErrors {
    kept: Vec<FileError>,
    further: usize,
}

impl FileErrors {
    /// Calls `error` only if it is kept.
    pub(super) fn push(&mut self, error: impl FnOnce() -> FileError) {
        if self.kept.len() < MAX_ERRORS {
            self.kept.push(error());
        } else {
            self.further += 1;
        }
    }

    /// The errors, and one with the number of further ones.
    pub(super) fn into_vec(mut self, file: &Path) -> Vec<FileError> {
        if self.further > 0 {
            let message = format!("further errors: {}", self.further);
            self.kept.push(FileError::of_file(file, message));
        }
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_errors_are_only_counted() {
        let path = Path::new("a");
        let error = |line| FileError::of_file(path, "wrong").at((line, 1));
        for (count, further) in [(100, None), (101, Some(1)), (1000, Some(900))] {
            let mut errors = FileErrors::default();
            let mut made = 0;
            for line in 0..count {
                errors.push(|| {
                    made += 1;
                    error(line)
                });
            }
            assert_eq!(made, 100);
            let further = further.map(|further| format!("further errors: {further}"));
            let further = further.map(|message| FileError::of_file(path, message));
            let expected: Vec<_> = (0..100).map(error).chain(further).collect();
            assert_eq!(errors.into_vec(path), expected);
        }
    }
}
