//! One kind, in all namespaces or one, as it is listed and watched: from text to what is heard.
//!
//! In: whether and in which version the kind is served. Out: messages to the hub. Decoding happens here, so that kinds are decoded
//! beside each other.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use sesame_api::Kind;
use tokio::sync::{Notify, mpsc, watch};

use super::catalog::Availability;
use super::failure::Failure;
use super::follow::{Listener, Means, Target, follow};
use super::hub::{Heard, Message, metadata_only};
use super::path;
use super::reading::Identity;
use super::shelf::{Shelf, Step};

/// One list-and-watch.
#[derive(Debug)]
pub(super) struct Feed {
    /// Its place among all.
    pub(super) number: usize,
    /// Of these objects.
    pub(super) kind: Kind,
    /// Of this namespace; `None`: of all.
    pub(super) namespace: Option<Arc<str>>,
}

impl Feed {
    fn target(&self, version: &str) -> Target {
        // Of Namespaces only those that count are asked for: RBAC can allow them by name.
        let (namespace, fields) = match (&self.namespace, self.kind) {
            (Some(name), Kind::Namespace) => (None, Some(format!("metadata.name={name}"))),
            // A Helm release is no certificate, and the largest Secret there is.
            (namespace, Kind::Secret) => (
                namespace.as_deref(),
                Some("type!=helm.sh/release.v1".to_owned()),
            ),
            (namespace, _) => (namespace.as_deref(), None),
        };
        Target {
            path: path::collection(self.kind, version, namespace),
            metadata_only: metadata_only(self.kind),
            fields,
        }
    }

    /// Follows the kind for ever. `doubt` is told when it is not where it was.
    pub(super) async fn run(
        self,
        means: Means,
        mut availability: watch::Receiver<Availability>,
        doubt: Arc<Notify>,
        out: mpsc::Sender<Message>,
    ) {
        let mut ear = Ear {
            number: self.number,
            kind: self.kind,
            shelf: Shelf::new(self.kind),
            steps: Vec::new(),
            heard: Vec::new(),
            since: None,
            doubt,
            out,
        };
        let spread = self.number as u64;
        loop {
            let now = availability.borrow_and_update().clone();
            if now == Availability::NotInstalled {
                ear.clear();
                if !ear.flush().await {
                    return;
                }
            }
            let Availability::Served(version) = now else {
                if availability.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let target = self.target(version);
            let mut following = pin!(follow(&means, &target, spread, &mut ear));
            loop {
                tokio::select! {
                    () = &mut following => return,
                    changed = availability.changed() => {
                        if changed.is_err() {
                            return;
                        }
                    }
                }
                if *availability.borrow_and_update() != Availability::Served(version) {
                    availability.mark_changed();
                    break;
                }
            }
        }
    }
}

/// Turns text into what is heard.
struct Ear {
    number: usize,
    kind: Kind,
    shelf: Shelf,
    steps: Vec<Step>,
    heard: Vec<Heard>,
    /// When the first of what is heard was read.
    since: Option<Instant>,
    doubt: Arc<Notify>,
    out: mpsc::Sender<Message>,
}

impl Ear {
    fn hear(&mut self, heard: Heard) {
        self.since.get_or_insert_with(Instant::now);
        self.heard.push(heard);
    }

    fn hear_steps(&mut self) {
        if !self.steps.is_empty() {
            self.since.get_or_insert_with(Instant::now);
            self.heard.extend(self.steps.drain(..).map(Heard::Step));
        }
    }

    fn notice(&mut self, text: &str) {
        match Identity::of(text) {
            Ok(identity) => {
                let key = identity.of_kind(self.kind);
                self.hear(Heard::Noticed(key, identity.resource_version.into()));
            }
            Err(error) => self.hear(Heard::Step(Step::Nonsense(error.to_string()))),
        }
    }

    fn clear(&mut self) {
        self.shelf.clear(&mut self.steps);
        self.hear_steps();
    }
}

impl Listener for Ear {
    fn begin(&mut self) {
        self.shelf.begin();
        self.hear(Heard::Begin);
    }

    fn exists(&mut self, text: &str) {
        self.since.get_or_insert_with(Instant::now);
        if metadata_only(self.kind) {
            return self.notice(text);
        }
        self.shelf.exists(text, &mut self.steps);
        self.hear_steps();
    }

    fn gone(&mut self, text: &str) {
        if metadata_only(self.kind) {
            return self.notice(text);
        }
        self.shelf.gone(text, &mut self.steps);
        self.hear_steps();
    }

    fn synced(&mut self) {
        self.shelf.done(&mut self.steps);
        self.hear_steps();
        self.hear(Heard::Synced);
    }

    fn connected(&mut self) {
        self.hear(Heard::Connected);
    }

    fn failed(&mut self, failure: Failure, attempts: u32) {
        if failure == Failure::Missing {
            self.doubt.notify_one();
        }
        self.hear(Heard::Failed(failure, attempts));
    }

    async fn flush(&mut self) -> bool {
        if self.heard.is_empty() {
            return !self.out.is_closed();
        }
        let since = self.since.take().unwrap_or_else(Instant::now);
        let message = Message::Feed(self.number, since, std::mem::take(&mut self.heard));
        self.out.send(message).await.is_ok()
    }
}
