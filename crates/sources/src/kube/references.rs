//! Which Secrets and ConfigMaps are held, and on whose behalf.
//!
//! In: objects that may name them, what a watch of metadata notices, and what was fetched. Out: the objects, each not before what it
//! names is there, changes of what is named, and orders to fetch. The data of what nobody names is never asked for, and leaves when
//! the last one stops to name it.
//!
//! Why not watch them: a watch brings the data of every Secret of the cluster over the wire and into memory, at the start and with
//! each change; most are of others (Helm's releases alone are up to a megabyte each), and what is read can leak. Metadata is some
//! hundred bytes each, of which nothing is kept, and a named one costs one GET when it is named and one with each of its changes.
//!
//! Stale data never wins, without comparing what came from two places: the watch only says *look again*, and the GET says what is. A
//! GET reads the latest state (it names no version), so one that began after the watch spoke is at least as new; if the watch speaks
//! while one is under way, another follows. Versions are compared only to leave out a GET that would tell nothing new.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Instant;

use sesame_api::{Kind, Object, ObjectKey};

use super::outbox::Outbox;

/// What is to be done about a Secret or ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Fetch it, until it is clear what it is, or that it is not there.
    Fetch(ObjectKey, Ticket),
    /// It is not wanted any more.
    Drop(ObjectKey),
}

/// Tells one fetch from another: only the last one ordered counts.
pub(super) type Ticket = u64;

/// What a fetch found.
#[derive(Debug)]
pub(super) enum Found {
    /// The object, with its version and fingerprint.
    Object {
        /// What is there.
        object: Box<Object>,
        /// The server's version of it.
        version: Box<str>,
        /// Of what translation reads of it.
        fingerprint: u64,
    },
    /// There is none.
    Nothing,
    /// There is one that can't be decoded: its last good version counts.
    Unreadable,
    /// Not known for long, as RBAC forbids it or the server can't give it. The fetch goes on, but nobody waits.
    Denied,
}

/// Everything that is named.
#[derive(Debug, Default)]
pub(super) struct References {
    named: HashMap<ObjectKey, Named>,
    /// What the objects that were handed on name; those that name nothing are not in it.
    by_holder: HashMap<ObjectKey, Box<[ObjectKey]>>,
    /// Objects that name what is not known yet.
    waiting: HashMap<ObjectKey, Waiting>,
    /// What the list under way has shown of what is named, by the number of the watch.
    listing: HashMap<usize, HashSet<ObjectKey>>,
    tickets: Ticket,
    orders: Vec<Order>,
}

#[derive(Debug, Default)]
struct Named {
    /// So many objects name it, counting those that wait.
    users: u32,
    data: Data,
    /// The fetch under way.
    fetch: Option<Ticket>,
    /// What happened while a fetch was under way.
    again: Option<Again>,
    /// Who may wait for it.
    holders: BTreeSet<ObjectKey>,
}

/// Why to fetch again.
#[derive(Debug)]
enum Again {
    /// The watch spoke of this version.
    Version(Box<str>),
    /// A list did not show it.
    Gone,
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
    names: Box<[ObjectKey]>,
    at: Instant,
}

impl References {
    /// An object is new or changed; `names` is what it names, each once, and may be fetched.
    pub(super) fn upsert(
        &mut self,
        object: Object,
        names: Vec<ObjectKey>,
        at: Instant,
        out: &mut Outbox,
    ) {
        let names: Box<[ObjectKey]> = names.into();
        let holder = object.key();
        if names.is_empty() && !self.holds(&holder) {
            return out.upsert(object, at);
        }
        for name in &names {
            self.acquire(name);
        }
        if let Some(before) = self.waiting.remove(&holder) {
            self.release(&before.names, at, out);
        }
        if self.known(&names) {
            return self.hand_on(object, names, at, out);
        }
        for name in &names {
            let named = self.named.get_mut(name).expect("acquired above");
            if matches!(named.data, Data::Unknown) {
                named.holders.insert(holder.clone());
            }
        }
        let waiting = Waiting { object, names, at };
        self.waiting.insert(holder, waiting);
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, key: ObjectKey, at: Instant, out: &mut Outbox) {
        if let Some(waiting) = self.waiting.remove(&key) {
            self.release(&waiting.names, at, out);
        }
        if let Some(names) = self.by_holder.remove(&key) {
            self.release(&names, at, out);
        }
        out.remove(key, at);
    }

    /// A list of metadata begins.
    pub(super) fn list_begins(&mut self, watch: usize) {
        self.listing.insert(watch, HashSet::new());
    }

    /// A watch of metadata saw that the object has, or had when it was deleted, this version.
    pub(super) fn noticed(&mut self, watch: usize, key: ObjectKey, version: &str) {
        let Some(named) = self.named.get_mut(&key) else {
            return;
        };
        if let Some(seen) = self.listing.get_mut(&watch) {
            seen.insert(key.clone());
        }
        match &named.data {
            Data::Held { version: held, .. } if !newer(version, held) => {}
            _ if named.fetch.is_some() => named.again = Some(Again::Version(version.into())),
            _ => self.order(key),
        }
    }

