//! The task that watches and writes the Secrets.
//!
//! A write includes the resourceVersion of the read right before it. If two replicas both write as the leader, the
//! second write conflicts; its replica reads again and finds nothing left to write.

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
use super::state::{self, Name, SecretAction, SecretError, SecretSource, SecretsState};
use super::{CaConfig, PendingChanges, secret};
use crate::kube::watch::watch_backoff;

/// The field manager for all writes.
const FIELD_MANAGER: &str = "sesame-identity";
/// The timeout for reconciling a Secret.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The server closes a watch after this many seconds; a new one is then started.
const WATCH_TIMEOUT: u32 = 290;
/// Conflicts that are retried immediately.
const MAX_CONFLICTS: usize = 3;
/// How long a watch failure is reported. A recovered watch may stay quiet, but a broken one fails again within seconds.
const WATCH_FAILURE: Duration = Duration::from_secs(90);
/// The maximum sleep. It is limited because the system clock may be adjusted.
const MAX_SLEEP: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
enum StoreError {
    #[error("no response from the API server within {} s", TIMEOUT.as_secs())]
    Timeout,
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// The task behind a [`super::Handle`].
pub(super) struct Store {
    client: Client,
    config: CaConfig,
    state: SecretsState,
    server_files: watch::Sender<Option<TlsFiles>>,
    failure: watch::Sender<Option<Arc<str>>>,
    /// The last watch failure, and until when it is reported.
    watch_failure: Option<(String, Instant)>,
}

type Watches =
    SelectAll<BoxStream<'static, (SecretSource, watcher::Result<watcher::Event<Secret>>)>>;

impl Store {
    pub(super) fn new(
        client: Client,
        config: CaConfig,
        server_files: watch::Sender<Option<TlsFiles>>,
        failure: watch::Sender<Option<Arc<str>>>,
    ) -> Self {
        Self {
            state: SecretsState::new(config.clone()),
            client,
            config,
            server_files,
            failure,
            watch_failure: None,
        }
    }

    /// Runs until all handles are dropped.
    pub(super) async fn run(
        mut self,
        pending: Arc<Mutex<PendingChanges>>,
        mut changes: watch::Receiver<()>,
    ) {
        let mut watches = self.watches();
        loop {
            let wake = tokio::time::sleep_until(self.wake_at());
            tokio::select! {
                Some((source, event)) = watches.next() => self.handle_event(source, event),
                result = changes.changed() => {
                    if result.is_err() {
                        return;
                    }
                    let new = std::mem::take(&mut *pending.lock().unwrap_or_else(PoisonError::into_inner));
                    self.apply(new);
                }
                () = wake => {}
            }
            self.reconcile_due().await;
            self.publish();
        }
    }

    fn watches(&self) -> Watches {
        let watches = state::sources(&self.config).into_iter().map(|source| {
            let config = watcher::Config::default().timeout(WATCH_TIMEOUT);
            let own = &self.config.namespace;
            let named = |name: &str| config.clone().fields(&format!("metadata.name={name}"));
            let (namespace, config) = match &source {
                SecretSource::Ca => (Some(own), named(secret::CA)),
                SecretSource::Server => (Some(own), named(secret::SERVER)),
                SecretSource::Fleets(namespace) => {
                    let label = format!("{}={own}", secret::INSTANCE_LABEL);
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

    fn handle_event(
        &mut self,
        source: SecretSource,
        event: watcher::Result<watcher::Event<Secret>>,
    ) {
        match event {
            Ok(event) => {
                if matches!(event, watcher::Event::InitDone) {
                    self.watch_failure = None;
                }
                self.state.handle_event(source, event);
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

    fn apply(&mut self, pending: PendingChanges) {
        for (id, secret) in pending.fleets {
            self.state.set_fleet(id, secret);
        }
        if let Some(leading) = pending.leading {
            self.state.set_leading(leading);
        }
        if pending.complete {
            self.state.mark_complete();
        }
    }

    fn publish(&mut self) {
        let now = Instant::now();
        self.watch_failure.take_if(|(_, until)| *until <= now);
        replace(&self.server_files, self.state.server_files().cloned());
        let watch_failure = self.watch_failure.as_ref().map(|(message, _)| message);
        let failure = self.state.failure().or(watch_failure.cloned());
        replace(&self.failure, failure.map(Into::into));
    }

    fn wake_at(&self) -> Instant {
        let sleep = self.state.next_time().map(|at| {
            let left = at.duration_since((self.config.clock)());
            Duration::try_from(left).unwrap_or_default()
        });
        let wake = Instant::now() + sleep.unwrap_or(MAX_SLEEP).min(MAX_SLEEP);
        let expiry = self.watch_failure.as_ref().map(|(_, until)| *until);
        expiry.map_or(wake, |expiry| expiry.min(wake))
    }

    /// Reconciles all Secrets that are due.
    async fn reconcile_due(&mut self) {
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

    /// Reads and reconciles a Secret. Returns the Secret, and whether it was written.
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
                SecretAction::Keep(_) => return Ok((found, false)),
                SecretAction::Write(secret) => {
                    put(&api, &name.1, found.is_some(), *secret).await.map(Some)
                }
                SecretAction::Delete => delete(&api, &name.1, found.unwrap_or_default().metadata)
                    .await
                    .map(|()| None),
            };
            match done {
                Err(kube::Error::Api(status))
                    if status.code == 409 && conflicts < MAX_CONFLICTS =>
                {
                    conflicts += 1;
                }
                done => return Ok((done?, true)),
            }
        }
    }
}

/// Sets a value and notifies receivers if it has changed.
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
        // The Secret is immutable, or its type requires other keys.
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

/// Deletes a Secret unless it has changed meanwhile.
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
