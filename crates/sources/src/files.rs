//! Objects from files.
//!
//! In: paths of folders and files, `-` for standard input. Out: objects as [`Change`]s, and a [`FileError`] with file,
//! line and column for each error. [`load`] reads once; [`watch`] also sends changes.
//!
//! `walk` finds the files; `set` reads those whose stat changed and diffs their objects by key. `text` splits a file
//! into documents, `yaml` and `json` parse each into a `tree` with locations, and `decode` turns that into objects.
//!
//! - A file is YAML with any number of documents, or JSON. In folders, `*.yaml`, `*.yml` and `*.json` are read at any
//!   depth, unless hidden. A file given by its path may have any name.
//! - `List` and typed lists are read as their items. Other kinds are skipped.
//! - Unquoted scalars are read as in kubectl.
//! - An invalid object keeps its last good version and doesn't affect others.
//! - An object's creation time comes from the file, or else is the time when the object was first seen. In the first
//!   read, objects without a creation time don't get one and count as the oldest.

mod decode;
mod error;
mod json;
mod limits;
mod read;
mod scalar;
mod set;
mod text;
mod tree;
mod walk;
mod watch;
mod yaml;

use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sesame_api::Object;

pub use self::error::FileError;
pub use self::limits::Limits;
use self::set::FileSet;
pub use self::watch::{WatchError, watch};
use crate::change::Change;

/// Which files to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesConfig {
    /// Folders and files; `-` is standard input, which is read once.
    pub paths: Vec<PathBuf>,
    /// Whether Contour's objects and annotations are read as Sesame's own.
    pub contour: bool,
    /// Whether [`watch`] continues after the first read.
    pub watch: bool,
    /// The interval at which all files are polled by stat, for file systems without events. Polling takes at most 2 %
    /// of the time.
    pub rescan: Duration,
    /// Limits on files and objects.
    pub limits: Limits,
}

impl FilesConfig {
    /// Watches `paths` with default limits.
    pub fn new(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self {
            paths: paths.into_iter().map(Into::into).collect(),
            contour: false,
            watch: true,
            rescan: Duration::from_secs(2),
            limits: Limits::default(),
        }
    }
}

/// The content of all files at one point in time.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The objects, by key.
    pub objects: Vec<Object>,
    /// The errors, by location.
    pub errors: Vec<FileError>,
}

/// Changes since the previous set.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeSet {
    /// The changed objects, by key, each at most once.
    pub changes: Vec<Change>,
    /// All current errors, by location.
    pub errors: Vec<FileError>,
    /// When the first change was detected.
    pub detected: Instant,
}

/// Reads all files once. The same files always give the same snapshot, with an error for everything that can't be read.
pub fn load(config: &FilesConfig) -> Snapshot {
    load_with(config, &mut std::io::stdin())
}

fn load_with(config: &FilesConfig, stdin: &mut dyn Read) -> Snapshot {
    let mut set = FileSet::new(config.clone());
    let changes = set.first(stdin).into_iter();
    let objects = changes.filter_map(|change| match change {
        Change::Upsert(object) => Some(object),
        Change::Remove(_) => None,
    });
    Snapshot {
        objects: objects.collect(),
        errors: set.errors(),
    }
}
