//! Statuses, written back to the objects that they are about.
//!
//! In: what each object's status should be, and what it is. Out: patches, as few as can be. It must not know how a
//! status comes about, nor what an Envoy is.
//!
//! [`merge`] works out one patch, [`queue`] decides whose turn it is; both are pure. [`write`] sends.

mod counters;
mod merge;
mod queue;
mod trouble;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sesame_api::{LiveStatus, ObjectKey, ObjectStatus};
use tokio::sync::Notify;

use self::queue::{HEAD_START, Queue};

pub use self::counters::{BOUNDS, Counters, Latency, Sent};
pub use self::trouble::{Reason, Trouble};
pub use self::write::Task;

/// How to write.
#[derive(Clone, Debug)]
pub struct Config {
    /// Our name in entries that name their controller.
    pub controller_name: Arc<str>,
    /// Our name in `metadata.managedFields`.
    pub field_manager: String,
    /// How many writes may be under way together.
    pub concurrency: usize,
}

impl Config {
    /// The usual settings, for a controller of this name.
    pub fn new(controller_name: impl Into<Arc<str>>) -> Self {
        Config {
            controller_name: controller_name.into(),
            field_manager: "sesame".to_owned(),
            concurrency: 16,
        }
    }
}

/// Takes what should be written. Clones are the same writer; nothing here waits for the API server.
#[derive(Clone, Debug)]
pub struct Writer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A writer, and the task that sends what it takes; nothing is sent before [`Writer::lead`].
///
/// The client should not retry by itself (`default_retry` off): the queue knows better what to send instead.
pub fn start(client: kube::Client, config: Config, counters: Arc<Counters>) -> (Writer, Task) {
    let queue = Queue::new(
        config.controller_name.clone(),
        config.concurrency,
        HEAD_START,
    );
    let shared = Arc::new(Shared {
        queue: Mutex::new(queue),
        changed: Notify::new(),
    });
    let task = Task {
        shared: shared.clone(),
        counters,
        sender: write::Sender { client, config },
    };
    (Writer { shared }, task)
}

impl Writer {
    /// What an object's status should say; `None`: nothing of ours.
    ///
    /// With `None`, entries that bear our name are taken away; of a Gateway, GatewayClass or ListenerSet goes what still is as this
    /// process said it.
    pub fn desired(&self, key: ObjectKey, status: Option<ObjectStatus>) {
        self.with(|queue, now| queue.desired(key, status, now));
    }

    /// What an object's status is; `None`: the object is gone.
    pub fn live(&self, key: ObjectKey, live: Option<LiveStatus>) {
        self.with(|queue, now| queue.live(key, live, now));
    }

    /// Whether this process leads. Only a leader writes; who comes to lead compares everything.
    pub fn lead(&self, leads: bool) {
        self.with(|queue, now| queue.lead(leads, now));
    }

    /// Everything that was there at the start has been judged, and [`Writer::desired`] was told of it.
    ///
    /// From then on, entries that bear our name and of which nobody has spoken are left-overs, and are taken away.
    pub fn complete(&self) {
        self.with(Queue::complete);
    }

    /// What keeps statuses from being written now, the worst first; at most one of each [`Reason`].
    pub fn troubles(&self) -> Vec<Trouble> {
        self.shared.queue().troubles()
    }

    fn with(&self, change: impl FnOnce(&mut Queue, Instant)) {
        change(&mut self.shared.queue(), Instant::now());
        self.shared.changed.notify_one();
    }
}
