//! All fleets: which of them has something to do, and when.
//!
//! In: wishes, what is seen in the cluster, what came of jobs, and the time. Out: jobs, one at a time for each fleet, and
//! observations. Pure: it looks at no clock. A change costs what its own fleet costs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sesame_model::FleetId;

use super::fleet::{Action, Fleet, Outcome};
use super::kind::Kind;
use super::names;
use super::seen::{Place, Seen};
use super::spec::{Config, FleetSpec, Observation};

/// The pause before what somebody has taken away is made again. Mostly its Gateway is going, too, and a moment later nobody
/// wants it any more.
const AFTER_LOSS: Duration = Duration::from_millis(700);

/// The first pause after a failure; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// How often in a row what may pass has to fail before it is told: until then it is a matter of seconds.
const PATIENCE: u32 = 3;

/// No pause is longer: what can't be done may have become possible without our hearing of it.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Who has left things alone for so long starts anew. Longer than the longest pause.
const CALM: Duration = Duration::from_secs(600);

/// News of the cluster.
#[derive(Debug)]
pub(super) enum News {
    /// An object is there, or has changed.
    Seen(Kind, Place, Seen),
    /// An object has gone.
    Gone(Kind, Place),
    /// All objects of a kind, in a namespace or (`None`) in all.
    All(Kind, Option<String>, Vec<(Place, Seen)>),
    /// A kind can't be looked at: why.
    Hidden(Kind, Option<String>, String),
}

/// Something to do for one fleet.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) place: Place,
    /// The Gateway's name and uid; nothing is written without.
    pub(super) gateway: Option<(std::sync::Arc<str>, String)>,
    pub(super) actions: Vec<Action>,
}

/// All fleets.
#[derive(Debug)]
pub(super) struct Fleets {
    config: Config,
    fleets: BTreeMap<Place, Entry>,
    /// Those to be looked at now.
    due: BTreeSet<Place>,
    /// Those to be looked at later.
    later: BTreeSet<(Instant, Place)>,
    /// What hasn't been listed yet.
    unlisted: BTreeSet<(Kind, Option<String>)>,
    /// Kinds that can't be looked at, in a namespace or (`None`) in all, and why.
    hidden: BTreeMap<(Kind, Option<String>), String>,
    leading: bool,
    /// All wishes are known, so that what nobody wants is left over.
    settled: bool,
    /// Observations that nobody has taken yet.
    news: BTreeMap<FleetId, Option<Observation>>,
}

/// A fleet and its appointments.
#[derive(Debug, Default)]
struct Entry {
    fleet: Fleet,
    /// Somebody has said that it is not wanted, rather than nothing.
    dismissed: bool,
    /// A job is under way.
    busy: bool,
    /// Failed jobs in a row.
    failures: u32,
    /// What somebody has undone was said again: when for the last time, and how often in a row.
    repairs: BTreeMap<Kind, (Instant, u32)>,
    /// Not to be looked at before.
    not_before: Option<Instant>,
    told: Option<Observation>,
}

