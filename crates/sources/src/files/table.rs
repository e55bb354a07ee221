//! What was read, and what must be read again.
//!
//! In: names of paths that something happened to, or the order to look at everything. Out: changes.
//! Cost: a touched file costs reading it; looking at everything costs a stat of each file, and reading
//! those whose stat changed. Knows nothing of events.

mod look;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use self::look::{Doubt, Why, failed};
use super::FilesConfig;
use super::merge::Set;
use super::problem::Problem;
use super::read::{self, Identity, Stamp};
use super::scan::{self, STDIN, Scan};
use crate::change::Change;

/// Called with each folder that should be watched.
pub(super) type Visit<'a> = dyn FnMut(&Path, Identity) + 'a;

/// All files that are read.
pub(super) struct Table {
    config: FilesConfig,
    set: Set,
    tracked: BTreeMap<Arc<Path>, Tracked>,
    /// The tracked file that is this real file.
    names: HashMap<Identity, Arc<Path>>,
    /// What the last look at everything found.
    folders: HashSet<PathBuf>,
    targets: HashSet<PathBuf>,
    problems: Vec<Problem>,
    linked: bool,
    /// Files that are there, but were not taken.
    left_out: HashSet<Arc<Path>>,
    /// Files in a state that may not last: since when, and when to look again.
    doubts: BTreeMap<Arc<Path>, Doubt>,
    work: Work,
}

/// What all this cost so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Looks at everything.
    pub(super) scans: u64,
    /// Files whose content was read.
    pub(super) reads: u64,
    /// Files whose content was taken apart.
    pub(super) parses: u64,
}

struct Tracked {
    stamp: Stamp,
    /// Of the bytes that were parsed last.
    hash: Option<u128>,
    /// The stamp can be relied on.
    sure: bool,
}

impl Table {
    /// A table that has read nothing.
    pub(super) fn new(config: FilesConfig) -> Self {
        Self {
            set: Set::new(config.limits.objects),
            config,
            tracked: BTreeMap::new(),
            names: HashMap::new(),
            folders: HashSet::new(),
            targets: HashSet::new(),
            problems: Vec::new(),
            linked: false,
            left_out: HashSet::new(),
            doubts: BTreeMap::new(),
            work: Work::default(),
        }
    }

    /// What all this cost so far.
    pub(super) fn work(&self) -> Work {
        self.work
    }

    /// Reads everything for the first time: objects without a creation time get none.
    pub(super) fn first(&mut self, stdin: &mut dyn Read, visit: &mut Visit<'_>) -> Vec<Change> {
        let mut readings = Vec::new();
        if self
            .config
            .paths
            .iter()
            .any(|path| path == Path::new(STDIN))
        {
            let file: Arc<Path> = Path::new("<stdin>").into();
            let reading = match read::read_stream(stdin, self.config.limits.file_bytes) {
                Ok(text) => self.parse(&file, &text, None),
                Err(error) => failed(&file, &error),
            };
            readings.push((file, reading));
        }
        let paths = self.look_everywhere(visit);
        readings.extend(self.look_at(paths, None));
        self.set.apply(readings)
    }

