//! Objects from an API server.
//!
//! In: list-and-watches of the kinds that Sesame reads. Out: [`Event`]s: what changed, what stands in statuses, what is wrong. Must not
//! know what objects mean together, except which Secrets and ConfigMaps they name.
//!
//! ```text
//! follow ─► feed (shelf) ─┐
//! discovery (catalog) ────┼─► hub (references, troubles) ─► outbox ─► Event
//! fetch ◄────── orders ───┘
//! ```
//!
//! - What is there keeps being told as it is while the API server is away, forgets (`410 Gone`), forbids, or serves a CRD in a version
//!   that we do not read; [`Event::Trouble`] says so. Only a CRD that is gone takes its objects along.
//! - Of an object its name and a fingerprint are kept; of Secrets and ConfigMaps only of those that are named, and only those are ever
//!   fetched (`references`).
//! - Whatever has arrived when the listener is ready goes out as one [`Event::Set`]; nothing waits for a clock.

mod catalog;
mod discovery;
mod failure;
mod feed;
mod fetch;
mod follow;
mod hub;
mod outbox;
mod pace;
mod path;
mod progress;
mod reading;
mod references;
mod shelf;
mod trim;
mod trouble;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ::kube::Client;
use jiff::Timestamp;
use sesame_api::{Kind, LiveStatus, ObjectKey};
use tokio::sync::{Notify, mpsc, watch as state};
use tokio::task::JoinSet;

use self::catalog::Availability;
use self::discovery::discover;
use self::feed::Feed;
use self::fetch::Fetches;
use self::follow::Means;
use self::hub::{Hub, Message};
pub use self::pace::Pace;
pub use self::trouble::{Place, Trouble, TroubleReason};
pub use self::work::Work;
use crate::change::Change;

/// So many messages wait for the hub; then who reads the network waits.
const INBOX: usize = 256;

/// The hub looks whether the listener is ready after so many messages at the latest.
const AT_ONCE: usize = 256;

/// The longest name of a namespace (RFC 1123).
const MAX_NAMESPACE: usize = 63;

/// What to watch.
#[derive(Clone, Debug)]
pub struct KubeConfig {
    /// Only objects in these namespaces, and these Namespaces; `None`: in all. Kinds without a namespace are watched in any case.
    pub namespaces: Option<Vec<String>>,
    /// The kinds to watch.
    pub kinds: Vec<Kind>,
    /// How long to wait before asking again.
    pub pace: Pace,
    /// Counts what watching costs.
    pub work: Arc<Work>,
}

impl Default for KubeConfig {
    /// Every kind in every namespace.
    fn default() -> Self {
        Self {
            namespaces: None,
            kinds: Kind::ALL.to_vec(),
            pace: Pace::default(),
            work: Arc::default(),
        }
    }
}

/// What an API server has to tell.
#[derive(Debug)]
pub enum Event {
    /// Objects that changed, as one step. The first one is everything there is, even if that is nothing.
    Set(ChangeSet),
    /// What stands in the statuses of these objects; `None`: the object is gone. Told whether or not anything else of the object
    /// changed, and before it.
    Live(Vec<(ObjectKey, Option<LiveStatus>)>),
    /// The release of the Gateway API that the CRDs are of, as they say; `None`: they don't. Told when it changes, and first
    /// before the first [`Event::Set`] if it is known by then.
    Release(Option<String>),
    /// Every GatewayClass and Gateway that there is was told in the sets before. Told once, and not as long as such objects are
    /// forbidden, can't be decoded, or are served in a version that we do not read: what in the cluster nobody seems to ask for
    /// may be theirs until then.
    Complete,
    /// Everything that is wrong now.
    Trouble(Vec<Trouble>),
}

/// Objects that changed together.
#[derive(Debug)]
pub struct ChangeSet {
    /// One change for each object, by key.
    pub changes: Vec<Change>,
    /// When the first of them was read from the API server.
    pub detected: Instant,
}

