//! Decides which fleets to reconcile, and when.
//!
//! In: the desired fleets, watch events, the outcomes of jobs, and the time. Out: jobs, at most one per fleet at a
//! time, and fleet states. Pure: no clock. The cost of a change doesn't depend on the number of fleets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sesame_model::{FleetId, FleetState, GatewayOwner, UpgradeProgress};

use super::fleet::{Action, Fleet, Outcome, Subject};
use super::kind::ObjectKind;
use super::observed::{FleetKey, ObservedObject};
use super::spec::{FleetSpec, FleetsConfig};
use super::upgrades::Upgrades;

/// The delay before a deleted object is recreated. Usually its Gateway is being deleted too.
const RECREATE_DELAY: Duration = Duration::from_millis(700);

/// The delay after the first failure. It doubles with each further failure.
const MIN_BACKOFF: Duration = Duration::from_millis(500);

/// Number of consecutive transient failures that go unreported.
const MAX_UNREPORTED_FAILURES: u32 = 3;

/// The longest delay after a failure. The cause may go away without a watch event.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// The backoff for an object resets once the object hasn't needed a repair for this long.
const BACKOFF_RESET: Duration = Duration::from_secs(600);

/// A watch event.
#[derive(Debug)]
pub(super) enum ObjectEvent {
    /// An object was created or changed.
    Changed(ObjectKind, FleetKey, ObservedObject),
    /// An object was deleted.
    Deleted(ObjectKind, FleetKey),
    /// All objects of a kind, in a namespace or (`None`) in all. Each has its own kind, with the port if it has one.
    Listed(
        ObjectKind,
        Option<String>,
        Vec<(FleetKey, ObjectKind, ObservedObject)>,
    ),
    /// A kind can't be watched, with the reason.
    Unwatchable(ObjectKind, Option<String>, String),
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
    /// Also the GatewayClasses that fleets share.
    fleets: BTreeMap<FleetKey, FleetEntry>,
    /// The fleets that use each of these GatewayClasses, and whether they are managed.
    class_users: BTreeMap<FleetKey, BTreeMap<FleetKey, bool>>,
    /// Fleets to examine now.
    due: BTreeSet<FleetKey>,
    /// Fleets to examine later.
    scheduled: BTreeSet<(Instant, FleetKey)>,
    /// Kinds that haven't been listed yet.
    unlisted: BTreeSet<(ObjectKind, Option<String>)>,
    /// Kinds that can't be watched, in a namespace or (`None`) in all, with the reasons.
    unwatchable: BTreeMap<(ObjectKind, Option<String>), String>,
    leading: bool,
    /// All desired fleets are known; others are orphans.
    complete: bool,
    /// The order of upgrades. Empty unless this replica leads.
    upgrades: Upgrades,
    /// The last reported progress of upgrades.
    progress: Option<UpgradeProgress>,
    /// For [`Fleets::next_state`].
    changed_states: BTreeMap<FleetId, Option<FleetState>>,
}

/// A fleet and its schedule.
#[derive(Debug, Default)]
struct FleetEntry {
    fleet: Fleet,
    /// Explicitly removed, as opposed to not yet known.
    removed: bool,
    /// A job is running.
    job_running: bool,
    /// Consecutive failed jobs.
    failures: u32,
    /// Each kind's last repair, and the number of consecutive repairs before it.
    repairs: BTreeMap<ObjectKind, (Instant, u32)>,
    /// No job starts before this time.
    not_before: Option<Instant>,
    /// The last reported state.
    reported: Option<FleetState>,
}

impl Fleets {
    pub(super) fn new(config: FleetsConfig) -> Self {
        let unlisted = ObjectKind::ALL
            .iter()
            .flat_map(|kind| {
                let scopes = scopes(&config, *kind).into_iter();
                scopes.map(|scope| (*kind, scope))
            })
            .collect();
        Self {
            config,
            fleets: BTreeMap::new(),
            class_users: BTreeMap::new(),
            due: BTreeSet::new(),
            scheduled: BTreeSet::new(),
            unlisted,
            unwatchable: BTreeMap::new(),
            leading: false,
            complete: false,
            upgrades: Upgrades::default(),
            progress: None,
            changed_states: BTreeMap::new(),
        }
    }

