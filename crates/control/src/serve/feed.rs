//! What the API server tells, on its way to whom it concerns.
//!
//! In: events of the source. Out: objects for the thread that translates, live statuses for who writes them, troubles for
//! the health page and the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_sources::files::ChangeSet;
use sesame_sources::kube::{Event, Trouble};
use sesame_status::Writer;
use tokio::sync::mpsc;

use super::health::{Health, sentence};
use crate::owner::Message;

/// Passes everything on until the source or the owner is gone.
pub(super) async fn pass_on(
    mut events: mpsc::Receiver<Event>,
    owner: mpsc::Sender<Message>,
    statuses: Writer,
    health: Arc<Health>,
) {
    let mut told = BTreeSet::new();
    while let Some(event) = events.recv().await {
        match event {
            Event::Set(set) => {
                let set = ChangeSet {
                    changes: set.changes,
                    problems: Vec::new(),
                    skipped: BTreeMap::new(),
                    detected: set.detected,
                };
                if owner.send(Message::Source(set)).await.is_err() {
                    return;
                }
            }
            Event::Live(live) => {
                for (key, live) in live {
                    statuses.live(key, live);
                }
            }
            Event::Release(release) => {
                if owner.send(Message::Release(release)).await.is_err() {
                    return;
                }
            }
            Event::Complete => {
                if owner.send(Message::Complete).await.is_err() {
                    return;
                }
            }
            Event::Trouble(troubles) => {
                log(&mut told, &troubles);
                health.source(troubles);
            }
        }
    }
}

/// Says what is new and what is over.
fn log(told: &mut BTreeSet<String>, troubles: &[Trouble]) {
    let now: BTreeSet<String> = troubles.iter().map(sentence).collect();
    for over in told.difference(&now) {
        tracing::info!("over: {over}");
    }
    for new in now.difference(told) {
        tracing::warn!("{new}");
    }
    *told = now;
}
