//! One type of resource on one stream.
//!
//! In: what the client asks for and acknowledges, what changed in the fleet, and the epochs up to
//! which things may go. Out: batches to send, one at a time.
//! It must not know: the other types, or IO. Costs follow what changed, not what there is.

mod compose;
mod verdict;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crate::fleet::{Fleet, Offer, TypeStatus};
use crate::ordering::Floor;
use crate::pending::{Pending, Stamps};
use crate::resource::{Resource, ResourceType, Version};
use crate::subscription::{Asked, Subscription};
use crate::thrift;

/// A resource under way to the client.
#[derive(Debug, Clone)]
struct Item {
    name: Arc<str>,
    version: Version,
    stamps: Stamps,
    /// What the client had before, which it goes on having if it rejects this.
    before: Option<Version>,
}

/// The response that is to be acknowledged.
#[derive(Debug)]
struct InFlight {
    nonce: String,
    upserts: Vec<Item>,
    /// The oldest epochs that its additions and removals complete.
    floor: Floor,
    since: Instant,
}

/// What goes out in one response.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) upserts: Vec<Resource>,
    pub(crate) removals: Vec<Arc<str>>,
}

/// How much may go out now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    /// Additions whose latest change was before this epoch.
    pub(crate) make: u64,
    /// Removals before this epoch.
    pub(crate) unmake: u64,
    /// Bytes after which the rest waits for the next response.
    pub(crate) bytes: usize,
}

/// The state of one type on one stream.
#[derive(Debug)]
pub(crate) struct Lane {
    ty: ResourceType,
    /// The number of the client.
    client: u64,
    subscription: Subscription,
    /// What the client has, or will have when it has taken what is under way. A rejection puts
    /// things right again.
    held: HashMap<Arc<str>, Version>,
    make: Pending,
    unmake: Pending,
    /// Names that the client asked for and is to be told there is nothing.
    absent: BTreeSet<Arc<str>>,
    /// Names that the client asked for and has been told there is nothing.
    told: HashSet<Arc<str>>,
    /// Names to send even if the client has the version.
    force: HashSet<Arc<str>>,
    /// Names that the client can't do without for now, with what there was when that began.
    urgent: HashMap<Arc<str>, Option<Resource>>,
    /// The version of a name that this client itself rejected last, and the epoch in which the name had
    /// changed by then: if it changes again, if only back and forth, it is to be tried again.
    refused: HashMap<Arc<str>, (Version, u64)>,
    /// The client asked for all, brought nothing and has had no response: it is owed one even if there is nothing, since
    /// Envoy asks for no listeners before it has heard of its clusters.
    owed: bool,
    in_flight: Option<InFlight>,
    /// Parts of a rejected response, to be sent by themselves until it is known what is at fault.
    probes: VecDeque<Vec<Item>>,
    /// Probes and the rest take turns, so that neither waits for all of the other.
    probe_first: bool,
    sent: u64,
    nacks: u64,
    /// Names looked at so far: the measure of this lane's work.
    examined: u64,
}

impl Lane {
    pub(crate) fn new(ty: ResourceType, client: u64) -> Lane {
        Lane {
            ty,
            client,
            subscription: Subscription::default(),
            held: HashMap::new(),
            make: Pending::default(),
            unmake: Pending::default(),
            absent: BTreeSet::new(),
            told: HashSet::new(),
            force: HashSet::new(),
            urgent: HashMap::new(),
            refused: HashMap::new(),
            owed: false,
            in_flight: None,
            probes: VecDeque::new(),
            probe_first: false,
            sent: 0,
            nacks: 0,
            examined: 0,
        }
    }

    pub(crate) fn subscription(&self) -> &Subscription {
        &self.subscription
    }

    #[cfg(test)]
    pub(crate) fn examined(&self) -> u64 {
        self.examined
    }

    /// The client has asked for this type, unless it is one that not every client asks for.
    pub(crate) fn asked_if_root(&self) -> bool {
        self.subscription.started() || !self.ty.root()
    }

    /// Nothing is under way, so something may be sent.
    pub(crate) fn idle(&self) -> bool {
        self.in_flight.is_none()
    }

