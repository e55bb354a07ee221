//! What is known of all Secrets, and what is to be done next.
//!
//! In: what was seen, what is wanted, the time. Out: one [`Job`] after the other, and what the server is to show.
//! Pure. It must not know how jobs are done.
//!
//! A fleet is looked at when something of it changed or its time has come; all of them only when the authorities
//! changed, which concerns all of them.

mod kept;
mod pace;
mod removals;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use sesame_model::FleetId;

use super::issue::{Periods, Subject};
use super::plan::{self, Authorities, Need, StepError};
use super::read::{self, Files};
use super::secret;
use super::watch::{Seen, Source};
use super::{Config, FleetOwner, ServerIdentity};
use kept::Kept;
use pace::Pace;
use removals::Removals;

/// How many fleets' Secrets are written at the same time.
const AT_ONCE: usize = 8;
/// How long to wait after a first failure, and at most.
const FIRST: Duration = Duration::from_secs(1);
const LAST: Duration = Duration::from_secs(120);

/// Something to write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Job {
    /// The authorities are to be `to`, if they still are `from`.
    Authorities {
        /// What they were when that was decided.
        from: Option<Box<Authorities>>,
        /// What they are to be.
        to: Box<Authorities>,
    },
    /// The server's Secret is to be made, or made anew.
    Server,
    /// The Secrets of these fleets are.
    Fleets(Vec<(FleetId, FleetOwner)>),
    /// The Secret of a fleet that is gone is to go, too.
    Remove(FleetId, FleetOwner),
}

#[derive(Debug)]
struct Fleet {
    owner: FleetOwner,
    kept: Option<Kept>,
    /// The entry in `due`.
    due: Option<Timestamp>,
    failure: Option<Failure>,
    pace: Pace,
}

#[derive(Debug)]
struct Failure {
    attempts: u32,
    message: String,
    /// Somebody else has a Secret there: nobody uses it as ours, so the others don't wait for it.
    foreign: bool,
}

type Place = (String, String);

/// What is known, and what is wanted.
#[derive(Debug)]
pub(super) struct State {
    kept_by: String,
    periods: Periods,
    server_subject: Subject,
    lead: bool,
    unsynced: BTreeSet<Source>,
    /// The namespaces of the watches of fleets; `None`: all.
    watched: Vec<Option<String>>,
    /// The places of fleets that a watch has told since it began anew.
    telling: BTreeMap<Source, BTreeSet<Place>>,
    /// The last good ones: what the Secret has, or had before somebody spoiled it.
    authorities: Option<Authorities>,
    /// What the Secret has is what we know.
    authorities_stand: bool,
    server: Option<Kept>,
    /// Of the server's Secret, whatever it is worth.
    server_bundle: String,
    shown: Option<ServerIdentity>,
    fleets: BTreeMap<FleetId, Fleet>,
    by_place: BTreeMap<Place, FleetId>,
    /// Secrets of fleets that nobody wants, or not yet.
    unclaimed: BTreeMap<Place, Secret>,
    dirty: BTreeSet<FleetId>,
    due: BTreeSet<(Timestamp, FleetId)>,
    todo: BTreeSet<FleetId>,
    /// Those whose bundle isn't known to be as it should.
    behind: BTreeSet<FleetId>,
    removals: Removals,
    /// All fleets that there should be have been said once.
    settled: bool,
}

impl State {
    pub(super) fn new(config: &Config) -> Self {
        let watched = match &config.fleet_namespaces {
            None => vec![None],
            Some(namespaces) => namespaces.iter().cloned().map(Some).collect(),
        };
        let fleets = (0..watched.len()).map(Source::Fleets);
        Self {
            kept_by: config.namespace.clone(),
            periods: config.periods,
            server_subject: Subject::Server(config.dns_names.clone()),
            lead: false,
            unsynced: fleets.chain([Source::Authority, Source::Server]).collect(),
            watched,
            telling: BTreeMap::new(),
            authorities: None,
            authorities_stand: false,
            server: None,
            server_bundle: String::new(),
            shown: None,
            fleets: BTreeMap::new(),
            by_place: BTreeMap::new(),
            unclaimed: BTreeMap::new(),
            dirty: BTreeSet::new(),
            due: BTreeSet::new(),
            todo: BTreeSet::new(),
            behind: BTreeSet::new(),
            removals: Removals::default(),
            settled: false,
        }
    }

