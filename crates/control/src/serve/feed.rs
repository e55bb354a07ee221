//! Distributes events from the API server.
//!
//! In: events from the source. Out: objects for the translator, live statuses for the status writer, watch failures for
//! the health page and the log.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_sources::files::ChangeSet;
use sesame_sources::kube::{WatchEvent, WatchFailure};
use sesame_status::Writer;
use tokio::sync::mpsc;

use super::health::{Health, describe};
use crate::translator::Message;

/// Forwards events until the source or the translator is gone.
pub(super) async fn forward(
    mut events: mpsc::Receiver<WatchEvent>,
    translator: mpsc::Sender<Message>,
    statuses: Writer,
    health: Arc<Health>,
) {
    let mut logged = BTreeSet::new();
    while let Some(event) = events.recv().await {
        let message = match event {
            WatchEvent::Changes(set) => Message::Changes(ChangeSet {
                changes: set.changes,
                errors: Vec::new(),
                detected: set.detected,
            }),
            WatchEvent::Release(release) => Message::Release(release),
            WatchEvent::Absent(kinds) => Message::Absent(kinds),
            WatchEvent::FleetOwnersKnown => Message::FleetOwnersKnown,
            WatchEvent::Statuses(current) => {
                for (key, status) in current {
                    statuses.set_live(key, status);
                }
                continue;
            }
            WatchEvent::Failures(failures) => {
                log(&mut logged, &failures);
                health.set_watch_failures(failures);
                continue;
            }
        };
        if translator.send(message).await.is_err() {
            return;
        }
    }
}

/// Logs new and resolved failures.
fn log(logged: &mut BTreeSet<String>, failures: &[WatchFailure]) {
    let now: BTreeSet<String> = failures.iter().map(describe).collect();
    for resolved in logged.difference(&now) {
        tracing::info!("resolved: {resolved}");
    }
    for new in now.difference(logged) {
        tracing::warn!("{new}");
    }
    *logged = now;
}
