//! Combines reports from watchers, fetches and discovery into [`WatchEvent`]s. Pure: each message carries its time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sesame_api::{Kind, LiveStatus, NamespacedName, Object, ObjectKey, Release, Serving};

use super::catalog::Availability;
use super::error::RequestError;
use super::failures::{FailureReason, Failures, Requester, Subject};
use super::outbox::Outbox;
use super::references::{FetchCommand, FetchId, Found, References};
use super::{WatchEvent, path};

/// After this time, a forbidden kind counts as empty, and a forbidden Secret or ConfigMap as missing. An API server
/// briefly forbids everything after it starts.
pub(super) const FORBIDDEN_GRACE: Duration = Duration::from_secs(3);

/// After this time, a Secret or ConfigMap that the server fails to return (for instance, because it can't be decrypted)
/// counts as missing.
const FETCH_GRACE: Duration = Duration::from_secs(25);

/// The kinds that own fleets or need the default fleet. Until all have been read, a fleet that no object needs is not
/// necessarily an orphan.
const FLEET_OWNERS: [Kind; 6] = [
    Kind::GatewayClass,
    Kind::Gateway,
    Kind::HTTPProxy,
    Kind::ContourHTTPProxy,
    Kind::Ingress,
    Kind::IngressClass,
];

const REQUEST_FAILURES: [FailureReason; 2] = [FailureReason::Forbidden, FailureReason::Refused];

const FETCH_FAILURES: [FailureReason; 3] = [
    FailureReason::Forbidden,
    FailureReason::Refused,
    FailureReason::Unreadable,
];

/// A report from a task.
#[derive(Debug)]
pub(super) enum Message {
    /// The watcher with this number read these updates at this time.
    Watcher(usize, Instant, Vec<Update>),
    /// The result of a GET, and how long GETs of the object have been failing in the same way.
    Fetch(Fetched, Duration),
    /// Whether a kind of the Gateway API can be watched.
    Kind(Kind, Availability),
    /// The installed Gateway API.
    Release(Option<Release>),
    /// Discovery succeeded or failed.
    Discovery(Result<(), RequestError>),
}

/// The result of fetching a Secret or ConfigMap.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) key: ObjectKey,
    pub(super) id: FetchId,
    pub(super) at: Instant,
    pub(super) result: Result<Found, RequestError>,
}

/// A report from a watcher.
#[derive(Debug)]
pub(super) enum Update {
    /// The server accepted a request.
    Connected,
    ListBegins,
    ListEnds,
    /// The object is new or changed.
    Applied(Box<Object>),
    Deleted(ObjectKey),
    /// The status of an object; `None` if the object was deleted.
    Status(ObjectKey, Option<LiveStatus>),
    /// The object can't be decoded; its last good version stays.
    Undecodable(ObjectKey, String),
    /// The object can be decoded again or was deleted.
    Decodable(ObjectKey),
    /// The server sent something that is not an object.
    Malformed(String),
    /// An object whose metadata is watched has this resourceVersion, or had it when it was deleted.
    MetadataSeen(ObjectKey, Box<str>),
    /// A request failed. Requests have been failing in the same way for this long.
    Failed(RequestError, Duration),
}

/// The state of a watcher.
#[derive(Debug)]
struct Watcher {
    kind: Kind,
    namespace: Option<Arc<str>>,
    /// Whether the first sync no longer waits for this watcher.
    ready: bool,
    /// Whether it has completed a list, or its kind is not installed.
    read: bool,
}

impl Watcher {
    fn subject(&self) -> Subject {
        Subject::Kind(self.kind, self.namespace.clone())
    }
}

/// Whether only the kind's metadata is watched. Its objects are fetched when referenced.
pub(super) fn metadata_only(kind: Kind) -> bool {
    matches!(kind, Kind::Secret | Kind::ConfigMap)
}

