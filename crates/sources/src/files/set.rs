//! Stats all files, parses those that changed, and diffs their objects by key.
//!
//! In: the configured paths. Out: changes. A refresh costs a stat per file, and reads the files whose stat changed.
//!
//! - An object belongs to the file in which it was first seen, or to the first of these files by name if several appear
//!   in the same refresh. The same object in another file is an error until the first file is gone.
//! - Invalid input keeps its last good version: an object that can't be decoded, or all objects of a file that can't be
//!   read. A document without a readable name may be any object of its file, so none of the file's objects is removed
//!   while the document is invalid.
//! - Generations are counted as on an API server.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indexmap::IndexMap;
use jiff::Timestamp;
use rustc_hash::FxBuildHasher;
use sesame_api::{Object, ObjectKey};

use super::FilesConfig;
use super::decode::{self, Fingerprint, Found, Known, Parsed};
use super::error::FileError;
use super::read::{self, Content, Identity, ReadError, Stamp, identity};
use super::text::Format;
use super::walk::{self, FoundFile, Walk};
use crate::change::Change;

/// The path that selects standard input, and the name of standard input in errors.
pub(super) const STDIN: &str = "-";
const STDIN_NAME: &str = "<stdin>";

/// How long a file may be missing before its objects are removed: some editors move it away before writing the new
/// version.
const MISSING_GRACE: Duration = Duration::from_millis(60);

/// How long a file may be empty: some editors truncate it first.
const EMPTY_GRACE: Duration = Duration::from_millis(200);

/// How long a file may keep changing while it is read, and the delay before it is reread.
const TORN_GRACE: Duration = Duration::from_millis(300);
const TORN_DELAY: Duration = Duration::from_millis(15);

/// Two changes within one tick of the file system's clock leave the same stat, so a file that changed less than a tick
/// before it was read is reread by the next refresh. File systems without nanoseconds have ticks of up to two seconds.
const TICK: Duration = Duration::from_millis(20);
const COARSE_TICK: Duration = Duration::from_secs(2);

/// The time of a refresh.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefreshTime {
    pub(super) instant: Instant,
    pub(super) time: SystemTime,
}

impl RefreshTime {
    pub(super) fn now() -> Self {
        Self {
            instant: Instant::now(),
            time: SystemTime::now(),
        }
    }
}

/// Work counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) walks: u64,
    pub(super) reads: u64,
    pub(super) parses: u64,
}

/// All files and their objects.
pub(super) struct FileSet {
    config: FilesConfig,
    files: BTreeMap<Arc<Path>, File>,
    objects: IndexMap<ObjectKey, Slot, FxBuildHasher>,
    walk_errors: Vec<FileError>,
    folders: BTreeMap<PathBuf, Identity>,
    /// Number of objects across all files, including duplicates.
    count: usize,
    /// When to recheck a file in a transient state.
    due: Option<Instant>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct File {
    identity: Identity,
    /// The stat of the content that was read. `None` if the file must be reread.
    stamp: Option<Stamp>,
    /// The hash of the parsed bytes.
    hash: Option<u128>,
    transient: Option<(Transient, Instant)>,
    objects: BTreeMap<ObjectKey, Definition>,
    errors: Vec<FileError>,
    /// Whether some objects exceed the limit.
    cut: bool,
}

/// A state that may be an intermediate step of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transient {
    Missing,
    Empty(Stamp),
    Torn,
}

/// An object in a file.
#[derive(Debug)]
struct Definition {
    location: (u32, u32),
    fingerprint: Fingerprint,
    created: Option<Timestamp>,
    /// The object, until sent.
    object: Option<Object>,
}

/// An object, with all files that define it.
#[derive(Debug, Default)]
struct Slot {
    /// The files that define the object, sorted.
    files: Vec<Arc<Path>>,
    sent: Option<Sent>,
}

/// The last sent version of an object.
#[derive(Debug)]
struct Sent {
    file: Arc<Path>,
    generation: i64,
    fingerprint: Fingerprint,
    created: Option<Timestamp>,
}

