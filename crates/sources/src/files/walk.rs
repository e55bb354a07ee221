//! Finds the files to read and the folders to watch, using names and stats.
//!
//! A file or folder with several names is used once, under its first name, so symbolic links cause neither loops nor
//! duplicates.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::FileError;
use super::limits::Limits;
use super::read::{Identity, Stamp, identity};
use super::set::STDIN;

/// A file and its stat.
pub(super) type FoundFile = (Arc<Path>, Stamp);

/// The result of a walk.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Sorted by path. A list, since comparing paths takes longer than a stat.
    pub(super) files: Vec<FoundFile>,
    /// The folders to watch, by absolute path.
    pub(super) folders: BTreeMap<PathBuf, Identity>,
    /// Paths that could not be listed. Files under them may still exist.
    pub(super) unseen: Vec<PathBuf>,
    pub(super) errors: Vec<FileError>,
    /// Whether some files exceed a limit.
    pub(super) cut: bool,
}

/// Walks `paths`.
pub(super) fn walk(paths: &[PathBuf], limits: &Limits) -> Walk {
    let mut walker = Walker {
        limits,
        walk: Walk::default(),
        seen: HashSet::new(),
        folders: 0,
        bytes: 0,
    };
    for path in paths.iter().filter(|path| *path != Path::new(STDIN)) {
        walker.root(path);
    }
    walker.walk.files.sort_by(|(a, _), (b, _)| a.cmp(b));
    walker.walk
}

/// Whether to read a file with this name in a folder.
fn is_eligible(name: &OsStr) -> bool {
    let path = Path::new(name);
    !is_hidden(name)
        && path.extension().is_some_and(|extension| {
            ["yaml", "yml", "json"]
                .iter()
                .any(|known| extension.eq_ignore_ascii_case(known))
        })
}

/// Whether a name is hidden, like those of editor and version control files, or of dated folders in a ConfigMap volume.
fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// The parent folder of a path.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

struct Walker<'a> {
    limits: &'a Limits,
    walk: Walk,
    /// The files and folders used so far, the number of folders, and the total size of the files.
    seen: HashSet<Identity>,
    folders: usize,
    bytes: u64,
}

impl Walker<'_> {
    fn root(&mut self, path: &Path) {
        let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                if is_link {
                    // The path may be replaced.
                    self.watch_around(path);
                }
                self.folder(path, &metadata, 0);
            }
            Ok(metadata) => {
                self.watch_around(path);
                self.file(path, &metadata, is_link);
            }
            Err(error) => {
                self.watch_around(path);
                self.unreachable(path, &error);
            }
        }
    }

    /// Watches the folder in which a path may be created or replaced, or the nearest existing folder above it.
    fn watch_around(&mut self, path: &Path) {
        let mut folder = parent(path);
        loop {
            match fs::metadata(folder) {
                Ok(metadata) if metadata.is_dir() => {
                    return self.watch(folder, &metadata);
                }
                _ => match folder.parent() {
                    Some(above) if !above.as_os_str().is_empty() => folder = above,
                    _ => return,
                },
            }
        }
    }

    fn watch(&mut self, folder: &Path, metadata: &Metadata) {
        if let Ok(path) = std::path::absolute(folder) {
            self.walk.folders.insert(path, identity(metadata));
        }
    }

    fn error(&mut self, path: &Path, message: impl Into<String>) {
        self.walk.errors.push(FileError::of_file(path, message));
    }

    /// Skips a path that exceeds a limit. Only the first such path is an error.
    fn cut(&mut self, path: &Path, message: String) {
        if !std::mem::replace(&mut self.walk.cut, true) {
            let error = FileError::of_file(path, message);
            let hint = "this path and later ones are not read";
            self.walk.errors.push(error.hint(hint));
        }
    }

    fn unreachable(&mut self, path: &Path, error: &io::Error) {
        if error.kind() == io::ErrorKind::NotFound {
            let is_link = fs::symlink_metadata(path).is_ok();
            let message = match is_link {
                true => "dangling symbolic link",
                false => "no such file or folder",
            };
            self.error(path, message);
        } else {
            self.walk.unseen.push(path.to_owned());
            self.error(path, format!("cannot be read: {error}"));
        }
    }

    fn file(&mut self, path: &Path, metadata: &Metadata, is_link: bool) {
        if !metadata.is_file() {
            return self.error(path, "not a regular file");
        }
        if !self.seen.insert(identity(metadata)) {
            return;
        }
        if self.walk.files.len() >= self.limits.files {
            return self.cut(path, format!("more than {} files", self.limits.files));
        }
        let bytes = self.bytes.saturating_add(metadata.len());
        // Reading a file that is too large on its own gives an error.
        if metadata.len() <= self.limits.file_bytes {
            if bytes > self.limits.total_bytes {
                let limit = self.limits.total_bytes;
                return self.cut(path, format!("more than {limit} bytes across all files"));
            }
            self.bytes = bytes;
        }
        self.walk.files.push((path.into(), Stamp::of(metadata)));
        // A write to a link's target is an event in the target's folder.
        if is_link && let Ok(target) = fs::canonicalize(path) {
            self.watch_around(&target);
        }
    }

    fn folder(&mut self, path: &Path, metadata: &Metadata, depth: usize) {
        if !self.seen.insert(identity(metadata)) {
            return;
        }
        if depth > self.limits.folder_depth {
            let limit = self.limits.folder_depth;
            return self.cut(
                path,
                format!("folders nested more than {limit} levels deep"),
            );
        }
        if self.folders >= self.limits.folders {
            return self.cut(path, format!("more than {} folders", self.limits.folders));
        }
        self.folders += 1;
        self.watch(path, metadata);
        let mut entries = match self.list(path) {
            Ok(entries) => entries,
            Err(error) => return self.unreachable(path, &error),
        };
        entries.sort();
        for (name, kind) in entries {
            self.entry(&path.join(name), kind, depth);
        }
    }

    /// The eligible entries in a folder.
    fn list(&mut self, folder: &Path) -> io::Result<Vec<(OsString, EntryKind)>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            // One entry beyond the limit reveals that it is exceeded.
            if is_hidden(&name) || entries.len() > self.limits.files + self.limits.folders {
                continue;
            }
            let kind = match entry.file_type() {
                Ok(kind) if kind.is_dir() => EntryKind::Folder,
                Ok(kind) if kind.is_symlink() => EntryKind::Link,
                Ok(_) if is_eligible(&name) => EntryKind::File,
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            entries.push((name, kind));
        }
        Ok(entries)
    }

    fn entry(&mut self, path: &Path, kind: EntryKind, depth: usize) {
        let eligible = path.file_name().is_some_and(is_eligible);
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.folder(path, &metadata, depth + 1),
            Ok(metadata) if eligible => self.file(path, &metadata, kind == EntryKind::Link),
            Ok(_) => {}
            // Deleted after the folder was listed.
            Err(error) if kind != EntryKind::Link && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if eligible || kind == EntryKind::Folder => self.unreachable(path, &error),
            Err(_) => {}
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EntryKind {
    File,
    Folder,
    Link,
}
