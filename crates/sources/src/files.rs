//! Plain files as the source of objects.
//!
//! In: paths of folders and files, `-` for standard input. Out: the objects in them as
//! [`Change`]s, and every [`Problem`] with its file, line and column. [`load`]
//! reads once; [`watch`] goes on and tells what changes.
//!
//! The inside is in two halves. Pure: `text` cuts a file into documents, `yaml` and `json` make trees of
//! them, `decode` makes objects of those, `merge` makes one set of all files. With IO: `scan` finds
//! files, `read` reads one, `table` remembers what was read, `inbox` and `watch` wait for events.
//!
//! What a file means:
//! - YAML of several documents, and JSON. Of a folder, `*.yaml`, `*.yml` and `*.json` at any depth count,
//!   without hidden ones; a file that is named outright is read whatever it is called.
//! - `List` and lists of one kind are read as their items. Kinds that nobody reads are skipped and counted.
//! - Unquoted scalars mean what they mean to kubectl.
//! - The same object twice is a problem; the one that was there first counts.
//! - What is broken keeps its last good state and hurts no neighbour, in the same file or another.
//! - `metadata.generation` is counted here as an API server counts it. A creation time is the file's, or
//!   the time at which the object appeared; objects of the first reading have none and so are the oldest.

mod decode;
mod fingerprint;
mod inbox;
mod json;
mod limits;
mod merge;
mod problem;
mod read;
mod scalar;
mod scan;
mod table;
mod text;
mod tree;
mod watch;
mod yaml;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sesame_api::Object;

pub use self::limits::Limits;
pub use self::problem::Problem;
use self::table::Table;
pub use self::watch::{WatchError, watch};
use crate::change::Change;

/// Which files to read, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesConfig {
    /// Folders and files; `-` is standard input, which is read once.
    pub paths: Vec<PathBuf>,
    /// Whether [`watch`] goes on after the first reading.
    pub watch: bool,
    /// How often everything is looked at again (stats, not contents), for file systems that tell of no
    /// changes. Looking takes at most a fiftieth of the time, however many files there are.
    pub rescan: Duration,
    /// Bounds.
    pub limits: Limits,
}

impl FilesConfig {
    /// Watches `paths` within the usual limits.
    pub fn new(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self {
            paths: paths.into_iter().map(Into::into).collect(),
            watch: true,
            rescan: Duration::from_secs(2),
            limits: Limits::default(),
        }
    }
}

/// All that files hold at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The objects, ordered by key.
    pub objects: Vec<Object>,
    /// What could not be read, ordered by place.
    pub problems: Vec<Problem>,
    /// How many objects were skipped because nothing here reads their kind, by `apiVersion/kind`.
    pub skipped: BTreeMap<String, usize>,
}

/// What changed in the files since the last set.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeSet {
    /// The changed objects, ordered by key, each at most once.
    pub changes: Vec<Change>,
    /// Everything that is wrong now, changed or not, ordered by place.
    pub problems: Vec<Problem>,
    /// How many objects are skipped now because nothing here reads their kind, by `apiVersion/kind`.
    pub skipped: BTreeMap<String, usize>,
    /// When the first of these changes was noticed.
    pub detected: Instant,
}

/// Reads everything once.
///
/// Deterministic: the same files give the same snapshot. Nothing is an error: what can't be read is a
/// problem of the snapshot.
pub fn load(config: &FilesConfig) -> Snapshot {
    load_with(config, &mut std::io::stdin())
}

/// [`load`] with another standard input.
fn load_with(config: &FilesConfig, stdin: &mut dyn Read) -> Snapshot {
    let mut table = Table::new(config.clone());
    let objects = table
        .first(stdin, &mut |_, _| {})
        .into_iter()
        .filter_map(|change| match change {
            Change::Upsert(object) => Some(object),
            Change::Remove(_) => None,
        })
        .collect();
    Snapshot {
        objects,
        problems: table.problems(),
        skipped: table.skipped(),
    }
}
