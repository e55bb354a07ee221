//! All types of one stream: the protocol's state machine.
//!
//! In: the client's requests, the fleet, and the time. Out: responses, one call at a time, and when
//! to call again for lack of other occasions.
//! It must not know: gRPC, tasks, locks or clocks. What it learns that concerns all clients (verdicts,
//! progress) it tells the fleet.

use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;

use crate::config::Limits;
use crate::fleet::Fleet;
use crate::lane::{Allowance, Batch, Lane};
use crate::ordering::{self, Floors};
use crate::resource::{CLUSTER_TEARDOWN, Resource, ResourceType};

/// A response to send.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) ty: ResourceType,
    pub(crate) nonce: String,
    pub(crate) upserts: Vec<Resource>,
    pub(crate) removals: Vec<Arc<str>>,
}

/// What a client did that ends its stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("more than {limit} names of type {ty}")]
    TooManyNames { ty: ResourceType, limit: usize },
    #[error("a name of type {ty} has more than {limit} bytes")]
    NameTooLong { ty: ResourceType, limit: usize },
}

/// One stream of one client.
#[derive(Debug)]
pub(crate) struct Session {
    client: u64,
    /// The client gets variants of resources that have some.
    variants: bool,
    limits: Arc<Limits>,
    lanes: [Lane; ResourceType::ALL.len()],
    /// The fleet's first update has been seen.
    started: bool,
    /// The position in the fleet's log up to which changes have been taken in.
    cursor: u64,
    nonces: u64,
    /// Epochs up to this no longer wait for clusters.
    bypass: u64,
    /// Until when nothing is taken away from a client that hasn't asked for its listeners yet: it may
    /// have come with some that use what is to go. `None` when that time is over.
    patience: Option<Instant>,
    /// What the client has may be older than what the fleet has, because something was refused, and
    /// lead traffic to what has gone meanwhile: until this epoch is complete, `None` while the refusal
    /// stands.
    old_traffic: Option<Option<u64>>,
    /// Of removals of clusters, and of scopes.
    clusters: Grace,
    scopes: Grace,
    /// The epoch up to which the client has told to have everything.
    complete: u64,
}

/// Removals of one type, of which each waits for a while when it could go.
#[derive(Debug)]
struct Grace {
    time: Duration,
    /// When what was removed before which epoch may go.
    running: Option<(u64, Instant)>,
    /// What was removed before this epoch has waited.
    released: u64,
}

impl Grace {
    fn new(time: Duration) -> Grace {
        Grace {
            time,
            running: None,
            released: 0,
        }
    }

    fn pass(&mut self, now: Instant) {
        if let Some((before, _)) = self.running.take_if(|(_, until)| now >= *until) {
            self.released = self.released.max(before);
        }
    }

    /// The limit of removals, where `next` is the oldest of them and all before `limit` could go.
    fn limit(&mut self, next: Option<u64>, limit: u64, epoch: u64, now: Instant) -> u64 {
        if self.time.is_zero() {
            return limit;
        }
        let waits = next.is_some_and(|next| next < limit && next >= self.released);
        if self.running.is_none() && waits {
            self.running = Some((limit.min(epoch + 1), now + self.time));
        }
        limit.min(self.released)
    }

    fn deadline(&self) -> Option<Instant> {
        self.running.map(|(_, until)| until)
    }
}

impl Session {
    /// A session of the client with that number, whose stream began now.
    pub(crate) fn new(client: u64, limits: Arc<Limits>, now: Instant) -> Session {
        Session {
            client,
            variants: false,
            lanes: ResourceType::ALL.map(|ty| Lane::new(ty, client)),
            started: false,
            cursor: 0,
            nonces: 0,
            bypass: 0,
            patience: Some(now + limits.warming),
            old_traffic: None,
            clusters: Grace::new(limits.removal_grace),
            scopes: Grace::new(limits.scope_grace),
            complete: 0,
            limits,
        }
    }

    /// The client gets variants of resources, or doesn't.
    pub(crate) fn with_variants(self, variants: bool) -> Session {
        Session { variants, ..self }
    }

