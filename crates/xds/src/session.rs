//! The delta protocol on one stream: a state machine for all resource types, without IO or clocks.
//!
//! In: the client's requests, the fleet and the time. Out: responses, and when to poll again.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::time::Instant;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

use crate::config::Limits;
use crate::fleet::Fleet;
use crate::ordering::{self, Watermarks};
use crate::resource::{CLUSTER_REMOVAL_RANK, Resource, ResourceType};
use crate::subscription;
use crate::type_state::{SendLimits, TypeState};
use crate::wire::{self, DeltaRequest};

/// A response to send.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) ty: ResourceType,
    pub(crate) nonce: String,
    pub(crate) upserts: Vec<Resource>,
    pub(crate) removals: Vec<Arc<str>>,
}

/// A client exceeded a limit. Its stream ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitExceeded {
    #[error("more than {limit} names of type {ty}")]
    TooManyNames { ty: ResourceType, limit: usize },
    #[error("more than {limit} names on all streams of the fleet")]
    TooManyNamesOfFleet { limit: usize },
    #[error("a resource name of type {ty} is longer than {limit} bytes")]
    NameTooLong { ty: ResourceType, limit: usize },
}

/// One stream of one client.
#[derive(Debug)]
pub(crate) struct Session {
    /// The stream number.
    client: u64,
    limits: Limits,
    types: [TypeState; ResourceType::ALL.len()],
    /// The position in the fleet's log up to which changes have been processed; `None` before the fleet's first update.
    cursor: Option<u64>,
    nonces: u64,
    /// Epochs up to this one no longer wait for clusters.
    warming_bypass: u64,
    /// Until this time, or until the client subscribes to listeners, only listeners are removed: a reconnecting
    /// client's existing listeners may use any other resource. Nor is any endpoint released: a client that starts may
    /// still wait for the health checks of acknowledged clusters.
    starting_until: Option<Instant>,
    /// Set while the client may route with an older version than the fleet's because a listener or route was rejected.
    stale_routing: Option<StaleRouting>,
    /// The latest epoch reported as complete.
    complete: u64,
    /// EDS service names by unacknowledged cluster, where they differ from the cluster's own name.
    endpoints: HashMap<Arc<str>, Arc<str>>,
    /// Clusters with health checks that the client may wait for.
    checks: Option<Checks>,
    /// Acknowledged and rejected clusters whose endpoints haven't been released.
    settled: Vec<Arc<str>>,
}

/// Health checks that an Envoy may wait for.
#[derive(Debug)]
struct Checks {
    /// EDS service names.
    endpoints: HashSet<Arc<str>>,
    /// When the client should wait no longer.
    until: Instant,
}

/// How long a client may route with an older version.
#[derive(Debug)]
enum StaleRouting {
    /// While the rejection stands.
    Rejected,
    /// Until the client has completed this epoch.
    Until(u64),
}

impl Session {
    /// A session for the stream with this number.
    pub(crate) fn new(client: u64, limits: Limits, now: Instant) -> Session {
        Session {
            client,
            types: ResourceType::ALL.map(|ty| TypeState::new(ty, client, &limits)),
            cursor: None,
            nonces: 0,
            warming_bypass: 0,
            starting_until: Some(now + limits.warming_timeout),
            stale_routing: None,
            complete: 0,
            endpoints: HashMap::new(),
            checks: None,
            settled: Vec::new(),
            limits,
        }
    }

    /// Number of names examined so far: a measure of work, and of progress within a poll.
    pub(crate) fn examined(&self) -> u64 {
        self.types.iter().map(TypeState::examined).sum()
    }

    fn of(&mut self, ty: ResourceType) -> &mut TypeState {
        &mut self.types[ty.index()]
    }

    /// Whether the client has sent a request for a type.
    pub(crate) fn has_begun(&self, type_url: &str) -> bool {
        let ty = ResourceType::from_type_url(type_url);
        ty.is_some_and(|ty| self.types[ty.index()].subscription().started())
    }

    /// Processes a request. Unsupported types are left unanswered: the protocol doesn't define an error for them.
    pub(crate) fn request(
        &mut self,
        fleet: &mut Fleet,
        request: &DeltaRequest,
    ) -> Result<(), LimitExceeded> {
        let Some(ty) = ResourceType::from_type_url(&request.type_url) else {
            return Ok(());
        };
        self.check(fleet, ty, request)?;
        // Catch up first, so that no name is examined twice.
        self.catch_up(fleet);
        if !request.response_nonce.is_empty() {
            let error = request.error_detail.as_ref();
            let error = error.map(|status| status.message.as_str());
            let settled = self.of(ty).on_ack(fleet, &request.response_nonce, error);
            if ty == ResourceType::Cluster {
                self.settled.extend(settled);
            }
        }
        self.of(ty).on_request(
            fleet,
            &request.resource_names_subscribe,
            &request.resource_names_unsubscribe,
            &request.initial_resource_versions,
        );
        let size = self.types.iter().map(TypeState::size).sum();
        fleet.hold(self.client, size);
        Ok(())
    }

