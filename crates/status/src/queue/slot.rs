//! What is known of one object.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sesame_api::{LiveStatus, ObjectKey, ObjectStatus};

use super::{HOLD, Job, LONGEST_WAIT, Outcome, SETTLE, UNDONE_WITHIN};
use crate::merge::{self, Want};
use crate::trouble::Reason;

/// What we have said of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Said {
    /// Nothing, ever.
    #[default]
    Unspoken,
    /// That it should say this.
    Says(ObjectStatus),
    /// That it should say nothing of ours any more, when it should have said this.
    TakenBack(ObjectStatus),
}

/// Where an object stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum State {
    /// Nowhere.
    #[default]
    Idle,
    /// It waits for a time.
    Waiting(Instant),
    /// In a lane.
    Ready,
    /// Being written.
    InFlight,
}

/// When an object's status is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Due {
    Never,
    At(Instant),
}

/// One object.
#[derive(Debug)]
pub(super) struct Slot {
    /// The least time from a write to the next one.
    interval: Duration,
    pub said: Said,
    pub live: Option<Arc<LiveStatus>>,
    pub state: State,
    /// Something changed while it was being written.
    pub dirty: bool,
    /// Since when it has been in need of a look.
    since: Option<Instant>,
    /// When what it should say was asked for, until it says so.
    asked: Option<Instant>,
    /// No write before.
    not_before: Option<Instant>,
    /// When it was written last.
    written: Option<Instant>,
    /// Whether what was written last is what it should say now.
    as_said: bool,
    /// Whether what is being written is what it should say now.
    sending: bool,
    /// How often it had to be written again since somebody undid it.
    undone: u8,
    /// How many writes failed or came too late, one after the other.
    failures: u8,
    /// Whether the last failure was about what we said.
    refused: bool,
}

