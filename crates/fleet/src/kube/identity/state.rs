//! Decides which Secrets to reconcile, and their desired contents.
//!
//! Pure. In: watch events, desired fleets, and the time. Out: the Secrets to reconcile, and the action for each. A
//! Secret is examined when it or its desired state changes, when its renewal is due, and when the CAs change.

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
use super::{CaConfig, FleetSecret, secret};

/// The maximum number of Secrets that are reconciled concurrently.
const CONCURRENCY: usize = 8;

/// The delay after a write or a failure. Writes back off, too, in case another client (another Sesame, perhaps) keeps
/// reverting them.
const BACKOFF: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(500))
    .with_max_delay(Duration::from_secs(120))
    .without_max_times();
/// The backoff for a Secret resets once the Secret hasn't needed a write for this long.
const BACKOFF_RESET: Duration = Duration::from_secs(600);

/// A Secret's namespace and name.
pub(super) type Name = (String, String);

/// A watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SecretSource {
    /// The Secret with the CAs.
    Ca,
    /// The server's Secret.
    Server,
    /// Fleets' Secrets, in a namespace or (`None`) in all.
    Fleets(Option<String>),
}

/// The action for a Secret.
pub(super) enum SecretAction {
    /// Nothing to write before this time or the next event.
    Keep(Option<Timestamp>),
    Write(Box<Secret>),
    Delete,
}

/// Why a Secret can't be reconciled.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretError {
    #[error(
        "already exists and was not created by Sesame; delete it so that Sesame can create its own"
    )]
    Foreign,
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// The purpose of a Secret.
#[derive(Default, PartialEq)]
enum Purpose {
    /// None, or not yet known.
    #[default]
    Unknown,
    Ca,
    Leaf(Subject, Option<Box<FleetSecret>>),
    /// A removed fleet's Secret.
    Orphan,
}

#[derive(Default)]
struct SecretEntry {
    purpose: Purpose,
    /// Its entry in [`SecretsState::due`].
    due: Option<Timestamp>,
    backoff: Option<ExponentialBackoff>,
    /// The end of the backoff delay.
    not_before: Option<Timestamp>,
    failure: Option<String>,
}

impl SecretEntry {
    fn back_off(&mut self, now: Timestamp) {
        if self
            .not_before
            .is_some_and(|at| now >= after(at, BACKOFF_RESET))
        {
            self.backoff = None;
        }
        let backoff = self.backoff.get_or_insert_with(|| BACKOFF.build());
        self.not_before = backoff.next().map(|delay| after(now, delay));
    }
}

/// The observed Secrets and the desired fleets.
pub(super) struct SecretsState {
    config: CaConfig,
    ca: Name,
    server: Name,
    leading: bool,
    /// All desired fleets are known.
    complete: bool,
    /// Watches that haven't listed yet.
    unsynced: BTreeSet<SecretSource>,
    /// Secrets that a relist in progress has listed so far.
    listing: BTreeMap<SecretSource, BTreeSet<Name>>,
    /// The last observed Secrets.
    secrets: BTreeMap<Name, Secret>,
    entries: BTreeMap<Name, SecretEntry>,
    by_fleet: BTreeMap<FleetId, Name>,
    /// Secrets to examine now.
    queue: BTreeSet<Name>,
    /// Secrets to examine later.
    due: BTreeSet<(Timestamp, Name)>,
    /// The last valid CAs.
    cas: Option<CaBundle>,
    /// Whether the Secret contains these CAs.
    cas_stored: bool,
    /// The server's last valid files.
    server_files: Option<TlsFiles>,
}

