//! Objects from an API server.
//!
//! In: lists and watches of the kinds that Sesame reads. Out: [`WatchEvent`]s. Must not depend on relations between
//! objects, other than references to Secrets and ConfigMaps.
//!
//! ```text
//! watcher ─► reflector (store) ─┐
//! discovery (catalog) ──────────┼─► hub (references, failures, outbox) ─► WatchEvent
//! fetch ◄──────── commands ─────┘
//! ```
//!
//! - Objects keep their last good version while the API server is unreachable, has lost its history (`410 Gone`),
//!   forbids requests, or serves a CRD in an unsupported version; [`WatchEvent::Failures`] reports why. Only
//!   uninstalling a CRD removes its objects.
//! - Only the name and a fingerprint of each object are kept. Secrets and ConfigMaps are read only if an object
//!   references them.
//! - All changes that have arrived by the time the receiver is ready are sent as one [`ChangeSet`]; nothing is
//!   debounced.

mod backoff;
mod catalog;
mod counters;
mod discovery;
mod error;
mod failures;
mod fetch;
mod hub;
mod outbox;
mod parse;
mod path;
mod progress;
mod references;
mod reflector;
mod request;
mod store;
mod trim;
mod watcher;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ::kube::Client;
use jiff::Timestamp;
use sesame_api::{Kind, LiveStatus, NamespacedName, ObjectKey, Release, Serving};
use tokio::sync::{Notify, mpsc, watch as state};
use tokio::task::JoinSet;

pub use self::backoff::RetryDelays;
use self::catalog::Availability;
pub use self::counters::Counters;
use self::discovery::discover;
pub use self::failures::{FailureReason, Subject, WatchFailure};
use self::fetch::Fetches;
use self::hub::Hub;
use self::reflector::Reflector;
use self::watcher::Context;
use crate::change::Change;

/// Capacity of the hub's channel. Watchers wait while it is full.
const CAPACITY: usize = 256;

/// Maximum number of messages handled before checking the receiver.
const BATCH: usize = 256;

/// Maximum length of a namespace name (RFC 1123).
const MAX_NAMESPACE: usize = 63;

/// What to watch.
#[derive(Clone, Debug)]
pub struct WatchConfig {
    /// Watch only these namespaces, and only objects in them; `None` watches all. Cluster-scoped kinds other than
    /// Namespace are always watched.
    pub namespaces: Option<Vec<String>>,
    /// The kinds to watch. If they include Contour's kinds, Contour's annotations are read as Sesame's own.
    pub kinds: Vec<Kind>,
    /// Secrets to fetch whether or not an object refers to them, such as those that the settings refer to.
    pub secrets: Vec<NamespacedName>,
    /// Delays between retries.
    pub retry: RetryDelays,
    /// Counts requests and events.
    pub counters: Arc<Counters>,
}

impl Default for WatchConfig {
    /// All kinds except Contour's, in all namespaces.
    fn default() -> Self {
        Self {
            namespaces: None,
            kinds: kinds(false),
            secrets: Vec::new(),
            retry: RetryDelays::default(),
            counters: Arc::default(),
        }
    }
}

/// All kinds, with or without Contour's.
pub fn kinds(contour: bool) -> Vec<Kind> {
    let kinds = Kind::ALL.into_iter();
    kinds
        .filter(|kind| contour || !kind.is_of_contour())
        .collect()
}

/// A change in the cluster, or in the connection to it.
#[derive(Debug)]
pub enum WatchEvent {
    /// Changed objects. The first set contains all objects, and is sent even if there are none.
    Changes(ChangeSet),
    /// Current statuses; `None` if the object was deleted. Sent before other changes to the same objects.
    Statuses(Vec<(ObjectKey, Option<LiveStatus>)>),
    /// The installed Gateway API release. Sent before the first set if already known.
    Release(Option<Release>),
    /// The kinds that the API server doesn't serve. Sent when they change, before the first set if already known.
    Absent(BTreeSet<Kind>),
    /// All fleet-owning objects have been sent: GatewayClasses, Gateways, and the objects without a Gateway, which
    /// share a fleet. A fleet that none of them needs is therefore an orphan. Sent once, and not while such objects are
    /// forbidden, can't be decoded, or are served in an unsupported version.
    FleetOwnersKnown,
    /// All current failures.
    Failures(Vec<WatchFailure>),
}

