//! One replica that would lead.
//!
//! In: answers about the Lease, the time. Out: the next question, and whether it leads. Pure.
//!
//! Times of other machines are never compared with ours. A Lease has run out when it was *seen* not to change for as long as
//! it says; its holder stops earlier, counted from before it *asked* for the last renewal that was granted. Whatever time
//! requests take, the second lies before the first. Every write names the version that it replaces, so that of two
//! only one succeeds.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use super::{Config, Times};

/// Whatever another's Lease says, it has run out after that.
const LONGEST: Duration = Duration::from_secs(60);

/// A question to the API server.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// How the Lease is.
    Look,
    /// To make it.
    Create(Lease),
    /// To replace the version that is named in it.
    Replace(Lease),
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// The Lease is so now.
    Lease(Box<Lease>),
    /// There is none.
    Missing,
    /// Somebody was faster.
    Conflict,
    /// No one knows.
    Failed(String),
}

/// A replica that would lead.
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

/// The Lease, as far as is known.
#[derive(Debug)]
enum Seen {
    /// A look is needed.
    Unknown,
    Missing,
    /// It is so, and has been since then at the latest.
    Lease(Box<Lease>, Instant),
    /// It was so, and a look is needed to know how it is.
    Stale(Box<Lease>, Instant),
}

impl Candidate {
    pub(super) fn new(config: &Config, now: Instant) -> Self {
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

    /// The name of the Lease.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it leads.
    pub(super) fn leads(&self, now: Instant) -> bool {
        self.leads_until.is_some_and(|until| now < until)
    }

    /// Until when it leads, if nothing is granted before.
    pub(super) fn leads_until(&self) -> Option<Instant> {
        self.leads_until
    }

    /// When to ask next.
    pub(super) fn asks_at(&self) -> Instant {
        self.asks_at
    }

    /// What to ask then. The time is for people to read.
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

    /// Takes an answer to what was asked at `asked_at`.
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
                // What was asked for may have been done all the same.
                self.outdated();
                self.asks_at = now + self.times.look;
            }
        }
    }

    /// The Lease as it is to be given back, if we hold it as far as is known. It doesn't lead from then on.
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

    /// A Lease with us as its holder.
    fn held(&self, mut lease: Lease, time: Timestamp) -> Lease {
        let again = self.is_ours(&lease);
        let spec = lease.spec.get_or_insert_default();
        if !again {
            // The first holder follows nobody.
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

    /// When a Lease that has been so since then may be taken.
    fn free_at(&self, lease: &Lease, since: Instant) -> Instant {
        match holder(lease) {
            None => since,
            // Ours: renewed at once, or as one that ran under the same name before.
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

/// Who holds it, if anybody does.
fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    (!holder.is_empty()).then_some(holder)
}