    /// Names looked at so far: the measure of the session's work.
    #[cfg(test)]
    pub(crate) fn examined(&self) -> u64 {
        self.lanes.iter().map(Lane::examined).sum()
    }

    fn lane(&mut self, ty: ResourceType) -> &mut Lane {
        &mut self.lanes[ty.index()]
    }

    /// Takes a request. Types that the server doesn't speak are left unanswered, as the protocol
    /// has no word for them.
    pub(crate) fn request(
        &mut self,
        fleet: &mut Fleet,
        request: &DeltaDiscoveryRequest,
    ) -> Result<(), Violation> {
        let Some(ty) = ResourceType::from_type_url(&request.type_url) else {
            return Ok(());
        };
        self.check(ty, request)?;
        // The changes before the request first, so that nothing is looked at twice.
        self.catch_up(fleet);
        if !request.response_nonce.is_empty() {
            let rejection = request.error_detail.as_ref();
            let rejection = rejection.map(|status| status.message.as_str());
            let settled = self
                .lane(ty)
                .verdict(fleet, &request.response_nonce, rejection);
            if ty == ResourceType::Cluster {
                for name in &settled {
                    self.lane(ResourceType::Endpoint).need_no_more(fleet, name);
                }
            }
        }
        self.lane(ty).ask(
            fleet,
            &request.resource_names_subscribe,
            &request.resource_names_unsubscribe,
            &request.initial_resource_versions,
        );
        Ok(())
    }

    fn check(&self, ty: ResourceType, request: &DeltaDiscoveryRequest) -> Result<(), Violation> {
        let limit = self.limits.names;
        let known = self.lanes[ty.index()].subscription().names().len();
        if known + request.resource_names_subscribe.len() > limit
            || request.initial_resource_versions.len() > limit
        {
            return Err(Violation::TooManyNames { ty, limit });
        }
        let limit = self.limits.name_bytes;
        let subscribed = request.resource_names_subscribe.iter();
        let mut names = subscribed.chain(request.initial_resource_versions.keys());
        if names.any(|name| name.len() > limit) {
            return Err(Violation::NameTooLong { ty, limit });
        }
        Ok(())
    }

    /// The next response, if there is one to send now. To be called until there is none: after
    /// requests, after changes of the fleet, and at [`Session::deadline`].
    pub(crate) fn poll(&mut self, fleet: &mut Fleet, now: Instant) -> Option<Response> {
        self.catch_up(fleet);
        if !self.started {
            return None;
        }
        self.watch_warming(fleet, now);
        self.clusters.pass(now);
        self.scopes.pass(now);
        let all_asked = self.lanes.iter().all(Lane::asked_if_root);
        self.patience.take_if(|until| all_asked || now >= *until);
        let keeps_old_traffic = self.keeps_old_traffic(fleet);
        for ty in ResourceType::ALL {
            if !self.lane(ty).idle() {
                continue;
            }
            let floors = self.floors();
            let mut unmake = ordering::unmake_limit(ty, &floors, self.bypass);
            if self.patience.is_some() && ty.teardown() > 0 {
                unmake = 0;
            }
            if keeps_old_traffic && ty.teardown() >= CLUSTER_TEARDOWN {
                unmake = 0;
            }
            let grace = match ty {
                ResourceType::Cluster => Some(&mut self.clusters),
                ResourceType::ScopedRoute => Some(&mut self.scopes),
                _ => None,
            };
            if let Some(grace) = grace {
                let next = self.lanes[ty.index()].next_removal();
                unmake = grace.limit(next, unmake, fleet.epoch(), now);
            }
            let allowance = Allowance {
                make: ordering::make_limit(ty, &floors, self.bypass),
                unmake,
                bytes: self.limits.response_bytes,
            };
            let nonce = format!("{:x}", self.nonces + 1);
            if let Some(batch) = self.lane(ty).compose(fleet, allowance, &nonce, now) {
                self.nonces += 1;
                return Some(self.response(fleet, ty, nonce, batch));
            }
        }
        self.report(fleet);
        None
    }

