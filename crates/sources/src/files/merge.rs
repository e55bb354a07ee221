//! The files' objects as one set.
//!
//! In: what was read of each file. Out: changes of the set, and all problems. Pure: no file, no clock.
//!
//! - An object belongs to the file in which it was first seen, of files seen together to the first by
//!   name. The same object elsewhere is a problem, and takes over when the first is gone.
//! - What is broken keeps its last good state: an object that doesn't decode, or every object of a file
//!   that can't be read. A document in which even the object's name can't be read may be any of its
//!   file's objects, so none of them goes while it is broken.
//! - Generations count as in a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rustc_hash::FxHashMap;
use sesame_api::{Object, ObjectKey};

use super::decode::{Before, Broken, Found, Parsed};
use super::fingerprint::Fingerprint;
use super::problem::Problem;
use crate::change::Change;

/// Problems that are kept of one file: further ones say nothing new.
const PROBLEMS_PER_FILE: usize = 100;

/// What was read of a file.
#[derive(Debug)]
pub(super) enum Reading {
    /// Its text was read.
    Parsed(Parsed),
    /// It is there, but can't be read.
    Failed(Problem),
    /// It is gone.
    Gone,
}

/// All objects of all files.
#[derive(Debug)]
pub(super) struct Set {
    files: BTreeMap<Arc<Path>, FileState>,
    /// Boxed: a hash map is up to half empty.
    objects: FxHashMap<ObjectKey, Box<Slot>>,
    /// Objects that more than one file has.
    contested: BTreeSet<ObjectKey>,
    /// Files that have problems, and files of which not all objects found room.
    faulty: BTreeSet<Arc<Path>>,
    cut: BTreeSet<Arc<Path>>,
    /// Skipped objects of all files, by `apiVersion/kind`.
    skipped: BTreeMap<String, usize>,
    /// Objects of all files together, and how many they may be.
    claims: usize,
    most: usize,
}

#[derive(Debug, Default)]
struct FileState {
    claims: BTreeMap<ObjectKey, Claim>,
    problems: Vec<Problem>,
    skipped: BTreeMap<String, usize>,
}

/// An object in a file.
#[derive(Debug)]
struct Claim {
    place: (u32, u32),
    fingerprint: Fingerprint,
    created: Option<Timestamp>,
    /// The object, as long as it was not handed out.
    waiting: Option<Object>,
}

/// An object in the set.
#[derive(Debug, Default)]
struct Slot {
    /// The files that have it, sorted.
    holders: Vec<Arc<Path>>,
    served: Option<Served>,
}

/// What the set's reader was last told of an object.
#[derive(Debug)]
struct Served {
    file: Arc<Path>,
    generation: i64,
    fingerprint: Fingerprint,
    created: Option<Timestamp>,
}

impl Set {
    /// An empty set of at most `most` objects.
    pub(super) fn new(most: usize) -> Self {
        Self {
            files: BTreeMap::new(),
            objects: FxHashMap::default(),
            contested: BTreeSet::new(),
            faulty: BTreeSet::new(),
            cut: BTreeSet::new(),
            skipped: BTreeMap::new(),
            claims: 0,
            most,
        }
    }