/// Everything read but not yet sent.
#[derive(Debug)]
pub(super) struct Hub {
    watchers: Vec<Watcher>,
    /// Whether Contour's annotations are read.
    contour: bool,
    references: References,
    outbox: Outbox,
    failures: Failures,
    /// The release of the CRDs, if not sent yet.
    release: Option<Option<Release>>,
    /// The kinds that the API server doesn't serve.
    absent: BTreeSet<Kind>,
    /// The last sent value of `absent`.
    sent_absent: BTreeSet<Kind>,
    /// Whether [`WatchEvent::FleetOwnersKnown`] was sent.
    fleet_owners_known: bool,
}

impl Hub {
    /// A hub for watchers of these kinds and namespaces.
    pub(super) fn new(watchers: impl IntoIterator<Item = (Kind, Option<Arc<str>>)>) -> Self {
        let watcher = |(kind, namespace)| Watcher {
            kind,
            namespace,
            ready: metadata_only(kind),
            read: false,
        };
        let watchers: Vec<Watcher> = watchers.into_iter().map(watcher).collect();
        Self {
            contour: watchers.iter().any(|watcher| watcher.kind.is_of_contour()),
            watchers,
            references: References::default(),
            outbox: Outbox::default(),
            failures: Failures::default(),
            release: None,
            absent: BTreeSet::new(),
            sent_absent: BTreeSet::new(),
            fleet_owners_known: false,
        }
    }

    /// Adds [`WatchConfig::secrets`](super::WatchConfig::secrets).
    pub(super) fn with_secrets(mut self, secrets: Vec<NamespacedName>) -> Self {
        let secrets = secrets.into_iter();
        let mut secrets: Vec<_> = secrets.map(|name| name.of_kind(Kind::Secret)).collect();
        secrets.retain(|key| self.watched(key));
        self.references.require(secrets);
        self
    }

    pub(super) fn handle(&mut self, message: Message, now: Timestamp) {
        match message {
            Message::Watcher(number, at, updates) => {
                for update in updates {
                    self.update(number, at, update, now);
                }
            }
            Message::Fetch(fetched, duration) => self.fetched(fetched, duration, now),
            Message::Kind(kind, availability) => self.availability(kind, &availability, now),
            Message::Release(release) => self.release = Some(release),
            Message::Discovery(Ok(())) => self.failures.reached(&Requester::Discovery),
            Message::Discovery(Err(error)) => {
                let message = error.to_string();
                self.failures
                    .unreachable(Requester::Discovery, &message, now);
            }
        }
    }

    /// The fetches to start and cancel now.
    pub(super) fn take_commands(&mut self) -> Vec<FetchCommand> {
        let commands = self.references.take_commands();
        for command in &commands {
            if let FetchCommand::Cancel(key) = command {
                self.failures.reached(&Requester::Fetch(key.clone()));
                self.failures
                    .end(&Subject::Object(key.clone()), &FETCH_FAILURES);
            }
        }
        commands
    }

    /// The next event. Statuses precede their objects, so that a status that is up to date is not rewritten.
    pub(super) fn next_event(&mut self) -> Option<WatchEvent> {
        if let Some(failures) = self.failures.take() {
            return Some(WatchEvent::Failures(failures));
        }
        if let Some(release) = self.release.take() {
            return Some(WatchEvent::Release(release));
        }
        if self.absent != self.sent_absent {
            self.sent_absent.clone_from(&self.absent);
            return Some(WatchEvent::Absent(self.absent.clone()));
        }
        if let Some(statuses) = self.outbox.take_statuses() {
            return Some(WatchEvent::Statuses(statuses));
        }
        if let Some(changes) = self.outbox.take_changes(self.ready()) {
            return Some(WatchEvent::Changes(changes));
        }
        if self.all_fleet_owners_read() {
            self.fleet_owners_known = true;
            return Some(WatchEvent::FleetOwnersKnown);
        }
        None
    }

    /// Whether there is a next event.
    pub(super) fn pending(&self) -> bool {
        self.failures.changed()
            || self.release.is_some()
            || self.absent != self.sent_absent
            || self.outbox.pending(self.ready())
            || self.all_fleet_owners_read()
    }

    fn all_fleet_owners_read(&self) -> bool {
        let mut owners = self.watchers.iter();
        !self.fleet_owners_known
            && self.outbox.synced()
            && owners.all(|watcher| watcher.read || !FLEET_OWNERS.contains(&watcher.kind))
            && !self.references.any_waiting()
            && !self.failures.any_unreadable(&FLEET_OWNERS)
    }

