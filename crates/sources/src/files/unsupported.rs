//! Objects that Sesame does not support yet.

use std::fmt;
use std::path::PathBuf;

/// An object of a kind that Sesame does not support yet. Omitting it is not an error.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unsupported {
    /// The object's kind and, if present in the file, its namespace and name.
    pub object: String,
    /// The file; `<stdin>` for standard input.
    pub file: PathBuf,
    /// The line and column, from 1.
    pub location: (u32, u32),
}

/// `not supported yet: Ingress default/web (file:line:column)`.
impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.location;
        let file = self.file.display();
        write!(
            f,
            "not supported yet: {} ({file}:{line}:{column})",
            self.object
        )
    }
}
