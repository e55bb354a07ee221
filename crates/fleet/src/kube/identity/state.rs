//! Which Secrets to reconcile, and their desired contents.
//!
//! Pure: events of watches, wanted fleets and the time in; names of Secrets to reconcile out, and what to do with each.
//! A Secret is examined when it or what is wanted of it changes, when its renewal is due, and when the CAs change.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::Event;
use sesame_model::FleetId;

use super::ca::CaBundle;
use super::cert::{CertificateError, Leaf, Subject, TlsFiles, after};
use super::{CaConfig, FleetOwner, secret};

/// How many Secrets are reconciled at the same time.
const CONCURRENCY: usize = 8;

/// The delay after a write or a failure: a Secret that others keep changing, another Sesame perhaps, is written less and
/// less often.
const BACKOFF: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(500))
    .with_max_delay(Duration::from_secs(120))
    .without_max_times();
/// A Secret that needed no write for this long starts with the shortest delay again.
const CALM: Duration = Duration::from_secs(600);

/// A Secret's namespace and name.
pub(super) type Name = (String, String);

/// One of the watches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// The Secret of the CAs.
    Ca,
    /// The server's Secret.
    Server,
    /// The fleets' Secrets in a namespace; `None`: in all.
    Fleets(Option<String>),
}

/// What to do with a Secret.
pub(super) enum Action {
    /// No write before that time or the next event.
    Keep(Option<Timestamp>),
    Write(Box<Secret>),
    Delete,
}

/// Why a Secret can't be as it should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum StateError {
    #[error("it exists and was not created by Sesame; delete or rename it")]
    Foreign,
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// What a Secret is for.
#[derive(Default, PartialEq)]
enum Purpose {
    /// Not known, or not yet.
    #[default]
    Unknown,
    Ca,
    Leaf(Subject, Option<FleetOwner>),
    /// Of a fleet that is gone.
    Gone(FleetId),
}

#[derive(Default)]
struct Entry {
    purpose: Purpose,
    /// Its entry in [`State::due`].
    due: Option<Timestamp>,
    backoff: Option<ExponentialBackoff>,
    /// The end of the delay.
    not_before: Option<Timestamp>,
    failure: Option<String>,
}

impl Entry {
    fn back_off(&mut self, now: Timestamp) {
        if self.not_before.is_some_and(|at| now >= after(at, CALM)) {
            self.backoff = None;
        }
        let backoff = self.backoff.get_or_insert_with(|| BACKOFF.build());
        self.not_before = backoff.next().map(|delay| after(now, delay));
    }
}

/// The observed Secrets and the wanted fleets.
pub(super) struct State {
    config: CaConfig,
    ca: Name,
    server: Name,
    leading: bool,
    /// All wanted fleets are known.
    settled: bool,
    /// Watches without a list so far.
    unsynced: BTreeSet<Source>,
    /// What watches have listed since their relist began.
    listing: BTreeMap<Source, BTreeSet<Name>>,
    /// As seen last.
    secrets: BTreeMap<Name, Secret>,
    entries: BTreeMap<Name, Entry>,
    by_fleet: BTreeMap<FleetId, Name>,
    /// To be examined now.
    queue: BTreeSet<Name>,
    /// To be examined later.
    due: BTreeSet<(Timestamp, Name)>,
    /// The last ones that could be read.
    cas: Option<CaBundle>,
    /// They are what the Secret holds.
    cas_stored: bool,
    served: Option<TlsFiles>,
}

impl State {
    pub(super) fn new(config: CaConfig) -> Self {
        let ca = (config.namespace.clone(), secret::CA.to_owned());
        let server = (config.namespace.clone(), secret::SERVER.to_owned());
        let subject = Subject::Server(config.dns_names.clone());
        let purposes = [
            (ca.clone(), Purpose::Ca),
            (server.clone(), Purpose::Leaf(subject, None)),
        ];
        let entries = purposes.map(|(name, purpose)| {
            let entry = Entry {
                purpose,
                ..Entry::default()
            };
            (name, entry)
        });
        Self {
            unsynced: sources(&config).into_iter().collect(),
            config,
            queue: [ca.clone(), server.clone()].into(),
            ca,
            server,
            leading: false,
            settled: false,
            listing: BTreeMap::new(),
            secrets: BTreeMap::new(),
            entries: entries.into(),
            by_fleet: BTreeMap::new(),
            due: BTreeSet::new(),
            cas: None,
            cas_stored: false,
            served: None,
        }
    }

    /// Only a leader writes.
    pub(super) fn lead(&mut self, leading: bool) {
        self.leading = leading;
    }

    /// All wanted fleets are known: from now on, Secrets of others are orphans.
    pub(super) fn settle(&mut self) {
        self.settled = true;
        self.queue.extend(self.secrets.keys().cloned());
    }

    /// The files of the discovery server: the last ones seen that could be read.
    pub(super) fn served(&self) -> Option<&TlsFiles> {
        self.served.as_ref()
    }