    /// Sets the desired state of a fleet; `None` deletes its objects.
    pub(super) fn set_fleet(&mut self, id: FleetId, spec: Option<FleetSpec>) {
        let key = FleetKey::new(&self.config, &id);
        let entry = self.fleets.entry(key.clone()).or_default();
        let class_before = entry.fleet.class(&self.config);
        if spec.is_none() && entry.fleet.id().is_some() && entry.reported.take().is_some() {
            self.changed_states.insert(id.clone(), None);
        }
        let desired = spec.map(|spec| (Subject::Fleet(id), Arc::new(spec)));
        self.set_desired(&key, desired);
        let entry = self.fleets.get(&key);
        let class = entry.and_then(|entry| entry.fleet.class(&self.config));
        let managed = entry.is_some_and(|entry| entry.fleet.is_managed());
        if class_before != class
            && let Some(before) = class_before
        {
            self.set_class(&before, &key, None);
        }
        if let Some(class) = class {
            self.set_class(&class, &key, Some(managed));
        }
    }

    fn set_desired(&mut self, key: &FleetKey, desired: Option<(Subject, Arc<FleetSpec>)>) {
        let entry = self.fleets.entry(key.clone()).or_default();
        entry.removed = desired.is_none();
        let before = entry.fleet.desired_workload();
        if entry.fleet.set_desired(&self.config, desired) {
            entry.failures = 0;
            entry.not_before = None;
            // While objects are being read, the configuration isn't changed but completed.
            if self.complete && before.is_some() && before != entry.fleet.desired_workload() {
                self.upgrades.configuration_changed(key);
            }
            self.mark_due(key.clone());
        } else {
            self.remove_if_empty(key);
        }
    }

    /// Sets whether a user of a GatewayClass is managed; `None` removes the user. The class exists while it has users, and is
    /// written if one of them is managed.
    fn set_class(&mut self, class: &FleetKey, user: &FleetKey, managed: Option<bool>) {
        let users = self.class_users.entry(class.clone()).or_default();
        match managed {
            Some(managed) => users.insert(user.clone(), managed),
            None => users.remove(user),
        };
        let managed = users.values().any(|managed| *managed);
        let any = users.keys().next().and_then(|user| self.fleets.get(user));
        let spec = any.and_then(|user| user.fleet.class_spec(managed));
        if spec.is_none() {
            self.class_users.remove(class);
        }
        self.set_desired(class, spec.map(|spec| (Subject::Class, Arc::new(spec))));
    }

    /// Sets whether this replica leads. Only the leader gets jobs.
    pub(super) fn set_leading(&mut self, leading: bool) {
        let was_leading = std::mem::replace(&mut self.leading, leading);
        if leading && !was_leading {
            self.due.extend(self.fleets.keys().cloned());
            self.start_upgrades();
        } else if !leading {
            self.upgrades.clear();
        }
    }

    /// Sets whether all replicas of Sesame run the same release; initially false. Upgrades of fleets wait for it.
    pub(super) fn set_sesame_rolled_out(&mut self, rolled_out: bool) {
        self.upgrades.set_sesame_rolled_out(rolled_out);
        self.due.extend(self.upgrades.start_next());
    }

    /// Declares that all desired fleets are known. From now on, other fleets are orphans.
    pub(super) fn mark_complete(&mut self) {
        if !self.complete {
            self.complete = true;
            self.due.extend(self.fleets.keys().cloned());
        }
    }

    pub(super) fn handle_event(&mut self, event: ObjectEvent, now: Instant) {
        match event {
            ObjectEvent::Changed(kind, key, observed) => self.object_changed(kind, key, observed),
            ObjectEvent::Deleted(kind, key) => self.object_deleted(kind, key, now),
            ObjectEvent::Listed(kind, scope, all) => {
                let recovered = self.unwatchable.remove(&(kind, scope.clone())).is_some();
                let listed: BTreeSet<(&FleetKey, ObjectKind)> =
                    all.iter().map(|(key, kind, _)| (key, *kind)).collect();
                let in_scope = self.fleets.iter().filter(|(key, _)| {
                    let scope = scope.as_deref();
                    scope.is_none_or(|scope| *key.namespace == *scope)
                });
                let observed = in_scope.flat_map(|(key, entry)| {
                    let kinds = entry.fleet.observed.keys();
                    kinds.map(move |kind| (key, *kind))
                });
                let missing: Vec<(FleetKey, ObjectKind)> = observed
                    .filter(|(key, of)| of.watched() == kind && !listed.contains(&(*key, *of)))
                    .map(|(key, of)| (key.clone(), of))
                    .collect();
                for (key, of) in missing {
                    self.object_deleted(of, key, now);
                }
                for (key, of, observed) in all {
                    self.object_changed(of, key, observed);
                }
                self.mark_listed(kind, scope);
                if recovered {
                    self.update_all_states();
                }
            }
            ObjectEvent::Unwatchable(kind, scope, message) => {
                let before = self
                    .unwatchable
                    .insert((kind, scope.clone()), message.clone());
                self.mark_listed(kind, scope);
                if before != Some(message) {
                    self.update_all_states();
                }
            }
        }
    }

