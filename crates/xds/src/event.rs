//! Events from the xDS server.
//!
//! Unread events are coalesced, so a slow receiver neither blocks a stream nor grows without bound: at most a few
//! events are queued per live client and per resource.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use prost::bytes::Bytes;
use tokio::sync::Notify;

use crate::fleet::Rejection;
use crate::resource::{FleetId, ResourceType};

/// A connected client: one stream from an Envoy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientId {
    /// Its fleet.
    pub fleet: FleetId,
    /// Its `node.id`. Not necessarily unique.
    pub node_id: Arc<str>,
    /// Its stream number, never reused.
    pub stream: u64,
}

/// An event about a client or a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XdsEvent {
    /// A client has joined its fleet.
    Connected(ClientId),
    /// A client's stream has ended.
    Disconnected(ClientId),
    /// A client has acknowledged this revision and all earlier ones, so its traffic is routed accordingly. The
    /// revision's [`XdsEvent::Rejected`] events come first. Unreferenced clusters may be removed later.
    Acked {
        /// The client.
        client: ClientId,
        /// The revision of the [`crate::Update`].
        revision: u64,
    },
    /// A client hasn't acknowledged clusters in time; listeners and routes no longer wait for them.
    WarmingTimedOut(ClientId),
    /// A client rejected a version of a resource. Other clients are no longer sent that version. Reported once per
    /// version.
    Rejected {
        /// The fleet.
        fleet: FleetId,
        /// The rejected resource.
        rejection: Rejection,
        /// The rejected version, in the form for clients that don't get the variant.
        body: Bytes,
        /// The last version that a client accepted, if any. It is the rejected one if only some clients reject it.
        last_good: Option<Bytes>,
    },
    /// A rejected resource was replaced by an acknowledged version or removed (alone or with its fleet), or every
    /// client that rejected it has disconnected and another has acknowledged it.
    Recovered {
        /// The fleet.
        fleet: FleetId,
        /// The type of the resource.
        resource_type: ResourceType,
        /// The name of the resource.
        name: Arc<str>,
    },
}

/// The subject of an event. An event replaces unread events with the same subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Connection(u64),
    Revision(u64),
    Warming(u64),
    Resource(FleetId, ResourceType, Arc<str>),
}

impl XdsEvent {
    fn subject(&self) -> Subject {
        match self {
            XdsEvent::Connected(client) | XdsEvent::Disconnected(client) => {
                Subject::Connection(client.stream)
            }
            XdsEvent::Acked { client, .. } => Subject::Revision(client.stream),
            XdsEvent::WarmingTimedOut(client) => Subject::Warming(client.stream),
            XdsEvent::Rejected {
                fleet, rejection, ..
            } => Subject::Resource(
                fleet.clone(),
                rejection.resource_type,
                Arc::clone(&rejection.name),
            ),
            XdsEvent::Recovered {
                fleet,
                resource_type,
                name,
            } => Subject::Resource(fleet.clone(), *resource_type, Arc::clone(name)),
        }
    }

    /// Whether this event undoes an earlier, unread event with the same subject.
    fn cancels(&self, earlier: &XdsEvent) -> bool {
        matches!(
            (self, earlier),
            (XdsEvent::Disconnected(_), XdsEvent::Connected(_))
                | (XdsEvent::Recovered { .. }, XdsEvent::Rejected { .. })
        )
    }
}

/// The unread events of one receiver, in order, at most one per subject.
#[derive(Debug, Default)]
struct Unread {
    by_number: BTreeMap<u64, XdsEvent>,
    by_subject: BTreeMap<Subject, u64>,
    next: u64,
    /// Resources for which the receiver has read the rejection but not the recovery.
    rejected: BTreeSet<Subject>,
}

impl Unread {
    fn push(&mut self, event: XdsEvent) {
        let subject = event.subject();
        if let XdsEvent::Disconnected(client) = &event {
            self.remove(&Subject::Revision(client.stream));
            self.remove(&Subject::Warming(client.stream));
        }
        let earlier = self.remove(&subject);
        // A receiver that has read an earlier rejection needs the recovery.
        if earlier.is_some_and(|earlier| event.cancels(&earlier))
            && !self.rejected.contains(&subject)
        {
            return;
        }
        self.by_number.insert(self.next, event);
        self.by_subject.insert(subject, self.next);
        self.next += 1;
    }

    fn remove(&mut self, subject: &Subject) -> Option<XdsEvent> {
        let number = self.by_subject.remove(subject)?;
        self.by_number.remove(&number)
    }

    fn pop(&mut self) -> Option<XdsEvent> {
        let (_, event) = self.by_number.pop_first()?;
        let subject = event.subject();
        self.by_subject.remove(&subject);
        match event {
            XdsEvent::Rejected { .. } => _ = self.rejected.insert(subject),
            XdsEvent::Recovered { .. } => _ = self.rejected.remove(&subject),
            _ => {}
        }
        Some(event)
    }
}

