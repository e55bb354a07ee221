//! Writes statuses to the API server.
//!
//! In: the desired and the live status of each object. Out: the fewest merge patches that make them equal. `merge`
//! computes a patch and `queue` decides which object is next; both are pure. `write` sends patches. Must not depend on
//! translation.

mod counters;
mod failure;
mod merge;
mod queue;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sesame_api::{Kind, LiveStatus, ObjectKey, ObjectStatus};
use tokio::sync::Notify;

use self::queue::{INITIAL_DELAY, Queue};

pub use self::counters::{Counters, WriteResult};
pub use self::failure::{FailureReason, StatusFailure};
pub use self::write::WriterTask;

/// Settings for a [`Writer`].
#[derive(Clone, Debug)]
pub struct WriterConfig {
    /// Our name in status entries that name their controller, until [`Writer::set_controller`].
    pub controller_name: Arc<str>,
    /// Our name in `metadata.managedFields`.
    pub field_manager: String,
    /// Maximum number of concurrent writes.
    pub concurrency: usize,
    /// Kinds whose statuses are left to another controller.
    pub unwritten: &'static [Kind],
}

impl WriterConfig {
    /// The defaults for a controller with this name.
    pub fn new(controller_name: impl Into<Arc<str>>) -> Self {
        WriterConfig {
            controller_name: controller_name.into(),
            field_manager: "sesame".to_owned(),
            concurrency: 16,
            unwritten: &[],
        }
    }
}

/// Accepts statuses to write. Clones share the same queue; no method waits for the API server.
#[derive(Clone, Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    unwritten: &'static [Kind],
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

/// Creates a writer and its task. Nothing is sent before [`Writer::set_leading`].
///
/// The client should not retry on its own (`default_retry` off): the queue may have a newer status to send.
pub fn start(
    client: kube::Client,
    config: WriterConfig,
    counters: Arc<Counters>,
) -> (Writer, WriterTask) {
    let queue = Queue::new(
        config.controller_name.clone(),
        config.concurrency,
        INITIAL_DELAY,
    );
    let shared = Arc::new(Shared {
        queue: Mutex::new(queue),
        changed: Notify::new(),
    });
    let unwritten = config.unwritten;
    let task = WriterTask {
        shared: shared.clone(),
        counters,
        sender: write::Sender { client, config },
    };
    (Writer { shared, unwritten }, task)
}

impl Writer {
    /// Sets the desired status of an object; `None` if Sesame should not set one.
    ///
    /// With `None`, entries that name this controller are removed. Gateways, GatewayClasses and ListenerSets don't have
    /// such entries; instead, the conditions and fields that this process wrote are removed, unless another client has
    /// changed them since.
    pub fn set_desired(&self, key: ObjectKey, status: Option<ObjectStatus>) {
        if !self.unwritten.contains(&key.kind) {
            self.update(|queue, now| queue.set_desired(key, status, now));
        }
    }

    /// Sets our name in status entries that name their controller, for statuses set from now on. Entries with the previous
    /// name stay.
    pub fn set_controller(&self, name: &Arc<str>) {
        self.shared.queue().set_controller(Arc::clone(name));
    }

    /// Sets the live status of an object; `None` if the object was deleted.
    pub fn set_live(&self, key: ObjectKey, live: Option<LiveStatus>) {
        if !self.unwritten.contains(&key.kind) {
            self.update(|queue, now| queue.set_live(key, live, now));
        }
    }

    /// Sets whether this replica leads; initially false. Only the leader writes. A new leader compares every object.
    pub fn set_leading(&self, leading: bool) {
        self.update(|queue, now| queue.set_leading(leading, now));
    }

    /// Declares that [`Writer::set_desired`] has been called for all objects that existed at startup. From then on,
    /// entries that name this controller are removed from objects without a desired status.
    pub fn mark_complete(&self) {
        self.update(Queue::mark_complete);
    }

    /// The failures that currently keep statuses from being written, one per [`FailureReason`], most severe first.
    pub fn failures(&self) -> Vec<StatusFailure> {
        self.shared.queue().failures()
    }

    fn update(&self, change: impl FnOnce(&mut Queue, Instant)) {
        change(&mut self.shared.queue(), Instant::now());
        self.shared.changed.notify_one();
    }
}
