//! The task that keeps the Secrets: watches and writes them.
//!
//! A write has the resourceVersion that was read right before: of two replicas that both take themselves for the leader, the
//! second gets a conflict, reads again and has nothing left to write.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::cert::TlsFiles;
use super::state::{self, Action, Name, Source, State, StateError};
use super::{CaConfig, Orders, secret};
use crate::kube::watch::watch_backoff;

/// The field manager of all writes.
const FIELD_MANAGER: &str = "sesame-identity";
/// The timeout for one Secret.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The server ends a watch after this many seconds; it then starts again.
const WATCH_TIMEOUT: u32 = 290;
/// How often a conflict is retried at once.
const CONFLICTS: usize = 3;
/// How long a failure of a watch is reported. A watch that goes on says so by an event only, but it fails again within
/// seconds if it doesn't.
const WATCH_FAILURE: Duration = Duration::from_secs(90);
/// The longest sleep: the clock may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
enum StoreError {
    #[error("no answer from the API server within {} s", TIMEOUT.as_secs())]
    Timeout,
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    State(#[from] StateError),
}

/// The task behind a [`super::Handle`].
pub(super) struct Store {
    client: Client,
    config: CaConfig,
    state: State,
    served: watch::Sender<Option<TlsFiles>>,
    failure: watch::Sender<Option<Arc<str>>>,
    /// The last failure of a watch, and until when it is reported.
    watch_failure: Option<(String, Instant)>,
}

type Watches = SelectAll<BoxStream<'static, (Source, watcher::Result<watcher::Event<Secret>>)>>;

impl Store {
    pub(super) fn new(
        client: Client,
        config: CaConfig,
        served: watch::Sender<Option<TlsFiles>>,
        failure: watch::Sender<Option<Arc<str>>>,
    ) -> Self {
        Self {
            state: State::new(config.clone()),
            client,
            config,
            served,
            failure,
            watch_failure: None,
        }
    }

    /// Runs until all handles are dropped.
    pub(super) async fn run(mut self, orders: Arc<Mutex<Orders>>, mut bell: watch::Receiver<()>) {
        let mut watches = self.watches();
        loop {
            let wake = tokio::time::sleep_until(self.wake());
            tokio::select! {
                Some((source, event)) = watches.next() => self.see(source, event),
                rung = bell.changed() => {
                    if rung.is_err() {
                        return;
                    }
                    let new = std::mem::take(&mut *orders.lock().unwrap_or_else(PoisonError::into_inner));
                    self.obey(new);
                }
                () = wake => {}
            }
            self.work().await;
            self.publish();
        }
    }

    fn watches(&self) -> Watches {
        let watches = state::sources(&self.config).into_iter().map(|source| {
            let config = watcher::Config::default().timeout(WATCH_TIMEOUT);
            let own = &self.config.namespace;
            let named = |name: &str| config.clone().fields(&format!("metadata.name={name}"));
            let (namespace, config) = match &source {
                Source::Ca => (Some(own), named(secret::CA)),
                Source::Server => (Some(own), named(secret::SERVER)),
                Source::Fleets(namespace) => {
                    let label = format!("{}={own}", secret::KEPT_BY);
                    (namespace.as_ref(), config.labels(&label))
                }
            };
            let api: Api<Secret> = match namespace {
                None => Api::all(self.client.clone()),
                Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            };
            let events = watcher(api, config).backoff(watch_backoff());
            events.map(move |event| (source.clone(), event)).boxed()
        });
        stream::select_all(watches)
    }

    fn see(&mut self, source: Source, event: watcher::Result<watcher::Event<Secret>>) {
        match event {
            Ok(event) => {
                if matches!(event, watcher::Event::InitDone) {
                    self.watch_failure = None;
                }
                self.state.see(source, event);
            }
            Err(error) => {
                let message = format!("cannot watch Secrets ({source:?}): {error}");
                if self.watch_failure.as_ref().map(|(last, _)| last) != Some(&message) {
                    tracing::warn!("{message}");
                }
                self.watch_failure = Some((message, Instant::now() + WATCH_FAILURE));
            }
        }
    }

