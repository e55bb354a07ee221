//! How much of somebody's files is read before they are called too much.

/// Bounds on what files may hold. Each one that is hit becomes a problem that says so.
///
/// Together they bound the memory that reading takes: files are read one after another, and of one
/// file one document at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in one file, and of standard input.
    pub file_bytes: u64,
    /// Bytes in all files together.
    pub total_bytes: u64,
    /// Files that are read.
    pub files: usize,
    /// Folders that are walked.
    pub folders: usize,
    /// Folders inside one another, counted from a given path.
    pub folder_depth: usize,
    /// Documents in one file.
    pub documents: usize,
    /// Values (scalars, lists and mappings) in one document.
    pub values: usize,
    /// Lists and mappings inside one another.
    pub nesting: usize,
    /// Bytes that aliases (`*name`) may add to one document, counting 64 for each value.
    pub alias_bytes: usize,
    /// Objects in all files.
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
            values: 4_000_000,
            nesting: 64,
            alias_bytes: 4 << 20,
            objects: 200_000,
        }
    }
}