/// Objects that changed together.
#[derive(Debug)]
pub struct ChangeSet {
    /// At most one change per object, by key.
    pub changes: Vec<Change>,
    /// When the first change was received.
    pub detected: Instant,
}

/// Why a watch can't start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// Not a valid namespace name.
    #[error("{0:?} is not a valid namespace: use at most 63 lowercase letters, digits and hyphens")]
    Namespace(String),
}

/// Watches until `out` is closed. The tasks end with the future, even if the future is dropped.
///
/// The read timeout of `client` must be at least five minutes: a quiet watch may not receive anything for that long.
///
/// # Errors
/// If the configuration is invalid.
pub async fn watch(
    client: Client,
    config: WatchConfig,
    out: mpsc::Sender<WatchEvent>,
) -> Result<(), WatchError> {
    let watched = watched(&config)?;
    let synced = Arc::new(AtomicBool::new(false));
    let context = Context {
        client,
        retry: config.retry,
        counters: config.counters,
        synced: synced.clone(),
    };
    let (messages, mut inbox) = mpsc::channel(CAPACITY);
    let missing = Arc::new(Notify::new());
    let mut tasks = JoinSet::new();
    let mut discovered = BTreeMap::new();
    let (_builtin, builtin) = state::channel(Availability::Served("v1"));
    for (number, (kind, namespace)) in watched.iter().cloned().enumerate() {
        let availability = match kind.info().serving {
            Serving::Always => builtin.clone(),
            Serving::WithCrd | Serving::Recent => discovered
                .entry(kind)
                .or_insert_with(|| state::channel(Availability::Unknown).0)
                .subscribe(),
        };
        let reflector = Reflector::new(number, kind, namespace, missing.clone(), messages.clone());
        tasks.spawn(reflector.run(context.clone(), availability));
    }
    tasks.spawn(discover(
        context.clone(),
        discovered,
        missing,
        messages.clone(),
    ));
    let mut fetches = Fetches::new(context, messages);
    let mut hub = Hub::new(watched).with_secrets(config.secrets);
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        // Handle everything that has arrived before sending anything.
        while batch.len() < BATCH
            && let Ok(message) = inbox.try_recv()
        {
            batch.push(message);
        }
        if !batch.is_empty() {
            let now = Timestamp::now();
            for message in batch.drain(..) {
                hub.handle(message, now);
            }
            let commands = hub.take_commands();
            if !commands.is_empty() {
                fetches.run(commands);
            }
        }
        tokio::select! {
            permit = out.reserve(), if hub.pending() => {
                let Ok(permit) = permit else {
                    return Ok(());
                };
                if let Some(event) = hub.next_event() {
                    if let WatchEvent::Changes(_) = event {
                        synced.store(true, Ordering::Relaxed);
                    }
                    permit.send(event);
                }
            }
            // Never closed, since `fetches` has a sender.
            _ = inbox.recv_many(&mut batch, BATCH) => {}
            () = out.closed() => return Ok(()),
        }
    }
}

/// A kind to watch: in one namespace, in all (`None`), or cluster-scoped (`None`).
type Watched = (Kind, Option<Arc<str>>);

fn watched(config: &WatchConfig) -> Result<Vec<Watched>, WatchError> {
    let mut namespaces = config.namespaces.clone();
    for namespace in namespaces.iter().flatten() {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let valid =
            (1..=MAX_NAMESPACE).contains(&namespace.len()) && namespace.bytes().all(allowed);
        if !valid {
            return Err(WatchError::Namespace(namespace.clone()));
        }
    }
    if let Some(namespaces) = &mut namespaces {
        namespaces.sort();
        namespaces.dedup();
    }
    let mut kinds = config.kinds.clone();
    kinds.sort();
    kinds.dedup();
    let mut watched = Vec::new();
    for kind in kinds {
        match &namespaces {
            Some(names) if kind.namespaced() || kind == Kind::Namespace => {
                let in_namespace = |name: &String| (kind, Some(Arc::from(name.as_str())));
                watched.extend(names.iter().map(in_namespace));
            }
            _ => watched.push((kind, None)),
        }
    }
    Ok(watched)
}

#[cfg(test)]
mod tests;
