//! One resource type on one stream: its subscription, the client's versions, and pending resources.
//!
//! Independent of the other types; no IO. Its cost depends on the number of changes, not on the number of resources.

mod ack;
mod removals;
mod send;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::removals::Removals;
use crate::config::Limits;
use crate::fleet::{Fleet, Lookup, TypeStatus};
use crate::ordering::Watermark;
use crate::pending::{Age, Epochs, Pending};
use crate::resource::{Resource, ResourceType, Version};
use crate::shrink;
use crate::subscription::{self, Subscription, SubscriptionChange};
use crate::wire;

/// A resource in an unacknowledged response.
#[derive(Debug, Clone)]
struct Sent {
    name: Arc<str>,
    version: Version,
    epochs: Epochs,
    /// The client's previous version, which it keeps if it rejects this one.
    before: Option<Version>,
}

/// The response awaiting its ACK or NACK.
#[derive(Debug)]
struct InFlight {
    nonce: String,
    upserts: Vec<Sent>,
    watermark: Watermark,
    since: Instant,
}

/// Limits on what may be sent now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendLimits {
    /// Upserts whose latest change is before this epoch.
    pub(crate) upserts: u64,
    /// Removals before this epoch.
    pub(crate) removals: u64,
    /// The response size, in bytes, after which the rest is left for the next response.
    pub(crate) bytes: usize,
}

/// The state of one type on one stream.
#[derive(Debug)]
pub(crate) struct TypeState {
    ty: ResourceType,
    /// The stream number.
    client: u64,
    subscription: Subscription,
    /// The sum of the sizes of the names in the client's first request that it has versions of.
    initial_size: usize,
    /// The client's versions, assuming that it accepts the response in flight. A NACK corrects them.
    versions: HashMap<Arc<str>, Version>,
    upserts: Pending,
    /// The newest and oldest upserts take turns, so that a large change delays neither later nor earlier ones much.
    next: Age,
    pub(crate) removals: Removals,
    /// Subscribed names without a resource, not yet reported.
    missing: BTreeSet<Arc<str>>,
    /// Subscribed names without a resource, already reported.
    reported_missing: HashSet<Arc<str>>,
    /// Names to send even if the client already has their version.
    resend: HashSet<Arc<str>>,
    /// Names that the client needs for now, each with its resource when [`TypeState::require`] was called.
    required: HashMap<Arc<str>, Option<Resource>>,
    /// Required endpoints whose clusters no longer wait for health checks: they are sent without checks until
    /// [`TypeState::release`].
    unchecked: HashSet<Arc<str>>,
    /// By name, the version that this client last rejected, and the epoch of the name's latest change at that time.
    /// After another change, even back to the same version, the resource is sent again.
    rejected: HashMap<Arc<str>, (Version, u64)>,
    /// A wildcard subscription with nothing to send needs an empty response: Envoy doesn't request listeners until it
    /// has a response for clusters.
    initial_response_due: bool,
    in_flight: Option<InFlight>,
    /// Parts of a rejected response, sent separately until the invalid resource is found.
    probes: VecDeque<Vec<Sent>>,
    /// Probes and changes take turns, so that neither starves the other.
    probe_next: bool,
    sent: u64,
    nacks: u64,
    /// Number of names examined so far, a measure of work.
    examined: u64,
}

impl TypeState {
    pub(crate) fn new(ty: ResourceType, client: u64, limits: &Limits) -> TypeState {
        let removal_delay = match ty {
            ResourceType::Cluster => limits.removal_delay,
            ResourceType::ScopedRoute => limits.scope_removal_delay,
            _ => Duration::ZERO,
        };
        let is_immediate = match ty {
            ResourceType::Cluster => limits.clusters_removed_immediately,
            _ => |_: &str| false,
        };
        let removals = Removals::new(removal_delay, is_immediate);
        TypeState {
            ty,
            client,
            subscription: Subscription::default(),
            initial_size: 0,
            versions: HashMap::new(),
            upserts: Pending::default(),
            next: Age::default(),
            removals,
            missing: BTreeSet::new(),
            reported_missing: HashSet::new(),
            resend: HashSet::new(),
            required: HashMap::new(),
            unchecked: HashSet::new(),
            rejected: HashMap::new(),
            initial_response_due: false,
            in_flight: None,
            probes: VecDeque::new(),
            probe_next: false,
            sent: 0,
            nacks: 0,
            examined: 0,
        }
    }

    pub(crate) fn subscription(&self) -> &Subscription {
        &self.subscription
    }

    pub(crate) fn examined(&self) -> u64 {
        self.examined
    }

    /// The sum of the sizes of the names that the client has made the stream hold.
    pub(crate) fn size(&self) -> usize {
        self.subscription.size() + self.initial_size
    }

    /// Whether the client has subscribed to this type. Always true for non-root types.
    pub(crate) fn subscribed_if_root(&self) -> bool {
        self.subscription.started() || !self.ty.is_root()
    }