    /// The next job that is due.
    pub(super) fn next_job(&mut self, now: Instant) -> Option<Job> {
        while let Some((at, _)) = self.scheduled.first()
            && *at <= now
            && let Some((_, key)) = self.scheduled.pop_first()
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
            if entry.job_running {
                // Examined again when the job is done.
                continue;
            }
            if let Some(at) = entry.not_before
                && at > now
            {
                self.scheduled.insert((at, key));
                continue;
            }
            entry.not_before = None;
            if entry.fleet.is_orphan() && !entry.removed && !self.complete {
                // The fleet may still turn out to be desired.
                continue;
            }
            let must_wait = self.upgrades.must_wait(&key);
            let actions = entry.fleet.plan(&self.config, &key, must_wait);
            let owner = entry.fleet.owner().cloned();
            if actions.is_empty() {
                self.update_state(&key);
                continue;
            }
            entry.job_running = true;
            return Some(Job {
                key,
                owner,
                actions,
            });
        }
        None
    }

    /// When to call [`Fleets::next_job`] again if no event arrives first.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.scheduled.first().map(|(at, _)| *at)
    }

    /// Records the outcomes of a job.
    pub(super) fn done(&mut self, key: FleetKey, outcomes: Vec<Outcome>, now: Instant) {
        let Some(entry) = self.fleets.get_mut(&key) else {
            return;
        };
        entry.job_running = false;
        let failed = outcomes
            .iter()
            .any(|outcome| matches!(outcome, Outcome::Failed(..) | Outcome::Transient(..)));
        let unreported = entry.failures < MAX_UNREPORTED_FAILURES;
        let mut repaired = Vec::new();
        for outcome in outcomes {
            // Envoys keep running, so the first transient failures aren't reported.
            if unreported && matches!(outcome, Outcome::Transient(..)) {
                continue;
            }
            repaired.extend(entry.fleet.done(outcome));
        }
        for kind in repaired {
            entry.record_repair(&key, kind, now);
        }
        if failed {
            entry.delay_until(now + backoff(entry.failures));
            entry.failures += 1;
        } else {
            entry.failures = 0;
        }
        // Events may have arrived during the job.
        self.mark_due(key);
    }

    /// A fleet whose state has changed, and its new state, if any.
    pub(super) fn next_state(&mut self) -> Option<(FleetId, Option<FleetState>)> {
        self.changed_states.pop_first()
    }

    /// Whether [`Fleets::next_state`] returns a state.
    pub(super) fn has_state(&self) -> bool {
        !self.changed_states.is_empty()
    }

    /// The progress of upgrades, if it has changed: `None` inside if it is unknown, as on replicas that don't lead.
    pub(super) fn next_progress(&mut self) -> Option<Option<UpgradeProgress>> {
        let progress = self.progress();
        (progress != self.progress).then(|| {
            self.progress.clone_from(&progress);
            progress
        })
    }

    fn progress(&self) -> Option<UpgradeProgress> {
        if !self.orders_upgrades() {
            return None;
        }
        let waiting = self.upgrades.waiting();
        if waiting > 0 && !self.upgrades.sesame_rolled_out() {
            return Some(UpgradeProgress::AwaitingSesame { waiting });
        }
        let (failed, upgrading) = (self.upgrades.failed(), self.upgrades.upgrading());
        let Some(entry) = failed.or(upgrading).and_then(|key| self.fleets.get(key)) else {
            return self.complete.then_some(UpgradeProgress::Complete);
        };
        let fleet = entry.fleet.id()?.clone();
        let (kind, _) = entry.fleet.desired_workload()?;
        let unwritten = entry.fleet.problems.get(&kind).cloned();
        let unavailable = failed.map(|key| {
            let (kind, namespace, name) = (kind.name(), &key.namespace, key.object_name(kind));
            format!("the new pods of {kind} {namespace}/{name} are not available")
        });
        Some(match unwritten.or(unavailable) {
            Some(reason) => UpgradeProgress::Paused {
                fleet,
                reason,
                waiting,
            },
            None => UpgradeProgress::Upgrading { fleet, waiting },
        })
    }

    /// Whether this replica decides on upgrades: it leads and has listed all objects.
    fn orders_upgrades(&self) -> bool {
        self.leading && self.unlisted.is_empty()
    }

    fn start_upgrades(&mut self) {
        if self.orders_upgrades() {
            for (key, entry) in &self.fleets {
                self.upgrades.observe(key, entry.fleet.workload());
            }
            self.due.extend(self.upgrades.start_next());
        }
    }

    fn update_upgrades(&mut self, key: &FleetKey) {
        if self.orders_upgrades() {
            let entry = self.fleets.get(key);
            let workload = entry.and_then(|entry| entry.fleet.workload());
            self.upgrades.observe(key, workload);
            self.due.extend(self.upgrades.start_next());
        }
    }

    fn object_changed(&mut self, kind: ObjectKind, key: FleetKey, observed: ObservedObject) {
        let entry = self.fleets.entry(key.clone()).or_default();
        entry.fleet.observe(kind, observed);
        self.mark_due(key);
    }

    fn object_deleted(&mut self, kind: ObjectKind, key: FleetKey, now: Instant) {
        let Some(entry) = self.fleets.get_mut(&key) else {
            return;
        };
        let Some(observed) = entry.fleet.observed.remove(&kind) else {
            return;
        };
        // No delay if the object wasn't desired or had a deletion timestamp.
        if entry.fleet.is_desired(kind) && !observed.deleting {
            entry.delay_until(now + RECREATE_DELAY);
        }
        self.mark_due(key);
    }

    fn mark_listed(&mut self, kind: ObjectKind, scope: Option<String>) {
        let first = self.unlisted.remove(&(kind, scope));
        if first && self.unlisted.is_empty() {
            self.due.extend(self.fleets.keys().cloned());
            self.start_upgrades();
            // No state is known before all kinds have been listed.
            self.update_all_states();
        }
    }

    fn update_all_states(&mut self) {
        for key in self.fleets.keys().cloned().collect::<Vec<_>>() {
            self.update_state(&key);
        }
    }

    fn mark_due(&mut self, key: FleetKey) {
        self.update_upgrades(&key);
        self.update_state(&key);
        if !self.remove_if_empty(&key) {
            self.due.insert(key);
        }
    }

    fn update_state(&mut self, key: &FleetKey) {
        if !self.unlisted.is_empty() {
            return;
        }
        // The users of a GatewayClass report its problems.
        for user in self
            .class_users
            .get(key)
            .cloned()
            .unwrap_or_default()
            .keys()
        {
            self.update_state(user);
        }
        let class = self
            .fleets
            .get(key)
            .and_then(|entry| entry.fleet.class(&self.config));
        let class = class.and_then(|class| self.fleets.get(&class));
        let problem = class.and_then(|class| class.fleet.problems.values().next().cloned());
        let Some(entry) = self.fleets.get_mut(key) else {
            return;
        };
        let state = entry.fleet.state(key, &self.unwatchable, problem.as_ref());
        let (Some(id), Some(state)) = (entry.fleet.id(), state) else {
            return;
        };
        if entry.reported.as_ref() != Some(&state) {
            self.changed_states.insert(id.clone(), Some(state.clone()));
            entry.reported = Some(state);
        }
    }

    /// Removes a fleet that is not desired and has no objects. Returns whether it was removed.
    fn remove_if_empty(&mut self, key: &FleetKey) -> bool {
        let empty = self
            .fleets
            .get(key)
            .is_some_and(|entry| entry.fleet.is_empty() && !entry.job_running);
        if empty {
            self.fleets.remove(key);
        }
        empty
    }
}

