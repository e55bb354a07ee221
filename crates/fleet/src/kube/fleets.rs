//! All fleets: which of them to reconcile, and when.
//!
//! In: the wanted fleets, watch events, the outcomes of jobs, and the time. Out: jobs, one at a time for each fleet, and
//! observations. Pure: no clock. A change costs as much as its own fleet, however many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sesame_model::{FleetId, FleetState, GatewayOwner};

use super::fleet::{Action, Fleet, Outcome};
use super::kind::Kind;
use super::seen::{FleetKey, Seen};
use super::spec::{FleetSpec, FleetsConfig};

/// The delay before a deleted object is created again. Usually its Gateway is being deleted, too.
const AFTER_LOSS: Duration = Duration::from_millis(700);

/// The first pause after a failure; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// How many transient failures in a row are not reported.
const PATIENCE: u32 = 3;

/// The longest pause after a failure: its cause may go away without a watch event.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// An object that needed no repair for this long starts with the shortest delay again.
const CALM: Duration = Duration::from_secs(600);

/// An event of a watch.
#[derive(Debug)]
pub(super) enum News {
    /// An object was created or changed.
    Seen(Kind, FleetKey, Seen),
    /// An object was deleted.
    Gone(Kind, FleetKey),
    /// All objects of a kind, in a namespace or (`None`) in all.
    All(Kind, Option<String>, Vec<(FleetKey, Seen)>),
    /// A kind can't be watched, and why.
    Hidden(Kind, Option<String>, String),
}

/// The actions for one fleet.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) key: FleetKey,
    /// The owner of the objects.
    pub(super) owner: Option<GatewayOwner>,
    pub(super) actions: Vec<Action>,
}

/// All fleets.
#[derive(Debug)]
pub(super) struct Fleets {
    config: FleetsConfig,
    fleets: BTreeMap<FleetKey, Entry>,
    /// To be examined now.
    due: BTreeSet<FleetKey>,
    /// To be examined later.
    later: BTreeSet<(Instant, FleetKey)>,
    /// Kinds without a list so far.
    unlisted: BTreeSet<(Kind, Option<String>)>,
    /// Kinds that can't be watched, in a namespace or (`None`) in all, and why.
    hidden: BTreeMap<(Kind, Option<String>), String>,
    leading: bool,
    /// All wanted fleets are known: others are orphans.
    settled: bool,
    /// Observations for [`Fleets::take_observation`].
    news: BTreeMap<FleetId, Option<FleetState>>,
}

/// A fleet and its schedule.
#[derive(Debug, Default)]
struct Entry {
    fleet: Fleet,
    /// Explicitly unwanted, as opposed to not known yet.
    dismissed: bool,
    /// A job is running.
    busy: bool,
    /// Failed jobs in a row.
    failures: u32,
    /// The last repair of each kind, and how many in a row.
    repairs: BTreeMap<Kind, (Instant, u32)>,
    /// Not to be examined before.
    not_before: Option<Instant>,
    told: Option<FleetState>,
}

impl Fleets {
    pub(super) fn new(config: FleetsConfig) -> Self {
        let unlisted = Kind::ALL
            .iter()
            .flat_map(|kind| scopes(&config).into_iter().map(|scope| (*kind, scope)))
            .collect();
        Self {
            config,
            fleets: BTreeMap::new(),
            due: BTreeSet::new(),
            later: BTreeSet::new(),
            unlisted,
            hidden: BTreeMap::new(),
            leading: false,
            settled: false,
            news: BTreeMap::new(),
        }
    }

    /// Sets the desired state of a fleet; `None`: its objects are deleted.
    pub(super) fn want(&mut self, id: FleetId, spec: Option<FleetSpec>) {
        let key = FleetKey::of(&self.config, &id);
        let entry = self.fleets.entry(key.clone()).or_default();
        if spec.is_none() && entry.fleet.id().is_some() && entry.told.take().is_some() {
            self.news.insert(id.clone(), None);
        }
        entry.dismissed = spec.is_none();
        let wanted = spec.map(|spec| (id, spec));
        if entry.fleet.want(&self.config, wanted) {
            entry.failures = 0;
            entry.not_before = None;
            self.look(key);
        } else {
            self.forget(&key);
        }
    }

