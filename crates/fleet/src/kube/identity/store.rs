//! Does what is to be done, at an API server.
//!
//! In: jobs of the state, watches, orders of the handle. Out: Secrets written; what the server is to show. It
//! must not know when which is due.
//!
//! Nothing is overwritten that wasn't looked at right before: what is written has the version that was read, so
//! that of two replicas that both take themselves for the leader the second is told of a conflict, and finds the
//! work done.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};
use kube::{Api, Client};
use sesame_model::FleetId;
use tokio::sync::{mpsc, watch as latest};
use tokio::time::{Instant, timeout};

use super::issue::{IssueError, Subject};
use super::plan::{self, Authorities, StepError};
use super::state::{Job, State};
use super::watch::{self, Seen};
use super::{Config, FleetOwner, ServerIdentity, Shared, secret};

/// By this name writes are known in the API server's records.
const FIELD_MANAGER: &str = "sesame-identity";
/// How long to wait after a first failure of a Secret of Sesame's own, and at most.
const FIRST: Duration = Duration::from_millis(500);
const LAST: Duration = Duration::from_secs(30);
/// How long one job may take.
const SLOW: Duration = Duration::from_secs(30);
/// How long a watch's complaint is believed. It tries again every 30 seconds at least, and would complain again.
const BLIND: Duration = Duration::from_secs(90);
/// How long to sleep at most before the clock is looked at again, which may have been set.
const LOOK: Duration = Duration::from_secs(600);

/// Why something could not be written.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    /// Somebody was faster: look again.
    #[error("somebody else wrote at the same time")]
    Conflict,
    /// The API server takes too long.
    #[error("no answer from the API server within {} s", SLOW.as_secs())]
    Slow,
    /// A Secret of that name is somebody else's.
    #[error("the Secret {0} is not Sesame's; delete or rename it")]
    Foreign(String),
    /// The API server says no, or nothing.
    #[error("{0}")]
    Api(#[source] Box<kube::Error>),
    /// No certificate could be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// No authority could be made.
    #[error(transparent)]
    Step(#[from] StepError),
}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        match status(&error) {
            Some(409) => Self::Conflict,
            _ => Self::Api(Box::new(error)),
        }
    }
}