    fn obey(&mut self, orders: Orders) {
        for (id, owner) in orders.fleets {
            self.state.want(id, owner);
        }
        if let Some(leading) = orders.leading {
            self.state.lead(leading);
        }
        if orders.settled {
            self.state.settle();
        }
    }

    fn publish(&mut self) {
        let now = Instant::now();
        self.watch_failure.take_if(|(_, until)| *until <= now);
        replace(&self.served, self.state.served().cloned());
        let watch_failure = self.watch_failure.as_ref().map(|(message, _)| message);
        let failure = self.state.failure().or(watch_failure.cloned());
        replace(&self.failure, failure.map(Into::into));
    }

    fn wake(&self) -> Instant {
        let sleep = self.state.next_time().map(|at| {
            let left = at.duration_since((self.config.clock)());
            Duration::try_from(left).unwrap_or_default()
        });
        let wake = Instant::now() + sleep.unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP);
        let expiry = self.watch_failure.as_ref().map(|(_, until)| *until);
        expiry.map_or(wake, |expiry| expiry.min(wake))
    }

    /// Reconciles all Secrets that need it.
    async fn work(&mut self) {
        loop {
            let now = (self.config.clock)();
            let names = self.state.next(now);
            if names.is_empty() {
                return;
            }
            let this = &*self;
            let jobs = names.into_iter().map(|name| async move {
                let done = timeout(TIMEOUT, this.reconcile(now, &name)).await;
                (name, done.unwrap_or(Err(StoreError::Timeout)))
            });
            for (name, done) in futures::future::join_all(jobs).await {
                match done {
                    Ok((secret, written)) => self.state.done(now, &name, secret, written),
                    Err(error) => {
                        tracing::warn!("Secret {}/{}: {error}", name.0, name.1);
                        self.state.failed(now, &name, error.to_string());
                    }
                }
            }
        }
    }

    /// Reads and reconciles a Secret. Returns the result, and whether it was written.
    async fn reconcile(
        &self,
        now: Timestamp,
        name: &Name,
    ) -> Result<(Option<Secret>, bool), StoreError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &name.0);
        let mut conflicts = 0;
        loop {
            let found = api.get_opt(&name.1).await?;
            let done = match self.state.action(now, name, found.as_ref())? {
                Action::Keep(_) => return Ok((found, false)),
                Action::Write(secret) => {
                    put(&api, &name.1, found.is_some(), *secret).await.map(Some)
                }
                Action::Delete => delete(&api, &name.1, found.unwrap_or_default().metadata)
                    .await
                    .map(|()| None),
            };
            match done {
                Err(kube::Error::Api(status)) if status.code == 409 && conflicts < CONFLICTS => {
                    conflicts += 1;
                }
                done => return Ok((done?, true)),
            }
        }
    }
}

fn replace<T: PartialEq>(shared: &watch::Sender<T>, value: T) {
    shared.send_if_modified(|current| {
        let changed = *current != value;
        *current = value;
        changed
    });
}

async fn put(
    api: &Api<Secret>,
    name: &str,
    exists: bool,
    mut secret: Secret,
) -> kube::Result<Secret> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    secret.metadata.name = Some(name.to_owned());
    secret.metadata.managed_fields = None;
    if !exists {
        return api.create(&params, &secret).await;
    }
    match api.replace(name, &params, &secret).await {
        // It is immutable, or its type requires other keys.
        Err(kube::Error::Api(status)) if status.code == 422 => {
            let metadata = ObjectMeta {
                name: Some(name.to_owned()),
                labels: secret.metadata.labels.take(),
                annotations: secret.metadata.annotations.take(),
                owner_references: secret.metadata.owner_references.take(),
                ..ObjectMeta::default()
            };
            delete(api, name, secret.metadata).await?;
            let secret = Secret {
                metadata,
                data: secret.data,
                ..Secret::default()
            };
            api.create(&params, &secret).await
        }
        other => other,
    }
}

/// Deletes a Secret unless it has changed.
async fn delete(api: &Api<Secret>, name: &str, metadata: ObjectMeta) -> kube::Result<()> {
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: metadata.uid,
            resource_version: metadata.resource_version,
        }),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(|_| ()),
    }
}