    /// Only a leader gets jobs.
    pub(super) fn lead(&mut self, leading: bool) {
        if leading && !self.leading {
            self.due.extend(self.fleets.keys().cloned());
        }
        self.leading = leading;
    }

    /// All wanted fleets are known: from now on, others are orphans.
    pub(super) fn settle(&mut self) {
        if !self.settled {
            self.settled = true;
            self.due.extend(self.fleets.keys().cloned());
        }
    }

    pub(super) fn learn(&mut self, news: News, now: Instant) {
        match news {
            News::Seen(kind, key, seen) => self.seen(kind, key, seen),
            News::Gone(kind, key) => self.gone(kind, key, now),
            News::All(kind, scope, all) => {
                let over = self.hidden.remove(&(kind, scope.clone())).is_some();
                let there: BTreeSet<FleetKey> = all.iter().map(|(key, _)| key.clone()).collect();
                let missing: Vec<FleetKey> = self
                    .fleets
                    .iter()
                    .filter(|(key, entry)| {
                        entry.fleet.seen.contains_key(&kind)
                            && !there.contains(key)
                            && scope
                                .as_deref()
                                .is_none_or(|scope| *key.namespace == *scope)
                    })
                    .map(|(key, _)| key.clone())
                    .collect();
                for key in missing {
                    self.gone(kind, key, now);
                }
                for (key, seen) in all {
                    self.seen(kind, key, seen);
                }
                self.listed(kind, scope);
                if over {
                    self.observe_all();
                }
            }
            News::Hidden(kind, scope, message) => {
                let before = self.hidden.insert((kind, scope.clone()), message.clone());
                self.listed(kind, scope);
                if before != Some(message) {
                    self.observe_all();
                }
            }
        }
    }

    /// The next job, if there is one now.
    pub(super) fn next_job(&mut self, now: Instant) -> Option<Job> {
        while let Some((at, _)) = self.later.first()
            && *at <= now
            && let Some((_, key)) = self.later.pop_first()
        {
            self.due.insert(key);
        }
        if !self.leading || !self.unlisted.is_empty() {
            return None;
        }
        while let Some(key) = self.due.pop_first() {
            let Some(entry) = self.fleets.get_mut(&key) else {
                continue;
            };
            if entry.busy {
                // Examined again when the job is done.
                continue;
            }
            if let Some(at) = entry.not_before
                && at > now
            {
                self.later.insert((at, key));
                continue;
            }
            entry.not_before = None;
            if entry.fleet.id().is_none() && !entry.dismissed && !self.settled {
                // It may turn out to be wanted.
                continue;
            }
            let actions = entry.fleet.plan(&self.config, &key);
            let owner = entry.fleet.owner().cloned();
            if actions.is_empty() {
                self.observe(&key);
                continue;
            }
            entry.busy = true;
            return Some(Job {
                key,
                owner,
                actions,
            });
        }
        None
    }

    /// The time of the next job, unless an event comes first.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Records the outcomes of a job.
    pub(super) fn done(&mut self, key: FleetKey, outcomes: Vec<Outcome>, now: Instant) {
        let Some(entry) = self.fleets.get_mut(&key) else {
            return;
        };
        entry.busy = false;
        let failed = outcomes
            .iter()
            .any(|outcome| matches!(outcome, Outcome::Failed(..) | Outcome::Stumbled(..)));
        let patient = entry.failures < PATIENCE;
        let mut repaired = Vec::new();
        for outcome in outcomes {
            // The first transient failures aren't reported: the Envoys keep running.
            if patient && matches!(outcome, Outcome::Stumbled(..)) {
                continue;
            }
            repaired.extend(entry.fleet.done(outcome));
        }
        for kind in repaired {
            entry.repaired(&key, kind, now);
        }
        if failed {
            entry.wait_until(now + pause(entry.failures));
            entry.failures += 1;
        } else {
            entry.failures = 0;
        }
        // Events may have arrived during the job.
        self.look(key);
    }

