//! Limits on files.

/// Limits on files and objects. Exceeding one is a [`FileError`](super::FileError).
///
/// Together they bound memory: files are read one at a time, as are the documents in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in one file, or from standard input.
    pub file_bytes: u64,
    /// Bytes across all files.
    pub total_bytes: u64,
    /// Number of files read.
    pub files: usize,
    /// Number of folders walked.
    pub folders: usize,
    /// Depth of nested folders under a configured path.
    pub folder_depth: usize,
    /// Documents in one file.
    pub documents: usize,
    /// Values (scalars, lists and mappings) in one document.
    pub values: usize,
    /// Errors in one document, such as duplicate keys, that don't prevent it from being parsed.
    pub errors: usize,
    /// Depth of nested lists and mappings.
    pub nesting: usize,
    /// Bytes of the copies for anchors (`&name`) and aliases (`*name`) in one document: 64 per value, plus its text.
    pub alias_bytes: usize,
    /// Objects across all files.
    pub objects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 32 << 20,
            total_bytes: 256 << 20,
            files: 20_000,
            folders: 4_000,
            folder_depth: 16,
            documents: 100_000,
            values: 1_000_000,
            errors: 1_000,
            nesting: 64,
            alias_bytes: 4 << 20,
            objects: 200_000,
        }
    }
}
