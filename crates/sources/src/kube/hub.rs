//! Where everything that is heard comes together.
//!
//! In: what the list-and-watches, the fetches and discovery tell, in the order in which it comes. Out: [`Event`]s, and orders to
//! fetch. Pure: the clock comes in with each message.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use sesame_api::{Kind, ObjectKey};

use super::Event;
use super::failure::Failure;
use super::outbox::Outbox;
use super::path;
use super::references::{Found, Order, References, Ticket};
use super::shelf::Step;
use super::trouble::{Asker, Place, TroubleReason, Troubles};

/// A kind that was forbidden so many times in a row counts as empty at the start, and a Secret or ConfigMap as missing: a server
/// that has just started forbids everything for a moment.
pub(super) const ATTEMPTS: u32 = 5;

/// A Secret or ConfigMap that the server failed to give so many times, in half a minute, is not waited for any longer.
pub(super) const HOPELESS: u32 = 8;

/// Something that was heard.
#[derive(Debug)]
pub(super) enum Message {
    /// By the list-and-watch of that number, and when it was read.
    Feed(usize, Instant, Vec<Heard>),
    /// By a fetch of a Secret or ConfigMap; and if it came to nothing, for which time in a row.
    Fetch(ObjectKey, Ticket, Instant, Result<Fetched, Failure>, u32),
    /// A kind can be watched, or can't.
    Kind(Kind, Kinds),
    /// The release of the Gateway API's CRDs, as they say.
    Release(Option<String>),
    /// Discovery was asked.
    Discovery(Result<(), Failure>),
}

/// What a list-and-watch hears.
#[derive(Debug)]
pub(super) enum Heard {
    /// The server lets us list or watch.
    Connected,
    /// A list is complete.
    Synced,
    /// Something came of an object.
    Step(Step),
    /// A list of metadata begins.
    Begin,
    /// An object of which only metadata is watched has this version now, or had it when it was deleted.
    Noticed(ObjectKey, Box<str>),
    /// A request came to nothing, for the nth time in a row.
    Failed(Failure, u32),
}

/// What a fetch brings.
#[derive(Debug)]
pub(super) enum Fetched {
    /// The object, or nothing.
    Found(Found),
    /// It can't be decoded.
    Unreadable(String),
}

/// Whether a kind is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kinds {
    /// It is.
    Served,
    /// Its CRD is not installed.
    NotInstalled,
    /// Its CRD serves these versions, none of which we read.
    OtherVersion(Vec<String>),
}

/// The kinds that say what there should be at all: what one of them would ask for looks left over while it has not been read.
const ROOTS: [Kind; 2] = [Kind::GatewayClass, Kind::Gateway];

/// One list-and-watch.
#[derive(Debug)]
pub(super) struct Feed {
    /// Of these objects.
    pub(super) kind: Kind,
    /// Of this namespace; `None`: of all, or of none.
    pub(super) namespace: Option<Arc<str>>,
    /// It has told what there is, or that it can't.
    answered: bool,
    /// It has told what there is, or there is no such kind.
    read: bool,
}

impl Feed {
    /// One that has told nothing.
    pub(super) fn new(kind: Kind, namespace: Option<Arc<str>>) -> Self {
        Self {
            kind,
            namespace,
            // What nobody names is not needed.
            answered: metadata_only(kind),
            read: false,
        }
    }

    fn place(&self) -> Place {
        Place::Kind(self.kind, self.namespace.clone())
    }
}

/// Whether only metadata of the kind is watched: data is fetched when it is named.
pub(super) fn metadata_only(kind: Kind) -> bool {
    matches!(kind, Kind::Secret | Kind::ConfigMap)
}

/// Everything that was heard and not told yet.
#[derive(Debug)]
pub(super) struct Hub {
    feeds: Vec<Feed>,
    references: References,
    outbox: Outbox,
    troubles: Troubles,
    /// The release of the CRDs, if it has not been told yet.
    release: Option<Option<String>>,
    /// [`Event::Complete`] was told.
    completed: bool,
}

impl Hub {
    /// A hub that has heard nothing.
    pub(super) fn new(feeds: Vec<Feed>) -> Self {
        Self {
            feeds,
            references: References::default(),
            outbox: Outbox::default(),
            troubles: Troubles::default(),
            release: None,
            completed: false,
        }
    }

    /// Takes in what was heard.
    pub(super) fn hear(&mut self, message: Message, now: Timestamp) {
        match message {
            Message::Feed(feed, at, heard) => {
                for heard in heard {
                    self.feed(feed, at, heard, now);
                }
            }
            Message::Fetch(key, ticket, at, result, attempts) => {
                self.fetched((key, ticket), at, result, attempts, now);
            }
            Message::Kind(kind, kinds) => self.kind(kind, kinds, now),
            Message::Release(release) => self.release = Some(release),
            Message::Discovery(Ok(())) => self.troubles.reached(&Asker::Discovery),
            Message::Discovery(Err(failure)) => {
                let text = match failure {
                    Failure::Unreachable(text) | Failure::Refused(text) => text,
                    other => format!("{other:?}"),
                };
                self.troubles.unreachable(Asker::Discovery, &text, now);
            }
        }
    }