    /// Since when additions have been waiting for the client's word.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.in_flight
            .as_ref()
            .filter(|flight| !flight.upserts.is_empty())
            .map(|flight| flight.since)
    }

    /// Starts the clock of [`Lane::waiting_since`] again.
    pub(crate) fn wait_again(&mut self, now: Instant) {
        if let Some(flight) = &mut self.in_flight {
            flight.since = now;
        }
    }

    /// The oldest removal that waits.
    pub(crate) fn next_removal(&self) -> Option<u64> {
        self.unmake.next()
    }

    /// The oldest epochs that the client lacks something of.
    pub(crate) fn floor(&self) -> Floor {
        let flight = self.in_flight.as_ref().map(|flight| flight.floor);
        let probes = self.probes.iter().flatten().map(|item| item.stamps.first);
        let flying = flight.unwrap_or_default();
        Floor {
            make: probes.chain(flying.make).chain(self.make.floor()).min(),
            unmake: flying.unmake.into_iter().chain(self.unmake.floor()).min(),
        }
    }

    /// Takes a request's names and, with the first request, the versions that the client has.
    pub(crate) fn ask(
        &mut self,
        fleet: &mut Fleet,
        subscribe: &[String],
        unsubscribe: &[String],
        brought: &HashMap<String, String>,
    ) {
        let ty = self.ty;
        let shared = |name: &str| fleet.shared_name(ty, name).unwrap_or_else(|| name.into());
        let asked = self
            .subscription
            .request(ty, subscribe, unsubscribe, shared);
        if asked.first {
            for (name, version) in brought {
                if self.subscription.wants(name) {
                    self.held.insert(shared(name), Version::parse(version));
                }
            }
            self.owed = asked.all && self.held.is_empty();
            self.vouch(fleet);
        }
        self.drop_names(fleet, &asked);
        self.tighten();
        for name in &asked.names {
            let has = asked.first && self.held.contains_key(name);
            if !has {
                // A client that asks has nothing, whatever it was sent before.
                self.held.remove(name);
                self.told.remove(name);
            }
            if !has || self.urgent.contains_key(name) {
                self.force.insert(Arc::clone(name));
            }
            if fleet.ready() {
                self.consider(fleet, name, Some(0));
            }
        }
        if asked.all && fleet.ready() {
            self.compare_all(fleet);
        }
    }

    /// Tells the fleet that what the client brought along is acknowledged. Only before anything is sent.
    pub(crate) fn vouch(&self, fleet: &mut Fleet) {
        for (name, version) in &self.held {
            fleet.acked(self.ty, name, *version);
        }
    }

    fn drop_names(&mut self, fleet: &mut Fleet, asked: &Asked) {
        if asked.not_all {
            let Lane {
                subscription,
                held,
                make,
                unmake,
                force,
                refused,
                ..
            } = self;
            held.retain(|name, _| subscription.named(name));
            make.retain(|name| subscription.named(name));
            unmake.retain(|name| subscription.named(name));
            force.retain(|name| subscription.named(name));
            refused.retain(|name, _| subscription.named(name));
        }
        for name in &asked.dropped {
            self.absent.remove(name);
            self.told.remove(name);
            if self.subscription.wildcard() {
                // Still covered by `*`: the protocol wants the client to be told again.
                self.held.remove(name);
                self.force.insert(Arc::clone(name));
                if fleet.ready() {
                    self.consider(fleet, name, Some(0));
                }
            } else {
                self.held.remove(name);
                self.make.remove(name);
                self.unmake.remove(name);
                self.force.remove(name);
                self.refused.remove(name);
            }
        }
    }

    /// Gives back memory of what was once waited for or had.
    fn tighten(&mut self) {
        self.subscription.tighten();
        thrift::map(&mut self.held);
        thrift::set(&mut self.told);
        thrift::set(&mut self.force);
    }

    /// Compares all that the client wants or has with all that there is. Costs as much as that is,
    /// so it is done only when a client asks for all, or lags too far behind the log.
    pub(crate) fn compare_all(&mut self, fleet: &mut Fleet) {
        let mut names: Vec<Arc<str>> = self.subscription.names().iter().cloned().collect();
        if self.subscription.wildcard() {
            names.extend(fleet.names(self.ty).cloned());
            names.extend(self.held.keys().cloned());
        }
        for name in &names {
            self.consider(fleet, name, Some(0));
        }
    }

    /// Looks at one name again: does the client lack something of it? `since` is the epoch from
    /// which it may lack it, by default that of the latest change.
    pub(crate) fn consider(&mut self, fleet: &mut Fleet, name: &Arc<str>, since: Option<u64>) {
        self.examined += 1;
        if !self.subscription.wants(name) {
            return;
        }
        // What it lacked already it goes on lacking, whichever way the name has turned since.
        let waited = [self.make.remove(name), self.unmake.remove(name)];
        let waited = waited.into_iter().flatten().map(|stamps| stamps.first);
        let since = waited.chain(since).min();
        match self.offer(fleet, name) {
            Offer::Serve(resource, changed) => {
                let version = resource.version();
                self.absent.remove(name);
                if self.held.get(name) != Some(&version) || self.force.contains(name) {
                    let first = since.unwrap_or(changed);
                    let last = changed;
                    self.make.add(name, Stamps { first, last });
                }
            }
            Offer::Keep => {
                // What the client can't do without it gets as soon as there is a version to be had, even if
                // that is the one it has.
                if !self.urgent.contains_key(name) {
                    self.force.remove(name);
                }
                self.tell_absent(name);
            }
            Offer::Absent => {
                self.force.remove(name);
                self.refused.remove(name);
                if self.held.contains_key(name) {
                    let last = fleet.epoch();
                    let first = since.unwrap_or(last);
                    self.unmake.add(name, Stamps { first, last });
                }
                self.tell_absent(name);
            }
        }
    }

    /// There is nothing for a name: the client is owed that word once, lest it wait.
    fn tell_absent(&mut self, name: &Arc<str>) {
        if self.waits_for(name) && !self.told.contains(name) {
            self.absent.insert(Arc::clone(name));
        }
    }

    /// The client asked for a name and goes on waiting until it is answered.
    fn waits_for(&self, name: &str) -> bool {
        let lacks = !self.held.contains_key(name) || self.urgent.contains_key(name);
        self.subscription.named(name) && lacks
    }

    /// Everything that the client wants is sent once more, even if it has it.
    pub(crate) fn send_again(&mut self, fleet: &mut Fleet) {
        if !self.subscription.wildcard() {
            // By name it asks itself.
            return;
        }
        let names: Vec<Arc<str>> = self.held.keys().cloned().collect();
        for name in names {
            self.force.insert(Arc::clone(&name));
            self.consider(fleet, &name, None);
        }
    }

    /// From now on the client can't do without a name: it is sent even if the client has it, what
    /// there is now is kept for it even if it is removed, and if there is nothing it is told so at once.
    pub(crate) fn need(&mut self, fleet: &mut Fleet, name: &Arc<str>) {
        let there_is = match self.offer(fleet, name) {
            Offer::Serve(resource, _) => Some(resource.clone()),
            Offer::Keep | Offer::Absent => None,
        };
        self.urgent.insert(Arc::clone(name), there_is);
        if self.subscription.wants(name) {
            self.told.remove(name);
            self.force.insert(Arc::clone(name));
            self.consider(fleet, name, None);
        }
    }

    /// The opposite of [`Lane::need`].
    pub(crate) fn need_no_more(&mut self, fleet: &mut Fleet, name: &Arc<str>) {
        if self.urgent.remove(name).is_some() {
            if self.urgent.is_empty() {
                // At the start every cluster is in need: a map doesn't give back memory by itself.
                self.urgent = HashMap::new();
            }
            self.consider(fleet, name, None);
        }
    }

    /// What there is under a name for this client.
    fn offer<'a>(&'a self, fleet: &'a Fleet, name: &str) -> Offer<'a> {
        match fleet.offer(self.ty, name, self.refused.get(name).copied()) {
            Offer::Absent => match self.urgent.get(name) {
                Some(Some(kept)) => Offer::Serve(kept, fleet.epoch()),
                _ => Offer::Absent,
            },
            offer => offer,
        }
    }

    pub(crate) fn status(&self) -> TypeStatus {
        let probing: usize = self.probes.iter().map(Vec::len).sum();
        let flying = self.in_flight.as_ref();
        let flying = flying.map_or(0, |flight| flight.upserts.len());
        TypeStatus {
            resource_type: self.ty,
            wildcard: self.subscription.wildcard(),
            subscribed: self.subscription.names().len(),
            sent: self.sent,
            acked: self.held.len().saturating_sub(flying),
            pending: self.make.len() + self.unmake.len() + self.absent.len() + probing,
            nacks: self.nacks,
        }
    }
}
