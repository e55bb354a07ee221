//! Finding the files.
//!
//! In: the paths that were given. Out: every file to read, in order, and every folder to watch. Looks at
//! names and stats only. A real file or folder is taken once, under the name that comes first, so
//! symbolic links can't make loops or doubles.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::limits::Limits;
use super::problem::Problem;
use super::read::{Identity, Stamp, identity};

/// The path that stands for standard input.
pub(super) const STDIN: &str = "-";

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The files.
    pub(super) files: BTreeMap<Arc<Path>, Stamp>,
    /// The folders that were listed: a new file in one of them is ours.
    pub(super) folders: HashSet<PathBuf>,
    /// What the links lead to.
    pub(super) targets: HashSet<PathBuf>,
    /// Paths below which nothing could be seen this time. What was known there stays.
    pub(super) unseen: Vec<PathBuf>,
    /// What is wrong with folders, links and things that are no files.
    pub(super) problems: Vec<Problem>,
    /// Some file was left out because it is another name of one that was taken, or is reached through a
    /// link: changes of one path may then concern another.
    pub(super) linked: bool,
    /// Some were left out because of a limit.
    pub(super) cut: bool,
}

/// Looks at everything below `paths`. `visit` is called with each folder before it is listed.
pub(super) fn scan(
    paths: &[PathBuf],
    limits: &Limits,
    visit: &mut dyn FnMut(&Path, Identity),
) -> Scan {
    let mut walk = Walk {
        limits,
        visit,
        scan: Scan::default(),
        seen: HashSet::new(),
        bytes: 0,
    };
    for path in paths.iter().filter(|path| *path != Path::new(STDIN)) {
        walk.root(path);
    }
    walk.scan.problems.sort();
    walk.scan
}

/// Whether a file of this name inside a folder is read.
pub(super) fn is_eligible(name: &OsStr) -> bool {
    let path = Path::new(name);
    !is_hidden(name)
        && path.extension().is_some_and(|extension| {
            ["yaml", "yml", "json"]
                .iter()
                .any(|known| extension.eq_ignore_ascii_case(known))
        })
}

/// Whether a name is hidden: editors' and version control's own files, and the dated folders that lie
/// behind the links of a ConfigMap volume.
pub(super) fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// The folder in which a path's last name lies.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

struct Walk<'a> {
    limits: &'a Limits,
    visit: &'a mut dyn FnMut(&Path, Identity),
    scan: Scan,
    /// Files and folders that were taken.
    seen: HashSet<Identity>,
    /// Bytes in the files that were taken.
    bytes: u64,
}

impl Walk<'_> {
    fn root(&mut self, path: &Path) {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                // A link may be made to lead elsewhere.
                if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink()) {
                    self.watch_around(path);
                }
                self.folder(path, &metadata, 0);
            }
            Ok(metadata) => {
                self.watch_around(path);
                self.file(path, &metadata);
            }
            Err(error) => {
                self.watch_around(path);
                self.unreachable(path, &error);
            }
        }
    }

    /// Watches where a given path lies, to see it replaced or appear; if that folder is missing too,
    /// the nearest one that is there.
    fn watch_around(&mut self, path: &Path) {
        let mut folder = parent(path);
        loop {
            match fs::metadata(folder) {
                Ok(metadata) if metadata.is_dir() => {
                    (self.visit)(folder, identity(&metadata));
                    return;
                }
                _ => match folder.parent() {
                    Some(above) if !above.as_os_str().is_empty() => folder = above,
                    _ => return,
                },
            }
        }
    }

    fn problem(&mut self, path: &Path, message: impl Into<String>) {
        self.scan.problems.push(Problem::of_file(path, message));
    }

    /// Leaves something out. Only the first is told of: the others would say the same.
    fn cut(&mut self, path: &Path, message: String) {
        if !std::mem::replace(&mut self.scan.cut, true) {
            let problem = Problem::of_file(path, message);
            self.scan
                .problems
                .push(problem.hint("this and what follows is not read"));
        }
    }

    fn unreachable(&mut self, path: &Path, error: &io::Error) {
        if error.kind() == io::ErrorKind::NotFound {
            let is_link = fs::symlink_metadata(path).is_ok();
            let message = if is_link {
                "this link leads nowhere"
            } else {
                "there is no such file or folder"
            };
            self.problem(path, message);
        } else {
            self.scan.unseen.push(path.to_owned());
            self.problem(path, format!("it cannot be read: {error}"));
        }
    }

    fn file(&mut self, path: &Path, metadata: &Metadata) {
        if !metadata.is_file() {
            self.problem(path, "it is no regular file");
            return;
        }
        if !self.seen.insert(identity(metadata)) {
            self.scan.linked = true;
            return;
        }
        if self.scan.files.len() >= self.limits.files {
            return self.cut(path, format!("more than {} files", self.limits.files));
        }
        let bytes = self.bytes.saturating_add(metadata.len());
        // A file that is too large by itself is told of when it is read.
        if metadata.len() <= self.limits.file_bytes {
            if bytes > self.limits.total_bytes {
                let most = self.limits.total_bytes;
                return self.cut(
                    path,
                    format!("more than {most} bytes in all files together"),
                );
            }
            self.bytes = bytes;
        }
        self.scan.files.insert(path.into(), Stamp::of(metadata));
        if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink()) {
            self.scan.linked = true;
            // The target may be changed in place, where no event tells of the link.
            if let Ok(target) = fs::canonicalize(path) {
                self.watch_around(&target);
                self.scan.targets.insert(target);
            }
        }
    }

    fn folder(&mut self, path: &Path, metadata: &Metadata, depth: usize) {
        if !self.seen.insert(identity(metadata)) {
            self.scan.linked = true;
            return;
        }
        if depth > self.limits.folder_depth {
            let most = self.limits.folder_depth;
            return self.cut(path, format!("more than {most} folders inside one another"));
        }
        if self.scan.folders.len() >= self.limits.folders {
            return self.cut(path, format!("more than {} folders", self.limits.folders));
        }
        // Watched before it is listed, so that nothing happens unseen in between.
        (self.visit)(path, identity(metadata));
        self.scan.folders.insert(path.to_owned());
        let mut entries = match self.list(path) {
            Ok(entries) => entries,
            Err(error) => return self.unreachable(path, &error),
        };
        entries.sort();
        for (name, kind) in entries {
            self.entry(&path.join(name), kind, depth);
        }
    }

    /// The names in a folder that may concern us.
    fn list(&mut self, folder: &Path) -> io::Result<Vec<(std::ffi::OsString, EntryKind)>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            // One more than allowed is enough to tell that there are more.
            if is_hidden(&name) || entries.len() > self.limits.files + self.limits.folders {
                continue;
            }
            let kind = match entry.file_type() {
                Ok(kind) => kind,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let kind = match kind {
                kind if kind.is_dir() => EntryKind::Folder,
                kind if kind.is_symlink() => EntryKind::Link,
                _ if is_eligible(&name) => EntryKind::File,
                _ => continue,
            };
            entries.push((name, kind));
        }
        Ok(entries)
    }

    fn entry(&mut self, path: &Path, kind: EntryKind, depth: usize) {
        let eligible = path.file_name().is_some_and(is_eligible);
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.folder(path, &metadata, depth + 1),
            Ok(metadata) if eligible => self.file(path, &metadata),
            Ok(_) => {}
            // Gone since the folder was listed: as if it had not been there.
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
