//! One type of resource on one stream.
//!
//! In: what the client asks for and acknowledges, what changed in the fleet, and the epochs up to
//! which things may go. Out: batches to send, one at a time.
//! It must not know: the other types, or IO. Costs follow what changed, not what there is.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crate::fleet::{Fleet, Offer, TypeStatus};
use crate::nack::{self, Accused};
use crate::ordering::Floor;
use crate::pending::{Pending, Stamps};
use crate::resource::{Resource, ResourceType, Version};
use crate::subscription::{Asked, Subscription};

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
    /// The version of a name that this client itself rejected last.
    refused: HashMap<Arc<str>, Version>,
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
    pub(crate) fn new(ty: ResourceType) -> Lane {
        Lane {
            ty,
            subscription: Subscription::default(),
            held: HashMap::new(),
            make: Pending::default(),
            unmake: Pending::default(),
            absent: BTreeSet::new(),
            told: HashSet::new(),
            force: HashSet::new(),
            urgent: HashMap::new(),
            refused: HashMap::new(),
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
            self.vouch(fleet);
        }
        self.drop_names(fleet, &asked);
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
                self.force.remove(name);
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

    /// The next response, if there is something that may go. Only when [`Lane::idle`].
    pub(crate) fn compose(
        &mut self,
        fleet: &mut Fleet,
        allowance: Allowance,
        nonce: &str,
        now: Instant,
    ) -> Option<Batch> {
        let mut batch = Batch::default();
        let mut items = Vec::new();
        let mut floor = Floor::default();
        if self.probe_first {
            items = self.compose_probe(fleet, &mut batch);
        }
        if batch.upserts.is_empty() {
            items = self.compose_changes(fleet, allowance, &mut batch);
            floor.unmake = self.compose_removals(fleet, allowance, &mut batch);
            self.probe_first = true;
        } else {
            self.probe_first = false;
        }
        if batch.upserts.is_empty() && batch.removals.is_empty() {
            items = self.compose_probe(fleet, &mut batch);
            if items.is_empty() {
                return None;
            }
            self.probe_first = false;
        }
        floor.make = items.iter().map(|item| item.stamps.first).min();
        self.sent += items.len() as u64;
        self.in_flight = Some(InFlight {
            nonce: nonce.to_owned(),
            upserts: items,
            floor,
            since: now,
        });
        Some(batch)
    }

    fn compose_changes(
        &mut self,
        fleet: &mut Fleet,
        allowance: Allowance,
        batch: &mut Batch,
    ) -> Vec<Item> {
        let mut items = Vec::new();
        let mut bytes = 0;
        while bytes < allowance.bytes {
            let Some((name, stamps)) = self.make.pop_below(allowance.make) else {
                break;
            };
            self.examined += 1;
            let before = self.held.get(&name).copied();
            match self.offer(fleet, &name) {
                Offer::Serve(resource, _) => {
                    let resource = resource.clone();
                    let version = resource.version();
                    let forced = self.force.remove(&name);
                    if forced || before != Some(version) {
                        bytes += name.len() + resource.body().len();
                        batch.upserts.push(resource);
                        self.held.insert(Arc::clone(&name), version);
                        items.push(Item {
                            name,
                            version,
                            stamps,
                            before,
                        });
                    }
                }
                // Rejected by somebody since it was marked.
                Offer::Keep | Offer::Absent => self.consider(fleet, &name, Some(stamps.first)),
            }
        }
        items
    }

    /// Adds removals; gives the oldest epoch that they complete.
    fn compose_removals(
        &mut self,
        fleet: &Fleet,
        allowance: Allowance,
        batch: &mut Batch,
    ) -> Option<u64> {
        let mut floor: Option<u64> = None;
        let mut bytes = 0;
        while bytes < allowance.bytes {
            let Some((name, stamps)) = self.unmake.pop_below(allowance.unmake) else {
                break;
            };
            self.examined += 1;
            bytes += name.len();
            floor = Some(floor.map_or(stamps.first, |floor| floor.min(stamps.first)));
            self.held.remove(&name);
            if self.subscription.named(&name) {
                self.told.insert(Arc::clone(&name));
            }
            batch.removals.push(name);
        }
        while bytes < allowance.bytes {
            let Some(name) = self.absent.pop_first() else {
                break;
            };
            self.examined += 1;
            let nothing = !matches!(self.offer(fleet, &name), Offer::Serve(..));
            if nothing && self.waits_for(&name) {
                bytes += name.len();
                self.unmake.remove(&name);
                self.held.remove(&name);
                self.told.insert(Arc::clone(&name));
                batch.removals.push(name);
            }
        }
        floor
    }

    /// The next part of a rejected response that is still what the client should get.
    fn compose_probe(&mut self, fleet: &mut Fleet, batch: &mut Batch) -> Vec<Item> {
        while let Some(group) = self.probes.pop_front() {
            let mut items = Vec::new();
            for item in group {
                self.examined += 1;
                match self.offer(fleet, &item.name) {
                    Offer::Serve(resource, _)
                        if resource.version() == item.version
                            && self.subscription.wants(&item.name) =>
                    {
                        batch.upserts.push(resource.clone());
                        self.held.insert(Arc::clone(&item.name), item.version);
                        items.push(item);
                    }
                    _ => self.consider(fleet, &item.name, Some(item.stamps.first)),
                }
            }
            if !items.is_empty() {
                return items;
            }
        }
        Vec::new()
    }

    /// The client's word on the response with this nonce: acknowledged, or rejected with a message.
    /// Gives the names of the additions it was about; nothing if it was not the one under way.
    pub(crate) fn verdict(
        &mut self,
        fleet: &mut Fleet,
        nonce: &str,
        rejection: Option<&str>,
    ) -> Vec<Arc<str>> {
        let Some(flight) = self.in_flight.take_if(|flight| flight.nonce == nonce) else {
            return Vec::new();
        };
        let names: Vec<Arc<str>> = flight
            .upserts
            .iter()
            .map(|item| Arc::clone(&item.name))
            .collect();
        match rejection {
            None => self.accept(fleet, flight.upserts),
            Some(message) => {
                self.nacks += 1;
                self.reject(fleet, flight.upserts, message);
            }
        }
        names
    }

    fn accept(&mut self, fleet: &mut Fleet, items: Vec<Item>) {
        for item in items {
            fleet.acked(self.ty, &item.name, item.version);
            self.refused.remove(&item.name);
        }
    }

    fn reject(&mut self, fleet: &mut Fleet, mut items: Vec<Item>, message: &str) {
        if items.len() <= 1 {
            if let Some(item) = items.pop() {
                self.convict(fleet, item, message);
            }
            return;
        }
        let names: Vec<&Arc<str>> = items.iter().map(|item| &item.name).collect();
        match nack::accused(self.ty, message, &names) {
            Accused::These { culprit, suspects } => {
                let mut applied = Vec::new();
                for (index, item) in items.into_iter().enumerate() {
                    if index == culprit {
                        self.convict(fleet, item, message);
                    } else if suspects.binary_search(&index).is_ok() {
                        self.doubt(&item);
                        self.probes.push_back(vec![item]);
                    } else {
                        applied.push(item);
                    }
                }
                self.accept(fleet, applied);
            }
            Accused::Unknown => {
                for item in &items {
                    self.doubt(item);
                }
                let second = items.split_off(items.len() / 2);
                self.probes.push_front(second);
                self.probes.push_front(items);
            }
        }
        self.probe_first = true;
    }

    /// It isn't known which version the client has now.
    fn doubt(&mut self, item: &Item) {
        if self.held.get(&item.name) == Some(&item.version) {
            self.held.insert(Arc::clone(&item.name), Version::UNKNOWN);
        }
    }

    /// This one is at fault: the client goes on having what it had.
    fn convict(&mut self, fleet: &mut Fleet, item: Item, message: &str) {
        fleet.rejected(self.ty, &item.name, item.version, message);
        if !self.subscription.wants(&item.name) {
            return;
        }
        if self.held.get(&item.name) == Some(&item.version) {
            match item.before {
                Some(version) => self.held.insert(Arc::clone(&item.name), version),
                None => self.held.remove(&item.name),
            };
        }
        self.refused.insert(Arc::clone(&item.name), item.version);
        self.consider(fleet, &item.name, Some(item.stamps.first));
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