    /// Everything that is wrong, sorted by place.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut all = self.set.problems();
        all.extend(self.problems.iter().cloned());
        all.sort();
        // What is no file is told of by whoever comes upon it first, the scan or the reading.
        all.dedup();
        all
    }

    /// How many objects were skipped, by `apiVersion/kind`.
    pub(super) fn skipped(&self) -> BTreeMap<String, usize> {
        self.set.skipped().clone()
    }

    /// When some file must be looked at again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.doubts.values().map(|doubt| doubt.again).min()
    }

    /// Names of files that matter though nothing in their name says so.
    pub(super) fn odd_names(&self) -> HashSet<std::ffi::OsString> {
        self.config
            .paths
            .iter()
            .chain(&self.targets)
            .filter_map(|path| path.file_name().map(ToOwned::to_owned))
            .collect()
    }

    /// Looks at everything, and reads what changed.
    pub(super) fn rescan(&mut self, visit: &mut Visit<'_>) -> Vec<Change> {
        let paths = self.look_everywhere(visit);
        self.update(paths)
    }

    /// Looks at paths that something happened to. Where that can't tell all, looks at everything.
    pub(super) fn touch(
        &mut self,
        paths: impl IntoIterator<Item = PathBuf>,
        visit: &mut Visit<'_>,
    ) -> Vec<Change> {
        let mut files = Vec::new();
        let mut everything = false;
        for path in paths {
            let path = self.as_named(&path);
            if let Some((file, _)) = self.tracked.get_key_value(path) {
                files.push(file.clone());
                // It came back since, or something else happened to it: that it was missing counts no more.
                if self
                    .doubts
                    .get(path)
                    .is_some_and(|doubt| doubt.why == Why::Missing)
                {
                    self.doubts.remove(path);
                }
                // Links may lead here from elsewhere.
                everything |= self.linked;
                continue;
            }
            match self.concern(path) {
                Concern::Nothing => {}
                Concern::File => files.push(path.into()),
                Concern::Everything => everything = true,
            }
        }
        if everything {
            files.extend(self.look_everywhere(visit));
        }
        self.update(files)
    }

    /// A path under the name by which we know it: `./a.yaml` may have been given as `a.yaml`.
    fn as_named<'p>(&self, path: &'p Path) -> &'p Path {
        match path.strip_prefix(".") {
            Ok(bare) if self.config.paths.iter().any(|root| root == bare) => bare,
            _ => path,
        }
    }

    /// Looks again at files whose state was doubtful.
    pub(super) fn settle(&mut self) -> Vec<Change> {
        self.update(Vec::new())
    }

    fn update(&mut self, mut paths: Vec<Arc<Path>>) -> Vec<Change> {
        let now = Instant::now();
        let due = self.doubts.iter().filter(|(_, doubt)| doubt.again <= now);
        paths.extend(due.map(|(path, _)| path.clone()));
        paths.sort();
        paths.dedup();
        // In whole seconds, as an API server writes it.
        let made = Timestamp::from_second(Timestamp::now().as_second()).ok();
        let readings = self.look_at(paths, made);
        let changes = self.set.apply(readings);
        if changes
            .iter()
            .any(|change| matches!(change, Change::Remove(_)))
        {
            // There is room now for what found none before.
            for file in self.set.cut() {
                if let Some(tracked) = self.tracked.get_mut(file) {
                    tracked.hash = None;
                    let doubt = Doubt {
                        why: Why::Reread,
                        since: now,
                        again: now,
                    };
                    self.doubts.insert(file.clone(), doubt);
                }
            }
        }
        changes
    }

    /// Stats everything and answers which files to read.
    fn look_everywhere(&mut self, visit: &mut Visit<'_>) -> Vec<Arc<Path>> {
        self.work.scans += 1;
        let Scan {
            files,
            folders,
            targets,
            unseen,
            problems,
            linked,
            cut,
        } = scan::scan(&self.config.paths, &self.config.limits, visit);
        let taken: HashSet<Identity> = files.values().map(|stamp| stamp.identity).collect();
        let unseen = |path: &Path| unseen.iter().any(|above| path.starts_with(above));
        let mut paths: Vec<_> = self
            .tracked
            .keys()
            .filter(|path| !files.contains_key(*path) && !unseen(path))
            .cloned()
            .collect();
        // What is there but left out this time is read no more. (What is there and not left out came back
        // since: reading tells.)
        self.left_out = paths
            .iter()
            .filter(|path| match std::fs::metadata(path) {
                Ok(metadata) => cut || taken.contains(&read::identity(&metadata)),
                Err(_) => false,
            })
            .cloned()
            .collect();
        for (path, stamp) in files {
            let known = self.tracked.get(&path);
            if known.is_none_or(|known| !known.sure || known.stamp != stamp) {
                self.track(path.clone(), stamp);
                paths.push(path);
            }
        }
        self.folders = folders;
        self.targets = targets;
        self.problems = problems;
        self.linked = linked;
        paths
    }

    /// What an event at a path is about that is no file of ours yet.
    fn concern(&self, path: &Path) -> Concern {
        let name = path.file_name().unwrap_or_default();
        if !self.folders.contains(scan::parent(path)) && !self.folders.contains(path) {
            // Near a link's target, or near a file that was named outright.
            let wanted = self.targets.contains(path)
                || self.config.paths.iter().any(|root| root.starts_with(path))
                || name.as_encoded_bytes().starts_with(b"..");
            return if wanted {
                Concern::Everything
            } else {
                Concern::Nothing
            };
        }
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() || metadata.is_symlink() => Concern::Everything,
            Ok(metadata) if scan::is_eligible(name) => {
                let fresh = metadata.is_file()
                    && self.tracked.len() < self.config.limits.files
                    && !self.names.contains_key(&read::identity(&metadata));
                if fresh {
                    Concern::File
                } else {
                    Concern::Everything
                }
            }
            Ok(_) => Concern::Nothing,
            Err(_) if self.folders.contains(path) => Concern::Everything,
            // The link behind a ConfigMap volume; anything else that is gone was none of ours.
            Err(_) if name.as_encoded_bytes().starts_with(b"..") => Concern::Everything,
            Err(_) if scan::is_eligible(name) => Concern::Everything,
            Err(_) => Concern::Nothing,
        }
    }

    /// Notes a file as it is now, before it is read.
    fn track(&mut self, path: Arc<Path>, stamp: Stamp) {
        self.names.insert(stamp.identity, path.clone());
        let old = self.tracked.get(&path);
        let (hash, identity) = match old {
            Some(old) => (old.hash, old.stamp.identity),
            None => (None, stamp.identity),
        };
        if identity != stamp.identity {
            self.forget_name(identity, &path);
        }
        let sure = false;
        self.tracked.insert(path, Tracked { stamp, hash, sure });
    }

    /// Frees an identity, unless another path took it over.
    fn forget_name(&mut self, identity: Identity, path: &Arc<Path>) {
        if self.names.get(&identity) == Some(path) {
            self.names.remove(&identity);
        }
    }
}

/// What an event is about.
enum Concern {
    Nothing,
    /// This file and nothing else.
    File,
    /// More than its path tells.
    Everything,
}

#[cfg(test)]
mod tests;
