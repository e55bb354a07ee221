//! Objects with a status, and the latest status of each.
//!
//! In: changed objects, statuses from translation, the time. Out: statuses with transition times, their changes, and an
//! overview. It must not depend on its readers, which may read at any time.

mod ingresses;
mod notices;
mod overview;
mod timed_status;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use sesame_api::{Kind, Listener, NamespacedName, Object, ObjectKey, ObjectStatus};
use sesame_model::{FleetRequest, FleetState};
use sesame_sources::files::FileError;
use sesame_translate::problem::Notices;
use tokio::sync::Notify;

use self::ingresses::IngressSummary;
pub use self::ingresses::IngressView;
pub use self::notices::{NoticeLevel, NoticeView};
pub use self::overview::{
    DEFAULT_FLEET, GatewayView, ListenerView, Overview, ParentView, RouteView,
};
pub(crate) use self::timed_status::TimedStatus;
pub use self::timed_status::{Severity, StatusChange};
use crate::translate::StatusView;

/// Objects with a status, and problems with files.
#[derive(Debug, Default)]
pub struct StatusStore {
    inner: RwLock<Inner>,
    /// Notified when there are new unreported notices.
    new_notices: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<ObjectKey, Entry>,
    problems: Vec<FileError>,
    /// The notices that [`StatusStore::take_unreported`] hasn't returned yet, by object.
    unreported: BTreeMap<ObjectKey, BTreeSet<NoticeView>>,
    /// What Envoys reject, as text.
    rejections: Vec<String>,
    /// The default fleet, while it exists.
    default_fleet: Option<(FleetRequest, FleetState)>,
}

/// An object in the store.
#[derive(Debug, Default)]
struct Entry {
    summary: SpecSummary,
    status: Option<TimedStatus>,
    notices: Option<Arc<Notices>>,
}

impl Entry {
    fn is_empty(&self) -> bool {
        matches!(self.summary, SpecSummary::Empty)
            && self.status.is_none()
            && self.notices.is_none()
    }
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
    /// An Ingress or an HTTPProxy, of any class, or an ExtensionService.
    Ingress(Box<IngressSummary>),
}

/// Whether the store keeps summaries of the objects of a kind.
pub(crate) fn is_shown(kind: Kind) -> bool {
    let others = [
        Kind::Ingress,
        Kind::HTTPProxy,
        Kind::ContourHTTPProxy,
        Kind::ExtensionService,
        Kind::ContourExtensionService,
    ];
    kind.has_listeners() || kind.is_route() || others.contains(&kind)
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
            Object::Ingress(ingress) => {
                SpecSummary::Ingress(Box::new(IngressSummary::of_ingress(ingress)))
            }
            Object::HTTPProxy(proxy) | Object::ContourHTTPProxy(proxy) => {
                SpecSummary::Ingress(Box::new(IngressSummary::of_http_proxy(proxy)))
            }
            Object::ExtensionService(_) | Object::ContourExtensionService(_) => {
                SpecSummary::Ingress(Box::default())
            }
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
        if is_shown(key.kind) {
            self.write(|inner| {
                inner.entries.remove(key);
                inner.unreported.remove(key);
            });
        }
    }

    /// Sets or removes the notices of an object. Returns those that are new, and those that are gone.
    pub(crate) fn set_notices(
        &self,
        key: &ObjectKey,
        notices: Option<Arc<Notices>>,
    ) -> (Vec<NoticeView>, Vec<NoticeView>) {
        let views = |notices: &Option<Arc<Notices>>| {
            let notices = notices.as_deref();
            notices.map_or_else(Vec::new, |notices| notices::views(key, notices))
        };
        let new = views(&notices);
        let (added, gone) = self.write(|inner| {
            let entry = inner.entries.entry(key.clone()).or_default();
            let old = std::mem::replace(&mut entry.notices, notices);
            if entry.is_empty() {
                inner.entries.remove(key);
            }
            let (added, gone) = difference(new, views(&old));
            let unreported = inner.unreported.entry(key.clone()).or_default();
            unreported.retain(|notice| !gone.contains(notice));
            unreported.extend(added.iter().cloned());
            if unreported.is_empty() {
                inner.unreported.remove(key);
            }
            (added, gone)
        });
        if !added.is_empty() {
            self.new_notices.notify_one();
        }
        (added, gone)
    }

    /// Takes the unreported notices of one object: the first object after `last`, or else the first of all, so that an
    /// object with constantly changing notices doesn't starve others. Empty if there are none.
    pub(crate) fn take_unreported(&self, last: Option<&ObjectKey>) -> BTreeSet<NoticeView> {
        self.write(|inner| {
            let after = (
                last.map_or(Bound::Unbounded, Bound::Excluded),
                Bound::Unbounded,
            );
            let mut next = inner.unreported.range::<ObjectKey, _>(after);
            let next = next.next().or_else(|| inner.unreported.first_key_value());
            let next = next.map(|(key, _)| key.clone());
            let taken = next.and_then(|key| inner.unreported.remove(&key));
            taken.unwrap_or_default()
        })
    }

    /// Waits until there are new unreported notices. Supports one caller at a time.
    pub(crate) async fn new_notices(&self) {
        self.new_notices.notified().await;
    }

    /// The notices of all objects, sorted by object; within an object, errors first.
    pub fn notices(&self) -> Vec<NoticeView> {
        self.read(|inner| {
            let entries = inner.entries.iter();
            let with_notices =
                entries.filter_map(|(key, entry)| Some((key, entry.notices.as_deref()?)));
            with_notices
                .flat_map(|(key, notices)| notices::views(key, notices))
                .collect()
        })
    }

    /// What Envoys reject, as text.
    pub(crate) fn rejections(&self) -> Vec<String> {
        self.read(|inner| inner.rejections.clone())
    }

    /// Replaces what Envoys reject.
    pub(crate) fn set_rejections(&self, rejections: Vec<String>) {
        self.write(|inner| inner.rejections = rejections);
    }

    /// Sets the default fleet; `None` if there is none.
    pub(crate) fn set_default_fleet(&self, fleet: Option<(FleetRequest, FleetState)>) {
        self.write(|inner| inner.default_fleet = fleet);
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
                    if entry.is_empty() {
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
