//! Decides which Service to write, and when.
//!
//! In: pending changes, the results of writes, and the time. Out: jobs, at most one per Service at a time, and failures.
//! Pure: no clock. The cost of a change doesn't depend on the number of Services.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sesame_model::{PodService, PodServiceChange, PodServiceId};

/// The delay between the second and the third write. It doubles with each further write.
const MIN_BACKOFF: Duration = Duration::from_millis(500);

/// The longest delay between writes. The cause of a failure may go away without a watch event.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// How long a successful write may take to be observed.
const OBSERVED: Duration = Duration::from_secs(10);

/// Number of writes whose transient failures go unreported.
const UNREPORTED: u32 = 3;

/// The write count resets after this long without a write.
const RESET: Duration = Duration::from_secs(600);

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) id: PodServiceId,
    pub(super) change: PodServiceChange,
}

/// The result of a write.
#[derive(Debug)]
pub(super) enum Written {
    Done,
    /// A retry may succeed; the message says why it failed.
    Transient(String),
    /// A retry fails unless something else changes; the message says why.
    Failed(String),
}

/// All Services with pending changes, and those written recently.
#[derive(Debug, Default)]
pub(super) struct PodServices {
    services: BTreeMap<PodServiceId, Entry>,
    /// When to examine each Service.
    due: BTreeSet<(Instant, PodServiceId)>,
    leading: bool,
    /// For [`PodServices::next_failure`].
    failures: BTreeMap<PodServiceId, Option<String>>,
}

/// A Service and its schedule.
#[derive(Debug)]
struct Entry {
    change: Option<PodServiceChange>,
    /// The last desired Service.
    desired: Option<PodService>,
    /// The change that a job is writing.
    running: Option<PodServiceChange>,
    /// Number of writes without a long pause in between. Without backoff, two clients that disagree would write
    /// constantly.
    writes: u32,
    /// No write starts before this time.
    not_before: Instant,
    /// Its time in the schedule.
    due: Option<Instant>,
    /// The last reported failure.
    reported: Option<String>,
}

impl PodServices {
    /// Sets the pending change of a Service, if any.
    pub(super) fn set(&mut self, id: PodServiceId, change: Option<PodServiceChange>, now: Instant) {
        let desired = change.as_ref().and_then(PodServiceChange::desired).cloned();
        if change.is_none() && !self.services.contains_key(&id) {
            return;
        }
        let entry = self.services.entry(id.clone()).or_insert(Entry {
            change: None,
            desired: None,
            running: None,
            writes: 0,
            not_before: now,
            due: None,
            reported: None,
        });
        if desired.is_some() && entry.desired != desired {
            entry.desired = desired;
            entry.writes = 0;
            entry.not_before = now;
        }
        entry.change = change;
        if entry.change.is_none() {
            entry.report(&id, None, &mut self.failures);
        }
        self.schedule(id, None, now);
    }

    /// Sets whether this replica leads. Only the leader gets jobs.
    pub(super) fn set_leading(&mut self, leading: bool) {
        self.leading = leading;
    }

    /// The next job that is due.
    pub(super) fn next_job(&mut self, now: Instant) -> Option<Job> {
        while self.leading
            && let Some((at, _)) = self.due.first()
            && *at <= now
            && let Some((_, id)) = self.due.pop_first()
        {
            let Some(entry) = self.services.get_mut(&id) else {
                continue;
            };
            entry.due = None;
            let Some(change) = &entry.change else {
                self.services.remove(&id);
                continue;
            };
            let change = change.clone();
            entry.running = Some(change.clone());
            return Some(Job { id, change });
        }
        None
    }

    /// When to call [`PodServices::next_job`] again if nothing else happens first.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let (at, _) = self.due.first()?;
        self.leading.then_some(*at)
    }

    /// Records the result of a job.
    pub(super) fn done(&mut self, id: PodServiceId, written: Written, now: Instant) {
        let Some(entry) = self.services.get_mut(&id) else {
            return;
        };
        let backoff = match entry.writes {
            0 => Duration::ZERO,
            writes => MIN_BACKOFF.saturating_mul(1 << (writes - 1).min(16)),
        };
        entry.writes = entry.writes.saturating_add(1);
        let backoff = match &written {
            Written::Done => backoff,
            Written::Transient(_) | Written::Failed(_) => backoff.max(MIN_BACKOFF),
        };
        entry.not_before = now + backoff.min(MAX_BACKOFF);
        let change = entry.running.take();
        let done = match written {
            Written::Done => {
                entry.report(&id, None, &mut self.failures);
                change
            }
            Written::Transient(_) if entry.writes <= UNREPORTED => None,
            Written::Transient(message) | Written::Failed(message) => {
                if entry.change.is_some() {
                    entry.report(&id, Some(message), &mut self.failures);
                }
                None
            }
        };
        self.schedule(id, done, now);
    }

    /// A Service whose failure has changed, and the new failure.
    pub(super) fn next_failure(&mut self) -> Option<(PodServiceId, Option<String>)> {
        self.failures.pop_first()
    }

    /// Whether [`PodServices::next_failure`] returns a failure.
    pub(super) fn has_failure(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Schedules the next examination of a Service. `done` is a change that has been written but perhaps not yet
    /// observed.
    fn schedule(&mut self, id: PodServiceId, done: Option<PodServiceChange>, now: Instant) {
        let Some(entry) = self.services.get_mut(&id) else {
            return;
        };
        if let Some(at) = entry.due.take() {
            self.due.remove(&(at, id.clone()));
        }
        if entry.running.is_some() {
            return;
        }
        let at = match &entry.change {
            None if entry.writes == 0 => {
                self.services.remove(&id);
                return;
            }
            None => now + RESET,
            change if *change == done => entry.not_before.max(now + OBSERVED),
            Some(_) => entry.not_before,
        };
        entry.due = Some(at);
        self.due.insert((at, id));
    }
}

impl Entry {
    fn report(
        &mut self,
        id: &PodServiceId,
        failure: Option<String>,
        failures: &mut BTreeMap<PodServiceId, Option<String>>,
    ) {
        if self.reported != failure {
            self.reported.clone_from(&failure);
            failures.insert(id.clone(), failure);
        }
    }
}

#[cfg(test)]
mod tests;
