//! Reflects one kind, in one or all namespaces: its watcher, its [`Store`], and messages to the hub.
//!
//! Each reflector runs in its own task, so that kinds are decoded in parallel.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sesame_api::Kind;
use tokio::sync::{Notify, mpsc, watch};

use super::catalog::Availability;
use super::error::RequestError;
use super::hub::{Message, Update, metadata_only};
use super::parse::Identity;
use super::path;
use super::store::Store;
use super::watcher::{self, Context, Handler, Target};

/// A reflector of one kind.
pub(super) struct Reflector {
    number: usize,
    kind: Kind,
    /// `None` for all namespaces, or if the kind is cluster-scoped.
    namespace: Option<Arc<str>>,
    store: Store,
    updates: Vec<Update>,
    /// When the first of `updates` was read.
    since: Option<Instant>,
    missing: Arc<Notify>,
    out: mpsc::Sender<Message>,
}

impl Reflector {
    /// `missing` is notified when the API server doesn't serve the kind.
    pub(super) fn new(
        number: usize,
        kind: Kind,
        namespace: Option<Arc<str>>,
        missing: Arc<Notify>,
        out: mpsc::Sender<Message>,
    ) -> Self {
        Self {
            number,
            kind,
            namespace,
            store: Store::new(kind),
            updates: Vec::new(),
            since: None,
            missing,
            out,
        }
    }

    fn target(&self, version: &str) -> Target {
        let (namespace, field_selector) = match (self.namespace.as_deref(), self.kind) {
            // RBAC can grant access to Namespaces by name.
            (Some(name), Kind::Namespace) => (None, Some(format!("metadata.name={name}"))),
            // Helm stores releases of up to 1 MiB in Secrets, which are never certificates.
            (namespace, Kind::Secret) => (namespace, Some("type!=helm.sh/release.v1".to_owned())),
            (namespace, _) => (namespace, None),
        };
        Target {
            path: path::collection(self.kind, version, namespace),
            metadata_only: metadata_only(self.kind),
            field_selector,
        }
    }

    /// Watches the kind as long as it is served and the hub receives messages.
    pub(super) async fn run(
        mut self,
        context: Context,
        mut availability: watch::Receiver<Availability>,
    ) {
        loop {
            let current = availability.borrow_and_update().clone();
            if current == Availability::NotInstalled {
                self.store.clear(&mut self.updates);
                if !self.flush().await {
                    return;
                }
            }
            let Availability::Served(version) = current else {
                if availability.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let target = self.target(version);
            let mut watching = pin!(watcher::watch(&context, &target, &mut self));
            let other = |current: &Availability| *current != Availability::Served(version);
            tokio::select! {
                () = &mut watching => return,
                changed = availability.wait_for(other) => {
                    if changed.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn push(&mut self, update: Update) {
        self.since.get_or_insert_with(Instant::now);
        self.updates.push(update);
    }

    fn metadata(&mut self, text: &str) {
        self.updates.push(match Identity::of(text) {
            Ok(identity) => {
                let version = identity.resource_version.as_str();
                Update::MetadataSeen(identity.key(self.kind), version.into())
            }
            Err(error) => Update::Malformed(error.to_string()),
        });
    }
}

impl Handler for Reflector {
    fn list_begins(&mut self) {
        self.store.list_begins();
        self.push(Update::ListBegins);
    }

    fn applied(&mut self, text: &str) {
        self.since.get_or_insert_with(Instant::now);
        match metadata_only(self.kind) {
            true => self.metadata(text),
            false => self.store.apply(text, &mut self.updates),
        }
    }

    fn deleted(&mut self, text: &str) {
        self.since.get_or_insert_with(Instant::now);
        match metadata_only(self.kind) {
            true => self.metadata(text),
            false => self.store.delete(text, &mut self.updates),
        }
    }

    fn list_ends(&mut self) {
        self.store.list_ends(&mut self.updates);
        self.push(Update::ListEnds);
    }

    fn connected(&mut self) {
        self.push(Update::Connected);
    }

    fn failed(&mut self, error: RequestError, duration: Duration) {
        if error == RequestError::Missing {
            self.missing.notify_one();
        }
        self.push(Update::Failed(error, duration));
    }

    async fn flush(&mut self) -> bool {
        let since = self.since.take().unwrap_or_else(Instant::now);
        if self.updates.is_empty() {
            return !self.out.is_closed();
        }
        let updates = std::mem::take(&mut self.updates);
        let message = Message::Watcher(self.number, since, updates);
        self.out.send(message).await.is_ok()
    }
}