    /// Releases the endpoints of settled clusters.
    fn release_endpoints(&mut self, fleet: &Fleet) {
        for name in mem::take(&mut self.settled) {
            let endpoints = self.endpoints.remove(&name).unwrap_or(name);
            self.of(ResourceType::Endpoint).release(fleet, &endpoints);
            if let Some(checks) = &mut self.checks {
                checks.endpoints.remove(&endpoints);
            }
        }
        self.checks.take_if(|checks| checks.endpoints.is_empty());
    }

    fn check(
        &self,
        fleet: &Fleet,
        ty: ResourceType,
        request: &DeltaRequest,
    ) -> Result<(), LimitExceeded> {
        let limit = self.limits.names;
        let subscribed = self.types[ty.index()].subscription().names().len();
        if subscribed + request.resource_names_subscribe.len() > limit
            || request.initial_resource_versions.len() > limit
        {
            return Err(LimitExceeded::TooManyNames { ty, limit });
        }
        let limit = self.limits.name_bytes;
        let names = request.resource_names_subscribe.iter();
        let mut names = names.chain(request.initial_resource_versions.keys());
        if names.any(|name| name.len() > limit) {
            return Err(LimitExceeded::NameTooLong { ty, limit });
        }
        let names = request.resource_names_subscribe.iter();
        let names = names.chain(request.initial_resource_versions.keys());
        let size: usize = names.map(|name| subscription::size(name)).sum();
        // Twice: a client lists the resources that it has, and subscribes to them.
        let needed = 2 * self.limits.fleet_streams * fleet.resource_count();
        let limit = self.limits.fleet_names + needed;
        if size > 0 && fleet.held() + size > limit {
            return Err(LimitExceeded::TooManyNamesOfFleet { limit });
        }
        Ok(())
    }

    /// The next response, if one may be sent now. After requests, after fleet changes and at [`Session::deadline`],
    /// call it until it returns `None`.
    pub(crate) fn poll(&mut self, fleet: &mut Fleet, now: Instant) -> Option<Response> {
        self.catch_up(fleet);
        // Nothing is served before the fleet's first update.
        self.cursor?;
        self.skip_checks(fleet, now);
        self.check_warming(fleet, now);
        for state in &mut self.types {
            state.removals.expire(now);
        }
        let subscribed = self.types.iter().all(TypeState::subscribed_if_root);
        self.starting_until
            .take_if(|until| subscribed || now >= *until);
        if self.starting_until.is_none() && !self.settled.is_empty() {
            self.release_endpoints(fleet);
        }
        loop {
            let examined = self.examined();
            let response = self.next_response(fleet, now);
            if response.is_some() {
                return response;
            }
            // Examining a name that didn't need a response may have unblocked other names.
            if self.examined() == examined {
                break;
            }
        }
        self.report(fleet);
        None
    }

    /// The next response, for the first type that has one.
    fn next_response(&mut self, fleet: &Fleet, now: Instant) -> Option<Response> {
        let stale_routing = self.has_stale_routing(fleet);
        for ty in ResourceType::ALL {
            if self.of(ty).is_in_flight() {
                continue;
            }
            let watermarks = self.watermarks();
            let held = (self.starting_until.is_some() && ty.removal_rank() > 0)
                || (stale_routing && ty.removal_rank() >= CLUSTER_REMOVAL_RANK);
            let removals = match held {
                true => 0,
                false => ordering::removal_limit(ty, &watermarks, self.warming_bypass),
            };
            let epoch = fleet.epoch();
            self.of(ty).removals.start_delay(removals, epoch, now);
            let limits = SendLimits {
                upserts: ordering::upsert_limit(ty, &watermarks, self.warming_bypass),
                removals,
                bytes: self.limits.response_bytes,
            };
            let nonce = format!("{:x}", self.nonces + 1);
            if let Some(response) = self.of(ty).next_response(fleet, limits, nonce, now) {
                self.nonces += 1;
                self.repeat_dependents(fleet, &response, now);
                return Some(response);
            }
        }
        None
    }

