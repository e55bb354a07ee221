//! Objects with a status, and the latest status of each.
//!
//! In: changed objects, statuses from translation, the time. Out: statuses with transition times, their changes, and an
//! overview. It must not depend on its readers, which may read at any time.

mod overview;
mod timed_status;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use sesame_api::{Listener, NamespacedName, Object, ObjectKey, ObjectStatus};
use sesame_sources::files::FileError;

pub use self::overview::{GatewayView, ListenerView, Overview, ParentView, RouteView};
pub(crate) use self::timed_status::TimedStatus;
pub use self::timed_status::{Severity, StatusChange};
use crate::translate::StatusView;

/// Objects with a status, and problems with files.
#[derive(Debug, Default)]
pub struct StatusStore {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<ObjectKey, Entry>,
    problems: Vec<FileError>,
}

/// An object in the store.
#[derive(Debug, Default)]
struct Entry {
    summary: SpecSummary,
    status: Option<TimedStatus>,
}

/// The parts of a spec that an overview shows.
#[derive(Debug, Default)]
enum SpecSummary {
    #[default]
    Empty,
    Gateway(Vec<ListenerSummary>),
    /// Boxed because most objects are routes.
    ListenerSet(Box<ListenerSetSummary>),
    Route(Arc<[Arc<str>]>),
}

#[derive(Debug)]
struct ListenerSetSummary {
    gateway: NamespacedName,
    listeners: Vec<ListenerSummary>,
}

#[derive(Debug)]
struct ListenerSummary {
    name: Arc<str>,
    port: u16,
    protocol: String,
    hostname: Option<Arc<str>>,
}

fn summaries(listeners: &[Listener]) -> Vec<ListenerSummary> {
    let listeners = listeners.iter();
    listeners
        .map(|listener| ListenerSummary {
            name: Arc::clone(&listener.name),
            port: listener.port,
            protocol: listener.protocol.as_str().to_owned(),
            hostname: listener.hostname().cloned(),
        })
        .collect()
}

impl StatusStore {
    /// All statuses, sorted by kind, namespace and name, with transition times.
    pub fn statuses(&self) -> Vec<StatusView> {
        self.read(|inner| {
            inner
                .entries
                .iter()
                .filter_map(|(key, entry)| Some((key, entry.status.as_ref()?)))
                .map(|(key, status)| StatusView {
                    key: key.clone(),
                    status: status.json(),
                })
                .collect()
        })
    }

    /// All problems with files, sorted by location.
    pub fn problems(&self) -> Vec<FileError> {
        self.read(|inner| inner.problems.clone())
    }

    /// Adds or updates an object.
    pub(crate) fn upsert(&self, object: &Object) {
        let summary = match object {
            Object::Gateway(gateway) => SpecSummary::Gateway(summaries(&gateway.spec.listeners)),
            object => match (object.as_listener_set(), object.as_route()) {
                (Some(set), _) => SpecSummary::ListenerSet(Box::new(ListenerSetSummary {
                    gateway: set.spec.parent_ref.resolve(&set.meta.namespace),
                    listeners: summaries(&set.spec.listeners),
                })),
                (None, Some(route)) => SpecSummary::Route(route.hostnames.into()),
                (None, None) => return,
            },
        };
        self.write(|inner| inner.entries.entry(object.key()).or_default().summary = summary);
    }

    /// Removes an object.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        if key.kind.has_listeners() || key.kind.is_route() {
            self.write(|inner| inner.entries.remove(key));
        }
    }

    /// Sets or removes a status. Returns the conditions that changed.
    pub(crate) fn set(
        &self,
        key: &ObjectKey,
        status: Option<ObjectStatus>,
        now: Timestamp,
    ) -> Vec<StatusChange> {
        self.write(|inner| {
            let Some(status) = status else {
                if let Some(entry) = inner.entries.get_mut(key) {
                    entry.status = None;
                    if matches!(entry.summary, SpecSummary::Empty) {
                        inner.entries.remove(key);
                    }
                }
                return Vec::new();
            };
            let entry = inner.entries.entry(key.clone()).or_default();
            let timed = TimedStatus::after(entry.status.as_ref(), status, now);
            let changes = timed.changes_since(entry.status.as_ref(), key);
            entry.status = Some(timed);
            changes
        })
    }

    /// Replaces the list of problems. Returns those that are new and those that are gone.
    pub(crate) fn set_problems(
        &self,
        mut problems: Vec<FileError>,
    ) -> (Vec<FileError>, Vec<FileError>) {
        // Usually sorted already, so this is one pass.
        problems.sort();
        let new = problems.clone();
        let before = self.write(|inner| std::mem::replace(&mut inner.problems, problems));
        difference(new, before)
    }

    // The lock guards plain moves: a panic elsewhere leaves a consistent state.
    fn read<R>(&self, f: impl FnOnce(&Inner) -> R) -> R {
        f(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The items found only in the first of two sorted lists, and those found only in the second, in one pass. Duplicates
/// count once.
fn difference<T: Ord>(new: Vec<T>, old: Vec<T>) -> (Vec<T>, Vec<T>) {
    let (mut added, mut gone) = (Vec::new(), Vec::new());
    let mut old = old.into_iter().peekable();
    // The last common item.
    let mut last = None;
    for item in new {
        while let Some(earlier) = old.next_if(|other| *other < item) {
            if last.as_ref() != Some(&earlier) {
                gone.push(earlier);
            }
        }
        if old.next_if_eq(&item).is_none() && last.as_ref() != Some(&item) {
            added.push(item);
        } else {
            last = Some(item);
        }
    }
    gone.extend(old.filter(|earlier| last.as_ref() != Some(earlier)));
    (added, gone)
}

#[cfg(test)]
mod tests;
