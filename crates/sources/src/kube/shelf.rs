//! What one list-and-watch has seen of one kind.
//!
//! In: objects as text, in lists and as changes. Out: what differs from before, and the status of every object seen. Of each object
//! its name and a fingerprint are kept, nothing else. Knows nothing of requests.

use std::collections::HashMap;

use rustc_hash::FxHashMap;
use sesame_api::{Kind, LiveStatus, Object, ObjectKey};

use super::reading::{Identity, Reading};

/// What came of an event.
#[derive(Debug)]
pub(super) enum Step {
    /// The object is new, or translation would read it differently now.
    Upsert(Box<Object>),
    /// The object is gone.
    Remove(ObjectKey),
    /// What stands in its status. `None`: the object is gone.
    Live(ObjectKey, Option<LiveStatus>),
    /// The object can't be decoded; its last good version counts.
    Unreadable(ObjectKey, String),
    /// It can be decoded again, or is gone.
    Readable(ObjectKey),
    /// The server told something that is no object.
    Nonsense(String),
}

/// The objects of a kind that one list-and-watch has seen.
#[derive(Debug)]
pub(super) struct Shelf {
    kind: Kind,
    /// By `namespace/name`: a name alone where there are no namespaces.
    held: FxHashMap<Box<str>, Entry>,
    /// The objects that can't be decoded now, and the list that they were last seen in.
    unreadable: HashMap<Box<str>, u32>,
    /// Counts lists: what a complete list did not show is gone.
    list: u32,
}

#[derive(Debug)]
struct Entry {
    fingerprint: u64,
    list: u32,
}

impl Shelf {
    /// A shelf that has seen nothing.
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            held: FxHashMap::default(),
            unreadable: HashMap::new(),
            list: 0,
        }
    }

    /// A list begins; the one before may not have come to its end.
    pub(super) fn begin(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// The object exists and is this.
    pub(super) fn exists(&mut self, text: &str, out: &mut Vec<Step>) {
        let mut reading = match Reading::of(self.kind, text) {
            Ok(reading) => reading,
            Err(error) => return out.push(Step::Nonsense(error.to_string())),
        };
        let key = reading.key.clone();
        if let Some(live) = reading.live.take() {
            out.push(Step::Live(key.clone(), Some(live)));
        }
        let place = place(&key);
        let fingerprint = reading.fingerprint;
        if let Some(entry) = self.held.get_mut(&place) {
            entry.list = self.list;
            if entry.fingerprint == fingerprint {
                if self.unreadable.remove(&place).is_some() {
                    out.push(Step::Readable(key));
                }
                return;
            }
        }
        match reading.object() {
            Ok(object) => {
                if self.unreadable.remove(&place).is_some() {
                    out.push(Step::Readable(key));
                }
                let list = self.list;
                self.held.insert(place, Entry { fingerprint, list });
                out.push(Step::Upsert(Box::new(object)));
            }
            Err(mut error) => {
                // The place says who it is.
                error.key = None;
                self.unreadable.insert(place, self.list);
                out.push(Step::Unreadable(key, error.to_string()));
            }
        }
    }

    /// The object is gone; the text is what it was last.
    pub(super) fn gone(&mut self, text: &str, out: &mut Vec<Step>) {
        match Identity::of(text) {
            Ok(identity) => self.remove(&place(&identity.of_kind(self.kind)), out),
            Err(error) => out.push(Step::Nonsense(error.to_string())),
        }
    }

    /// The list is complete: what it did not show is gone.
    pub(super) fn done(&mut self, out: &mut Vec<Step>) {
        let list = self.list;
        self.remove_all(|last_seen| last_seen != list, out);
    }

    /// The kind is gone, and all its objects with it.
    pub(super) fn clear(&mut self, out: &mut Vec<Step>) {
        self.remove_all(|_| true, out);
        self.held.shrink_to_fit();
    }

    fn remove_all(&mut self, gone: impl Fn(u32) -> bool, out: &mut Vec<Step>) {
        let held = self.held.iter().map(|(place, entry)| (place, entry.list));
        let unreadable = self.unreadable.iter().map(|(place, list)| (place, *list));
        let mut places: Vec<_> = held
            .chain(unreadable)
            .filter(|(_, list)| gone(*list))
            .map(|(place, _)| place.clone())
            .collect();
        places.sort_unstable();
        places.dedup();
        for place in places {
            self.remove(&place, out);
        }
    }

    fn remove(&mut self, place: &str, out: &mut Vec<Step>) {
        let (namespace, name) = place.split_once('/').unwrap_or(("", place));
        let key = ObjectKey::new(self.kind, namespace, name);
        let held = self.held.remove(place).is_some();
        let unreadable = self.unreadable.remove(place).is_some();
        if unreadable {
            out.push(Step::Readable(key.clone()));
        }
        if (held || unreadable) && self.kind.has_status() {
            out.push(Step::Live(key.clone(), None));
        }
        if held {
            out.push(Step::Remove(key));
        }
    }
}

fn place(key: &ObjectKey) -> Box<str> {
    match &*key.namespace {
        "" => (&*key.name).into(),
        namespace => format!("{namespace}/{}", key.name).into(),
    }
}

#[cfg(test)]
mod tests;
