//! What became of the resources: events for the owners of statuses, terminals and metrics.
//!
//! In: events, from streams. Out: the same, to any number of receivers, coalesced where a newer one
//! makes an older one moot. A receiver that doesn't read neither blocks a stream nor grows without
//! bound: at most a few events per live client and per resource wait.
//! It must not know: who listens.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Notify;

use crate::resource::{FleetId, ResourceType, Version};

/// Something that happened between the server and its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A client said who it is.
    Connected {
        /// Its fleet.
        fleet: FleetId,
        /// Its `node.id`. Not unique by force: two clients may claim the same.
        node_id: Arc<str>,
        /// The number of its stream, never used twice.
        client: u64,
    },
    /// A client's stream ended.
    Disconnected {
        /// Its fleet.
        fleet: FleetId,
        /// Its `node.id`.
        node_id: Arc<str>,
        /// The number of its stream.
        client: u64,
    },
    /// A client has acknowledged all of this revision and of those before it: its traffic follows
    /// it. Resources of it that were rejected have had their [`Event::Rejected`] before; clusters
    /// that nothing refers to any more may still be about to be removed.
    Acked {
        /// Its fleet.
        fleet: FleetId,
        /// Its `node.id`.
        node_id: Arc<str>,
        /// The number of its stream.
        client: u64,
        /// The revision of the [`crate::Update`].
        revision: u64,
    },
    /// A client didn't acknowledge clusters in time; listeners and routes no longer wait for them.
    WarmingTimedOut {
        /// Its fleet.
        fleet: FleetId,
        /// Its `node.id`.
        node_id: Arc<str>,
        /// The number of its stream.
        client: u64,
    },
    /// A client rejected a version of a resource, which from now on is sent to nobody who hasn't got it.
    /// Said once per version.
    Rejected {
        /// The fleet.
        fleet: FleetId,
        /// The resource's type.
        resource_type: ResourceType,
        /// The resource's name.
        name: Arc<str>,
        /// The version that was rejected.
        version: Version,
        /// The client's words on this resource, shortened if very long.
        message: Arc<str>,
    },
    /// A resource that was rejected has been replaced by a version that was acknowledged, or removed (by
    /// itself or with its fleet), or nobody who has rejected it is there any more and others have it.
    Recovered {
        /// The fleet.
        fleet: FleetId,
        /// The resource's type.
        resource_type: ResourceType,
        /// The resource's name.
        name: Arc<str>,
    },
}

/// What an event is about: newer events about the same thing replace older ones that nobody read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum About {
    Presence(u64),
    Progress(u64),
    Warming(u64),
    Resource(FleetId, ResourceType, Arc<str>),
}

impl Event {
    fn about(&self) -> About {
        match self {
            Event::Connected { client, .. } | Event::Disconnected { client, .. } => {
                About::Presence(*client)
            }
            Event::Acked { client, .. } => About::Progress(*client),
            Event::WarmingTimedOut { client, .. } => About::Warming(*client),
            Event::Rejected {
                fleet,
                resource_type,
                name,
                ..
            }
            | Event::Recovered {
                fleet,
                resource_type,
                name,
            } => About::Resource(fleet.clone(), *resource_type, Arc::clone(name)),
        }
    }

    /// Whether this event, coming after `earlier` about the same thing, leaves nothing to tell.
    fn cancels(&self, earlier: &Event) -> bool {
        matches!(
            (self, earlier),
            (Event::Disconnected { .. }, Event::Connected { .. })
                | (Event::Recovered { .. }, Event::Rejected { .. })
        )
    }
}

/// The unread events of one receiver: in order, one at most about each thing.
#[derive(Debug, Default)]
struct Unread {
    order: BTreeMap<u64, Event>,
    about: BTreeMap<About, u64>,
    next: u64,
    /// Resources of which the receiver has been told that they are rejected, and not yet that they aren't.
    told: BTreeSet<About>,
}

impl Unread {
    fn push(&mut self, event: Event) {
        let about = event.about();
        if let Event::Disconnected { client, .. } = event {
            // What a client that is gone did before doesn't matter to somebody who didn't hear of it.
            self.forget(&About::Progress(client));
            self.forget(&About::Warming(client));
        }
        let earlier = self.forget(&about);
        // Who has heard of an earlier rejection is to hear that it is over.
        if earlier.is_some_and(|earlier| event.cancels(&earlier)) && !self.told.contains(&about) {
            return;
        }
        self.order.insert(self.next, event);
        self.about.insert(about, self.next);
        self.next += 1;
    }

    fn forget(&mut self, about: &About) -> Option<Event> {
        let at = self.about.remove(about)?;
        self.order.remove(&at)
    }