    /// Resends dependencies that Envoy needs with a changed resource but doesn't request again.
    fn repeat_dependents(&mut self, fleet: &Fleet, response: &Response, now: Instant) {
        match response.ty {
            // Envoy needs the endpoints of a changed cluster to warm it, even if it has them for another cluster.
            ResourceType::Cluster => {
                for cluster in &response.upserts {
                    let name = cluster.name();
                    let warming = wire::warming(cluster.body());
                    let endpoints = warming.endpoints.map(Arc::from);
                    if let Some(endpoints) = &endpoints {
                        let (name, endpoints) = (Arc::clone(name), Arc::clone(endpoints));
                        self.endpoints.insert(name, endpoints);
                    }
                    let endpoints = endpoints.unwrap_or_else(|| Arc::clone(name));
                    self.of(ResourceType::Endpoint).require(fleet, &endpoints);
                    if warming.checked {
                        let until = now + self.limits.check_timeout;
                        let checks = self.checks.get_or_insert_with(|| Checks {
                            endpoints: HashSet::new(),
                            until,
                        });
                        checks.endpoints.insert(endpoints);
                    }
                }
            }
            // Envoy has dropped its scopes if no listener used them. If it still has them, it ignores the repeat.
            ResourceType::Listener if !response.upserts.is_empty() => {
                self.of(ResourceType::ScopedRoute).resend_all(fleet);
            }
            _ => {}
        }
    }

    /// When to call [`Session::poll`] again if nothing happens first.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.cursor?;
        let warming = self.types[ResourceType::Cluster.index()]
            .in_flight_since()
            .map(|since| since + self.limits.warming_timeout);
        let checks = self.checks.as_ref().map(|checks| checks.until);
        let delays = self.types.iter();
        let delays = delays.filter_map(|state| state.removals.deadline());
        warming
            .into_iter()
            .chain(checks)
            .chain(delays)
            .chain(self.starting_until)
            .min()
    }

    /// Processes the fleet's changes since the last call.
    fn catch_up(&mut self, fleet: &mut Fleet) {
        if !fleet.ready() {
            return;
        }
        if self.cursor.is_none() {
            for state in &self.types {
                state.report_initial_versions(fleet);
            }
        }
        let cursor = self.cursor.replace(fleet.log_end());
        match cursor.and_then(|cursor| fleet.changes_since(cursor)) {
            Some(changes) => {
                for change in changes {
                    self.of(change.ty)
                        .refresh(fleet, &change.name, Some(change.epoch));
                }
            }
            None => {
                for state in &mut self.types {
                    state.refresh_all(fleet);
                }
            }
        }
    }

    fn watermarks(&self) -> Watermarks {
        ResourceType::ALL.map(|ty| self.types[ty.index()].watermark())
    }

    /// Stops waiting for health checks, which take as long as their owners like: Envoy acknowledges no cluster while one waits
    /// for a check, and requests no listeners before.
    fn skip_checks(&mut self, fleet: &Fleet, now: Instant) {
        if let Some(checks) = self.checks.take_if(|checks| now >= checks.until) {
            for name in checks.endpoints {
                self.of(ResourceType::Endpoint).uncheck(fleet, name);
            }
        }
    }

    /// Stops holding back listeners and routes if their clusters take too long.
    fn check_warming(&mut self, fleet: &mut Fleet, now: Instant) {
        let timeout = self.limits.warming_timeout;
        let clusters = self.of(ResourceType::Cluster);
        let since = clusters.in_flight_since();
        if since.is_some_and(|since| now >= since + timeout) {
            clusters.restart_timer(now);
            self.warming_bypass = fleet.epoch();
            fleet.warming_timed_out(self.client);
        }
    }

    /// Whether the client may route with an older version than the fleet's: while a listener or route is rejected, and
    /// until the client has completed the epoch that ended the rejection.
    fn has_stale_routing(&mut self, fleet: &Fleet) -> bool {
        if fleet.has_rejected_traffic() {
            self.stale_routing = Some(StaleRouting::Rejected);
        } else if let Some(stale) = &mut self.stale_routing {
            let until = match stale {
                StaleRouting::Rejected => fleet.epoch(),
                StaleRouting::Until(epoch) => *epoch,
            };
            *stale = StaleRouting::Until(until);
            if ordering::complete_before(&self.watermarks()) > until {
                self.stale_routing = None;
            }
        }
        self.stale_routing.is_some()
    }

    /// Reports the client's progress to the fleet.
    fn report(&mut self, fleet: &mut Fleet) {
        let states = self.types.iter();
        let states = states.filter(|state| state.subscription().started());
        fleet.report(self.client, states.map(TypeState::status));
        // A client that hasn't subscribed to clusters or listeners yet hasn't completed an epoch.
        let begun = ResourceType::ALL
            .into_iter()
            .all(|ty| self.types[ty.index()].subscribed_if_root() || !fleet.has_any(ty));
        let complete = ordering::complete_before(&self.watermarks())
            .saturating_sub(1)
            .min(fleet.epoch());
        if begun && complete > self.complete {
            self.complete = complete;
            if let Some(revision) = fleet.revision(complete) {
                fleet.progressed(self.client, revision);
            }
        }
    }
}