#[derive(Debug, Default)]
struct Queue {
    unread: Mutex<Unread>,
    notify: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Receives the events published after [`crate::Registry::events`] created it.
///
/// Newer events supersede unread ones: `Acked` supersedes the client's previous `Acked`, `Disconnected` its
/// `Connected`, and `Recovered` the resource's `Rejected`.
#[derive(Debug)]
pub struct EventReceiver {
    queue: Arc<Queue>,
}

impl EventReceiver {
    /// Waits for the next event. Cancel safe.
    pub async fn next(&mut self) -> XdsEvent {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            // A notification that came after `try_next` is stored as a permit, so it is not missed.
            self.queue.notify.notified().await;
        }
    }

    /// The next event, if one is available.
    pub fn try_next(&mut self) -> Option<XdsEvent> {
        self.queue.lock().pop()
    }
}

/// Sends events to all receivers.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    queues: Mutex<Vec<Weak<Queue>>>,
}

impl Publisher {
    pub(crate) fn subscribe(&self) -> EventReceiver {
        let queue = Arc::new(Queue::default());
        self.lock().push(Arc::downgrade(&queue));
        EventReceiver { queue }
    }

    pub(crate) fn publish(&self, events: &[XdsEvent]) {
        if events.is_empty() {
            return;
        }
        self.lock().retain(|queue| {
            let Some(queue) = queue.upgrade() else {
                return false;
            };
            let mut unread = queue.lock();
            events.iter().for_each(|event| unread.push(event.clone()));
            drop(unread);
            queue.notify.notify_one();
            true
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Queue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Version;

    fn fleet() -> FleetId {
        FleetId::new("f")
    }

    fn client(stream: u64) -> ClientId {
        ClientId {
            fleet: fleet(),
            node_id: "n".into(),
            stream,
        }
    }

    fn connected(stream: u64) -> XdsEvent {
        XdsEvent::Connected(client(stream))
    }

    fn disconnected(stream: u64) -> XdsEvent {
        XdsEvent::Disconnected(client(stream))
    }

    fn acked(stream: u64, revision: u64) -> XdsEvent {
        XdsEvent::Acked {
            client: client(stream),
            revision,
        }
    }

    fn rejected(name: &str) -> XdsEvent {
        XdsEvent::Rejected {
            fleet: fleet(),
            rejection: Rejection {
                resource_type: ResourceType::Route,
                name: name.into(),
                version: Version::of(b"x"),
                message: "no".into(),
            },
            body: Bytes::from_static(b"x"),
            last_good: None,
        }
    }

    fn recovered(name: &str) -> XdsEvent {
        XdsEvent::Recovered {
            fleet: fleet(),
            resource_type: ResourceType::Route,
            name: name.into(),
        }
    }

    fn drain(events: &mut EventReceiver) -> Vec<XdsEvent> {
        std::iter::from_fn(|| events.try_next()).collect()
    }

    #[test]
    fn newer_events_replace_unread_ones() {
        let sender = Publisher::default();
        let mut events = sender.subscribe();
        sender.publish(&[
            connected(1),
            acked(1, 1),
            rejected("a"),
            acked(1, 2),
            rejected("a"),
        ]);
        assert_eq!(
            drain(&mut events),
            [connected(1), acked(1, 2), rejected("a")]
        );
        sender.publish(&[disconnected(1), recovered("a")]);
        assert_eq!(drain(&mut events), [disconnected(1), recovered("a")]);
    }

    #[test]
    fn a_receiver_that_read_a_rejection_gets_the_recovery() {
        let sender = Publisher::default();
        let mut events = sender.subscribe();
        sender.publish(&[rejected("a")]);
        assert_eq!(drain(&mut events), [rejected("a")]);
        sender.publish(&[rejected("a"), recovered("a")]);
        assert_eq!(drain(&mut events), [recovered("a")]);
        sender.publish(&[rejected("a"), recovered("a")]);
        assert_eq!(drain(&mut events), []);
        assert!(events.queue.lock().rejected.is_empty());
    }

    #[test]
    fn an_idle_receiver_does_not_grow_with_events() {
        let sender = Publisher::default();
        let mut events = sender.subscribe();
        for client in 0..10_000 {
            let name = format!("r{client}");
            sender.publish(&[
                connected(client),
                acked(client, 1),
                rejected(&name),
                recovered(&name),
                disconnected(client),
            ]);
        }
        let unread = events.queue.lock();
        assert!(unread.by_number.is_empty() && unread.by_subject.is_empty());
        drop(unread);
        assert_eq!(events.try_next(), None);
    }

    #[tokio::test]
    async fn every_receiver_is_woken_and_gets_all_events() {
        let sender = Arc::new(Publisher::default());
        let (mut one, mut two) = (sender.subscribe(), sender.subscribe());
        drop(sender.subscribe());
        let publisher = Arc::clone(&sender);
        let task = tokio::spawn(async move { publisher.publish(&[connected(7)]) });
        assert_eq!(one.next().await, connected(7));
        assert_eq!(two.next().await, connected(7));
        task.await.unwrap();
        assert_eq!(sender.lock().len(), 2, "a dropped receiver is removed");
    }
}