    /// Whether the first sync can complete.
    fn ready(&self) -> bool {
        self.watchers.iter().all(|watcher| watcher.ready) && !self.references.any_waiting()
    }

    fn update(&mut self, number: usize, at: Instant, update: Update, now: Timestamp) {
        match update {
            Update::Connected => self.connected(number),
            Update::ListBegins => self.references.list_begins(number),
            Update::ListEnds => {
                let watcher = &mut self.watchers[number];
                watcher.ready = true;
                watcher.read = true;
                let (kind, namespace) = (watcher.kind, watcher.namespace.clone());
                if metadata_only(kind) {
                    let namespace = namespace.as_deref();
                    self.references.list_ends(number, kind, namespace);
                }
                let subject = self.watchers[number].subject();
                self.failures.end(&subject, &[FailureReason::Unreadable]);
                self.connected(number);
            }
            Update::Applied(mut object) => {
                if self.contour {
                    object.adopt_contour();
                }
                let mut referenced = sesame_api::references(&object);
                referenced.retain(|key| self.watched(key));
                let outbox = &mut self.outbox;
                self.references.upsert(*object, referenced, at, outbox);
            }
            Update::Deleted(key) => self.references.remove(key, at, &mut self.outbox),
            Update::Status(key, status) => self.outbox.status(key, status),
            Update::Undecodable(key, message) => {
                let (reason, message) = undecodable(&message);
                self.failures
                    .begin(Subject::Object(key), reason, message, now);
            }
            Update::Decodable(key) => self
                .failures
                .end(&Subject::Object(key), &[FailureReason::Unreadable]),
            Update::Malformed(message) => {
                let message = format!("the API server sent a malformed object: {message}");
                let subject = self.watchers[number].subject();
                let reason = FailureReason::Unreadable;
                self.failures.begin(subject, reason, message, now);
            }
            Update::MetadataSeen(key, version) => self.references.seen(number, key, &version),
            Update::Failed(error, duration) => self.failed(number, error, duration, now),
        }
    }

    /// Whether the Secret or ConfigMap is in a watched namespace. Others count as missing.
    fn watched(&self, key: &ObjectKey) -> bool {
        self.watchers.iter().any(|watcher| {
            let namespace = watcher.namespace.as_deref();
            watcher.kind == key.kind
                && namespace.is_none_or(|namespace| *namespace == *key.namespace)
        })
    }

    fn connected(&mut self, number: usize) {
        let subject = self.watchers[number].subject();
        self.failures.end(&subject, &REQUEST_FAILURES);
        self.failures.reached(&Requester::Watcher(number));
    }

    fn failed(&mut self, number: usize, error: RequestError, duration: Duration, now: Timestamp) {
        let watcher = &mut self.watchers[number];
        let subject = watcher.subject();
        let resource = path::full_resource(watcher.kind);
        if error.answered() {
            self.failures.reached(&Requester::Watcher(number));
        }
        let (reason, message) = match error {
            RequestError::Unreachable(message) => {
                let requester = Requester::Watcher(number);
                return self.failures.unreachable(requester, &message, now);
            }
            RequestError::Forbidden(message) => {
                watcher.ready |= duration >= FORBIDDEN_GRACE;
                let message = format!(
                    "missing permission: grant the verbs list and watch on {resource}: {message}"
                );
                (FailureReason::Forbidden, message)
            }
            // A relist follows, or discovery shows whether the kind is installed.
            RequestError::Gone | RequestError::Missing | RequestError::Closed => return,
            RequestError::Invalid(message) | RequestError::Refused(message, _) => {
                let message = format!("cannot list or watch {resource}: {message}");
                (FailureReason::Refused, message)
            }
        };
        self.replace(subject, &REQUEST_FAILURES, reason, message, now);
    }

    /// Begins a failure, and ends the subject's failures for the other `reasons`.
    fn replace(
        &mut self,
        subject: Subject,
        reasons: &[FailureReason],
        reason: FailureReason,
        message: String,
        now: Timestamp,
    ) {
        for other in reasons.iter().filter(|other| **other != reason) {
            self.failures.end(&subject, &[*other]);
        }
        self.failures.begin(subject, reason, message, now);
    }

