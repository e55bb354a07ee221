//! One candidate of the leader election.
//!
//! In: answers about the Lease, the time. Out: the next request, and whether this candidate leads. Pure.
//!
//! Clocks of other machines are never compared with ours. A Lease has expired when it was *observed* unchanged for its
//! duration; its holder stops earlier, counted from before it *sent* the last successful renewal. So the old leader stops
//! before a new one starts, however long requests take. Every write names the resourceVersion that it replaces, so of two
//! concurrent writes only one succeeds.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use super::{LeaseConfig, Times};

/// Upper limit of the duration that another holder's Lease may name.
const LONGEST: Duration = Duration::from_secs(60);

/// A request to the API server.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// Get the Lease.
    Look,
    /// Create it.
    Create(Lease),
    /// Replace the resourceVersion that this Lease names.
    Replace(Lease),
}

/// The outcome of a request.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// The current Lease.
    Lease(Box<Lease>),
    /// The Lease doesn't exist.
    Missing,
    /// Conflict: another write came first.
    Conflict,
    /// The outcome is unknown.
    Failed(String),
}

/// A candidate of the leader election.
#[derive(Debug)]
pub(super) struct Candidate {
    namespace: String,
    name: String,
    identity: String,
    times: Times,
    seen: Seen,
    asks_at: Instant,
    leads_until: Option<Instant>,
}

/// What is known about the Lease.
#[derive(Debug)]
enum Seen {
    /// Nothing; it has to be read.
    Unknown,
    Missing,
    /// Its current state, and since when at the latest.
    Lease(Box<Lease>, Instant),
    /// A former state; it has to be read again.
    Stale(Box<Lease>, Instant),
}

impl Candidate {
    pub(super) fn new(config: &LeaseConfig, now: Instant) -> Self {
        Self {
            namespace: config.namespace.clone(),
            name: config.name.clone(),
            identity: config.identity.clone(),
            times: config.times,
            seen: Seen::Unknown,
            asks_at: now,
            leads_until: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn leads(&self, now: Instant) -> bool {
        self.leads_until.is_some_and(|until| now < until)
    }

    /// Until when it leads without a further renewal.
    pub(super) fn leads_until(&self) -> Option<Instant> {
        self.leads_until
    }

    /// When to send the next request.
    pub(super) fn asks_at(&self) -> Instant {
        self.asks_at
    }

    /// The next request. `time` is only for people who read the Lease.
    pub(super) fn ask(&self, time: Timestamp) -> Ask {
        match &self.seen {
            Seen::Unknown | Seen::Stale(..) => Ask::Look,
            Seen::Missing => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        namespace: Some(self.namespace.clone()),
                        name: Some(self.name.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: None,
                };
                Ask::Create(self.held(lease, time))
            }
            Seen::Lease(lease, since) if self.free_at(lease, *since) <= self.asks_at => {
                Ask::Replace(self.held(Lease::clone(lease), time))
            }
            Seen::Lease(..) => Ask::Look,
        }
    }

    /// Handles the answer to a request sent at `asked_at`.
    pub(super) fn answered(&mut self, ask: &Ask, answer: Answer, asked_at: Instant, now: Instant) {
        match (ask, answer) {
            (Ask::Look, Answer::Lease(lease)) => {
                if !self.is_ours(&lease) {
                    self.leads_until = None;
                }
                let since = match &self.seen {
                    Seen::Lease(old, since) | Seen::Stale(old, since) if old.spec == lease.spec => {
                        *since
                    }
                    _ => now,
                };
                let free_at = self.free_at(&lease, since);
                self.asks_at = free_at.max(now).min(now + self.times.look);
                self.seen = Seen::Lease(lease, since);
            }
            (Ask::Create(_) | Ask::Replace(_), Answer::Lease(lease)) => {
                self.leads_until = Some(asked_at + self.times.deadline);
                self.asks_at = asked_at + self.times.renew;
                self.seen = Seen::Lease(lease, now);
            }
            (_, Answer::Missing) => {
                self.seen = Seen::Missing;
                self.asks_at = now;
            }
            (_, Answer::Conflict) => {
                self.outdated();
                self.asks_at = now;
            }
            (_, Answer::Failed(_)) => {
                // The request may have succeeded all the same.
                self.outdated();
                self.asks_at = now + self.times.look;
            }
        }
    }

    /// The Lease as released, if this candidate may hold it. It doesn't lead from then on.
    pub(super) fn release(&mut self, time: Timestamp) -> Option<Lease> {
        self.leads_until = None;
        match &self.seen {
            Seen::Lease(lease, _) | Seen::Stale(lease, _) if self.is_ours(lease) => {
                let mut lease = Lease::clone(lease);
                let spec = lease.spec.get_or_insert_default();
                spec.holder_identity = None;
                spec.lease_duration_seconds = Some(1);
                spec.renew_time = Some(MicroTime(time));
                Some(lease)
            }
            _ => None,
        }
    }

    fn outdated(&mut self) {
        self.seen = match std::mem::replace(&mut self.seen, Seen::Unknown) {
            Seen::Lease(lease, since) | Seen::Stale(lease, since) => Seen::Stale(lease, since),
            Seen::Unknown | Seen::Missing => Seen::Unknown,
        };
    }

    /// The Lease with this candidate as its holder.
    fn held(&self, mut lease: Lease, time: Timestamp) -> Lease {
        let again = self.is_ours(&lease);
        let spec = lease.spec.get_or_insert_default();
        if !again {
            // The first holder is no transition.
            let before = spec
                .lease_transitions
                .map_or(0, |before| before.saturating_add(1));
            spec.lease_transitions = Some(before);
            spec.acquire_time = Some(MicroTime(time));
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(self.times.lease.as_secs()).ok();
        spec.renew_time = Some(MicroTime(time));
        lease
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease) == Some(&*self.identity)
    }

    /// When a Lease unchanged since `since` may be taken.
    fn free_at(&self, lease: &Lease, since: Instant) -> Instant {
        match holder(lease) {
            None => since,
            // Ours: renew at once. It may also be from an earlier run under the same name.
            Some(holder) if holder == self.identity => since,
            Some(_) => since + self.length(lease.spec.as_ref()),
        }
    }

    fn length(&self, spec: Option<&LeaseSpec>) -> Duration {
        let says = spec.and_then(|spec| spec.lease_duration_seconds);
        let says = says.and_then(|seconds| u64::try_from(seconds).ok());
        says.map_or(self.times.lease, Duration::from_secs)
            .min(LONGEST)
    }
}

/// The current holder.
fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    (!holder.is_empty()).then_some(holder)
}
