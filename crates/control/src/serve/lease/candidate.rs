//! One candidate in the leader election.
//!
//! In: responses to requests, the time. Out: the next request, and whether this candidate is the leader. Pure.
//!
//! Clocks of other machines are never compared with ours. A Lease has expired when it has been *observed* unchanged for
//! its duration. Its holder steps down earlier: its deadline is counted from when it *sent* the last successful
//! renewal. So the old leader stops before a new one starts, however long requests take. Every write names the
//! resourceVersion that it replaces, so only one of two concurrent writes succeeds.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use super::{LeaseConfig, Timings};

/// Upper limit of the duration in another holder's Lease.
const MAX_LEASE_DURATION: Duration = Duration::from_secs(60);

/// A request to the API server.
#[derive(Clone, Debug)]
pub(super) enum LeaseRequest {
    /// Get the Lease.
    Get,
    /// Create the Lease.
    Create(Lease),
    /// Replace the Lease, if it still has this resourceVersion.
    Replace(Lease),
}

/// The outcome of a request.
#[derive(Clone, Debug)]
pub(super) enum LeaseResponse {
    /// The current Lease.
    Lease(Box<Lease>),
    /// The Lease doesn't exist.
    NotFound,
    /// Another write came first.
    Conflict,
    /// The request failed, but may still have taken effect.
    Failed(String),
}

/// A candidate in the leader election.
#[derive(Debug)]
pub(super) struct Candidate {
    namespace: String,
    name: String,
    identity: String,
    timings: Timings,
    observed: Observed,
    next_request_at: Instant,
    leader_until: Option<Instant>,
}

/// The last observed state of the Lease.
#[derive(Debug)]
enum Observed {
    /// Not read yet.
    Unknown,
    NotFound,
    /// Read, and when it was first observed in this state.
    Lease(Box<Lease>, Instant),
    /// Possibly outdated: must be read again.
    Stale(Box<Lease>, Instant),
}

impl Candidate {
    pub(super) fn new(config: &LeaseConfig, now: Instant) -> Self {
        Self {
            namespace: config.namespace.clone(),
            name: config.name.clone(),
            identity: config.identity.clone(),
            timings: config.timings,
            observed: Observed::Unknown,
            next_request_at: now,
            leader_until: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_leader(&self, now: Instant) -> bool {
        self.leader_until.is_some_and(|until| now < until)
    }

    /// When leadership ends unless it is renewed.
    pub(super) fn leader_until(&self) -> Option<Instant> {
        self.leader_until
    }

    /// When to send the next request.
    pub(super) fn next_request_at(&self) -> Instant {
        self.next_request_at
    }

    /// The next request. `time` is informational: it is written to the Lease and never compared.
    pub(super) fn next_request(&self, time: Timestamp) -> LeaseRequest {
        match &self.observed {
            Observed::Unknown | Observed::Stale(..) => LeaseRequest::Get,
            Observed::NotFound => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        namespace: Some(self.namespace.clone()),
                        name: Some(self.name.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: None,
                };
                LeaseRequest::Create(self.claimed(lease, time))
            }
            Observed::Lease(lease, since)
                if self.available_at(lease, *since) <= self.next_request_at =>
            {
                LeaseRequest::Replace(self.claimed(Lease::clone(lease), time))
            }
            Observed::Lease(..) => LeaseRequest::Get,
        }
    }

    /// Handles the response to a request that was sent at `sent_at`.
    pub(super) fn handle_response(
        &mut self,
        request: &LeaseRequest,
        response: LeaseResponse,
        sent_at: Instant,
        now: Instant,
    ) {
        match (request, response) {
            (LeaseRequest::Get, LeaseResponse::Lease(lease)) => {
                if !self.is_ours(&lease) {
                    self.leader_until = None;
                }
                let since = match &self.observed {
                    Observed::Lease(old, since) | Observed::Stale(old, since)
                        if old.spec == lease.spec =>
                    {
                        *since
                    }
                    _ => now,
                };
                let available_at = self.available_at(&lease, since);
                self.next_request_at = available_at.max(now).min(now + self.timings.poll_interval);
                self.observed = Observed::Lease(lease, since);
            }
            (LeaseRequest::Create(_) | LeaseRequest::Replace(_), LeaseResponse::Lease(lease)) => {
                self.leader_until = Some(sent_at + self.timings.renew_deadline);
                self.next_request_at = sent_at + self.timings.renew_interval;
                self.observed = Observed::Lease(lease, now);
            }
            (_, LeaseResponse::NotFound) => {
                self.observed = Observed::NotFound;
                self.next_request_at = now;
            }
            (_, LeaseResponse::Conflict) => {
                self.mark_stale();
                self.next_request_at = now;
            }
            (_, LeaseResponse::Failed(_)) => {
                self.mark_stale();
                self.next_request_at = now + self.timings.poll_interval;
            }
        }
    }

    /// Steps down. Returns the Lease without a holder, if this candidate may hold it.
    pub(super) fn release(&mut self, time: Timestamp) -> Option<Lease> {
        self.leader_until = None;
        match &self.observed {
            Observed::Lease(lease, _) | Observed::Stale(lease, _) if self.is_ours(lease) => {
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

    fn mark_stale(&mut self) {
        self.observed = match std::mem::replace(&mut self.observed, Observed::Unknown) {
            Observed::Lease(lease, since) | Observed::Stale(lease, since) => {
                Observed::Stale(lease, since)
            }
            Observed::Unknown | Observed::NotFound => Observed::Unknown,
        };
    }

    /// The Lease with this candidate as its holder.
    fn claimed(&self, mut lease: Lease, time: Timestamp) -> Lease {
        let renewal = self.is_ours(&lease);
        let spec = lease.spec.get_or_insert_default();
        if !renewal {
            // The first acquisition is not a transition.
            let transitions = spec.lease_transitions;
            spec.lease_transitions = Some(transitions.map_or(0, |count| count.saturating_add(1)));
            spec.acquire_time = Some(MicroTime(time));
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(self.timings.lease_duration.as_secs()).ok();
        spec.renew_time = Some(MicroTime(time));
        lease
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease) == Some(&*self.identity)
    }

    /// When this candidate may write a Lease that has been unchanged since `since`.
    fn available_at(&self, lease: &Lease, since: Instant) -> Instant {
        match holder(lease) {
            None => since,
            // Renewable immediately, even after a restart under the same name.
            Some(holder) if holder == self.identity => since,
            Some(_) => since + self.duration(lease.spec.as_ref()),
        }
    }

    fn duration(&self, spec: Option<&LeaseSpec>) -> Duration {
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        seconds
            .map_or(self.timings.lease_duration, Duration::from_secs)
            .min(MAX_LEASE_DURATION)
    }
}

/// The current holder.
fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    (!holder.is_empty()).then_some(holder)
}