impl FleetEntry {
    fn delay_until(&mut self, at: Instant) {
        self.not_before = Some(self.not_before.map_or(at, |before| before.max(at)));
    }

    /// Backs off if an object keeps being reverted: two controllers that disagree would otherwise put load on the
    /// API server and keep restarting pods. The first repair isn't delayed.
    fn record_repair(&mut self, key: &FleetKey, kind: ObjectKind, now: Instant) {
        let before = self
            .repairs
            .get(&kind)
            .filter(|(at, _)| now.saturating_duration_since(*at) < BACKOFF_RESET);
        let count = before.map_or(0, |(_, count)| count + 1);
        self.repairs.insert(kind, (now, count));
        if count > 0 {
            self.delay_until(now + backoff(count - 1));
        }
        if count == 3 {
            tracing::warn!(
                namespace = &*key.namespace,
                name = &*key.name,
                kind = kind.name(),
                "another client (another Sesame?) keeps changing this object; backing off"
            );
        }
    }
}

/// The delay after a failure, given the number of consecutive `failures` before it.
fn backoff(failures: u32) -> Duration {
    MIN_BACKOFF
        .saturating_mul(1 << failures.min(16))
        .min(MAX_BACKOFF)
}

/// The namespaces in which a kind is watched; `None` means all.
pub(super) fn scopes(config: &FleetsConfig, kind: ObjectKind) -> Vec<Option<String>> {
    match &config.namespaces {
        Some(namespaces) if !kind.is_cluster_scoped() => {
            let sorted: BTreeSet<_> = namespaces.iter().cloned().collect();
            sorted.into_iter().map(Some).collect()
        }
        _ => vec![None],
    }
}

#[cfg(test)]
mod tests;