    /// Keeps a fleet's Secret; `None`: deletes it.
    pub(super) fn want(&mut self, id: FleetId, owner: Option<FleetOwner>) {
        let name = owner
            .as_ref()
            .map(|owner| (owner.namespace.clone(), owner.secret_name.clone()));
        if let Some(old) = self.by_fleet.remove(&id)
            && name.as_ref() != Some(&old)
        {
            if self.leading || self.secrets.contains_key(&old) {
                let entry = self.entries.entry(old.clone()).or_default();
                entry.purpose = Purpose::Gone(id.clone());
                entry.failure = None;
                self.queue.insert(old);
            } else {
                self.forget(&old);
            }
        }
        if let (Some(name), Some(owner)) = (name, owner) {
            self.by_fleet.insert(id.clone(), name.clone());
            let entry = self.entries.entry(name.clone()).or_default();
            let purpose = Purpose::Leaf(Subject::Fleet(id), Some(owner));
            if entry.purpose != purpose {
                entry.purpose = purpose;
                entry.not_before = None;
                self.queue.insert(name);
            }
        }
    }

    /// Takes an event of a watch.
    pub(super) fn see(&mut self, source: Source, event: Event<Secret>) {
        match event {
            Event::Init => _ = self.listing.insert(source, BTreeSet::new()),
            Event::InitApply(secret) => {
                let listed = self.listing.entry(source).or_default();
                listed.extend(name_of(&secret));
                self.seen(secret);
            }
            Event::Apply(secret) => self.seen(secret),
            Event::Delete(secret) => {
                if let Some(name) = name_of(&secret) {
                    self.set(name, None);
                }
            }
            Event::InitDone => {
                let listed = self.listing.remove(&source).unwrap_or_default();
                let gone = self
                    .secrets
                    .keys()
                    .filter(|name| self.covers(&source, name) && !listed.contains(*name));
                for name in gone.cloned().collect::<Vec<_>>() {
                    self.set(name, None);
                }
                self.unsynced.remove(&source);
            }
        }
    }

    fn covers(&self, source: &Source, name: &Name) -> bool {
        match source {
            Source::Ca => *name == self.ca,
            Source::Server => *name == self.server,
            Source::Fleets(namespace) => {
                *name != self.ca
                    && *name != self.server
                    && namespace.as_ref().is_none_or(|only| *only == name.0)
            }
        }
    }

    fn seen(&mut self, secret: Secret) {
        if let Some(name) = name_of(&secret) {
            self.set(name, Some(secret));
        }
    }

    fn set(&mut self, name: Name, secret: Option<Secret>) {
        if name == self.ca {
            self.read_cas(secret.as_ref());
        } else if name == self.server
            && let Some(secret) = &secret
        {
            let files = secret::read_files(secret);
            // Even if the names aren't ours: the leader may be of another version, and a replica without a certificate
            // never gets ready, so never leads.
            match Leaf::read(&files) {
                Ok(_) => self.served = Some(files),
                Err(error) => tracing::warn!("Secret {}/{}: {error}", name.0, name.1),
            }
        }
        match secret {
            Some(secret) => _ = self.secrets.insert(name.clone(), secret),
            None => {
                self.secrets.remove(&name);
                let purpose = self.entries.get(&name).map(|entry| &entry.purpose);
                if !matches!(purpose, Some(Purpose::Ca | Purpose::Leaf(..))) {
                    self.forget(&name);
                    return;
                }
            }
        }
        self.queue.insert(name);
    }

    fn read_cas(&mut self, secret: Option<&Secret>) {
        self.cas_stored = false;
        match secret.map(secret::read_cas) {
            Some(Ok(cas)) => {
                if self.cas.as_ref() != Some(&cas) {
                    self.queue.extend(self.entries.keys().cloned());
                }
                self.cas = Some(cas);
                self.cas_stored = true;
            }
            Some(Err(error)) => tracing::warn!("Secret {}/{}: {error}", self.ca.0, self.ca.1),
            None => {}
        }
    }

    fn forget(&mut self, name: &Name) {
        self.secrets.remove(name);
        self.queue.remove(name);
        if let Some(Entry { due: Some(due), .. }) = self.entries.remove(name) {
            self.due.remove(&(due, name.clone()));
        }
    }

