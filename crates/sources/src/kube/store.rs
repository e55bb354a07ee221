//! The objects of one kind that one watcher has seen.
//!
//! In: objects as text. Out: an [`Update`] per difference. Only the name and a fingerprint of each object are kept.

use std::mem::take;

use rustc_hash::FxHashMap;
use sesame_api::{Kind, ObjectKey};

use super::hub::Update;
use super::parse::{Identity, ParsedObject};

/// The objects of one kind.
#[derive(Debug)]
pub(super) struct Store {
    kind: Kind,
    /// By `namespace/name`, or by name for cluster-scoped kinds.
    entries: FxHashMap<Box<str>, Entry>,
    /// The number of the current list. Entries with a lower number haven't been seen in the current list.
    list: u32,
}

#[derive(Debug, Default)]
struct Entry {
    /// The fingerprint of the last version that could be decoded.
    fingerprint: u64,
    /// The list in which the object was last seen.
    list: u32,
    /// Whether any version could be decoded.
    decoded: bool,
    /// Whether the current version can't be decoded.
    undecodable: bool,
}

impl Store {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            entries: FxHashMap::default(),
            list: 0,
        }
    }

    /// Begins a list. The previous one may be incomplete.
    pub(super) fn list_begins(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// Handles a new, changed or listed object.
    pub(super) fn apply(&mut self, text: &str, out: &mut Vec<Update>) {
        let mut parsed = match ParsedObject::parse(self.kind, text) {
            Ok(parsed) => parsed,
            Err(error) => return out.push(Update::Malformed(error.to_string())),
        };
        let (key, fingerprint) = (parsed.key.clone(), parsed.fingerprint);
        if let Some(status) = parsed.status.take() {
            out.push(Update::Status(key.clone(), Some(status)));
        }
        let entry = self.entries.entry(name(&key)).or_default();
        entry.list = self.list;
        let same = entry.decoded && entry.fingerprint == fingerprint;
        let object = match same {
            true => None,
            false => match parsed.decode() {
                Ok(object) => Some(Box::new(object)),
                Err(error) => {
                    entry.undecodable = true;
                    return out.push(Update::Undecodable(key, error.to_string()));
                }
            },
        };
        if take(&mut entry.undecodable) {
            out.push(Update::Decodable(key));
        }
        if let Some(object) = object {
            (entry.fingerprint, entry.decoded) = (fingerprint, true);
            out.push(Update::Applied(object));
        }
    }

    /// Handles a deleted object; `text` is its last version.
    pub(super) fn delete(&mut self, text: &str, out: &mut Vec<Update>) {
        match Identity::of(text) {
            Ok(identity) => self.remove(&name(&identity.key(self.kind)), out),
            Err(error) => out.push(Update::Malformed(error.to_string())),
        }
    }

    /// Ends the list: removes the objects missing from it.
    pub(super) fn list_ends(&mut self, out: &mut Vec<Update>) {
        let list = self.list;
        self.remove_if(|entry| entry.list != list, out);
    }

    /// Removes all objects.
    pub(super) fn clear(&mut self, out: &mut Vec<Update>) {
        self.remove_if(|_| true, out);
        self.entries.shrink_to_fit();
    }

    fn remove_if(&mut self, gone: impl Fn(&Entry) -> bool, out: &mut Vec<Update>) {
        let gone = self.entries.iter().filter(|(_, entry)| gone(entry));
        let mut names: Vec<_> = gone.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        for name in names {
            self.remove(&name, out);
        }
    }

    fn remove(&mut self, name: &str, out: &mut Vec<Update>) {
        let Some(entry) = self.entries.remove(name) else {
            return;
        };
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let key = ObjectKey::new(self.kind, namespace, name);
        if entry.undecodable {
            out.push(Update::Decodable(key.clone()));
        }
        if self.kind.has_status() {
            out.push(Update::Status(key.clone(), None));
        }
        if entry.decoded {
            out.push(Update::Deleted(key));
        }
    }
}

fn name(key: &ObjectKey) -> Box<str> {
    match &*key.namespace {
        "" => (&*key.name).into(),
        namespace => format!("{namespace}/{}", key.name).into(),
    }
}

#[cfg(test)]
mod tests;