impl Slot {
    /// An object that is written no sooner than this after it was written.
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            said: Said::default(),
            live: None,
            state: State::default(),
            dirty: false,
            since: None,
            asked: None,
            not_before: None,
            written: None,
            as_said: false,
            sending: false,
            undone: 0,
            failures: 0,
            refused: false,
        }
    }

    /// Takes what it should say, which is not to be written for a while; whether that is new.
    pub(super) fn told(
        &mut self,
        status: Option<ObjectStatus>,
        now: Instant,
        head_start: Duration,
    ) -> bool {
        let said = match (status, std::mem::take(&mut self.said)) {
            (Some(new), Said::Says(old)) if new == old => {
                self.said = Said::Says(old);
                return false;
            }
            (Some(new), _) => Said::Says(new),
            (None, Said::Says(old)) => Said::TakenBack(old),
            (None, other) => {
                self.said = other;
                return false;
            }
        };
        self.said = said;
        self.as_said = false;
        self.sending = false;
        self.undone = 0;
        if self.refused {
            // What was wrong with the old one may not be wrong with this one.
            self.refused = false;
            self.failures = 0;
            if self.state != State::InFlight {
                self.not_before = self.written.map(|at| at + self.interval);
            }
        }
        let at = *self.asked.get_or_insert(now) + head_start;
        self.not_before = Some(self.not_before.map_or(at, |before| before.max(at)));
        self.looked(now);
        true
    }

    /// Takes what it says; whether that is new.
    pub(super) fn seen(&mut self, live: LiveStatus, now: Instant) -> bool {
        if let Some(known) = &self.live {
            if known.uid == live.uid && !newer(&live, known) {
                return false;
            }
            if known.uid != live.uid {
                self.forget_writes();
            }
        }
        self.live = Some(Arc::new(live));
        self.looked(now);
        true
    }

    /// Something about it is to be looked at, from now on at the earliest.
    pub(super) fn looked(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// We have come to lead.
    pub(super) fn lead(&mut self, now: Instant) {
        self.asked = self.asked.map(|_| now);
        self.looked(now);
    }

    /// We don't lead any more.
    pub(super) fn rest(&mut self) {
        if self.state != State::InFlight {
            self.state = State::Idle;
            self.not_before = self.written.map(|at| at + self.interval);
        }
        self.dirty = false;
        self.failures = 0;
        self.refused = false;
    }

    /// The object is gone.
    pub(super) fn gone(&mut self) {
        self.live = None;
        self.since = None;
        self.forget_writes();
    }

    /// Whether there is nothing to know of it.
    pub(super) fn is_empty(&self) -> bool {
        let spoken = matches!(self.said, Said::Says(_));
        !spoken && self.live.is_none() && matches!(self.state, State::Idle | State::Waiting(_))
    }

    /// When it is to be looked at.
    pub(super) fn due(&self, key: &ObjectKey, controller: &str, complete: bool) -> Due {
        let (Some(live), Some(since)) = (&self.live, self.since) else {
            return Due::Never;
        };
        let due = match &self.said {
            Said::Says(status) => match merge::generation(status) {
                Some(ours) if ours > live.generation => return Due::Never,
                Some(ours) if ours < live.generation => since + HOLD,
                _ => since,
            },
            // Most often the object is about to be gone.
            Said::TakenBack(_) => since + self.interval,
            Said::Unspoken if complete && may_hold_entries(key, live, controller) => since + SETTLE,
            Said::Unspoken => return Due::Never,
        };
        Due::At(self.not_before.map_or(due, |at| due.max(at)))
    }

    /// A job, and it is under way.
    pub(super) fn start(&mut self, key: &ObjectKey, now: Instant) -> Job {
        self.state = State::InFlight;
        self.dirty = false;
        self.since = None;
        self.sending = true;
        self.not_before = Some(now + self.pause());
        let live = self
            .live
            .clone()
            .expect("an object that isn't known is never due");
        let want = match &self.said {
            Said::Says(status) => Want::Says(status.clone()),
            Said::TakenBack(status) => Want::Nothing(Some(status.clone())),
            Said::Unspoken => Want::Nothing(None),
        };
        Job {
            key: key.clone(),
            want,
            live,
        }
    }

    /// A job ended. Gives the time that it took since it was asked for, if it says now what it should.
    pub(super) fn ended(&mut self, outcome: &Outcome, now: Instant) -> Option<Duration> {
        match outcome {
            Outcome::Right => {
                // Nothing was sent: the next write needn't wait.
                self.not_before = self.written.map(|at| at + self.pause());
                self.done(now);
                None
            }
            Outcome::Behind => {
                self.not_before = None;
                None
            }
            Outcome::Written(live, _) => {
                let soon = self.written.is_some_and(|at| now < at + UNDONE_WITHIN);
                self.undone = match self.as_said && soon {
                    true => (self.undone + 1).min(6),
                    false => 0,
                };
                self.written = Some(now);
                self.as_said = self.sending;
                self.take(live);
                let known = self.live.as_ref().map(|known| &known.resource_version);
                if self.sending && known == Some(&live.resource_version) {
                    // All that came meanwhile is the echo of this write.
                    self.dirty = false;
                }
                self.done(now)
            }
            Outcome::Conflict(live) => {
                self.take(live);
                self.failures = self.failures.saturating_add(1);
                // At once the first times: what we know is fresh. Then in growing steps, as two are at it.
                let step = u32::from(self.failures.saturating_sub(2).min(9));
                let wait = Duration::from_millis(5) * (2u32.pow(step) - 1);
                self.again(now, wait);
                None
            }
            Outcome::Gone => None,
            Outcome::Failed(failure) if failure.reason == Reason::Refused && !self.sending => {
                // It was about what isn't to be said any more.
                None
            }
            Outcome::Failed(failure) => {
                let step = u32::from(self.failures.min(8));
                let wait = first_wait(failure.reason) * 2u32.pow(step);
                self.failures = self.failures.saturating_add(1);
                self.refused = failure.reason == Reason::Refused;
                let asked = failure.retry_after.unwrap_or_default();
                self.again(now, wait.max(asked).min(LONGEST_WAIT));
                None
            }
        }
    }

    fn pause(&self) -> Duration {
        self.interval * 2u32.pow(u32::from(self.undone))
    }

    fn again(&mut self, now: Instant, wait: Duration) {
        self.not_before = Some(now + wait);
        self.looked(now);
        self.dirty = true;
    }

    /// It says what it was to say when the job started.
    fn done(&mut self, now: Instant) -> Option<Duration> {
        self.failures = 0;
        self.refused = false;
        if self.dirty {
            return None;
        }
        if let Said::TakenBack(_) = self.said {
            self.said = Said::Unspoken;
        }
        self.asked.take().map(|asked| now.duration_since(asked))
    }

    /// Takes what an answer said, unless more has been heard since.
    fn take(&mut self, live: &LiveStatus) {
        if let Some(known) = &self.live
            && known.uid == live.uid
            && newer(live, known)
        {
            self.live = Some(Arc::new(live.clone()));
        }
    }

    fn forget_writes(&mut self) {
        self.not_before = None;
        self.written = None;
        self.as_said = false;
        self.undone = 0;
        self.failures = 0;
        self.refused = false;
    }
}

/// Whether `live` is a later version of the object than `known`.
///
/// Versions of one kind can be compared as numbers. Should a server have other ones, what comes last counts; a write over an older
/// one would be told so.
fn newer(live: &LiveStatus, known: &LiveStatus) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    match (
        number(&live.resource_version),
        number(&known.resource_version),
    ) {
        (Some(live), Some(known)) => live > known,
        _ => live.resource_version != known.resource_version,
    }
}

/// Whether there may be entries of ours; a look at the text suffices to say no.
fn may_hold_entries(key: &ObjectKey, live: &LiveStatus, controller: &str) -> bool {
    let status = live.status.as_deref();
    merge::has_entries(key.kind) && status.is_some_and(|status| status.get().contains(controller))
}

fn first_wait(reason: Reason) -> Duration {
    match reason {
        // The gate does the waiting.
        Reason::Unanswered => Duration::ZERO,
        Reason::Failed => Duration::from_millis(200),
        Reason::Forbidden | Reason::Refused | Reason::Full => Duration::from_secs(2),
    }
}