impl Fleets {
    pub(super) fn new(config: Config) -> Self {
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

    /// Says what a fleet should be.
    pub(super) fn want(&mut self, id: FleetId, spec: Option<FleetSpec>) {
        let namespace = id
            .as_str()
            .split_once('/')
            .map_or("", |(namespace, _)| namespace);
        let place = Place {
            namespace: namespace.into(),
            name: names::object(&id).into(),
        };
        let entry = self.fleets.entry(place.clone()).or_default();
        if spec.is_none() && entry.fleet.id().is_some() && entry.told.take().is_some() {
            self.news.insert(id.clone(), None);
        }
        entry.dismissed = spec.is_none();
        let wanted = spec.map(|spec| (id, spec));
        if entry.fleet.want(&self.config, wanted) {
            entry.failures = 0;
            entry.not_before = None;
            self.look(place);
        } else {
            self.forget(&place);
        }
    }

    /// Only a leader gets jobs.
    pub(super) fn lead(&mut self, leading: bool) {
        if leading && !self.leading {
            self.due.extend(self.fleets.keys().cloned());
        }
        self.leading = leading;
    }

    /// From now on what nobody wants is left over.
    pub(super) fn settle(&mut self) {
        if !self.settled {
            self.settled = true;
            self.due.extend(self.fleets.keys().cloned());
        }
    }

    /// Takes in news.
    pub(super) fn learn(&mut self, news: News, now: Instant) {
        match news {
            News::Seen(kind, place, seen) => self.seen(kind, place, seen),
            News::Gone(kind, place) => self.gone(kind, place, now),
            News::All(kind, scope, all) => {
                let over = self.hidden.remove(&(kind, scope.clone())).is_some();
                let there: BTreeSet<Place> = all.iter().map(|(place, _)| place.clone()).collect();
                let missing: Vec<Place> = self
                    .fleets
                    .iter()
                    .filter(|(place, entry)| {
                        entry.fleet.seen.contains_key(&kind)
                            && !there.contains(place)
                            && scope
                                .as_deref()
                                .is_none_or(|scope| *place.namespace == *scope)
                    })
                    .map(|(place, _)| place.clone())
                    .collect();
                for place in missing {
                    self.gone(kind, place, now);
                }
                for (place, seen) in all {
                    self.seen(kind, place, seen);
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
            && let Some((_, place)) = self.later.pop_first()
        {
            self.due.insert(place);
        }
        if !self.leading || !self.unlisted.is_empty() {
            return None;
        }
        while let Some(place) = self.due.pop_first() {
            let Some(entry) = self.fleets.get_mut(&place) else {
                continue;
            };
            if entry.busy {
                // Looked at again when the job is done.
                continue;
            }
            if let Some(at) = entry.not_before
                && at > now
            {
                self.later.insert((at, place));
                continue;
            }
            entry.not_before = None;
            if entry.fleet.id().is_none() && !entry.dismissed && !self.settled {
                // The wish may still come.
                continue;
            }
            let actions = entry.fleet.plan(&self.config, &place);
            let gateway = entry.fleet.gateway();
            if actions.is_empty() {
                self.observe(&place);
                continue;
            }
            entry.busy = true;
            return Some(Job {
                place,
                gateway,
                actions,
            });
        }
        None
    }

    /// When there may be a next job, if nothing happens before.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Takes in what came of a job.
    pub(super) fn done(&mut self, place: Place, outcomes: Vec<Outcome>, now: Instant) {
        let Some(entry) = self.fleets.get_mut(&place) else {
            return;
        };
        entry.busy = false;
        let failed = outcomes
            .iter()
            .any(|outcome| matches!(outcome, Outcome::Failed(..) | Outcome::Stumbled(..)));
        let patient = entry.failures < PATIENCE;
        let mut repaired = Vec::new();
        for outcome in outcomes {
            // Of a stumble nobody hears: what runs goes on, and its owner would be told the contrary a moment later.
            if patient && matches!(outcome, Outcome::Stumbled(..)) {
                continue;
            }
            repaired.extend(entry.fleet.done(outcome));
        }
        for kind in repaired {
            entry.repaired(&place, kind, now);
        }
        if failed {
            entry.wait_until(now + pause(entry.failures));
            entry.failures += 1;
        } else {
            entry.failures = 0;
        }
        // Once more, for what happened meanwhile; mostly there is nothing to do.
        self.look(place);
    }

    /// Takes what has become of a fleet since the last time, one at a time.
    pub(super) fn take_observation(&mut self) -> Option<(FleetId, Option<Observation>)> {
        self.news.pop_first()
    }

    /// Whether [`Fleets::take_observation`] has something.
    pub(super) fn has_observation(&self) -> bool {
        !self.news.is_empty()
    }

    fn seen(&mut self, kind: Kind, place: Place, seen: Seen) {
        let entry = self.fleets.entry(place.clone()).or_default();
        entry.fleet.sees(kind, seen);
        self.look(place);
    }

    fn gone(&mut self, kind: Kind, place: Place, now: Instant) {
        let Some(entry) = self.fleets.get_mut(&place) else {
            return;
        };
        let Some(seen) = entry.fleet.seen.remove(&kind) else {
            return;
        };
        // What was to go anyway need not be waited for, unless all of it goes.
        if entry.fleet.wants(kind) && !seen.deleting {
            entry.wait_until(now + AFTER_LOSS);
        }
        self.look(place);
    }

    fn listed(&mut self, kind: Kind, scope: Option<String>) {
        let first = self.unlisted.remove(&(kind, scope));
        if first && self.unlisted.is_empty() {
            self.due.extend(self.fleets.keys().cloned());
            // Nothing was told before everything was known.
            self.observe_all();
        }
    }

    fn observe_all(&mut self) {
        for place in self.fleets.keys().cloned().collect::<Vec<_>>() {
            self.observe(&place);
        }
    }

    fn look(&mut self, place: Place) {
        self.observe(&place);
        if !self.forget(&place) {
            self.due.insert(place);
        }
    }

    fn observe(&mut self, place: &Place) {
        if !self.unlisted.is_empty() {
            return;
        }
        let Some(entry) = self.fleets.get_mut(place) else {
            return;
        };
        let (Some(id), Some(observation)) = (
            entry.fleet.id(),
            entry.fleet.observation(place, &self.hidden),
        ) else {
            return;
        };
        if entry.told.as_ref() != Some(&observation) {
            self.news.insert(id.clone(), Some(observation.clone()));
            entry.told = Some(observation);
        }
    }

    /// Drops a fleet of which there is nothing left. True if it was dropped.
    fn forget(&mut self, place: &Place) -> bool {
        let over = self
            .fleets
            .get(place)
            .is_some_and(|entry| entry.fleet.is_over() && !entry.busy);
        if over {
            self.fleets.remove(place);
        }
        over
    }
}

impl Entry {
    fn wait_until(&mut self, at: Instant) {
        self.not_before = Some(self.not_before.map_or(at, |before| before.max(at)));
    }

    /// What somebody undoes is said again at once; by him who does it to the same object again and again, less and less
    /// often: two who disagree would otherwise keep the API server busy, and the Deployment's pods coming and going.
    fn repaired(&mut self, place: &Place, kind: Kind, now: Instant) {
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
                namespace = &*place.namespace,
                name = &*place.name,
                kind = kind.name(),
                "somebody changes a fleet's object again and again (another Sesame?); it is put back less and less often"
            );
        }
    }
}

/// The pause after so many of a row, and one more.
fn pause(before: u32) -> Duration {
    FIRST_PAUSE
        .saturating_mul(1 << before.min(16))
        .min(LONGEST_PAUSE)
}

/// Where each kind is watched: everywhere, or in some namespaces.
pub(super) fn scopes(config: &Config) -> Vec<Option<String>> {
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
