//! The state of one object in the queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sesame_api::{LiveStatus, ObjectKey, ObjectStatus};

use super::{COMPLETE_DELAY, Job, MAX_BACKOFF, Outcome, REVERT_WINDOW, STALE_DELAY};
use crate::failure::FailureReason;
use crate::merge::{self, Desired};

/// Where an object is in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum QueueState {
    #[default]
    Idle,
    /// Waits until this time.
    Waiting(Instant),
    /// Waits for its turn.
    Ready,
    InFlight,
}

/// One object.
#[derive(Debug, Default)]
pub(super) struct Object {
    /// Minimum time between writes.
    interval: Duration,
    pub desired: Desired,
    pub live: Option<Arc<LiveStatus>>,
    pub state: QueueState,
    /// Whether something changed while a write was in flight.
    pub dirty: bool,
    /// When the object was first marked for comparison.
    dirty_since: Option<Instant>,
    /// When the desired status was set; `None` once it is live.
    desired_at: Option<Instant>,
    /// The earliest time of the next write.
    not_before: Option<Instant>,
    /// When the status was last written.
    written_at: Option<Instant>,
    /// Whether the last write wrote the desired status.
    wrote_desired: bool,
    /// Whether the write in flight writes the desired status.
    writes_desired: bool,
    /// How many times in a row the same status had to be rewritten.
    reverts: u8,
    /// Consecutive failures and conflicts.
    failures: u8,
    /// Whether the API server rejected the desired status.
    invalid: bool,
}