    /// The Secrets to reconcile now; none: nothing to do before an event or [`State::next_time`].
    pub(super) fn next(&mut self, now: Timestamp) -> Vec<Name> {
        let blind = |source| self.unsynced.contains(&source);
        if !self.leading || blind(Source::Ca) || blind(Source::Server) {
            return Vec::new();
        }
        while let Some((at, _)) = self.due.first()
            && *at <= now
            && let Some((_, name)) = self.due.pop_first()
        {
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.due = None;
            }
            self.queue.insert(name);
        }
        // The server trusts a CA before fleets get certificates of it.
        for name in [self.ca.clone(), self.server.clone()] {
            if name != self.ca && !self.cas_stored {
                return Vec::new();
            }
            if self.queue.remove(&name) && self.examine(now, &name) {
                return vec![name];
            }
        }
        let mut batch = Vec::new();
        while batch.len() < CONCURRENCY
            && let Some(name) = self.queue.pop_first()
        {
            if self.examine(now, &name) {
                batch.push(name);
            }
        }
        batch
    }

    /// Whether a Secret has to be reconciled now. If not, it is examined again in time.
    fn examine(&mut self, now: Timestamp, name: &Name) -> bool {
        let action = self.action(now, name, self.secrets.get(name));
        let entry = self.entries.entry(name.clone()).or_default();
        let next = match action {
            Ok(Action::Keep(next)) => {
                entry.failure = None;
                next
            }
            _ if entry.not_before.is_some_and(|at| now < at) => entry.not_before,
            _ => return true,
        };
        let due = std::mem::replace(&mut entry.due, next);
        if let Some(due) = due {
            self.due.remove(&(due, name.clone()));
        }
        self.due.extend(next.map(|next| (next, name.clone())));
        false
    }

    /// What to do with a Secret, as `found`.
    ///
    /// # Errors
    /// It can't be as it should be.
    pub(super) fn action(
        &self,
        now: Timestamp,
        name: &Name,
        found: Option<&Secret>,
    ) -> Result<Action, StateError> {
        let kept_by = &self.config.namespace;
        let mut secret = found.cloned().unwrap_or_default();
        let metadata = &secret.metadata;
        let next = match self.entries.get(name).map(|entry| &entry.purpose) {
            None | Some(Purpose::Unknown) => {
                let orphan = self.settled && secret::in_place(metadata, &name.0, &name.1);
                return Ok(if orphan {
                    Action::Delete
                } else {
                    Action::Keep(None)
                });
            }
            Some(Purpose::Gone(fleet)) => {
                let ours = secret::is_of(metadata, kept_by, fleet);
                return Ok(if ours {
                    Action::Delete
                } else {
                    Action::Keep(None)
                });
            }
            Some(Purpose::Ca) => {
                let stored = found.and_then(|found| secret::read_cas(found).ok());
                let cas = stored.or_else(|| self.cas.clone());
                let cas = cas.unwrap_or_else(|| {
                    let served = self.secrets.get(&self.server).map(secret::read_files);
                    CaBundle::without_keys(&served.unwrap_or_default().ca_bundle)
                });
                let cas = cas.rotated(now)?;
                secret::write_cas(&mut secret, &cas);
                cas.next_rotation()
            }
            Some(Purpose::Leaf(subject, owner)) => {
                if let (Some(found), Subject::Fleet(fleet)) = (found, subject)
                    && !secret::is_of(&found.metadata, kept_by, fleet)
                {
                    return Err(StateError::Foreign);
                }
                let cas = self
                    .cas
                    .as_ref()
                    .ok_or(CertificateError::Invalid("there is no CA"))?;
                let files = secret::read_files(&secret);
                let (files, renewal) = cas.renewed(now, subject, files)?;
                secret::write_files(&mut secret, files);
                if let (Some(owner), Subject::Fleet(fleet)) = (owner, subject) {
                    secret::write_owner(&mut secret.metadata, kept_by, fleet, owner);
                }
                Some(renewal)
            }
        };
        Ok(if found == Some(&secret) {
            Action::Keep(next)
        } else {
            Action::Write(Box::new(secret))
        })
    }

    /// A Secret has been reconciled, with this result. `written`: a write was sent.
    pub(super) fn done(
        &mut self,
        now: Timestamp,
        name: &Name,
        secret: Option<Secret>,
        written: bool,
    ) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        entry.failure = None;
        if written {
            entry.back_off(now);
        }
        let wanted = matches!(entry.purpose, Purpose::Ca | Purpose::Leaf(..));
        self.set(name.clone(), secret.filter(|_| wanted));
    }

    /// A Secret couldn't be reconciled.
    pub(super) fn failed(&mut self, now: Timestamp, name: &Name, message: String) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.failure = Some(message);
            entry.back_off(now);
            self.queue.insert(name.clone());
        }
    }

    /// When [`State::next`] may have something although nothing but the time has changed.
    pub(super) fn next_time(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Why Secrets couldn't be reconciled; `None` without a failure.
    pub(super) fn failure(&self) -> Option<String> {
        let mut failing = self
            .entries
            .iter()
            .filter_map(|(name, entry)| Some((name, entry.failure.as_ref()?)));
        let ((namespace, name), failure) = failing.next()?;
        let others = match failing.count() {
            0 => String::new(),
            count => format!(" (and {count} more)"),
        };
        Some(format!("Secret {namespace}/{name}: {failure}{others}"))
    }
}

/// What to watch.
pub(super) fn sources(config: &CaConfig) -> Vec<Source> {
    let fleets: Vec<Option<String>> = match &config.fleet_namespaces {
        None => vec![None],
        Some(namespaces) => namespaces.iter().cloned().map(Some).collect(),
    };
    let fleets = fleets.into_iter().map(Source::Fleets);
    [Source::Ca, Source::Server]
        .into_iter()
        .chain(fleets)
        .collect()
}

fn name_of(secret: &Secret) -> Option<Name> {
    let metadata = &secret.metadata;
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}