    /// A list of metadata is complete: what is held and was not shown may be gone.
    pub(super) fn list_ends(&mut self, watch: usize, kind: Kind, namespace: Option<&str>) {
        let Some(seen) = self.listing.remove(&watch) else {
            return;
        };
        let in_list = |key: &ObjectKey| {
            key.kind == kind && namespace.is_none_or(|namespace| *key.namespace == *namespace)
        };
        let mut doubtful = Vec::new();
        for (key, named) in &mut self.named {
            if !in_list(key) || seen.contains(key) {
                continue;
            }
            if named.fetch.is_some() {
                // The server may have read for it before it was gone.
                named.again = Some(Again::Gone);
            } else if !matches!(named.data, Data::Nothing) {
                doubtful.push(key.clone());
            }
        }
        doubtful.sort_unstable();
        for key in doubtful {
            self.order(key);
        }
    }

    /// A fetch found something.
    pub(super) fn fetched(
        &mut self,
        key: &ObjectKey,
        ticket: Ticket,
        found: Found,
        at: Instant,
        out: &mut Outbox,
    ) {
        if !self.awaits(key, ticket) {
            return;
        }
        let Some(named) = self.named.get_mut(key) else {
            return;
        };
        if !matches!(found, Found::Denied) {
            named.fetch = None;
        }
        match found {
            Found::Object {
                object,
                version,
                fingerprint,
            } => {
                let same = |data: &Data| matches!(data, Data::Held { fingerprint: held, .. } if *held == fingerprint);
                if !same(&named.data) {
                    out.upsert(*object, at);
                }
                named.data = Data::Held {
                    version,
                    fingerprint,
                };
            }
            Found::Nothing => {
                if matches!(named.data, Data::Held { .. }) {
                    out.remove(key.clone(), at);
                }
                named.data = Data::Nothing;
            }
            Found::Unreadable | Found::Denied => {
                if matches!(named.data, Data::Unknown) {
                    named.data = Data::Nothing;
                }
            }
        }
        if named.fetch.is_none()
            && let Some(again) = named.again.take()
        {
            let stale = match (&named.data, &again) {
                (Data::Held { version: held, .. }, Again::Version(version)) => newer(version, held),
                (Data::Nothing, Again::Gone) => false,
                _ => true,
            };
            if stale {
                self.order(key.clone());
            }
        }
        self.wake(key, out);
    }

    /// Whether the result of this fetch counts.
    pub(super) fn awaits(&self, key: &ObjectKey, ticket: Ticket) -> bool {
        self.named
            .get(key)
            .is_some_and(|named| named.fetch == Some(ticket))
    }

    /// What is to be done now.
    pub(super) fn orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// Whether objects wait for what they name.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn holds(&self, holder: &ObjectKey) -> bool {
        self.by_holder.contains_key(holder) || self.waiting.contains_key(holder)
    }

    fn known(&self, names: &[ObjectKey]) -> bool {
        let known = |name| {
            !matches!(
                self.named.get(name),
                Some(Named {
                    data: Data::Unknown,
                    ..
                })
            )
        };
        names.iter().all(known)
    }

    fn acquire(&mut self, name: &ObjectKey) {
        let named = self.named.entry(name.clone()).or_default();
        named.users += 1;
        if named.users == 1 {
            self.order(name.clone());
        }
    }

    fn release(&mut self, names: &[ObjectKey], at: Instant, out: &mut Outbox) {
        for name in names {
            let Some(named) = self.named.get_mut(name) else {
                continue;
            };
            named.users -= 1;
            if named.users > 0 {
                continue;
            }
            if matches!(named.data, Data::Held { .. }) {
                out.remove(name.clone(), at);
            }
            self.named.remove(name);
            self.orders.push(Order::Drop(name.clone()));
        }
    }

    fn order(&mut self, key: ObjectKey) {
        self.tickets += 1;
        if let Some(named) = self.named.get_mut(&key) {
            named.fetch = Some(self.tickets);
            named.again = None;
        }
        self.orders.push(Order::Fetch(key, self.tickets));
    }

    fn hand_on(&mut self, object: Object, names: Box<[ObjectKey]>, at: Instant, out: &mut Outbox) {
        let holder = object.key();
        let before = match names.is_empty() {
            true => self.by_holder.remove(&holder),
            false => self.by_holder.insert(holder, names),
        };
        out.upsert(object, at);
        self.release(&before.unwrap_or_default(), at, out);
    }

    /// Hands on those who waited for this alone.
    fn wake(&mut self, key: &ObjectKey, out: &mut Outbox) {
        let Some(named) = self.named.get_mut(key) else {
            return;
        };
        for holder in std::mem::take(&mut named.holders) {
            let ready = |waiting: &Waiting| self.known(&waiting.names);
            if self.waiting.get(&holder).is_some_and(ready) {
                let waiting = self.waiting.remove(&holder).expect("it was there");
                self.hand_on(waiting.object, waiting.names, waiting.at, out);
            }
        }
    }
}

/// Whether a version is newer than another, as far as they can be compared; if not, whether it is another one. An API server's
/// versions are numbers that grow (Kubernetes 1.35 promises it).
fn newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}

#[cfg(test)]
mod tests;
