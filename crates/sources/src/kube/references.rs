//! Secrets and ConfigMaps referenced by other objects.
//!
//! In: objects and their references, metadata seen by watchers, results of GETs. Out: objects, each passed on once
//! everything it references is known, and commands for GETs. Only referenced and required data is read, and referenced
//! data is removed with its last reference.
//!
//! Secrets are not watched with their data: a watch would transfer and hold every Secret in the cluster, most of which
//! are unrelated and some as large as 1 MiB. Metadata takes a few hundred bytes per Secret, none of which is kept. A
//! referenced Secret takes one GET, plus one per change.
//!
//! Data can't be stale: metadata only triggers a GET, which reads the latest state because it doesn't specify a
//! resourceVersion. If metadata arrives during a GET, another GET follows. Versions are compared only to skip a GET
//! that wouldn't return anything new.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Instant;

use sesame_api::{Kind, Object, ObjectKey};

use super::outbox::Outbox;

/// Starts or cancels fetching a Secret or ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FetchCommand {
    /// Fetch it, retrying until there is a result. Replaces an earlier fetch.
    Start(ObjectKey, FetchId),
    Cancel(ObjectKey),
}

/// Identifies a fetch. Only the result of an object's latest fetch is used.
pub(super) type FetchId = u64;

/// The result of a fetch.
#[derive(Debug)]
pub(super) enum Found {
    Object {
        object: Box<Object>,
        version: Box<str>,
        fingerprint: u64,
    },
    /// The object doesn't exist.
    Nothing,
    /// The object can't be decoded; its last good version stays.
    Unreadable(String),
    /// The server refuses the GET. The fetch continues, but objects no longer wait for it.
    Denied,
}

/// All references.
#[derive(Debug, Default)]
pub(super) struct References {
    referenced: HashMap<ObjectKey, Referenced>,
    /// Fetched without a reference, and never removed.
    required: Box<[ObjectKey]>,
    /// The references of objects already passed on.
    by_referrer: HashMap<ObjectKey, Box<[ObjectKey]>>,
    /// Objects that wait for objects they reference.
    waiting: HashMap<ObjectKey, Waiting>,
    /// The referenced objects in the current list of each watcher.
    listing: HashMap<usize, HashSet<ObjectKey>>,
    last_id: FetchId,
    commands: Vec<FetchCommand>,
}

#[derive(Debug, Default)]
struct Referenced {
    /// Number of references, including those from waiting objects.
    count: u32,
    data: Data,
    /// The current fetch.
    fetch: Option<FetchId>,
    /// The last observation during the fetch, if any.
    seen: Option<Seen>,
    /// Objects that may wait for this one.
    referrers: BTreeSet<ObjectKey>,
}

#[derive(Debug)]
enum Seen {
    Version(Box<str>),
    /// A complete list doesn't contain the object.
    Missing,
}

#[derive(Debug, Default)]
enum Data {
    #[default]
    Unknown,
    Nothing,
    Held {
        version: Box<str>,
        fingerprint: u64,
    },
}

#[derive(Debug)]
struct Waiting {
    object: Object,
    keys: Box<[ObjectKey]>,
    at: Instant,
}

impl References {
    /// Fetches these objects, whether or not another one refers to them.
    pub(super) fn require(&mut self, keys: Vec<ObjectKey>) {
        for key in &keys {
            self.acquire(key);
        }
        self.required = keys.into();
    }

    /// Records a new or changed object. `keys` are the objects that it references, without duplicates.
    pub(super) fn upsert(
        &mut self,
        object: Object,
        keys: Vec<ObjectKey>,
        at: Instant,
        out: &mut Outbox,
    ) {
        let keys: Box<[ObjectKey]> = keys.into();
        let referrer = object.key();
        for key in &keys {
            self.acquire(key);
        }
        if let Some(before) = self.waiting.remove(&referrer) {
            self.release(&before.keys, at, out);
        }
        if self.known(&keys) {
            return self.pass_on(object, keys, at, out);
        }
        for key in &keys {
            let referenced = self.referenced.get_mut(key).expect("acquired above");
            if matches!(referenced.data, Data::Unknown) {
                referenced.referrers.insert(referrer.clone());
            }
        }
        self.waiting.insert(referrer, Waiting { object, keys, at });
    }

    /// Records a deleted object.
    pub(super) fn remove(&mut self, key: ObjectKey, at: Instant, out: &mut Outbox) {
        if let Some(waiting) = self.waiting.remove(&key) {
            self.release(&waiting.keys, at, out);
        }
        if let Some(keys) = self.by_referrer.remove(&key) {
            self.release(&keys, at, out);
        }
        out.remove(key, at);
    }

    /// Begins a metadata list.
    pub(super) fn list_begins(&mut self, watcher: usize) {
        self.listing.insert(watcher, HashSet::new());
    }

    /// Records that an object has this version, or had it when it was deleted.
    pub(super) fn seen(&mut self, watcher: usize, key: ObjectKey, version: &str) {
        let Some(referenced) = self.referenced.get_mut(&key) else {
            return;
        };
        if let Some(listed) = self.listing.get_mut(&watcher) {
            listed.insert(key.clone());
        }
        match &referenced.data {
            Data::Held { version: held, .. } if !newer(version, held) => {}
            _ if referenced.fetch.is_some() => {
                referenced.seen = Some(Seen::Version(version.into()));
            }
            _ => self.fetch(key),
        }
    }