fn status(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The task behind a [`super::Handle`].
pub(super) struct Store {
    client: Client,
    config: Config,
    shared: Arc<Shared>,
    state: State,
    identity: latest::Sender<Option<ServerIdentity>>,
    trouble: latest::Sender<Option<Arc<str>>>,
    /// What a write of Sesame's own Secrets last complained of.
    complaint: Option<String>,
    /// What a watch last complained of, and until when that is believed: one that goes on says nothing of it.
    blindness: Option<(String, Instant)>,
    attempts: u32,
    retry: Option<Instant>,
}

impl Store {
    pub(super) fn new(
        client: Client,
        config: Config,
        shared: Arc<Shared>,
        identity: latest::Sender<Option<ServerIdentity>>,
        trouble: latest::Sender<Option<Arc<str>>>,
    ) -> Self {
        Self {
            state: State::new(&config),
            client,
            config,
            shared,
            identity,
            trouble,
            complaint: None,
            blindness: None,
            attempts: 0,
            retry: None,
        }
    }

    /// Works until nobody holds a handle any more.
    pub(super) async fn run(mut self, mut ended: mpsc::Receiver<Infallible>) {
        let mut watches = watch::all(&self.client, &self.config);
        let shared = Arc::clone(&self.shared);
        loop {
            let alarm = tokio::time::sleep_until(self.wake());
            tokio::select! {
                Some(seen) = watches.next() => self.see(seen),
                () = shared.bell.notified() => self.hear(),
                () = alarm => {}
                _ = ended.recv() => return,
            }
            self.work().await;
            self.tell();
        }
    }

    fn see(&mut self, seen: Seen) {
        match &seen {
            Seen::Failed(source, message) => {
                let message = format!("cannot watch Secrets ({source:?}): {message}");
                if self.blindness.as_ref().map(|(told, _)| told) != Some(&message) {
                    tracing::warn!("certificates of discovery: {message}");
                }
                self.blindness = Some((message, Instant::now() + BLIND));
            }
            Seen::Complete(_) => self.blindness = None,
            _ => {}
        }
        self.state.see(seen);
    }

    fn hear(&mut self) {
        let (fleets, lead, settled) = self.shared.with(|orders| {
            let fleets = std::mem::take(&mut orders.fleets);
            (fleets, orders.lead, orders.settled)
        });
        self.state.lead(lead);
        for (id, owner) in fleets {
            self.state.want(id, owner);
        }
        // Behind the wishes, which it speaks of.
        if settled {
            self.state.settle();
        }
    }

    /// Tells outside what has changed.
    fn tell(&mut self) {
        self.blindness
            .take_if(|(_, until)| *until <= Instant::now());
        self.identity.send_if_modified(|shown| {
            let changed = shown.as_ref() != self.state.shown();
            if changed {
                *shown = self.state.shown().cloned();
            }
            changed
        });
        let blindness = self.blindness.as_ref().map(|(message, _)| message.clone());
        let trouble = self.complaint.clone().or(blindness);
        let trouble = trouble.or_else(|| self.state.failures());
        self.trouble.send_if_modified(|told| {
            let changed = told.as_deref() != trouble.as_deref();
            if changed {
                *told = trouble.map(Into::into);
            }
            changed
        });
    }

    fn complain(&mut self, message: String) {
        if self.complaint.as_ref() != Some(&message) {
            tracing::warn!("certificates of discovery: {message}");
            self.complaint = Some(message);
        }
    }

    fn wake(&self) -> Instant {
        if let Some(retry) = self.retry {
            return retry;
        }
        let until = self.state.next_look().map(|at| {
            let left = at.duration_since((self.config.clock)());
            // A moment too early would be a turn for nothing.
            Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1)
        });
        let wake = Instant::now() + until.unwrap_or(LOOK).min(LOOK);
        let sight = self.blindness.as_ref().map(|(_, until)| *until);
        sight.map_or(wake, |sight| sight.min(wake))
    }

    /// Does all that there is to do.
    async fn work(&mut self) {
        if self.retry.is_some_and(|retry| Instant::now() < retry) {
            return;
        }
        self.retry = None;
        loop {
            let now = (self.config.clock)();
            let done = match self.state.next(now) {
                Ok(None) => break,
                Ok(Some(job)) => self.job(now, job).await,
                Err(error) => Err(error.into()),
            };
            match done {
                Ok(()) => {
                    self.attempts = 0;
                    self.complaint = None;
                }
                Err(trouble) => {
                    self.complain(trouble.to_string());
                    let pause = FIRST.saturating_mul(1 << self.attempts.min(6)).min(LAST);
                    self.attempts = self.attempts.saturating_add(1);
                    self.retry = Some(Instant::now() + pause);
                    break;
                }
            }
        }
    }

    async fn job(&mut self, now: Timestamp, job: Job) -> Result<(), Trouble> {
        match job {
            Job::Authorities { from, to } => {
                patiently(self.write_authorities(from.as_deref(), &to)).await
            }
            Job::Server => patiently(self.write_server(now)).await,
            Job::Fleets(batch) => {
                self.write_fleets(now, batch).await;
                Ok(())
            }
            Job::Remove(id, owner) => {
                let kept_by = &self.config.namespace;
                match patiently(remove(&self.client, kept_by, &id, &owner)).await {
                    Ok(()) => self.state.removed(&id),
                    Err(trouble) => {
                        tracing::warn!(fleet = %id, "the Secret of a fleet that is gone stays: {trouble}");
                        self.state.not_removed(now, &id);
                    }
                }
                Ok(())
            }
        }
    }

    /// Writes the authorities, unless others than those expected stand there: then those are taken.
    async fn write_authorities(
        &mut self,
        from: Option<&Authorities>,
        to: &Authorities,
    ) -> Result<(), Trouble> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.config.namespace);
        let found = api.get_opt(secret::AUTHORITY).await?;
        let stands = found
            .as_ref()
            .and_then(|found| secret::read_authorities(found).ok());
        if stands.is_some() && stands.as_ref() != from {
            self.state.see_authorities(found.as_ref());
            return Ok(());
        }
        let written = put(&api, secret::AUTHORITY, found, |secret| {
            secret::write_authorities(secret, to);
        });
        match written.await {
            Ok(written) => self.state.see_authorities(Some(&written)),
            // Another replica was faster, and what it wrote is as good.
            Err(Trouble::Conflict) => {
                let found = api.get_opt(secret::AUTHORITY).await?;
                self.state.see_authorities(found.as_ref());
            }
            Err(trouble) => return Err(trouble),
        }
        Ok(())
    }

    async fn write_server(&mut self, now: Timestamp) -> Result<(), Trouble> {
        let Some(authorities) = self.state.authorities().cloned() else {
            return Ok(());
        };
        let subject = self.state.server_subject().clone();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.config.namespace);
        let found = api.get_opt(secret::SERVER).await?;
        let files = found.as_ref().map(secret::read_files);
        let Some(files) = plan::due(now, &self.config.periods, &authorities, &subject, files)?
        else {
            self.state.see_server(found.as_ref());
            return Ok(());
        };
        let written = put(&api, secret::SERVER, found, |secret| {
            secret::write_files(secret, &files)
        });
        match written.await {
            Ok(written) => self.state.see_server(Some(&written)),
            Err(Trouble::Conflict) => {
                let found = api.get_opt(secret::SERVER).await?;
                self.state.see_server(found.as_ref());
            }
            Err(trouble) => return Err(trouble),
        }
        Ok(())
    }

    async fn write_fleets(&mut self, now: Timestamp, batch: Vec<(FleetId, FleetOwner)>) {
        let Some(authorities) = self.state.authorities().cloned() else {
            return;
        };
        let (client, config) = (&self.client, &self.config);
        let writes = batch.into_iter().map(|(id, owner)| {
            let authorities = &authorities;
            async move {
                let writing = write_fleet(client, config, now, authorities, &id, &owner);
                let written = patiently(writing).await;
                (id, written)
            }
        });
        for (id, written) in futures::future::join_all(writes).await {
            match written {
                Ok((secret, changed)) => {
                    if changed {
                        self.state.wrote(now, &id);
                    }
                    self.state.done(&id, &secret);
                }
                Err(trouble) => {
                    let foreign = matches!(trouble, Trouble::Foreign(_));
                    tracing::warn!(fleet = %id, "no certificate for a fleet: {trouble}");
                    self.state.failed(now, &id, trouble.to_string(), foreign);
                }
            }
        }
    }
}