impl Object {
    /// An object with this minimum time between writes.
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            ..Self::default()
        }
    }

    /// Sets the desired status, which is written after `delay`. Returns whether it has changed.
    pub(super) fn set_desired(
        &mut self,
        status: Option<ObjectStatus>,
        now: Instant,
        delay: Duration,
    ) -> bool {
        let desired = match (status, &self.desired) {
            (Some(new), Desired::Status(old)) if new == *old => return false,
            (Some(new), _) => Desired::Status(new),
            (None, Desired::Status(old)) => Desired::Retracted(old.clone()),
            (None, _) => return false,
        };
        self.desired = desired;
        self.wrote_desired = false;
        self.writes_desired = false;
        self.reverts = 0;
        if self.invalid {
            // The new status may be valid.
            self.invalid = false;
            self.failures = 0;
            if self.state != QueueState::InFlight {
                self.not_before = self.written_at.map(|at| at + self.interval);
            }
        }
        let at = *self.desired_at.get_or_insert(now) + delay;
        self.not_before = Some(self.not_before.map_or(at, |before| before.max(at)));
        self.mark(now);
        true
    }

    /// Sets the live status. Returns whether it is newer than the known one.
    pub(super) fn set_live(&mut self, live: LiveStatus, now: Instant) -> bool {
        if let Some(known) = &self.live {
            if known.uid != live.uid {
                self.forget_writes();
            } else if !is_newer(&live, known) {
                return false;
            }
        }
        self.live = Some(Arc::new(live));
        self.mark(now);
        true
    }

    /// Marks the object for comparison.
    pub(super) fn mark(&mut self, now: Instant) {
        self.dirty_since.get_or_insert(now);
    }

    /// Records that this process has become the leader.
    pub(super) fn start_leading(&mut self, now: Instant) {
        self.desired_at = self.desired_at.map(|_| now);
        self.mark(now);
    }

    /// Records that this process has stopped leading.
    pub(super) fn stop_leading(&mut self) {
        if self.state != QueueState::InFlight {
            self.state = QueueState::Idle;
            self.not_before = self.written_at.map(|at| at + self.interval);
        }
        self.dirty = false;
        self.failures = 0;
        self.invalid = false;
    }

    /// Records that the object was deleted.
    pub(super) fn deleted(&mut self) {
        self.live = None;
        self.dirty_since = None;
        self.forget_writes();
    }

    /// Whether the object has no state worth keeping.
    pub(super) fn is_empty(&self) -> bool {
        let desired = matches!(self.desired, Desired::Status(_));
        !desired
            && self.live.is_none()
            && matches!(self.state, QueueState::Idle | QueueState::Waiting(_))
    }

    /// When to compare the object, if necessary.
    pub(super) fn due(&self, key: &ObjectKey, controller: &str, complete: bool) -> Option<Instant> {
        let live = self.live.as_ref()?;
        let dirty_since = self.dirty_since?;
        let due = match &self.desired {
            Desired::Status(status) => match merge::generation(status) {
                Some(ours) if ours > live.generation => return None,
                Some(ours) if ours < live.generation => dirty_since + STALE_DELAY,
                _ => dirty_since,
            },
            // The object is probably about to be deleted.
            Desired::Retracted(_) => dirty_since + self.interval,
            Desired::Unset if complete && may_have_entries(key, live, controller) => {
                dirty_since + COMPLETE_DELAY
            }
            Desired::Unset => return None,
        };
        Some(self.not_before.map_or(due, |at| due.max(at)))
    }

    /// Starts a job.
    pub(super) fn start(&mut self, key: &ObjectKey, controller: &Arc<str>, now: Instant) -> Job {
        self.state = QueueState::InFlight;
        self.dirty = false;
        self.dirty_since = None;
        self.writes_desired = true;
        self.not_before = Some(now + self.write_interval());
        let live = self.live.clone();
        Job {
            controller: Arc::clone(controller),
            key: key.clone(),
            desired: self.desired.clone(),
            live: live.expect("an object without a live status is never due"),
        }
    }

    /// Handles the outcome of a job.
    pub(super) fn finish(&mut self, outcome: &Outcome, now: Instant) {
        match outcome {
            Outcome::UpToDate => {
                // Nothing was sent, so the next write needn't wait.
                self.not_before = self.written_at.map(|at| at + self.write_interval());
                self.mark_written();
            }
            Outcome::Stale => self.not_before = None,
            Outcome::Written(live, _) => {
                let soon = self.written_at.is_some_and(|at| now < at + REVERT_WINDOW);
                self.reverts = match self.wrote_desired && soon {
                    true => (self.reverts + 1).min(6),
                    false => 0,
                };
                self.written_at = Some(now);
                self.wrote_desired = self.writes_desired;
                self.update_live(live);
                let known = self.live.as_ref().map(|known| &known.resource_version);
                if self.writes_desired && known == Some(&live.resource_version) {
                    // The only change during the write was the write itself.
                    self.dirty = false;
                }
                self.mark_written();
            }
            Outcome::Conflict(live) => {
                self.update_live(live);
                self.failures = self.failures.saturating_add(1);
                // The first retry is immediate, since `live` is current. Later ones back off, since another client
                // keeps writing.
                let step = u32::from(self.failures.saturating_sub(2).min(9));
                self.retry_after(Duration::from_millis(5) * (2u32.pow(step) - 1), now);
            }
            Outcome::NotFound => {}
            // The rejected status is no longer desired.
            Outcome::Failed(failure)
                if failure.reason == FailureReason::Invalid && !self.writes_desired => {}
            Outcome::Failed(failure) => {
                let step = u32::from(self.failures.min(8));
                let wait = initial_backoff(failure.reason) * 2u32.pow(step);
                self.failures = self.failures.saturating_add(1);
                self.invalid = failure.reason == FailureReason::Invalid;
                let retry_after = failure.retry_after.unwrap_or_default();
                self.retry_after(wait.max(retry_after).min(MAX_BACKOFF), now);
            }
        }
    }

    /// Minimum time until the next write. Longer while another client reverts ours.
    fn write_interval(&self) -> Duration {
        self.interval * 2u32.pow(u32::from(self.reverts))
    }

    fn retry_after(&mut self, wait: Duration, now: Instant) {
        self.not_before = Some(now + wait);
        self.mark(now);
        self.dirty = true;
    }

    /// Records that the job's status is live.
    fn mark_written(&mut self) {
        self.failures = 0;
        self.invalid = false;
        if self.dirty {
            return;
        }
        if let Desired::Retracted(_) = self.desired {
            self.desired = Desired::Unset;
        }
        self.desired_at = None;
    }

    /// Stores the live status from a response, unless a newer one is known.
    fn update_live(&mut self, live: &LiveStatus) {
        if let Some(known) = &self.live
            && known.uid == live.uid
            && is_newer(live, known)
        {
            self.live = Some(Arc::new(live.clone()));
        }
    }

    fn forget_writes(&mut self) {
        self.not_before = None;
        self.written_at = None;
        self.wrote_desired = false;
        self.reverts = 0;
        self.failures = 0;
        self.invalid = false;
    }
}

/// Whether `live` is a later version of the object than `known`.
///
/// A kind's resource versions are increasing numbers. If a server uses another format, the last one received is taken
/// as the latest: a write based on an older version causes a conflict.
fn is_newer(live: &LiveStatus, known: &LiveStatus) -> bool {
    let number = |status: &LiveStatus| status.resource_version.parse::<u64>().ok();
    match (number(live), number(known)) {
        (Some(live), Some(known)) => live > known,
        _ => live.resource_version != known.resource_version,
    }
}

/// A cheap check for entries that name this controller.
fn may_have_entries(key: &ObjectKey, live: &LiveStatus, controller: &str) -> bool {
    let status = live.status.as_deref();
    merge::has_entries(key.kind) && status.is_some_and(|status| status.get().contains(controller))
}

fn initial_backoff(reason: FailureReason) -> Duration {
    match reason {
        // `ServerBackoff` delays the retry.
        FailureReason::Unavailable => Duration::ZERO,
        FailureReason::ServerError => Duration::from_millis(200),
        FailureReason::Forbidden | FailureReason::Invalid | FailureReason::Full => {
            Duration::from_secs(2)
        }
    }
}