impl SecretsState {
    pub(super) fn new(config: CaConfig) -> Self {
        let ca = (config.namespace.clone(), secret::CA.to_owned());
        let server = (config.namespace.clone(), secret::SERVER.to_owned());
        let subject = Subject::Server(config.dns_names.clone());
        let purposes = [
            (ca.clone(), Purpose::Ca),
            (server.clone(), Purpose::Leaf(subject, None)),
        ];
        let entries = purposes.map(|(name, purpose)| {
            let entry = SecretEntry {
                purpose,
                ..SecretEntry::default()
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
            complete: false,
            listing: BTreeMap::new(),
            secrets: BTreeMap::new(),
            entries: entries.into(),
            by_fleet: BTreeMap::new(),
            due: BTreeSet::new(),
            cas: None,
            cas_stored: false,
            server_files: None,
        }
    }

    /// Sets whether this replica leads. Only the leader writes.
    pub(super) fn set_leading(&mut self, leading: bool) {
        self.leading = leading;
    }

    /// Declares that all desired fleets are known. From now on, other fleets' Secrets are orphans.
    pub(super) fn mark_complete(&mut self) {
        self.complete = true;
        self.queue.extend(self.secrets.keys().cloned());
    }

    /// The xDS server's last valid files.
    pub(super) fn server_files(&self) -> Option<&TlsFiles> {
        self.server_files.as_ref()
    }

    /// Sets the desired Secret of a fleet; `None` deletes it.
    pub(super) fn set_fleet(&mut self, id: FleetId, desired: Option<FleetSecret>) {
        let Some(desired) = desired else {
            if let Some(name) = self.by_fleet.remove(&id) {
                self.remove(name);
            }
            return;
        };
        let name = (desired.namespace.clone(), desired.name.clone());
        self.by_fleet.insert(id.clone(), name.clone());
        let entry = self.entries.entry(name.clone()).or_default();
        let purpose = Purpose::Leaf(Subject::Fleet(id), Some(Box::new(desired)));
        if entry.purpose != purpose {
            entry.purpose = purpose;
            entry.not_before = None;
            self.queue.insert(name);
        }
    }

    fn remove(&mut self, name: Name) {
        if !self.secrets.contains_key(&name) {
            return self.forget(&name);
        }
        let entry = self.entries.entry(name.clone()).or_default();
        entry.purpose = Purpose::Orphan;
        entry.failure = None;
        self.queue.insert(name);
    }

    /// Handles a watch event.
    pub(super) fn handle_event(&mut self, source: SecretSource, event: Event<Secret>) {
        match event {
            Event::Init => _ = self.listing.insert(source, BTreeSet::new()),
            Event::InitApply(secret) => {
                let listed = self.listing.entry(source).or_default();
                listed.extend(name_of(&secret));
                self.store(secret);
            }
            Event::Apply(secret) => self.store(secret),
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

    /// Whether a watch would list a Secret with this name.
    fn covers(&self, source: &SecretSource, name: &Name) -> bool {
        match source {
            SecretSource::Ca => *name == self.ca,
            SecretSource::Server => *name == self.server,
            SecretSource::Fleets(namespace) => {
                *name != self.ca
                    && *name != self.server
                    && namespace.as_ref().is_none_or(|scope| *scope == name.0)
            }
        }
    }

    fn store(&mut self, secret: Secret) {
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
            // Accept a certificate with other DNS names: the leader may run another version, and a replica without a
            // certificate would never become ready, so it could never become the leader.
            match Leaf::read(&files) {
                Ok(_) => self.server_files = Some(files),
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
        if let Some(SecretEntry { due: Some(due), .. }) = self.entries.remove(name) {
            self.due.remove(&(due, name.clone()));
        }
    }

    /// The Secrets to reconcile now. If there are none, call again after an event or at [`SecretsState::next_time`].
    pub(super) fn next(&mut self, now: Timestamp) -> Vec<Name> {
        let unsynced = |source| self.unsynced.contains(&source);
        if !self.leading || unsynced(SecretSource::Ca) || unsynced(SecretSource::Server) {
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
        // The server must trust a CA before fleets get certificates issued by it.
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

    /// Whether a Secret has to be reconciled now. If not, schedules its next examination.
    fn examine(&mut self, now: Timestamp, name: &Name) -> bool {
        let action = self.action(now, name, self.secrets.get(name));
        let entry = self.entries.entry(name.clone()).or_default();
        let next = match action {
            Ok(SecretAction::Keep(next)) => {
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

    /// The action for a Secret whose current state is `found`.
    ///
    /// # Errors
    /// It can't be reconciled.
    pub(super) fn action(
        &self,
        now: Timestamp,
        name: &Name,
        found: Option<&Secret>,
    ) -> Result<SecretAction, SecretError> {
        let sesame_namespace = &self.config.namespace;
        let mut secret = found.cloned().unwrap_or_default();
        let purpose = self.entries.get(name).map(|entry| &entry.purpose);
        let next = match purpose {
            None | Some(Purpose::Unknown | Purpose::Orphan) => {
                let orphan = self.complete || purpose == Some(&Purpose::Orphan);
                let ours = secret::has_expected_name(&secret.metadata, &name.0, &name.1);
                return Ok(match orphan && ours {
                    true => SecretAction::Delete,
                    false => SecretAction::Keep(None),
                });
            }
            Some(Purpose::Ca) => {
                let stored = found.and_then(|found| secret::read_cas(found).ok());
                let cas = stored.or_else(|| self.cas.clone());
                let cas = cas.unwrap_or_else(|| {
                    let server_files = self.secrets.get(&self.server).map(secret::read_files);
                    CaBundle::without_keys(&server_files.unwrap_or_default().ca_bundle)
                });
                let cas = cas.rotated(now)?;
                secret::write_cas(&mut secret, &cas);
                cas.next_rotation()
            }
            Some(Purpose::Leaf(subject, desired)) => {
                if let (Some(found), Subject::Fleet(fleet)) = (found, subject)
                    && !secret::belongs_to(&found.metadata, sesame_namespace, fleet)
                {
                    return Err(SecretError::Foreign);
                }
                let cas = self
                    .cas
                    .as_ref()
                    .ok_or(CertificateError::Invalid("there is no CA"))?;
                let files = secret::read_files(&secret);
                let (files, renewal) = cas.renewed(now, subject, files)?;
                secret::write_files(&mut secret, files);
                if let (Some(desired), Subject::Fleet(fleet)) = (desired, subject) {
                    secret::write_metadata(&mut secret.metadata, sesame_namespace, fleet, desired);
                }
                Some(renewal)
            }
        };
        Ok(if found == Some(&secret) {
            SecretAction::Keep(next)
        } else {
            SecretAction::Write(Box::new(secret))
        })
    }

    /// Records that a Secret has been reconciled and is now `secret`. `written`: whether a write was sent.
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
        let expected = matches!(entry.purpose, Purpose::Ca | Purpose::Leaf(..));
        self.set(name.clone(), secret.filter(|_| expected));
    }

    /// Records that a Secret couldn't be reconciled.
    pub(super) fn failed(&mut self, now: Timestamp, name: &Name, message: String) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.failure = Some(message);
            entry.back_off(now);
            self.queue.insert(name.clone());
        }
    }

    /// When to call [`SecretsState::next`] again if no event arrives first.
    pub(super) fn next_time(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The reason that Secrets can't be reconciled, if any.
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

/// All watches.
pub(super) fn sources(config: &CaConfig) -> Vec<SecretSource> {
    let fleets: Vec<Option<String>> = match &config.fleet_namespaces {
        None => vec![None],
        Some(namespaces) => namespaces.iter().cloned().map(Some).collect(),
    };
    let fleets = fleets.into_iter().map(SecretSource::Fleets);
    [SecretSource::Ca, SecretSource::Server]
        .into_iter()
        .chain(fleets)
        .collect()
}

fn name_of(secret: &Secret) -> Option<Name> {
    let metadata = &secret.metadata;
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}