/// Why watching can't begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// No object can be in such a namespace.
    #[error(
        "{0:?} is no name of a namespace: expected up to 63 lowercase letters, digits and dashes"
    )]
    Namespace(String),
}

/// Watches until nobody listens to `out` any more. What it began ends with it, also when it is dropped.
///
/// `client` must not have a read timeout of less than five minutes: on a quiet watch nothing is read for so long.
///
/// # Errors
/// When the configuration can't be meant.
pub async fn watch(
    client: Client,
    config: KubeConfig,
    out: mpsc::Sender<Event>,
) -> Result<(), WatchError> {
    let feeds = feeds(&config)?;
    let means = Means {
        client,
        pace: config.pace,
        work: config.work,
    };
    let (heard, mut inbox) = mpsc::channel(INBOX);
    let doubt = Arc::new(Notify::new());
    let mut tasks = JoinSet::new();
    let mut ours = BTreeMap::new();
    // Kubernetes' own kinds are there in any case; what would say otherwise is kept, so that it is never said.
    let (_always, always) = state::channel(Availability::Served("v1"));
    let mut told = Vec::new();
    for (number, (kind, namespace)) in feeds.into_iter().enumerate() {
        told.push(hub::Feed::new(kind, namespace.clone()));
        let availability = match reading::is_ours(kind) {
            true => ours
                .entry(kind)
                .or_insert_with(|| state::channel(Availability::Unknown).0)
                .subscribe(),
            false => always.clone(),
        };
        let feed = Feed {
            number,
            kind,
            namespace,
        };
        tasks.spawn(feed.run(means.clone(), availability, doubt.clone(), heard.clone()));
    }
    tasks.spawn(discover(means.clone(), ours, doubt, heard.clone()));
    let mut fetches = Fetches::new(means, heard);
    let mut hub = Hub::new(told);
    let mut messages = Vec::with_capacity(AT_ONCE);
    loop {
        // Everything that has arrived counts before anything is told.
        while messages.len() < AT_ONCE
            && let Ok(message) = inbox.try_recv()
        {
            messages.push(message);
        }
        hear(&mut hub, &mut messages, &mut fetches);
        tokio::select! {
            permit = out.reserve(), if hub.pending() => {
                let Ok(permit) = permit else {
                    return Ok(());
                };
                if let Some(event) = hub.next_event() {
                    permit.send(event);
                }
            }
            // Never empty: this function holds a sender of its own.
            _ = inbox.recv_many(&mut messages, AT_ONCE) => {}
            () = out.closed() => return Ok(()),
        }
    }
}

fn hear(hub: &mut Hub, messages: &mut Vec<Message>, fetches: &mut Fetches) {
    if messages.is_empty() {
        return;
    }
    let now = Timestamp::now();
    for message in messages.drain(..) {
        hub.hear(message, now);
    }
    let orders = hub.orders();
    if !orders.is_empty() {
        fetches.carry_out(orders);
    }
}

/// A kind, and the namespace that is watched; `None`: all, or none.
type Watched = (Kind, Option<Arc<str>>);

/// What to list and watch.
fn feeds(config: &KubeConfig) -> Result<Vec<Watched>, WatchError> {
    let mut namespaces = config.namespaces.clone();
    for namespace in namespaces.iter().flatten() {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let sound =
            (1..=MAX_NAMESPACE).contains(&namespace.len()) && namespace.bytes().all(allowed);
        if !sound {
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
    let mut feeds = Vec::new();
    for kind in kinds {
        match &namespaces {
            Some(names) if kind.namespaced() || kind == Kind::Namespace => {
                let feed = |name: &String| (kind, Some(Arc::from(name.as_str())));
                feeds.extend(names.iter().map(feed));
            }
            _ => feeds.push((kind, None)),
        }
    }
    Ok(feeds)
}

#[cfg(test)]
mod tests;