    fn response(
        &mut self,
        fleet: &mut Fleet,
        ty: ResourceType,
        nonce: String,
        batch: Batch,
    ) -> Response {
        if ty == ResourceType::Cluster {
            // Envoy warms a changed cluster by its endpoints, for which it doesn't ask again.
            for cluster in &batch.upserts {
                self.lane(ResourceType::Endpoint)
                    .need(fleet, cluster.name());
            }
        }
        if ty == ResourceType::Listener && !batch.upserts.is_empty() {
            // A listener may be the first to follow scopes since none did. Envoy doesn't ask for all of them again then, and
            // doesn't have them any more. One that has takes no notice of the same again.
            self.lane(ResourceType::ScopedRoute).send_again(fleet);
        }
        let mut upserts = batch.upserts;
        if self.variants {
            upserts = upserts.into_iter().map(Resource::varied).collect();
        }
        Response {
            ty,
            nonce,
            upserts,
            removals: batch.removals,
        }
    }

    /// When to call [`Session::poll`] again even if nothing happens until then.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if !self.started {
            // Nothing comes of polling before the fleet is there, whatever time has run out.
            return None;
        }
        let warming = self.lanes[ResourceType::Cluster.index()]
            .waiting_since()
            .map(|since| since + self.limits.warming);
        let graces = [&self.clusters, &self.scopes].map(Grace::deadline);
        let graces = graces.into_iter().flatten();
        warming.into_iter().chain(graces).chain(self.patience).min()
    }

    /// Takes in what changed in the fleet since the last time.
    fn catch_up(&mut self, fleet: &mut Fleet) {
        if !fleet.ready() {
            return;
        }
        let begins = !self.started;
        let lags = self.cursor < fleet.log_end() && fleet.change(self.cursor).is_none();
        if begins || lags {
            self.started = true;
            self.cursor = fleet.log_end();
            for lane in &mut self.lanes {
                if begins {
                    lane.vouch(fleet);
                }
                lane.compare_all(fleet);
            }
        }
        while let Some(change) = fleet.change(self.cursor).cloned() {
            self.cursor += 1;
            self.lane(change.ty)
                .consider(fleet, &change.name, Some(change.epoch));
        }
    }

    fn floors(&self) -> Floors {
        ResourceType::ALL.map(|ty| self.lanes[ty.index()].floor())
    }

    /// Lets listeners and routes go if the clusters that they wait for take too long.
    fn watch_warming(&mut self, fleet: &mut Fleet, now: Instant) {
        let warming = self.limits.warming;
        let lane = self.lane(ResourceType::Cluster);
        if lane
            .waiting_since()
            .is_some_and(|since| now >= since + warming)
        {
            lane.wait_again(now);
            self.bypass = fleet.epoch();
            fleet.warming_timed_out(self.client);
        }
    }

    /// Whether the client may be using an older version of something that leads traffic: while a refusal
    /// of the current one stands, and until the client has all of the epoch that ended it.
    fn keeps_old_traffic(&mut self, fleet: &Fleet) -> bool {
        if fleet.refused_traffic() {
            self.old_traffic = Some(None);
        } else if let Some(until) = &mut self.old_traffic {
            let until = *until.get_or_insert(fleet.epoch());
            if ordering::complete_before(&self.floors()) > until {
                self.old_traffic = None;
            }
        }
        self.old_traffic.is_some()
    }

    /// Tells the fleet how far this client is.
    fn report(&mut self, fleet: &mut Fleet) {
        if let Some(client) = fleet.client_mut(self.client) {
            for lane in &self.lanes {
                if lane.subscription().started() {
                    client.report(lane.status());
                }
            }
        }
        // A client that hasn't asked for its clusters or listeners yet has nothing of any epoch.
        let begun = ResourceType::ALL
            .into_iter()
            .all(|ty| self.lanes[ty.index()].asked_if_root() || !fleet.has_any(ty));
        let complete = ordering::complete_before(&self.floors())
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