    pub(super) fn lead(&mut self, lead: bool) {
        self.lead = lead;
    }

    /// From now on Secrets of fleets that nobody wants are left over.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }

    pub(super) fn authorities(&self) -> Option<&Authorities> {
        self.authorities.as_ref()
    }

    pub(super) fn server_subject(&self) -> &Subject {
        &self.server_subject
    }

    /// What the server is to show: the last good that was seen.
    pub(super) fn shown(&self) -> Option<&ServerIdentity> {
        self.shown.as_ref()
    }

    /// Keeps a fleet's Secret, or no more.
    pub(super) fn want(&mut self, id: FleetId, owner: Option<FleetOwner>) {
        let place = |owner: &FleetOwner| (owner.namespace.clone(), owner.secret_name.clone());
        let before = self.fleets.get(&id).map(|fleet| fleet.owner.clone());
        if before.as_ref() == owner.as_ref() {
            return;
        }
        let moved = match (&before, &owner) {
            (Some(before), Some(owner)) => place(before) != place(owner),
            (Some(_), None) => true,
            (None, _) => false,
        };
        if let Some(before) = before
            && moved
        {
            // Who doesn't lead and sees none need not remember one: the leader has been faster.
            let there = self.fleets.get(&id).is_some_and(|f| f.kept.is_some());
            self.forget(&id);
            self.by_place.remove(&place(&before));
            if there || self.lead || !self.unsynced.is_empty() {
                self.removals.add(id.clone(), before);
            }
        }
        let Some(owner) = owner else { return };
        let at = place(&owner);
        self.removals.forget(&at);
        if let Some(fleet) = self.fleets.get_mut(&id) {
            fleet.owner = owner;
            fleet.pace = Pace::default();
        } else {
            let subject = Subject::Fleet(id.clone());
            let kept = self
                .unclaimed
                .remove(&at)
                .map(|secret| Kept::new(&secret, &subject));
            let fleet = Fleet {
                owner,
                kept,
                due: None,
                failure: None,
                pace: Pace::default(),
            };
            self.fleets.insert(id.clone(), fleet);
            self.by_place.insert(at, id.clone());
        }
        self.dirty.insert(id);
    }

    fn forget(&mut self, id: &FleetId) {
        if let Some(Fleet { due: Some(due), .. }) = self.fleets.remove(id) {
            self.due.remove(&(due, id.clone()));
        }
        self.dirty.remove(id);
        self.todo.remove(id);
        self.behind.remove(id);
    }