/// Gives up a job that takes too long.
async fn patiently<T>(job: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    timeout(SLOW, job).await.unwrap_or(Err(Trouble::Slow))
}

/// The Secret as it stands then, and whether it had to be changed.
async fn write_fleet(
    client: &Client,
    config: &Config,
    now: Timestamp,
    authorities: &Authorities,
    id: &FleetId,
    owner: &FleetOwner,
) -> Result<(Secret, bool), Trouble> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &owner.namespace);
    let found = api.get_opt(&owner.secret_name).await?;
    let kept_by = &config.namespace;
    if let Some(found) = &found
        && !secret::is_ours(&found.metadata, kept_by, id)
    {
        let place = format!("{}/{}", owner.namespace, owner.secret_name);
        return Err(Trouble::Foreign(place));
    }
    let files = found.as_ref().map(secret::read_files);
    let subject = Subject::Fleet(id.clone());
    let new = plan::due(now, &config.periods, authorities, &subject, files)?;
    if let Some(found) = &found
        && new.is_none()
        && secret::owned(&found.metadata, kept_by, id, owner)
    {
        return Ok((found.clone(), false));
    }
    let written = put(&api, &owner.secret_name, found, |secret| {
        if let Some(files) = &new {
            secret::write_files(secret, files);
        }
        secret::write_owner(&mut secret.metadata, kept_by, id, owner);
    });
    Ok((written.await?, true))
}

/// Writes a Secret as `fill` has it, over what was found.
async fn put(
    api: &Api<Secret>,
    name: &str,
    found: Option<Secret>,
    fill: impl FnOnce(&mut Secret),
) -> Result<Secret, Trouble> {
    let how = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let Some(mut secret) = found else {
        let mut secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..Secret::default()
        };
        fill(&mut secret);
        return Ok(api.create(&how, &secret).await?);
    };
    let (uid, version) = (
        secret.metadata.uid.clone(),
        secret.metadata.resource_version.clone(),
    );
    // Who manages which field is the API server's to keep.
    secret.metadata.managed_fields = None;
    fill(&mut secret);
    match api.replace(name, &how, &secret).await {
        // Somebody has made it immutable, or taken away what its type demands.
        Err(error) if status(&error) == Some(422) => {
            let this = DeleteParams {
                preconditions: Some(Preconditions {
                    uid,
                    resource_version: version,
                }),
                ..DeleteParams::default()
            };
            api.delete(name, &this).await?;
            secret.immutable = None;
            secret.type_ = None;
            let metadata = ObjectMeta {
                name: Some(name.to_owned()),
                labels: secret.metadata.labels.take(),
                annotations: secret.metadata.annotations.take(),
                owner_references: secret.metadata.owner_references.take(),
                ..ObjectMeta::default()
            };
            let secret = Secret { metadata, ..secret };
            Ok(api.create(&how, &secret).await?)
        }
        other => Ok(other?),
    }
}

/// Deletes a fleet's Secret, if there is one and it is ours.
async fn remove(
    client: &Client,
    kept_by: &str,
    id: &FleetId,
    owner: &FleetOwner,
) -> Result<(), Trouble> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &owner.namespace);
    let Some(found) = api.get_opt(&owner.secret_name).await? else {
        return Ok(());
    };
    if !secret::is_ours(&found.metadata, kept_by, id) {
        return Ok(());
    }
    let this = DeleteParams {
        preconditions: Some(Preconditions {
            uid: found.metadata.uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&owner.secret_name, &this).await {
        Err(error) if status(&error) != Some(404) => Err(error.into()),
        _ => Ok(()),
    }
}