impl FileSet {
    pub(super) fn new(config: FilesConfig) -> Self {
        Self {
            config,
            files: BTreeMap::new(),
            objects: IndexMap::default(),
            walk_errors: Vec::new(),
            folders: BTreeMap::new(),
            count: 0,
            due: None,
            counters: Counters::default(),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// The folders to watch, by absolute path.
    pub(super) fn folders(&self) -> &BTreeMap<PathBuf, Identity> {
        &self.folders
    }

    /// The latest time for the next refresh, apart from polling.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Reads all files for the first time. Objects without a creation time don't get one.
    pub(super) fn first(&mut self, stdin: &mut dyn Read) -> Vec<Change> {
        let mut touched = BTreeSet::new();
        let mut paths = self.config.paths.iter();
        if paths.any(|path| path == Path::new(STDIN)) {
            let path: Arc<Path> = Path::new(STDIN_NAME).into();
            match read::read_stream(stdin, self.config.limits.file_bytes) {
                Ok(text) => self.parse(&path, &text, None, &mut touched),
                Err(error) => self.unreadable(&path, &error),
            }
        }
        self.read_changed(RefreshTime::now(), None, &mut touched);
        self.changes(touched)
    }

    /// Stats all files and reads those that changed.
    pub(super) fn refresh(&mut self, now: RefreshTime) -> Vec<Change> {
        let mut touched = BTreeSet::new();
        // In whole seconds, like an API server.
        let seconds = now.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let created = i64::try_from(seconds.as_secs()).ok();
        let created = created.and_then(|second| Timestamp::from_second(second).ok());
        self.read_changed(now, created, &mut touched);
        let changes = self.changes(touched);
        if changes
            .iter()
            .any(|change| matches!(change, Change::Remove(_)))
        {
            // Removed objects make room for those beyond the limit.
            for file in self.files.values_mut().filter(|file| file.cut) {
                (file.stamp, file.hash) = (None, None);
                self.due = Some(now.instant);
            }
        }
        changes
    }

    fn read_changed(
        &mut self,
        now: RefreshTime,
        created: Option<Timestamp>,
        touched: &mut BTreeSet<ObjectKey>,
    ) {
        self.counters.walks += 1;
        self.due = None;
        let walk = walk::walk(&self.config.paths, &self.config.limits);
        let (missing, differing) = self.compare(&walk.files);
        self.remove_missing(missing, &walk, now, touched);
        for (path, stamp) in differing {
            let file = self.files.entry(path.clone()).or_default();
            if let Some((Transient::Missing, _)) = file.transient {
                file.transient = None;
            }
            file.identity = stamp.identity;
            if file.stamp != Some(stamp) {
                self.read(&path, now, created, touched);
            }
        }
        self.walk_errors = walk.errors;
        self.folders = walk.folders;
    }

    /// The known files that were not found, and the files that are new or differ. `found` is sorted by path.
    fn compare(&self, found: &[FoundFile]) -> (Vec<Arc<Path>>, Vec<FoundFile>) {
        let (mut missing, mut differing) = (Vec::new(), Vec::new());
        let mut known = self.files.iter().peekable();
        for (path, stamp) in found {
            while let Some((gone, _)) = known.next_if(|(known, _)| *known < path) {
                missing.push(gone.clone());
            }
            let file = known.next_if(|(known, _)| *known == path);
            let same = file.is_some_and(|(_, file)| {
                file.stamp == Some(*stamp)
                    && !matches!(file.transient, Some((Transient::Missing, _)))
            });
            if !same {
                differing.push((path.clone(), *stamp));
            }
        }
        missing.extend(known.map(|(gone, _)| gone.clone()));
        (missing, differing)
    }

    /// Removes the objects of files that are gone for good.
    fn remove_missing(
        &mut self,
        missing: Vec<Arc<Path>>,
        walk: &Walk,
        now: RefreshTime,
        touched: &mut BTreeSet<ObjectKey>,
    ) {
        if missing.is_empty() {
            return;
        }
        let unseen = |path: &Path| walk.unseen.iter().any(|above| path.starts_with(above));
        // A renamed file that is empty is being saved.
        let found = walk.files.iter().filter(|(_, stamp)| stamp.size > 0);
        let found: HashSet<Identity> = found.map(|(_, stamp)| stamp.identity).collect();
        for path in missing {
            if unseen(&path) || *path == *Path::new(STDIN_NAME) {
                continue;
            }
            let Some(file) = self.files.get_mut(&path) else {
                continue;
            };
            let gone = match fs::metadata(&path) {
                // The file exceeds a limit, is another name for a file that is read, or has reappeared.
                Ok(metadata) => {
                    walk.cut
                        || !metadata.is_file()
                        || found.contains(&identity(&metadata))
                        || file.lasts(Transient::Missing, now, MISSING_GRACE)
                }
                // Renamed, or missing for some time.
                Err(_) => {
                    file.objects.is_empty()
                        || found.contains(&file.identity)
                        || file.lasts(Transient::Missing, now, MISSING_GRACE)
                }
            };
            match gone {
                true => self.remove(&path, touched),
                false => self.wait(now, MISSING_GRACE),
            }
        }
    }

    fn remove(&mut self, path: &Arc<Path>, touched: &mut BTreeSet<ObjectKey>) {
        let file = self.files.remove(path).unwrap_or_default();
        for key in file.objects.into_keys() {
            self.release(path, &key);
            touched.insert(key);
        }
    }

    fn read(
        &mut self,
        path: &Arc<Path>,
        now: RefreshTime,
        created: Option<Timestamp>,
        touched: &mut BTreeSet<ObjectKey>,
    ) {
        self.counters.reads += 1;
        let content = read::read_file(path, self.config.limits.file_bytes);
        let Some(file) = self.files.get_mut(path) else {
            return;
        };
        let Content {
            text,
            hash,
            stamp,
            torn,
        } = match content {
            Ok(content) => content,
            // The next refresh decides.
            Err(ReadError::Missing) => {
                file.stamp = None;
                return self.wait(now, MISSING_GRACE);
            }
            Err(error) => return self.unreadable(path, &error),
        };
        if !file.objects.is_empty() {
            if torn && !file.lasts(Transient::Torn, now, TORN_GRACE) {
                return self.wait(now, TORN_DELAY);
            }
            let empty = Transient::Empty(stamp);
            if text.trim_ascii().is_empty() && !file.lasts(empty, now, EMPTY_GRACE) {
                return self.wait(now, EMPTY_GRACE);
            }
        }
        let tick = match stamp.coarse() {
            true => COARSE_TICK,
            false => TICK,
        };
        let age = now.time.duration_since(stamp.time()).unwrap_or_default();
        file.stamp = (!torn && age >= tick).then_some(stamp);
        file.transient = None;
        if file.hash.replace(hash) != Some(hash) {
            self.parse(path, &text, created, touched);
        }
    }

    /// Requests a refresh after a delay.
    fn wait(&mut self, now: RefreshTime, delay: Duration) {
        let at = now.instant + delay;
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Records that a file can't be read; its objects stay.
    fn unreadable(&mut self, path: &Arc<Path>, error: &ReadError) {
        let stamp = fs::metadata(path).ok().map(|metadata| Stamp::of(&metadata));
        let file = self.files.entry(path.clone()).or_default();
        (file.stamp, file.hash, file.transient) = (stamp, None, None);
        let error = FileError::of_file(&**path, error.to_string());
        file.errors = vec![match file.objects.len() {
            0 => error,
            1 => error.hint("the last good version of its object stays in use"),
            count => error.hint(format!(
                "the last good version of its {count} objects stays in use"
            )),
        }];
    }

    fn parse(
        &mut self,
        path: &Arc<Path>,
        text: &str,
        created: Option<Timestamp>,
        touched: &mut BTreeSet<ObjectKey>,
    ) {
        self.counters.parses += 1;
        let extension = path.extension();
        let format = match extension.is_some_and(|name| name.eq_ignore_ascii_case("json")) {
            true => Format::Json,
            false => Format::Yaml,
        };
        let mut file = self.files.remove(path).unwrap_or_default();
        let known = |key: &ObjectKey| Known {
            fingerprint: file.objects.get(key).map(|known| known.fingerprint),
            created: match self.objects.get(key).and_then(|slot| slot.sent.as_ref()) {
                Some(sent) => sent.created,
                None => created,
            },
        };
        let parsed = decode::parse(path, text, format, &self.config, &known);
        self.update(path, &mut file, parsed, touched);
        self.files.insert(path.clone(), file);
    }

    /// Replaces the objects of a file.
    fn update(
        &mut self,
        path: &Arc<Path>,
        file: &mut File,
        parsed: Parsed,
        touched: &mut BTreeSet<ObjectKey>,
    ) {
        let mut before = std::mem::take(&mut file.objects);
        let mut objects: BTreeMap<ObjectKey, Definition> = BTreeMap::new();
        let mut errors = parsed.errors;
        file.cut = false;
        for found in parsed.found {
            let Found {
                key,
                object,
                location,
                created,
                fingerprint,
            } = found;
            if let Some(first) = objects.get(&key) {
                errors.push(|| duplicate(path, &key, location, path, first.location));
                continue;
            }
            let known = before.remove(&key);
            if known.is_none() {
                if self.count >= self.config.limits.objects {
                    file.cut = true;
                    continue;
                }
                self.hold(path, &key);
            }
            touched.insert(key.clone());
            let definition = Definition {
                location,
                fingerprint,
                created,
                object: object.or_else(|| known.and_then(|known| known.object)),
            };
            objects.insert(key, definition);
        }
        for (key, definition) in before {
            if parsed.unnamed || parsed.invalid.contains(&key) {
                objects.insert(key, definition);
            } else {
                self.release(path, &key);
                touched.insert(key);
            }
        }
        // Inserting in order leaves the nodes of a tree half empty; collecting fills them.
        file.objects = objects.into_iter().collect();
        file.errors = errors.into_vec(path);
        if file.cut {
            let message = format!(
                "more than {} objects across all files",
                self.config.limits.objects
            );
            file.errors.push(
                FileError::of_file(&**path, message).hint("objects beyond this limit are not read"),
            );
        }
    }

    fn hold(&mut self, path: &Arc<Path>, key: &ObjectKey) {
        self.count += 1;
        let files = &mut self.objects.entry(key.clone()).or_default().files;
        if let Err(at) = files.binary_search(path) {
            files.reserve_exact(1);
            files.insert(at, path.clone());
        }
    }

    fn release(&mut self, path: &Arc<Path>, key: &ObjectKey) {
        self.count -= 1;
        if let Some(slot) = self.objects.get_mut(key) {
            slot.files.retain(|file| file != path);
        }
    }

    fn changes(&mut self, touched: BTreeSet<ObjectKey>) -> Vec<Change> {
        let changes = touched.into_iter().filter_map(|key| self.change(key));
        changes.collect()
    }

    /// Decides which file provides an object, and compares the object with its last sent version.
    fn change(&mut self, key: ObjectKey) -> Option<Change> {
        let slot = self.objects.get_mut(&key)?;
        let path = match &slot.sent {
            Some(sent) if slot.files.binary_search(&sent.file).is_ok() => sent.file.clone(),
            _ => match slot.files.first() {
                Some(first) => first.clone(),
                None => {
                    let sent = self.objects.swap_remove(&key)?.sent;
                    return sent.map(|_| Change::Remove(key));
                }
            },
        };
        let definition = self.files.get_mut(&path)?.objects.get_mut(&key)?;
        let object = definition.object.take();
        let generation = match &mut slot.sent {
            Some(sent) if sent.fingerprint == definition.fingerprint => {
                sent.file = path;
                return None;
            }
            Some(sent) if sent.fingerprint.spec == definition.fingerprint.spec => sent.generation,
            Some(sent) => sent.generation + 1,
            None => 1,
        };
        slot.sent = Some(Sent {
            file: path,
            generation,
            fingerprint: definition.fingerprint,
            created: definition.created,
        });
        // A definition that differs from the last sent version hasn't been sent, so it still has its object.
        let mut object = object?;
        object.set_generation(generation);
        Some(Change::Upsert(object))
    }

    /// All errors, sorted by location.
    pub(super) fn errors(&self) -> Vec<FileError> {
        let mut all = self.walk_errors.clone();
        all.extend(self.files.values().flat_map(|file| &file.errors).cloned());
        if self.count > self.objects.len() {
            let several = self.objects.iter().filter(|(_, slot)| slot.files.len() > 1);
            all.extend(several.flat_map(|(key, slot)| self.duplicates(key, slot)));
        }
        all.sort();
        // For a path that isn't a file, walking and reading give the same error.
        all.dedup();
        all
    }

    fn duplicates(&self, key: &ObjectKey, slot: &Slot) -> Vec<FileError> {
        let location = |path: &Arc<Path>| Some(self.files.get(path)?.objects.get(key)?.location);
        let used = slot.sent.as_ref().map(|sent| &sent.file);
        let Some((used, first)) = used.and_then(|used| Some((used, location(used)?))) else {
            return Vec::new();
        };
        let others = slot.files.iter().filter(|path| *path != used);
        let error = |path: &Arc<Path>| Some(duplicate(path, key, location(path)?, used, first));
        others.filter_map(error).collect()
    }
}

impl File {
    /// Whether the file has been in this state for at least `grace`.
    fn lasts(&mut self, state: Transient, now: RefreshTime, grace: Duration) -> bool {
        match self.transient {
            Some((before, since)) if before == state => now.instant - since >= grace,
            _ => {
                self.transient = Some((state, now.instant));
                false
            }
        }
    }
}

fn duplicate(
    path: &Path,
    key: &ObjectKey,
    location: (u32, u32),
    first: &Path,
    (line, column): (u32, u32),
) -> FileError {
    let first = first.display();
    let message = format!("already defined at {first}:{line}:{column}, which takes precedence");
    FileError::of_file(path, message)
        .at(location)
        .about(Some(key.clone()))
        .hint("remove one of them, or change its name or namespace")
}

#[cfg(test)]
mod tests;