    fn pop(&mut self) -> Option<Event> {
        let (_, event) = self.order.pop_first()?;
        let about = event.about();
        self.about.remove(&about);
        match event {
            Event::Rejected { .. } => _ = self.told.insert(about),
            Event::Recovered { .. } => _ = self.told.remove(&about),
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
    fn with<R>(&self, f: impl FnOnce(&mut Unread) -> R) -> R {
        f(&mut self.unread.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A receiver of events, from [`crate::Registry::events`].
///
/// It gets what happens after it was made. Of events that it hasn't read, those that newer ones make
/// moot are dropped: an `Acked` by a later one of the same client, a `Connected` by its
/// `Disconnected`, a `Rejected` by its `Recovered`.
#[derive(Debug)]
pub struct Events {
    queue: Arc<Queue>,
}

impl Events {
    /// The next event. Waits for as long as there is none; safe to cancel.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            // An event that came in between has left its permit, so this doesn't miss it.
            self.queue.notify.notified().await;
        }
    }

    /// The next event, if there is one now.
    pub fn try_next(&mut self) -> Option<Event> {
        self.queue.with(Unread::pop)
    }
}

/// Hands events to all receivers.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    queues: Mutex<VecDeque<Weak<Queue>>>,
}

impl Hub {
    pub(crate) fn subscribe(&self) -> Events {
        let queue = Arc::new(Queue::default());
        self.lock().push_back(Arc::downgrade(&queue));
        Events { queue }
    }

    pub(crate) fn publish(&self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        self.lock().retain(|queue| {
            let Some(queue) = queue.upgrade() else {
                return false;
            };
            queue.with(|unread| events.iter().cloned().for_each(|event| unread.push(event)));
            queue.notify.notify_one();
            true
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Weak<Queue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet() -> FleetId {
        FleetId::new("f")
    }

    fn connected(client: u64) -> Event {
        Event::Connected {
            fleet: fleet(),
            node_id: "n".into(),
            client,
        }
    }

    fn disconnected(client: u64) -> Event {
        Event::Disconnected {
            fleet: fleet(),
            node_id: "n".into(),
            client,
        }
    }

    fn acked(client: u64, revision: u64) -> Event {
        Event::Acked {
            fleet: fleet(),
            node_id: "n".into(),
            client,
            revision,
        }
    }

    fn rejected(name: &str) -> Event {
        Event::Rejected {
            fleet: fleet(),
            resource_type: ResourceType::Route,
            name: name.into(),
            version: Version::of(b"x"),
            message: "no".into(),
        }
    }

    fn recovered(name: &str) -> Event {
        Event::Recovered {
            fleet: fleet(),
            resource_type: ResourceType::Route,
            name: name.into(),
        }
    }

    fn drain(events: &mut Events) -> Vec<Event> {
        std::iter::from_fn(|| events.try_next()).collect()
    }

    #[test]
    fn what_nobody_read_is_replaced_by_what_is_newer() {
        let hub = Hub::default();
        let mut events = hub.subscribe();
        hub.publish(vec![
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
        hub.publish(vec![disconnected(1), recovered("a")]);
        assert_eq!(drain(&mut events), [disconnected(1), recovered("a")]);
    }

    #[test]
    fn who_heard_of_a_rejection_hears_of_its_end() {
        let hub = Hub::default();
        let mut events = hub.subscribe();
        hub.publish(vec![rejected("a")]);
        assert_eq!(drain(&mut events), [rejected("a")]);
        hub.publish(vec![rejected("a"), recovered("a")]);
        assert_eq!(drain(&mut events), [recovered("a")]);
        hub.publish(vec![rejected("a"), recovered("a")]);
        assert_eq!(drain(&mut events), []);
        assert!(events.queue.with(|unread| unread.told.is_empty()));
    }

    #[test]
    fn a_reader_who_sleeps_costs_nothing_per_event() {
        let hub = Hub::default();
        let mut events = hub.subscribe();
        for client in 0..10_000 {
            let name = format!("r{client}");
            hub.publish(vec![
                connected(client),
                acked(client, 1),
                rejected(&name),
                recovered(&name),
                disconnected(client),
            ]);
        }
        let waiting = events
            .queue
            .with(|unread| (unread.order.len(), unread.about.len()));
        assert_eq!(waiting, (0, 0));
        assert_eq!(events.try_next(), None);
    }

    #[tokio::test]
    async fn each_receiver_is_woken_and_gets_all() {
        let hub = Arc::new(Hub::default());
        let (mut one, mut two) = (hub.subscribe(), hub.subscribe());
        drop(hub.subscribe());
        let publisher = Arc::clone(&hub);
        let task = tokio::spawn(async move { publisher.publish(vec![connected(7)]) });
        assert_eq!(one.next().await, connected(7));
        assert_eq!(two.next().await, connected(7));
        task.await.unwrap();
        assert_eq!(hub.lock().len(), 2, "a dropped receiver is forgotten");
    }
}