    /// The new state of one fleet; `None` if no state has changed.
    pub(super) fn take_observation(&mut self) -> Option<(FleetId, Option<FleetState>)> {
        self.news.pop_first()
    }

    /// Whether [`Fleets::take_observation`] has something.
    pub(super) fn has_observation(&self) -> bool {
        !self.news.is_empty()
    }

    fn seen(&mut self, kind: Kind, key: FleetKey, seen: Seen) {
        let entry = self.fleets.entry(key.clone()).or_default();
        entry.fleet.sees(kind, seen);
        self.look(key);
    }

    fn gone(&mut self, kind: Kind, key: FleetKey, now: Instant) {
        let Some(entry) = self.fleets.get_mut(&key) else {
            return;
        };
        let Some(seen) = entry.fleet.seen.remove(&kind) else {
            return;
        };
        // No delay for an object that was unwanted or had a deletion timestamp.
        if entry.fleet.wants(kind) && !seen.deleting {
            entry.wait_until(now + AFTER_LOSS);
        }
        self.look(key);
    }

    fn listed(&mut self, kind: Kind, scope: Option<String>) {
        let first = self.unlisted.remove(&(kind, scope));
        if first && self.unlisted.is_empty() {
            self.due.extend(self.fleets.keys().cloned());
            // Nothing is observed until every kind has been listed.
            self.observe_all();
        }
    }

    fn observe_all(&mut self) {
        for key in self.fleets.keys().cloned().collect::<Vec<_>>() {
            self.observe(&key);
        }
    }

    fn look(&mut self, key: FleetKey) {
        self.observe(&key);
        if !self.forget(&key) {
            self.due.insert(key);
        }
    }

    fn observe(&mut self, key: &FleetKey) {
        if !self.unlisted.is_empty() {
            return;
        }
        let Some(entry) = self.fleets.get_mut(key) else {
            return;
        };
        let (Some(id), Some(observation)) =
            (entry.fleet.id(), entry.fleet.state(key, &self.hidden))
        else {
            return;
        };
        if entry.told.as_ref() != Some(&observation) {
            self.news.insert(id.clone(), Some(observation.clone()));
            entry.told = Some(observation);
        }
    }

    /// Drops an unwanted fleet without objects. Returns whether it was dropped.
    fn forget(&mut self, key: &FleetKey) -> bool {
        let over = self
            .fleets
            .get(key)
            .is_some_and(|entry| entry.fleet.is_over() && !entry.busy);
        if over {
            self.fleets.remove(key);
        }
        over
    }
}

impl Entry {
    fn wait_until(&mut self, at: Instant) {
        self.not_before = Some(self.not_before.map_or(at, |before| before.max(at)));
    }

    /// A changed object is restored at once; if it keeps changing, with growing delays. Otherwise two controllers that disagree
    /// would load the API server and keep restarting pods.
    fn repaired(&mut self, key: &FleetKey, kind: Kind, now: Instant) {
        let before = self
            .repairs
            .get(&kind)
            .filter(|(at, _)| now.saturating_duration_since(*at) < CALM);
        let often = before.map_or(0, |(_, often)| often + 1);
        self.repairs.insert(kind, (now, often));
        if often > 0 {
            self.wait_until(now + pause(often - 1));
        }
        if often == 3 {
            tracing::warn!(
                namespace = &*key.namespace,
                name = &*key.name,
                kind = kind.name(),
                "another client keeps changing this object (another Sesame?); Sesame restores it less and less often"
            );
        }
    }
}

/// The pause after a failure that follows `before` others.
fn pause(before: u32) -> Duration {
    FIRST_PAUSE
        .saturating_mul(1 << before.min(16))
        .min(LONGEST_PAUSE)
}

/// The namespaces in which each kind is watched; `None`: all.
pub(super) fn scopes(config: &FleetsConfig) -> Vec<Option<String>> {
    match &config.namespaces {
        None => vec![None],
        Some(namespaces) => {
            let sorted: BTreeSet<_> = namespaces.iter().cloned().collect();
            sorted.into_iter().map(Some).collect()
        }
    }
}

#[cfg(test)]
mod tests;
