//! Objects in files.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A folder for objects, and one for the files that Sesame writes. Both are removed on drop.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: TempDir,
}

impl Folder {
    /// Creates a folder with these files.
    pub(crate) fn new(files: &[(&str, String)]) -> Self {
        let dir = TempDir::with_prefix("sesame-").expect("a temporary folder");
        let folder = Self { dir };
        fs::create_dir(folder.path()).expect("a folder for objects");
        fs::create_dir(folder.scratch()).expect("a scratch folder");
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    /// The folder with the objects.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("objects")
    }

    /// Sesame's temporary folder.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    /// Writes a file in place, as some editors do.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).expect("a file of objects");
    }

    /// Replaces a file by renaming, as other editors do.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        let beside = self.scratch().join(name);
        fs::write(&beside, text).expect("a file of objects");
        fs::rename(beside, self.file(name)).expect("renaming within one file system");
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).expect("a file of objects");
    }

    /// The path of a file.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(Path::new(name))
    }
}