    fn fetched(&mut self, fetched: Fetched, duration: Duration, now: Timestamp) {
        if !self.references.awaits(&fetched.key, fetched.id) {
            return;
        }
        let Fetched {
            key,
            id,
            at,
            result,
        } = fetched;
        let requester = Requester::Fetch(key.clone());
        let subject = Subject::Object(key.clone());
        let mut grace = Duration::ZERO;
        let (found, failure) = match result {
            Ok(Found::Unreadable(message)) => {
                let failure = undecodable(&message);
                (Found::Unreadable(message), Some(failure))
            }
            Ok(found) => (found, None),
            Err(RequestError::Missing | RequestError::Gone) => (Found::Nothing, None),
            Err(RequestError::Forbidden(message)) => {
                grace = FORBIDDEN_GRACE;
                let resource = path::full_resource(key.kind);
                let message =
                    format!("missing permission: grant the verb get on {resource}: {message}");
                (Found::Denied, Some((FailureReason::Forbidden, message)))
            }
            Err(RequestError::Invalid(message) | RequestError::Refused(message, _)) => {
                grace = FETCH_GRACE;
                let message = format!("cannot get the object: {message}");
                (Found::Denied, Some((FailureReason::Refused, message)))
            }
            Err(error) => {
                let message = error.to_string();
                return self.failures.unreachable(requester, &message, now);
            }
        };
        self.failures.reached(&requester);
        match failure {
            None => self.failures.end(&subject, &FETCH_FAILURES),
            Some((reason, message)) => {
                self.replace(subject, &FETCH_FAILURES, reason, message, now);
            }
        }
        if duration >= grace {
            let outbox = &mut self.outbox;
            self.references.fetched(&key, id, found, at, outbox);
        }
    }

    fn availability(&mut self, kind: Kind, availability: &Availability, now: Timestamp) {
        let subject = Subject::Kind(kind, None);
        let reasons = [FailureReason::NotInstalled, FailureReason::OtherVersion];
        let resource = path::full_resource(kind);
        let (reason, message) = match availability {
            Availability::Unknown => return,
            Availability::Served(_) => {
                self.absent.remove(&kind);
                return self.failures.end(&subject, &reasons);
            }
            // Not a failure: only references to its objects are affected.
            Availability::NotInstalled | Availability::OtherVersion(_)
                if kind.info().serving == Serving::Recent =>
            {
                self.unserved(kind, true);
                return self.failures.end(&subject, &reasons);
            }
            Availability::NotInstalled => (
                FailureReason::NotInstalled,
                format!(
                    "the CRD {resource} is not installed; Sesame will read its objects once it is installed"
                ),
            ),
            Availability::OtherVersion(versions) => (
                FailureReason::OtherVersion,
                format!(
                    "the CRD {resource} serves {}, but Sesame reads {}: \
                     install a Gateway API release that serves one of these versions",
                    match versions.is_empty() {
                        true => "no version".to_owned(),
                        false => versions.join(", "),
                    },
                    kind.versions().join(", ")
                ),
            ),
        };
        self.unserved(kind, reason == FailureReason::NotInstalled);
        self.replace(subject, &reasons, reason, message, now);
    }

    /// Marks a kind's watchers as idle; `absent` if the kind has no objects.
    fn unserved(&mut self, kind: Kind, absent: bool) {
        match absent {
            true => self.absent.insert(kind),
            false => self.absent.remove(&kind),
        };
        for number in 0..self.watchers.len() {
            let watcher = &mut self.watchers[number];
            if watcher.kind == kind {
                watcher.ready = true;
                watcher.read |= absent;
                // An idle watcher doesn't send requests, so it can't report the end of its failures.
                self.connected(number);
            }
        }
    }
}

fn undecodable(message: &str) -> (FailureReason, String) {
    let message = format!(
        "{message}; fix the field, or check the CRD's version. \
         The last good version of the object, if any, remains in use"
    );
    (FailureReason::Unreadable, message)
}

#[cfg(test)]
mod tests;
