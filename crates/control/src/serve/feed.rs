//! Events of the API server, on their way to their receivers.
//!
//! In: events of the source. Out: objects for the thread that translates, live statuses for the writer of statuses, watch
//! failures for the health page and the log.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_sources::files::ChangeSet;
use sesame_sources::kube::{WatchEvent, WatchFailure};
use sesame_status::Writer;
use tokio::sync::mpsc;

use super::health::{Health, sentence};
use crate::owner::Message;

/// Passes on events until the source or the owner is gone.
pub(super) async fn pass_on(
    mut events: mpsc::Receiver<WatchEvent>,
    owner: mpsc::Sender<Message>,
    statuses: Writer,
    health: Arc<Health>,
) {
    let mut told = BTreeSet::new();
    while let Some(event) = events.recv().await {
        match event {
            WatchEvent::Changes(set) => {
                let set = ChangeSet {
                    changes: set.changes,
                    errors: Vec::new(),
                    unsupported: BTreeSet::new(),
                    detected: set.detected,
                };
                if owner.send(Message::Source(set)).await.is_err() {
                    return;
                }
            }
            WatchEvent::Statuses(current) => {
                for (key, status) in current {
                    statuses.set_live(key, status);
                }
            }
            WatchEvent::Release(release) => {
                if owner.send(Message::Release(release)).await.is_err() {
                    return;
                }
            }
            WatchEvent::FleetOwnersKnown => {
                if owner.send(Message::Complete).await.is_err() {
                    return;
                }
            }
            WatchEvent::Failures(failures) => {
                log(&mut told, &failures);
                health.source(failures);
            }
        }
    }
}

/// Logs new failures, and those that are gone.
fn log(told: &mut BTreeSet<String>, failures: &[WatchFailure]) {
    let now: BTreeSet<String> = failures.iter().map(sentence).collect();
    for over in told.difference(&now) {
        tracing::info!("over: {over}");
    }
    for new in now.difference(told) {
        tracing::warn!("{new}");
    }
    *told = now;
}