    /// Ends a metadata list. Referenced objects that are missing from the list may have been deleted.
    pub(super) fn list_ends(&mut self, watcher: usize, kind: Kind, namespace: Option<&str>) {
        let Some(listed) = self.listing.remove(&watcher) else {
            return;
        };
        let in_list = |key: &ObjectKey| {
            key.kind == kind && namespace.is_none_or(|namespace| *key.namespace == *namespace)
        };
        let mut doubtful = Vec::new();
        for (key, referenced) in &mut self.referenced {
            if !in_list(key) || listed.contains(key) {
                continue;
            }
            if referenced.fetch.is_some() {
                // The server may have read the object before it was deleted.
                referenced.seen = Some(Seen::Missing);
            } else if !matches!(referenced.data, Data::Nothing) {
                doubtful.push(key.clone());
            }
        }
        doubtful.sort_unstable();
        for key in doubtful {
            self.fetch(key);
        }
    }

    /// Handles the result of a fetch.
    pub(super) fn fetched(
        &mut self,
        key: &ObjectKey,
        id: FetchId,
        found: Found,
        at: Instant,
        out: &mut Outbox,
    ) {
        let Some(referenced) = self.referenced.get_mut(key) else {
            return;
        };
        if referenced.fetch != Some(id) {
            return;
        }
        if !matches!(found, Found::Denied) {
            referenced.fetch = None;
        }
        match found {
            Found::Object {
                object,
                version,
                fingerprint,
            } => {
                let same = |data: &Data| matches!(data, Data::Held { fingerprint: held, .. } if *held == fingerprint);
                if !same(&referenced.data) {
                    out.upsert(*object, at);
                }
                referenced.data = Data::Held {
                    version,
                    fingerprint,
                };
            }
            Found::Nothing => {
                if matches!(referenced.data, Data::Held { .. }) {
                    out.remove(key.clone(), at);
                }
                referenced.data = Data::Nothing;
            }
            Found::Unreadable(_) | Found::Denied => {
                if matches!(referenced.data, Data::Unknown) {
                    referenced.data = Data::Nothing;
                }
            }
        }
        if referenced.fetch.is_none()
            && let Some(seen) = referenced.seen.take()
        {
            let stale = match (&referenced.data, &seen) {
                (Data::Held { version: held, .. }, Seen::Version(version)) => newer(version, held),
                (Data::Nothing, Seen::Missing) => false,
                _ => true,
            };
            if stale {
                self.fetch(key.clone());
            }
        }
        self.pass_on_referrers(key, out);
    }

    /// Whether this is the object's current fetch.
    pub(super) fn awaits(&self, key: &ObjectKey, id: FetchId) -> bool {
        let referenced = self.referenced.get(key);
        referenced.is_some_and(|referenced| referenced.fetch == Some(id))
    }

    pub(super) fn take_commands(&mut self) -> Vec<FetchCommand> {
        std::mem::take(&mut self.commands)
    }

    /// Whether any object is waiting for objects it references, or a required one is still unknown.
    pub(super) fn any_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.known(&self.required)
    }

    fn known(&self, keys: &[ObjectKey]) -> bool {
        keys.iter().all(|key| {
            let referenced = self.referenced.get(key);
            referenced.is_none_or(|referenced| !matches!(referenced.data, Data::Unknown))
        })
    }

    fn acquire(&mut self, key: &ObjectKey) {
        let referenced = self.referenced.entry(key.clone()).or_default();
        referenced.count += 1;
        if referenced.count == 1 {
            self.fetch(key.clone());
        }
    }

    fn release(&mut self, keys: &[ObjectKey], at: Instant, out: &mut Outbox) {
        for key in keys {
            let Some(referenced) = self.referenced.get_mut(key) else {
                continue;
            };
            referenced.count -= 1;
            if referenced.count > 0 {
                continue;
            }
            if matches!(referenced.data, Data::Held { .. }) {
                out.remove(key.clone(), at);
            }
            self.referenced.remove(key);
            self.commands.push(FetchCommand::Cancel(key.clone()));
        }
    }

    fn fetch(&mut self, key: ObjectKey) {
        self.last_id += 1;
        if let Some(referenced) = self.referenced.get_mut(&key) {
            referenced.fetch = Some(self.last_id);
            referenced.seen = None;
        }
        self.commands.push(FetchCommand::Start(key, self.last_id));
    }

    fn pass_on(&mut self, object: Object, keys: Box<[ObjectKey]>, at: Instant, out: &mut Outbox) {
        let referrer = object.key();
        let before = match keys.is_empty() {
            true => self.by_referrer.remove(&referrer),
            false => self.by_referrer.insert(referrer, keys),
        };
        out.upsert(object, at);
        self.release(&before.unwrap_or_default(), at, out);
    }

    /// Passes on the objects that were waiting only for this one.
    fn pass_on_referrers(&mut self, key: &ObjectKey, out: &mut Outbox) {
        let Some(referenced) = self.referenced.get_mut(key) else {
            return;
        };
        for referrer in std::mem::take(&mut referenced.referrers) {
            let ready = |waiting: &Waiting| self.known(&waiting.keys);
            if self.waiting.get(&referrer).is_some_and(ready)
                && let Some(Waiting { object, keys, at }) = self.waiting.remove(&referrer)
            {
                self.pass_on(object, keys, at, out);
            }
        }
    }
}

/// Whether a version is newer than another. resourceVersions are increasing numbers (guaranteed since Kubernetes 1.35);
/// for other formats, any difference counts as newer.
fn newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}

#[cfg(test)]
mod tests;