    /// What is known before `file` is read. Objects that nobody knows are made `now`.
    pub(super) fn before<'a>(
        &'a self,
        file: &'a Path,
        now: Option<Timestamp>,
    ) -> impl Before + use<'a> {
        Known {
            set: self,
            file: self.files.get(file),
            now,
        }
    }

    /// Whether a file has objects in the set.
    pub(super) fn holds(&self, file: &Path) -> bool {
        self.files
            .get(file)
            .is_some_and(|state| !state.claims.is_empty())
    }

    /// Files of which not all objects found room.
    pub(super) fn cut(&self) -> impl Iterator<Item = &Arc<Path>> {
        self.cut.iter()
    }

    /// How many objects were skipped because nothing reads their kind, by `apiVersion/kind`.
    pub(super) fn skipped(&self) -> &BTreeMap<String, usize> {
        &self.skipped
    }

    /// Takes in what was read, and answers what changed, ordered by key.
    pub(super) fn apply(&mut self, mut readings: Vec<(Arc<Path>, Reading)>) -> Vec<Change> {
        readings.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut touched = BTreeSet::new();
        for (file, reading) in readings {
            self.take(&file, reading, &mut touched);
        }
        touched
            .into_iter()
            .filter_map(|key| self.settle(key))
            .collect()
    }

    fn take(&mut self, file: &Arc<Path>, reading: Reading, touched: &mut BTreeSet<ObjectKey>) {
        match reading {
            Reading::Parsed(parsed) => self.parsed(file, parsed, touched),
            Reading::Failed(problem) => {
                let state = self.files.entry(file.clone()).or_default();
                let kept = state.claims.len();
                state.problems = vec![match kept {
                    0 => problem,
                    1 => problem.hint("the object last read from it stays"),
                    _ => problem.hint(format!("the {kept} objects last read from it stay")),
                }];
                self.faulty.insert(file.clone());
            }
            Reading::Gone => {
                self.faulty.remove(file);
                self.cut.remove(file);
                if let Some(state) = self.files.remove(file) {
                    self.count_skipped(&state.skipped, &BTreeMap::new());
                    for key in state.claims.into_keys() {
                        self.release(file, &key);
                        touched.insert(key);
                    }
                }
            }
        }
    }

    fn parsed(&mut self, file: &Arc<Path>, parsed: Parsed, touched: &mut BTreeSet<ObjectKey>) {
        let mut state = self.files.remove(file).unwrap_or_default();
        let mut old = std::mem::take(&mut state.claims);
        let mut problems = Vec::new();
        // What stays because it is broken now.
        let nameless = parsed.broken.iter().any(|broken| broken.key.is_none());
        let kept: BTreeSet<ObjectKey> = if nameless {
            old.keys().cloned().collect()
        } else {
            let broken = parsed.broken.iter().filter_map(|broken| broken.key.clone());
            broken.filter(|key| old.contains_key(key)).collect()
        };
        for Broken { key, problem } in parsed.broken {
            let stays = key.is_some_and(|key| kept.contains(&key));
            problems.push(if stays && problem.hint.is_none() {
                problem.hint("its last good state stays")
            } else {
                problem
            });
        }
        let mut claims: BTreeMap<ObjectKey, Claim> = BTreeMap::new();
        let mut cut = false;
        for found in parsed.found {
            if let Some(first) = claims.get(&found.key) {
                problems.push(duplicate(file, &found.key, found.place, file, first.place));
                continue;
            }
            let before = old.remove(&found.key);
            if before.is_none() {
                if self.claims >= self.most {
                    cut = true;
                    continue;
                }
                self.claims += 1;
                self.hold(file, &found.key);
            }
            touched.insert(found.key.clone());
            let Found {
                key,
                object,
                place,
                created,
                fingerprint,
            } = found;
            let waiting = object.or_else(|| before.and_then(|claim| claim.waiting));
            claims.insert(
                key,
                Claim {
                    place,
                    fingerprint,
                    created,
                    waiting,
                },
            );
        }
        for (key, claim) in old {
            if kept.contains(&key) {
                claims.insert(key, claim);
            } else {
                self.release(file, &key);
                touched.insert(key);
            }
        }
        if cut {
            self.cut.insert(file.clone());
            let message = format!("more than {} objects in all files together", self.most);
            problems.push(Problem::of_file(&**file, message).hint("the further ones are left out"));
        } else {
            self.cut.remove(file);
        }
        if problems.len() > PROBLEMS_PER_FILE {
            problems.sort();
            let more = problems.len() - PROBLEMS_PER_FILE;
            problems.truncate(PROBLEMS_PER_FILE);
            problems.push(Problem::of_file(
                &**file,
                format!("and {more} more problems"),
            ));
        }
        if problems.is_empty() {
            self.faulty.remove(file);
        } else {
            self.faulty.insert(file.clone());
        }
        self.count_skipped(&state.skipped, &parsed.skipped);
        state.problems = problems;
        // Collected anew, since a tree that grew in order is half empty.
        state.claims = claims.into_iter().collect();
        state.skipped = parsed.skipped;
        self.files.insert(file.clone(), state);
    }

    fn count_skipped(&mut self, old: &BTreeMap<String, usize>, new: &BTreeMap<String, usize>) {
        for (kind, count) in new {
            *self.skipped.entry(kind.clone()).or_default() += count;
        }
        for (kind, count) in old {
            if let Some(all) = self.skipped.get_mut(kind) {
                *all -= count;
                if *all == 0 {
                    self.skipped.remove(kind);
                }
            }
        }
    }

    fn hold(&mut self, file: &Arc<Path>, key: &ObjectKey) {
        let slot = self.objects.entry(key.clone()).or_default();
        if let Err(at) = slot.holders.binary_search(file) {
            slot.holders.reserve_exact(1);
            slot.holders.insert(at, file.clone());
        }
        if slot.holders.len() > 1 {
            self.contested.insert(key.clone());
        }
    }

    fn release(&mut self, file: &Arc<Path>, key: &ObjectKey) {
        self.claims -= 1;
        if let Some(slot) = self.objects.get_mut(key) {
            slot.holders.retain(|holder| holder != file);
            if slot.holders.len() < 2 {
                self.contested.remove(key);
            }
        }
    }

    /// Decides which file an object is taken from, and tells if it became another.
    fn settle(&mut self, key: ObjectKey) -> Option<Change> {
        let slot = self.objects.get_mut(&key)?;
        let owner = match &slot.served {
            Some(served) if slot.holders.binary_search(&served.file).is_ok() => &served.file,
            _ => match slot.holders.first() {
                Some(first) => first,
                None => {
                    let served = self.objects.remove(&key)?.served;
                    return served.map(|_| Change::Remove(key));
                }
            },
        };
        let owner = owner.clone();
        let claim = self.files.get_mut(&owner)?.claims.get_mut(&key)?;
        let waiting = claim.waiting.take();
        let generation = match &mut slot.served {
            Some(served) if served.fingerprint == claim.fingerprint => {
                served.file = owner;
                return None;
            }
            Some(served) if served.fingerprint.spec == claim.fingerprint.spec => served.generation,
            Some(served) => served.generation + 1,
            None => 1,
        };
        slot.served = Some(Served {
            file: owner,
            generation,
            fingerprint: claim.fingerprint,
            created: claim.created,
        });
        // A claim whose content is not the served one was never handed out, so its object is here.
        let mut object = waiting?;
        object.set_generation(generation);
        Some(Change::Upsert(object))
    }

    /// All problems of all files, sorted by place.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut all: Vec<Problem> = self
            .faulty
            .iter()
            .filter_map(|file| self.files.get(file))
            .flat_map(|state| state.problems.iter().cloned())
            .collect();
        for key in &self.contested {
            all.extend(self.rivals(key));
        }
        all.sort();
        all
    }

    /// The problems of an object that several files have.
    fn rivals(&self, key: &ObjectKey) -> Vec<Problem> {
        let place = |file: &Arc<Path>| Some(self.files.get(file)?.claims.get(key)?.place);
        let Some(slot) = self.objects.get(key) else {
            return Vec::new();
        };
        let Some(owner) = slot.served.as_ref().map(|served| &served.file) else {
            return Vec::new();
        };
        let Some(first) = place(owner) else {
            return Vec::new();
        };
        slot.holders
            .iter()
            .filter(|holder| *holder != owner)
            .filter_map(|holder| Some(duplicate(holder, key, place(holder)?, owner, first)))
            .collect()
    }
}

fn duplicate(
    file: &Path,
    key: &ObjectKey,
    place: (u32, u32),
    first: &Path,
    first_place: (u32, u32),
) -> Problem {
    let (line, column) = first_place;
    let message = format!(
        "already defined at {}:{line}:{column}, which counts",
        first.display()
    );
    Problem::of_file(file, message)
        .at(place)
        .about(Some(key.clone()))
        .hint("remove one of the two, or give it another name or namespace")
}

struct Known<'a> {
    set: &'a Set,
    file: Option<&'a FileState>,
    now: Option<Timestamp>,
}

impl Before for Known<'_> {
    fn same(&self, key: &ObjectKey, content: Fingerprint) -> bool {
        self.file
            .and_then(|file| file.claims.get(key))
            .is_some_and(|claim| claim.fingerprint == content)
    }

    fn created(&self, key: &ObjectKey) -> Option<Timestamp> {
        match self
            .set
            .objects
            .get(key)
            .and_then(|slot| slot.served.as_ref())
        {
            Some(served) => served.created,
            None => self.now,
        }
    }
}

#[cfg(test)]
mod tests;