    /// Takes what a watch tells.
    pub(super) fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Is(source, secret) => {
                if let (Some(told), Some(place)) =
                    (self.telling.get_mut(&source), place_of(&secret))
                {
                    told.insert(place);
                }
                match source {
                    Source::Authority => self.see_authorities(Some(&secret)),
                    Source::Server => self.see_server(Some(&secret)),
                    Source::Fleets(_) => self.see_fleet(*secret),
                }
            }
            Seen::Gone(source, secret) => match source {
                Source::Authority => self.see_authorities(None),
                Source::Server => self.see_server(None),
                Source::Fleets(_) => _ = place_of(&secret).map(|place| self.lose_fleet(&place)),
            },
            Seen::Begin(source) => _ = self.telling.insert(source, BTreeSet::new()),
            Seen::Complete(source) => {
                let told = self.telling.remove(&source).unwrap_or_default();
                self.unsynced.remove(&source);
                match source {
                    Source::Authority if told.is_empty() => self.see_authorities(None),
                    Source::Server if told.is_empty() => self.see_server(None),
                    Source::Authority | Source::Server => {}
                    Source::Fleets(watch) => self.lose_others(watch, &told),
                }
            }
            Seen::Failed(..) => {}
        }
    }

    /// What the authorities' Secret has now.
    pub(super) fn see_authorities(&mut self, secret: Option<&Secret>) {
        let read = secret.map(secret::read_authorities);
        self.authorities_stand = matches!(read, Some(Ok(_)));
        match read {
            Some(Ok(read)) => {
                let trusted = |all: &Authorities| (all.fingerprints(), all.signing.clone());
                if self.authorities.as_ref().map(trusted) != Some(trusted(&read)) {
                    self.dirty.extend(self.fleets.keys().cloned());
                }
                self.authorities = Some(read);
            }
            Some(Err(flaw)) => {
                tracing::warn!("the Secret {} is of no use: {flaw}", secret::AUTHORITY)
            }
            None => {}
        }
    }

    /// What the server's Secret has now.
    pub(super) fn see_server(&mut self, secret: Option<&Secret>) {
        self.server = secret.map(|secret| Kept::new(secret, &self.server_subject));
        let files = secret.map(secret::read_files);
        // Other names than ours are a leader's to change that knows them. Until then they are better than
        // nothing: else a replica of another version could not be ready, and so not come to lead.
        match files.as_ref().map(read::usable) {
            Some(Ok(leaf)) => {
                self.shown = files.clone().map(|files| ServerIdentity {
                    files,
                    expires: leaf.end,
                });
            }
            Some(Err(flaw)) => {
                tracing::warn!("the Secret {} is of no use: {flaw}", secret::SERVER);
            }
            None => {}
        }
        self.server_bundle = files
            .map(|files: Files| files.authorities)
            .unwrap_or_default();
    }

    fn see_fleet(&mut self, secret: Secret) {
        let Some(place) = place_of(&secret) else {
            return;
        };
        let Some(id) = self.by_place.get(&place).cloned() else {
            self.unclaimed.insert(place, secret);
            return;
        };
        self.see_secret_of(&id, Some(&secret));
    }

    /// What a fleet's Secret is now.
    pub(super) fn see_secret_of(&mut self, id: &FleetId, secret: Option<&Secret>) {
        let subject = Subject::Fleet(id.clone());
        if let Some(fleet) = self.fleets.get_mut(id) {
            fleet.kept = secret.map(|secret| Kept::new(secret, &subject));
            self.dirty.insert(id.clone());
        }
    }

    fn lose_fleet(&mut self, place: &Place) {
        self.unclaimed.remove(place);
        self.removals.forget(place);
        if let Some(id) = self.by_place.get(place).cloned() {
            self.see_secret_of(&id, None);
        }
    }

    /// Loses those that a watch did not tell, of those that it would have.
    fn lose_others(&mut self, watch: usize, told: &BTreeSet<Place>) {
        let namespace = self.watched.get(watch).cloned().flatten();
        let watched = |place: &&Place| namespace.as_ref().is_none_or(|only| *only == place.0);
        let known = self.by_place.keys().chain(self.unclaimed.keys());
        let gone = known.filter(watched).filter(|place| !told.contains(*place));
        for place in gone.cloned().collect::<Vec<_>>() {
            self.lose_fleet(&place);
        }
    }

    /// A fleet's Secret has been written, or found to be as it should.
    pub(super) fn done(&mut self, id: &FleetId, secret: &Secret) {
        self.see_secret_of(id, Some(secret));
        self.todo.remove(id);
        if let Some(fleet) = self.fleets.get_mut(id) {
            fleet.failure = None;
        }
    }

    /// A fleet's Secret had to be changed.
    pub(super) fn wrote(&mut self, now: Timestamp, id: &FleetId) {
        if let Some(fleet) = self.fleets.get_mut(id) {
            fleet.pace.wrote(now);
        }
    }

    /// A fleet's Secret could not be written.
    pub(super) fn failed(&mut self, now: Timestamp, id: &FleetId, message: String, foreign: bool) {
        self.todo.remove(id);
        let Some(fleet) = self.fleets.get_mut(id) else {
            return;
        };
        let attempts = fleet
            .failure
            .as_ref()
            .map_or(1, |failure| failure.attempts.saturating_add(1));
        fleet.failure = Some(Failure {
            attempts,
            message,
            foreign,
        });
        if !foreign {
            // Its Envoys may have an old bundle still.
            self.behind.insert(id.clone());
        }
        self.set_due(id, later(now, pause(attempts - 1)));
    }

    /// The Secret of a fleet that is gone has gone, or is not ours.
    pub(super) fn removed(&mut self, id: &FleetId) {
        self.removals.done(id);
    }

    /// It could not be deleted.
    pub(super) fn not_removed(&mut self, now: Timestamp, id: &FleetId) {
        self.removals.failed(now, id);
    }

    /// Secrets that are left of fleets which nobody wants are to go: their Gateways went to another class while no Sesame
    /// was running.
    fn find_left_overs(&mut self) {
        if !self.settled || !self.unsynced.is_empty() {
            return;
        }
        for (place, secret) in std::mem::take(&mut self.unclaimed) {
            if let Some(id) = secret::left_over(&secret.metadata, &place) {
                let owner = FleetOwner {
                    namespace: place.0,
                    secret_name: place.1,
                    ..FleetOwner::default()
                };
                self.removals.add(id, owner);
            }
        }
    }

    fn set_due(&mut self, id: &FleetId, at: Timestamp) {
        let Some(fleet) = self.fleets.get_mut(id) else {
            return;
        };
        if let Some(before) = fleet.due.replace(at) {
            self.due.remove(&(before, id.clone()));
        }
        self.due.insert((at, id.clone()));
    }

    /// The next thing to do; `None`: nothing before something changes or [`State::next_look`] has come.
    ///
    /// # Errors
    /// A new authority is due and can't be made.
    pub(super) fn next(&mut self, now: Timestamp) -> Result<Option<Job>, StepError> {
        let blind = |source| self.unsynced.contains(&source);
        if !self.lead || blind(Source::Authority) || blind(Source::Server) {
            return Ok(None);
        }
        let Some(authorities) = self.authorities.clone().filter(|_| self.authorities_stand) else {
            return self.mend_authorities(now).map(Some);
        };
        self.find_left_overs();
        self.examine(now, &authorities);
        // What it would sign would be of no use.
        let signs = authorities
            .signer()
            .is_some_and(|signer| now < signer.trusted.end);
        let server = self
            .server
            .as_ref()
            .and_then(|kept| kept.leaf.as_ref().ok());
        let need = plan::need(now, &authorities, &self.server_subject, server);
        if signs && !matches!(need, Need::Nothing(_)) {
            return Ok(Some(Job::Server));
        }
        if let Some(step) = plan::step(now, &self.periods, Some(&authorities), self.complete()) {
            let to = plan::take(step, now, &self.periods, Some(&authorities))?;
            tracing::info!(?step, "authorities of discovery");
            return Ok(Some(Job::Authorities {
                from: Some(Box::new(authorities)),
                to: Box::new(to),
            }));
        }
        if let Some((id, owner)) = self.removals.next(now) {
            return Ok(Some(Job::Remove(id.clone(), owner.clone())));
        }
        let batch: Vec<_> = self
            .todo
            .iter()
            .take(AT_ONCE)
            .filter_map(|id| Some((id.clone(), self.fleets.get(id)?.owner.clone())))
            .collect();
        Ok((!batch.is_empty()).then_some(Job::Fleets(batch)))
    }

    /// The authorities' Secret is not there, or of no use.
    fn mend_authorities(&self, now: Timestamp) -> Result<Job, StepError> {
        if let Some(known) = &self.authorities {
            return Ok(Job::Authorities {
                from: None,
                to: Box::new(known.clone()),
            });
        }
        let recovered = secret::recover(&self.server_bundle, now);
        let step = plan::step(now, &self.periods, recovered.as_ref(), false);
        let step = step.unwrap_or(plan::Step::Found);
        let to = plan::take(step, now, &self.periods, recovered.as_ref())?;
        Ok(Job::Authorities {
            from: None,
            to: Box::new(to),
        })
    }

    /// All bundles are known to be as they should.
    fn complete(&self) -> bool {
        // A place that is somebody else's is of no Envoy of ours.
        let foreign = |id: &FleetId| {
            let failure = self.fleets.get(id).and_then(|fleet| fleet.failure.as_ref());
            failure.is_some_and(|failure| failure.foreign)
        };
        self.unsynced.is_empty() && self.behind.iter().all(foreign)
    }

    /// Looks at those fleets of which something changed or whose time has come.
    fn examine(&mut self, now: Timestamp, authorities: &Authorities) {
        while let Some((at, _)) = self.due.first()
            && *at <= now
            && let Some((_, id)) = self.due.pop_first()
        {
            if let Some(fleet) = self.fleets.get_mut(&id) {
                fleet.due = None;
            }
            self.dirty.insert(id);
        }
        let trusted = authorities.fingerprints();
        for id in std::mem::take(&mut self.dirty) {
            let Some(fleet) = self.fleets.get(&id) else {
                continue;
            };
            let kept = fleet.kept.as_ref();
            let leaf = kept.and_then(|kept| kept.leaf.as_ref().ok());
            // Where there is no Secret yet, no Envoy has an old bundle, and it will be made with the newest.
            let fresh = kept.is_none() && fleet.failure.is_none();
            if fresh || leaf.is_some_and(|leaf| leaf.trusts == trusted) {
                self.behind.remove(&id);
            } else {
                self.behind.insert(id.clone());
            }
            // It waits for its next attempt, whatever is seen meanwhile.
            if fleet.failure.is_some() && fleet.due.is_some() {
                continue;
            }
            let subject = Subject::Fleet(id.clone());
            let marked = kept.is_some_and(|kept| {
                secret::owned(&kept.metadata, &self.kept_by, &id, &fleet.owner)
            });
            match plan::need(now, authorities, &subject, leaf) {
                Need::Nothing(until) if marked => {
                    self.todo.remove(&id);
                    self.set_due(&id, until);
                }
                _ => match fleet.pace.until(now) {
                    Some(at) => self.set_due(&id, at),
                    None => _ = self.todo.insert(id),
                },
            }
        }
    }

    /// When [`State::next`] may give something although nothing has changed but the time.
    pub(super) fn next_look(&self) -> Option<Timestamp> {
        let authorities = self.authorities.as_ref()?;
        let server = self
            .server
            .as_ref()
            .and_then(|kept| kept.leaf.as_ref().ok());
        let server = server.map(|leaf| plan::renewal(leaf, &self.server_subject));
        let fleet = self.due.first().map(|(at, _)| *at);
        let authority = plan::next_look(&self.periods, authorities);
        let removal = self.removals.next_look();
        let all = [server, fleet, authority, removal];
        all.into_iter().flatten().min()
    }

    /// What is wrong with fleets' Secrets, if something is.
    pub(super) fn failures(&self) -> Option<String> {
        let mut failing = self
            .fleets
            .iter()
            .filter_map(|(id, fleet)| Some((id, fleet.failure.as_ref()?)));
        let (id, failure) = failing.next()?;
        let more = failing.count();
        let others = if more > 0 {
            format!(" (and {more} more)")
        } else {
            String::new()
        };
        Some(format!(
            "the certificate of fleet {id}: {}{others}",
            failure.message
        ))
    }
}

fn place_of(secret: &Secret) -> Option<Place> {
    let metadata = &secret.metadata;
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}

/// The pause after so many failures and one more.
fn pause(failures: u32) -> Duration {
    FIRST.saturating_mul(1 << failures.min(7)).min(LAST)
}

fn later(at: Timestamp, pause: Duration) -> Timestamp {
    let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
    at.saturating_add(pause).unwrap_or(at)
}