    /// Whether a response awaits its ACK or NACK. Nothing else may be sent until then.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// When the upserts in flight were sent, or when [`TypeState::restart_timer`] was last called for them.
    pub(crate) fn in_flight_since(&self) -> Option<Instant> {
        let in_flight = self.in_flight.as_ref()?;
        (!in_flight.upserts.is_empty()).then_some(in_flight.since)
    }

    /// Restarts the timer behind [`TypeState::in_flight_since`].
    pub(crate) fn restart_timer(&mut self, now: Instant) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.since = now;
        }
    }

    pub(crate) fn watermark(&self) -> Watermark {
        let in_flight = self.in_flight.as_ref();
        let in_flight = in_flight.map(|sent| sent.watermark).unwrap_or_default();
        let probes = self.probes.iter().flatten().map(|sent| sent.epochs.first);
        let upserts = in_flight.upserts.into_iter();
        let removals = in_flight.removals.into_iter();
        Watermark {
            upserts: probes.chain(upserts).chain(self.upserts.watermark()).min(),
            removals: removals.chain(self.removals.watermark()).min(),
        }
    }

    /// Applies the names in a request and, if it is the first, the versions that the client has.
    pub(crate) fn on_request(
        &mut self,
        fleet: &mut Fleet,
        subscribe: &[String],
        unsubscribe: &[String],
        initial_versions: &HashMap<String, String>,
    ) {
        let ty = self.ty;
        let shared = |name: &str| fleet.shared_name(ty, name).unwrap_or_else(|| name.into());
        let change = self
            .subscription
            .request(ty, subscribe, unsubscribe, shared);
        if change.first {
            for (name, version) in initial_versions {
                if self.subscription.covers(name) {
                    self.initial_size += subscription::size(name);
                    self.versions.insert(shared(name), Version::parse(version));
                }
            }
            self.initial_response_due = change.wildcard_added && self.versions.is_empty();
            self.report_initial_versions(fleet);
        }
        self.unsubscribe(fleet, &change);
        self.shrink();
        for name in &change.subscribed {
            let has = change.first && self.versions.contains_key(name);
            if !has {
                // A client that subscribes again has dropped the resource.
                self.versions.remove(name);
                self.reported_missing.remove(name);
            }
            if !has || self.required.contains_key(name) {
                self.resend.insert(Arc::clone(name));
            }
            self.refresh(fleet, name, Some(0));
        }
        if change.wildcard_added {
            self.refresh_all(fleet);
        }
    }

    /// Reports the client's initial versions to the fleet as acknowledged. Call it only before anything is sent.
    pub(crate) fn report_initial_versions(&self, fleet: &mut Fleet) {
        for (name, version) in &self.versions {
            fleet.acked(self.ty, name, *version);
        }
    }

    fn unsubscribe(&mut self, fleet: &Fleet, change: &SubscriptionChange) {
        if change.wildcard_removed {
            let subscription = &self.subscription;
            let keep = |name: &Arc<str>| subscription.has_name(name);
            self.versions.retain(|name, _| keep(name));
            self.upserts.retain(keep);
            self.removals.retain(keep);
            self.resend.retain(keep);
            self.rejected.retain(|name, _| keep(name));
        }
        for name in &change.unsubscribed {
            self.missing.remove(name);
            self.reported_missing.remove(name);
            self.versions.remove(name);
            if self.subscription.wildcard() {
                // The wildcard still covers the name, so the protocol requires a response.
                self.resend.insert(Arc::clone(name));
                self.refresh(fleet, name, Some(0));
            } else {
                self.upserts.remove(name);
                self.removals.remove(name);
                self.resend.remove(name);
                self.rejected.remove(name);
            }
        }
    }

    /// Frees unused memory.
    fn shrink(&mut self) {
        self.subscription.shrink();
        shrink::map(&mut self.versions);
        shrink::set(&mut self.reported_missing);
        shrink::set(&mut self.resend);
    }

    /// Compares all resources with all of the client's versions. Costs O(resources); done only for wildcard
    /// subscriptions and for clients that lag behind the log.
    pub(crate) fn refresh_all(&mut self, fleet: &Fleet) {
        let mut names: Vec<Arc<str>> = self.subscription.names().iter().cloned().collect();
        if self.subscription.wildcard() {
            names.extend(fleet.names(self.ty).cloned());
            names.extend(self.versions.keys().cloned());
        }
        for name in &names {
            self.refresh(fleet, name, Some(0));
        }
    }

    /// Updates what is pending for a name. `since` is the first epoch that the client may lack; it defaults to the
    /// epoch of the latest change.
    pub(crate) fn refresh(&mut self, fleet: &Fleet, name: &Arc<str>, since: Option<u64>) {
        self.examined += 1;
        if !fleet.ready() || !self.subscription.covers(name) {
            return;
        }
        // If the name was already pending, the client still lacks its first epoch.
        let pending = [self.upserts.remove(name), self.removals.remove(name)];
        let pending = pending.into_iter().flatten().map(|epochs| epochs.first);
        let since = pending.chain(since).min();
        match self.lookup(fleet, name) {
            Lookup::Serve(resource, changed) => {
                let version = self.form(resource).version();
                self.missing.remove(name);
                if self.versions.get(name) != Some(&version) || self.resend.contains(name) {
                    let first = since.unwrap_or(changed);
                    let last = changed;
                    self.upserts.add(name, Epochs { first, last });
                }
            }
            Lookup::Keep => {
                self.resend_if_required(name);
                self.report_missing(name);
            }
            Lookup::Missing => {
                self.resend_if_required(name);
                self.rejected.remove(name);
                if self.versions.contains_key(name) {
                    let last = fleet.epoch();
                    let first = since.unwrap_or(last);
                    self.removals.add(name, Epochs { first, last });
                }
                self.report_missing(name);
            }
        }
    }

    /// A required resource is sent as soon as any version of it may be sent, even if the client already has that
    /// version. Other resources are sent only if the versions differ.
    fn resend_if_required(&mut self, name: &Arc<str>) {
        if !self.required.contains_key(name) {
            self.resend.remove(name);
        }
    }

    /// Reports once that a name the client is waiting for doesn't exist.
    fn report_missing(&mut self, name: &Arc<str>) {
        if self.waits_for(name) && !self.reported_missing.contains(name) {
            self.missing.insert(Arc::clone(name));
        }
    }

    /// Whether the client subscribed to a name and needs a response for it.
    fn waits_for(&self, name: &str) -> bool {
        let lacks = !self.versions.contains_key(name) || self.required.contains_key(name);
        self.subscription.has_name(name) && lacks
    }

    /// Resends everything that a wildcard subscription covers.
    pub(crate) fn resend_all(&mut self, fleet: &Fleet) {
        if !self.subscription.wildcard() {
            return;
        }
        let names: Vec<Arc<str>> = self.versions.keys().cloned().collect();
        for name in names {
            self.resend.insert(Arc::clone(&name));
            self.refresh(fleet, &name, None);
        }
    }

    /// Sends a name even if the client has it, and keeps the resource for the client until [`TypeState::release`] even
    /// if it is removed. A missing resource is reported immediately.
    pub(crate) fn require(&mut self, fleet: &Fleet, name: &Arc<str>) {
        let current = match self.lookup(fleet, name) {
            Lookup::Serve(resource, _) => Some(resource.clone()),
            Lookup::Keep | Lookup::Missing => None,
        };
        self.required.insert(Arc::clone(name), current);
        if self.subscription.covers(name) {
            self.reported_missing.remove(name);
            self.resend.insert(Arc::clone(name));
            self.refresh(fleet, name, None);
        }
    }

    /// Sends required endpoints without health checks, so that their cluster warms.
    pub(crate) fn uncheck(&mut self, fleet: &Fleet, name: Arc<str>) {
        self.unchecked.insert(Arc::clone(&name));
        self.refresh(fleet, &name, None);
    }

    /// The form of a resource to send now.
    fn form<'a>(&self, resource: &'a Resource) -> Cow<'a, Resource> {
        let unchecked = self.unchecked.contains(resource.name());
        let unchecked = unchecked.then(|| wire::unchecked(resource)).flatten();
        unchecked.map_or(Cow::Borrowed(resource), Cow::Owned)
    }

    /// Ends [`TypeState::require`] and [`TypeState::uncheck`].
    pub(crate) fn release(&mut self, fleet: &Fleet, name: &Arc<str>) {
        self.unchecked.remove(name);
        if self.required.remove(name).is_some() {
            if self.required.is_empty() {
                // At the start of a stream all endpoints are required, and a map doesn't free memory on its own.
                self.required = HashMap::new();
            }
            self.refresh(fleet, name, None);
        }
    }

    /// Looks up what to send to this client for a name.
    fn lookup<'a>(&'a self, fleet: &'a Fleet, name: &str) -> Lookup<'a> {
        match fleet.lookup(self.ty, name, self.rejected.get(name).copied()) {
            Lookup::Missing => match self.required.get(name) {
                Some(Some(kept)) => Lookup::Serve(kept, fleet.epoch()),
                _ => Lookup::Missing,
            },
            lookup => lookup,
        }
    }

    pub(crate) fn status(&self) -> TypeStatus {
        let probing: usize = self.probes.iter().map(Vec::len).sum();
        let in_flight = self.in_flight.as_ref();
        let in_flight = in_flight.map_or(0, |sent| sent.upserts.len());
        TypeStatus {
            resource_type: self.ty,
            wildcard: self.subscription.wildcard(),
            subscribed: self.subscription.names().len(),
            sent: self.sent,
            acked: self.versions.len().saturating_sub(in_flight),
            pending: self.upserts.len() + self.removals.len() + self.missing.len() + probing,
            nacks: self.nacks,
        }
    }
}
