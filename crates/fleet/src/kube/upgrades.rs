//! The order in which fleets are upgraded to this release of Sesame.
//!
//! In: whether all replicas of Sesame run the same release, and the workload of each fleet. Out: the fleets whose upgrade
//! starts. Pure: no clock. The cost of a change doesn't depend on the number of fleets.
//!
//! One fleet after the other: the next upgrade starts when the previous fleet's rollout is done. A fleet whose
//! configuration has changed waits only for Sesame. No fleet waits for one that had no available pods, or too few, before
//! its upgrade: that rollout may never be done.

use std::collections::{BTreeMap, BTreeSet};

use super::observed::{FleetKey, Rollout, WorkloadStatus};

/// Fleets whose workloads were applied by another release, and unfinished upgrades.
#[derive(Debug, Default)]
pub(super) struct Upgrades {
    /// Whether all replicas of Sesame run the same release.
    sesame_rolled_out: bool,
    /// Fleets whose upgrade hasn't started, with whether others wait for it.
    waiting: BTreeMap<FleetKey, bool>,
    /// The waiting fleets whose configuration has changed.
    changed: BTreeSet<FleetKey>,
    /// Fleets whose upgrade has started and isn't rolled out. The next upgrade starts when this set is empty.
    awaited: BTreeSet<FleetKey>,
    /// The awaited fleets whose rollout has failed.
    failed: BTreeSet<FleetKey>,
    /// Fleets whose upgrade has started and isn't applied, and that others don't wait for.
    unawaited: BTreeSet<FleetKey>,
    /// All fleets with a workload.
    known: BTreeSet<FleetKey>,
}

impl Upgrades {
    /// Sets whether all replicas of Sesame run the same release; initially false.
    pub(super) fn set_sesame_rolled_out(&mut self, rolled_out: bool) {
        self.sesame_rolled_out = rolled_out;
    }

    pub(super) fn sesame_rolled_out(&self) -> bool {
        self.sesame_rolled_out
    }

    /// Forgets all fleets: another replica leads.
    pub(super) fn clear(&mut self) {
        *self = Self {
            sesame_rolled_out: self.sesame_rolled_out,
            ..Self::default()
        };
    }

    /// Observes the workload of a fleet; `None` if it has none that Sesame manages.
    pub(super) fn observe(&mut self, key: &FleetKey, workload: Option<WorkloadStatus>) {
        let Some(workload) = workload else {
            self.forget(key);
            self.known.remove(key);
            return;
        };
        let new = self.known.insert(key.clone());
        if !workload.current_release {
            if !self.awaited.contains(key) && !self.unawaited.contains(key) {
                let healthy = workload.serves() && workload.rollout != Rollout::Failed;
                self.waiting.insert(key.clone(), healthy);
            }
            return;
        }
        // A previous leader may have started the upgrade of a fleet that serves.
        let awaited = self.awaited.contains(key) || (new && workload.serves());
        match workload.rollout {
            Rollout::Progressing if awaited => {
                self.forget(key);
                self.awaited.insert(key.clone());
            }
            Rollout::Failed if self.awaited.contains(key) => {
                self.failed.insert(key.clone());
            }
            _ => self.forget(key),
        }
    }

    /// The configuration of a fleet has changed. If its upgrade waits, it no longer waits for other fleets.
    pub(super) fn configuration_changed(&mut self, key: &FleetKey) {
        if self.waiting.contains_key(key) {
            self.changed.insert(key.clone());
        }
    }

    /// Starts upgrades, and returns their fleets.
    pub(super) fn start_next(&mut self) -> Vec<FleetKey> {
        let mut started = Vec::new();
        if !self.sesame_rolled_out {
            return started;
        }
        for key in std::mem::take(&mut self.changed) {
            self.start(&key);
            started.push(key);
        }
        while self.awaited.is_empty()
            && let Some((key, _)) = self.waiting.first_key_value()
        {
            let key = key.clone();
            self.start(&key);
            started.push(key);
        }
        started
    }

    /// Whether the pod template of a fleet must not be changed yet.
    pub(super) fn must_wait(&self, key: &FleetKey) -> bool {
        self.waiting.contains_key(key)
    }

    /// The number of fleets whose upgrade hasn't started.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A fleet whose rollout has failed.
    pub(super) fn failed(&self) -> Option<&FleetKey> {
        self.failed.first()
    }

    /// A fleet whose upgrade isn't done.
    pub(super) fn upgrading(&self) -> Option<&FleetKey> {
        self.awaited.first()
    }

    fn start(&mut self, key: &FleetKey) {
        match self.waiting.remove(key) {
            Some(true) => self.awaited.insert(key.clone()),
            Some(false) => self.unawaited.insert(key.clone()),
            None => false,
        };
    }

    fn forget(&mut self, key: &FleetKey) {
        self.waiting.remove(key);
        self.changed.remove(key);
        self.awaited.remove(key);
        self.failed.remove(key);
        self.unawaited.remove(key);
    }
}

#[cfg(test)]
mod tests;