    /// What is to be fetched now.
    pub(super) fn orders(&mut self) -> Vec<Order> {
        let orders = self.references.orders();
        for order in &orders {
            if let Order::Drop(key) = order {
                self.troubles.reached(&Asker::Fetch(key.clone()));
                let place = Place::Object(key.clone());
                for reason in [TroubleReason::Unreadable, TroubleReason::Forbidden] {
                    self.troubles.end(place.clone(), reason);
                }
                self.troubles.end(place, TroubleReason::Refused);
            }
        }
        orders
    }

    /// The next thing to tell. Statuses come before the objects they stand in, so that who writes statuses finds nothing to write
    /// where the right one stands already.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        if let Some(troubles) = self.troubles.take() {
            return Some(Event::Trouble(troubles));
        }
        if let Some(release) = self.release.take() {
            return Some(Event::Release(release));
        }
        if let Some(live) = self.outbox.take_live() {
            return Some(Event::Live(live));
        }
        if !self.outbox.started() && self.ready() {
            return Some(Event::Set(self.outbox.start(Instant::now())));
        }
        if let Some(changes) = self.outbox.take_changes() {
            return Some(Event::Set(changes));
        }
        if self.complete() {
            self.completed = true;
            return Some(Event::Complete);
        }
        None
    }

    /// Whether there is something to tell.
    pub(super) fn pending(&self) -> bool {
        let first = !self.outbox.started() && self.ready();
        first
            || self.troubles.changed()
            || self.release.is_some()
            || self.outbox.pending()
            || self.complete()
    }

    /// Whether it is to be told that every GatewayClass and Gateway was told.
    fn complete(&self) -> bool {
        let mut roots = self.feeds.iter().filter(|feed| ROOTS.contains(&feed.kind));
        !self.completed
            && self.outbox.started()
            && roots.all(|feed| feed.read)
            && !self.references.waits()
            && !self.troubles.any_unreadable(&ROOTS)
    }

    /// Whether everything that is there was heard.
    fn ready(&self) -> bool {
        self.feeds.iter().all(|feed| feed.answered) && !self.references.waits()
    }

    fn feed(&mut self, number: usize, at: Instant, heard: Heard, now: Timestamp) {
        let Some(feed) = self.feeds.get_mut(number) else {
            return;
        };
        match heard {
            Heard::Connected => self.reached(number),
            Heard::Begin => self.references.list_begins(number),
            Heard::Noticed(key, version) => self.references.noticed(number, key, &version),
            Heard::Synced => {
                feed.answered = true;
                feed.read = true;
                let (kind, namespace) = (feed.kind, feed.namespace.clone());
                if metadata_only(kind) {
                    let namespace = namespace.as_deref();
                    self.references.list_ends(number, kind, namespace);
                }
                let place = self.feeds[number].place();
                self.troubles.end(place, TroubleReason::Unreadable);
                self.reached(number);
            }
            Heard::Failed(failure, attempts) => self.failed(number, failure, attempts, now),
            Heard::Step(step) => self.step(number, at, step, now),
        }
    }

    fn step(&mut self, number: usize, at: Instant, step: Step, now: Timestamp) {
        match step {
            Step::Upsert(object) => {
                let mut names = sesame_api::references(&object);
                names.retain(|key| self.may_fetch(key));
                self.references.upsert(*object, names, at, &mut self.outbox);
            }
            Step::Remove(key) => self.references.remove(key, at, &mut self.outbox),
            Step::Live(key, live) => self.outbox.live(key, live),
            Step::Unreadable(key, message) => self.unreadable(key, &message, now),
            Step::Readable(key) => {
                let reason = TroubleReason::Unreadable;
                self.troubles.end(Place::Object(key), reason);
            }
            Step::Nonsense(message) => {
                let message =
                    format!("the API server told of something that is no object: {message}");
                let place = self.feeds[number].place();
                self.troubles
                    .begin(place, TroubleReason::Unreadable, message, now);
            }
        }
    }

    fn unreadable(&mut self, key: ObjectKey, message: &str, now: Timestamp) {
        let message = format!(
            "{message}; mend the field, or look whether the CRD is of another version. The last good version counts"
        );
        let reason = TroubleReason::Unreadable;
        self.troubles
            .begin(Place::Object(key), reason, message, now);
    }

    /// Whether there is a watch that would tell of changes of this Secret or ConfigMap: what is outside of our namespaces is not there.
    fn may_fetch(&self, key: &ObjectKey) -> bool {
        let covers = |feed: &Feed| {
            let namespace = feed.namespace.as_deref();
            feed.kind == key.kind && namespace.is_none_or(|namespace| *namespace == *key.namespace)
        };
        self.feeds.iter().any(covers)
    }

    fn reached(&mut self, number: usize) {
        let place = self.feeds[number].place();
        for reason in [TroubleReason::Forbidden, TroubleReason::Refused] {
            self.troubles.end(place.clone(), reason);
        }
        self.troubles.reached(&Asker::Feed(number));
    }

    fn failed(&mut self, number: usize, failure: Failure, attempts: u32, now: Timestamp) {
        let feed = &mut self.feeds[number];
        let place = feed.place();
        let resource = path::full_resource(feed.kind);
        if failure.reached() {
            self.troubles.reached(&Asker::Feed(number));
        }
        match failure {
            Failure::Unreachable(text) => {
                self.troubles.unreachable(Asker::Feed(number), &text, now);
            }
            Failure::Forbidden(text) => {
                feed.answered |= attempts >= ATTEMPTS;
                let message = format!("grant the verbs list and watch on {resource}: {text}");
                self.troubles.end(place.clone(), TroubleReason::Refused);
                self.troubles
                    .begin(place, TroubleReason::Forbidden, message, now);
            }
            // Discovery says whether the kind is there; a server that has just started may not know yet.
            Failure::Missing | Failure::Gone => {}
            Failure::Invalid(text) | Failure::Refused(text) => {
                let message = format!("listing or watching {resource} fails: {text}");
                self.troubles
                    .begin(place, TroubleReason::Refused, message, now);
            }
        }
    }

    fn fetched(
        &mut self,
        (key, ticket): (ObjectKey, Ticket),
        at: Instant,
        result: Result<Fetched, Failure>,
        attempts: u32,
        now: Timestamp,
    ) {
        let place = Place::Object(key.clone());
        let asker = Asker::Fetch(key.clone());
        if !self.references.awaits(&key, ticket) {
            return;
        }
        let found = match result {
            Ok(Fetched::Found(found)) => {
                self.fetch_is_well(&key, true);
                found
            }
            Ok(Fetched::Unreadable(message)) => {
                self.fetch_is_well(&key, false);
                self.unreadable(key.clone(), &message, now);
                Found::Unreadable
            }
            Err(Failure::Missing | Failure::Gone) => {
                self.fetch_is_well(&key, true);
                Found::Nothing
            }
            Err(Failure::Unreachable(text)) => return self.troubles.unreachable(asker, &text, now),
            Err(Failure::Forbidden(text)) => {
                self.troubles.reached(&asker);
                let resource = path::full_resource(key.kind);
                let message = format!("grant the verb get on {resource}: {text}");
                let reason = TroubleReason::Forbidden;
                self.troubles.begin(place, reason, message, now);
                if attempts < ATTEMPTS {
                    return;
                }
                Found::Denied
            }
            Err(Failure::Invalid(text) | Failure::Refused(text)) => {
                self.troubles.reached(&asker);
                let message = format!("getting it fails: {text}");
                let reason = TroubleReason::Refused;
                self.troubles.begin(place, reason, message, now);
                // One that can't be decrypted, say, must not keep all others from being served.
                if attempts < HOPELESS {
                    return;
                }
                Found::Denied
            }
        };
        let outbox = &mut self.outbox;
        self.references.fetched(&key, ticket, found, at, outbox);
    }

    /// A fetch got an answer; `readable`: and it makes sense.
    fn fetch_is_well(&mut self, key: &ObjectKey, readable: bool) {
        self.troubles.reached(&Asker::Fetch(key.clone()));
        let place = Place::Object(key.clone());
        for reason in [TroubleReason::Forbidden, TroubleReason::Refused] {
            self.troubles.end(place.clone(), reason);
        }
        if readable {
            self.troubles.end(place, TroubleReason::Unreadable);
        }
    }

    fn kind(&mut self, kind: Kind, kinds: Kinds, now: Timestamp) {
        let place = Place::Kind(kind, None);
        let resource = path::full_resource(kind);
        if kinds != Kinds::Served {
            for number in 0..self.feeds.len() {
                if self.feeds[number].kind == kind {
                    self.feeds[number].answered = true;
                    self.feeds[number].read |= kinds == Kinds::NotInstalled;
                    // It stops to ask, so it will not tell when this is over.
                    self.reached(number);
                }
            }
        }
        let (told, other, message) = match kinds {
            Kinds::Served => {
                for reason in [TroubleReason::NotInstalled, TroubleReason::OtherVersion] {
                    self.troubles.end(place.clone(), reason);
                }
                return;
            }
            Kinds::NotInstalled => (
                TroubleReason::NotInstalled,
                TroubleReason::OtherVersion,
                format!(
                    "the CRD {resource} is not installed; once it is, its objects are read without a restart"
                ),
            ),
            Kinds::OtherVersion(versions) => (
                TroubleReason::OtherVersion,
                TroubleReason::NotInstalled,
                format!(
                    "the CRD {resource} serves {}, and Sesame reads {}: install one of another release of the Gateway API",
                    match versions.is_empty() {
                        true => "no version".to_owned(),
                        false => versions.join(", "),
                    },
                    kind.versions().join(", ")
                ),
            ),
        };
        self.troubles.end(place.clone(), other);
        self.troubles.begin(place, told, message, now);
    }
}

#[cfg(test)]
mod tests;
