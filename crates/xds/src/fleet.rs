//! State shared by all clients of a fleet: resources, their change log, and the versions that clients have accepted.
//!
//! No IO: the caller locks, wakes streams and publishes events. The cost of an operation depends on what it touches,
//! not on the fleet's size.

use std::collections::vec_deque::Iter;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

mod status;
#[cfg(test)]
mod tests;

pub use status::{ClientStatus, FleetStatus, Rejection, TypeStatus};

use crate::event::{ClientId, XdsEvent};
use crate::nack;
use crate::resource::{FleetId, Resource, ResourceType, Update, Version};
use crate::shrink;

/// The log keeps this many changes, or two per resource if that is more. A client that falls further behind compares
/// all resources instead.
const MIN_LOG: usize = 4096;
/// Number of epochs whose revision is kept. A client that falls further behind reports progress only once it has caught
/// up.
const REVISIONS: usize = 4096;
/// Maximum length of a client's error, in bytes; the rest is dropped.
const MESSAGE_BYTES: usize = 4096;

/// One resource.
#[derive(Debug)]
struct Entry {
    current: Resource,
    /// The epoch of `current`.
    changed: u64,
    /// Whether a client has acknowledged `current`.
    acked: bool,
    /// Connected clients that have rejected `current`.
    rejected_by: Vec<u64>,
    /// The last acknowledged version, while `current` isn't acknowledged. Boxed because it is usually `None`.
    last_good: Option<Box<Resource>>,
}

/// Which version of a resource to send to a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup<'a> {
    /// The version to send, and the epoch in which the name last changed.
    Serve(&'a Resource, u64),
    /// The resource exists, but no version of it may be sent to this client, which keeps what it has.
    Keep,
    /// There is no such resource.
    Missing,
}

/// One change in the log.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) epoch: u64,
    pub(crate) ty: ResourceType,
    pub(crate) name: Arc<str>,
}

/// The state of one fleet.
#[derive(Debug)]
pub(crate) struct Fleet {
    id: FleetId,
    /// Number of updates so far. Nothing is served before the first update.
    epoch: u64,
    removed: bool,
    /// Entries are boxed because a third or more of a map's slots are empty.
    tables: [HashMap<Arc<str>, Box<Entry>>; ResourceType::ALL.len()],
    log: VecDeque<Change>,
    /// The position of the log's first change, counted from the fleet's creation.
    log_start: u64,
    /// The revisions of the latest epochs, up to the current one.
    revisions: VecDeque<u64>,
    /// Rejected resources that await an accepted version.
    rejections: BTreeMap<(ResourceType, Arc<str>), Rejection>,
    clients: BTreeMap<u64, ClientStatus>,
    /// The sizes of the names that clients' streams hold.
    held: HashMap<u64, usize>,
    /// The sum of `held`.
    held_in_all: usize,
    events: Vec<XdsEvent>,
}

impl Fleet {
    pub(crate) fn new(id: FleetId) -> Fleet {
        Fleet {
            id,
            epoch: 0,
            removed: false,
            tables: Default::default(),
            log: VecDeque::new(),
            log_start: 0,
            revisions: VecDeque::new(),
            rejections: BTreeMap::new(),
            clients: BTreeMap::new(),
            held: HashMap::new(),
            held_in_all: 0,
            events: Vec::new(),
        }
    }

    /// Applies the next update.
    pub(crate) fn apply(&mut self, update: Update) {
        self.epoch += 1;
        self.revisions.push_back(update.revision);
        if self.revisions.len() > REVISIONS {
            self.revisions.pop_front();
        }
        for (ty, name) in update.removals {
            if let Some((name, _)) = self.tables[ty.index()].remove_entry(&name) {
                self.recover(ty, &name);
                self.log_change(ty, &name);
            }
        }
        for (ty, resource) in update.upserts {
            self.upsert(ty, resource);
        }
        let keep = MIN_LOG.max(2 * self.resource_count());
        while self.log.len() > keep {
            self.log.pop_front();
            self.log_start += 1;
        }
        shrink::queue(&mut self.log);
        self.tables.iter_mut().for_each(shrink::map);
    }

    fn upsert(&mut self, ty: ResourceType, resource: Resource) {
        let epoch = self.epoch;
        let Some(entry) = self.tables[ty.index()].get_mut(resource.name()) else {
            let name = Arc::clone(resource.name());
            self.log_change(ty, &name);
            let entry = Entry {
                current: resource,
                changed: epoch,
                acked: false,
                rejected_by: Vec::new(),
                last_good: None,
            };
            self.tables[ty.index()].insert(name, Box::new(entry));
            return;
        };
        let version = resource.version();
        if entry.current.version() == version {
            return;
        }
        // Reuse the name shared by the table and the streams instead of copying it.
        let name = Arc::clone(entry.current.name());
        let before = std::mem::replace(&mut entry.current, resource);
        if entry.acked {
            entry.last_good = Some(Box::new(before));
        }
        entry.changed = epoch;
        entry.rejected_by.clear();
        entry.acked = false;
        let last_good = entry.last_good.as_ref().map(|good| good.version());
        self.log_change(ty, &name);
        if last_good == Some(version) {
            self.acked(ty, &name, version);
        }
    }

    fn log_change(&mut self, ty: ResourceType, name: &Arc<str>) {
        self.log.push_back(Change {
            epoch: self.epoch,
            ty,
            name: Arc::clone(name),
        });
    }

    /// Records that a client has acknowledged this version, or already had it when it connected.
    pub(crate) fn acked(&mut self, ty: ResourceType, name: &Arc<str>, version: Version) {
        let Some(entry) = self.tables[ty.index()].get_mut(name) else {
            return;
        };
        if entry.current.version() != version || entry.acked {
            return;
        }
        entry.acked = true;
        entry.last_good = None;
        let unanimous = entry.rejected_by.is_empty();
        if self.rejections.contains_key(&(ty, Arc::clone(name))) {
            // The version was withheld from the other clients until now.
            self.log_change(ty, name);
            if unanimous {
                self.recover(ty, name);
            }
        }
    }

    /// Ends a resource's rejection, if any.
    fn recover(&mut self, ty: ResourceType, name: &Arc<str>) {
        if self.rejections.remove(&(ty, Arc::clone(name))).is_some() {
            self.events.push(XdsEvent::Recovered {
                fleet: self.id.clone(),
                resource_type: ty,
                name: Arc::clone(name),
            });
        }
    }

    /// Records that a client has rejected this version; does nothing if the version has been replaced since.
    pub(crate) fn rejected(
        &mut self,
        client: u64,
        ty: ResourceType,
        name: &Arc<str>,
        version: Version,
        message: &str,
    ) {
        let Some(entry) = self.tables[ty.index()].get_mut(name) else {
            return;
        };
        if entry.current.version() != version || self.removed {
            return;
        }
        entry.rejected_by.push(client);
        if entry.rejected_by.len() > 1 {
            return;
        }
        let message = nack::without_dump(message);
        let rejection = Rejection {
            resource_type: ty,
            name: Arc::clone(name),
            version,
            message: message[..message.floor_char_boundary(MESSAGE_BYTES)].into(),
        };
        let key = (ty, Arc::clone(name));
        self.rejections.insert(key, rejection.clone());
        let last_good = match entry.acked {
            true => Some(&entry.current),
            false => entry.last_good.as_deref(),
        };
        self.events.push(XdsEvent::Rejected {
            fleet: self.id.clone(),
            rejection,
            body: entry.current.body().clone(),
            last_good: last_good.map(|good| good.body().clone()),
        });
    }

    /// Looks up a name for a client. `rejected` is the version that this client last rejected, and the epoch of the
    /// name's latest change at that time.
    pub(crate) fn lookup(
        &self,
        ty: ResourceType,
        name: &str,
        rejected: Option<(Version, u64)>,
    ) -> Lookup<'_> {
        let Some(entry) = self.tables[ty.index()].get(name) else {
            return Lookup::Missing;
        };
        let usable = if !entry.rejected_by.is_empty() && !entry.acked {
            entry.last_good.as_deref()
        } else {
            Some(&entry.current)
        };
        match usable {
            Some(resource) if rejected != Some((resource.version(), entry.changed)) => {
                Lookup::Serve(resource, entry.changed)
            }
            _ => Lookup::Keep,
        }
    }

    /// The epoch in which a resource last changed, if it exists.
    pub(crate) fn changed(&self, ty: ResourceType, name: &str) -> Option<u64> {
        let entry = self.tables[ty.index()].get(name)?;
        Some(entry.changed)
    }

    /// All names of a type, unordered.
    pub(crate) fn names(&self, ty: ResourceType) -> impl Iterator<Item = &Arc<str>> {
        self.tables[ty.index()].keys()
    }

    /// The table's copy of a name, shared by all subscriptions.
    pub(crate) fn shared_name(&self, ty: ResourceType, name: &str) -> Option<Arc<str>> {
        let (name, _) = self.tables[ty.index()].get_key_value(name)?;
        Some(Arc::clone(name))
    }

    pub(crate) fn has_any(&self, ty: ResourceType) -> bool {
        !self.tables[ty.index()].is_empty()
    }

    /// The number of resources of all types.
    pub(crate) fn resource_count(&self) -> usize {
        self.tables.iter().map(HashMap::len).sum()
    }

    /// The size of the names that the streams of all clients hold.
    pub(crate) fn held(&self) -> usize {
        self.held_in_all
    }

    /// Sets the size of the names that a client's stream holds.
    pub(crate) fn hold(&mut self, stream: u64, size: usize) {
        let before = match size {
            0 => self.held.remove(&stream),
            size => self.held.insert(stream, size),
        };
        self.held_in_all += size;
        self.held_in_all -= before.unwrap_or_default();
    }

    /// Whether the first update has been applied.
    pub(crate) fn ready(&self) -> bool {
        self.epoch > 0
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The position after the latest change in the log.
    pub(crate) fn log_end(&self) -> u64 {
        self.log_start + self.log.len() as u64
    }

    /// The changes since a position, if the log still has all of them.
    pub(crate) fn changes_since(&self, position: u64) -> Option<Iter<'_, Change>> {
        let index = usize::try_from(position.checked_sub(self.log_start)?).ok()?;
        Some(self.log.range(index..))
    }

    /// The revision of an epoch, if still kept.
    pub(crate) fn revision(&self, epoch: u64) -> Option<u64> {
        let age = usize::try_from(self.epoch.checked_sub(epoch)?).ok()?;
        self.revisions.iter().rev().nth(age).copied()
    }

    pub(crate) fn id(&self) -> &FleetId {
        &self.id
    }

    /// Marks the fleet as removed, which ends its streams.
    pub(crate) fn remove(&mut self) {
        self.removed = true;
        let rejected: Vec<_> = self.rejections.keys().cloned().collect();
        for (ty, name) in rejected {
            self.recover(ty, &name);
        }
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed
    }

    /// Whether a listener or route is rejected. If so, clients may still use an older version, whose clusters must be
    /// kept.
    pub(crate) fn has_rejected_traffic(&self) -> bool {
        // Keys are sorted by type, and the types that refer to clusters come last.
        let last = self.rejections.last_key_value();
        last.is_some_and(|((ty, _), _)| ty.waits_for_clusters())
    }

    /// The number of rejected resources.
    pub(crate) fn rejection_count(&self) -> usize {
        self.rejections.len()
    }

    fn client_id(&self, stream: u64, node_id: &Arc<str>) -> ClientId {
        ClientId {
            fleet: self.id.clone(),
            node_id: Arc::clone(node_id),
            stream,
        }
    }

    /// Adds a client that has connected.
    pub(crate) fn join(&mut self, stream: u64, node_id: Arc<str>) {
        let id = self.client_id(stream, &node_id);
        self.events.push(XdsEvent::Connected(id));
        let client = ClientStatus {
            stream,
            node_id,
            acked_revision: None,
            types: Vec::new(),
        };
        self.clients.insert(stream, client);
    }

    /// Removes a client that has disconnected, and its rejections: the cause may have been its machine, so another
    /// client may try the rejected versions.
    pub(crate) fn leave(&mut self, stream: u64) {
        let mut recovered = Vec::new();
        for (ty, name) in self.rejections.keys() {
            let Some(entry) = self.tables[ty.index()].get_mut(name) else {
                continue;
            };
            let before = entry.rejected_by.len();
            entry.rejected_by.retain(|client| *client != stream);
            if entry.acked && before > 0 && entry.rejected_by.is_empty() {
                recovered.push((*ty, Arc::clone(name)));
            }
        }
        for (ty, name) in recovered {
            self.recover(ty, &name);
        }
        self.hold(stream, 0);
        if let Some(client) = self.clients.remove(&stream) {
            let id = self.client_id(stream, &client.node_id);
            self.events.push(XdsEvent::Disconnected(id));
        }
    }

    /// Stores the state of a client's stream.
    pub(crate) fn report(&mut self, stream: u64, types: impl Iterator<Item = TypeStatus>) {
        if let Some(client) = self.clients.get_mut(&stream) {
            client.types.clear();
            client.types.extend(types);
        }
    }

    /// Records that a client has acknowledged everything up to this revision.
    pub(crate) fn progressed(&mut self, stream: u64, revision: u64) {
        let Some(client) = self.clients.get_mut(&stream) else {
            return;
        };
        client.acked_revision = Some(revision);
        let node_id = Arc::clone(&client.node_id);
        let client = self.client_id(stream, &node_id);
        self.events.push(XdsEvent::Acked { client, revision });
    }

    /// Reports that a client has not acknowledged its clusters in time.
    pub(crate) fn warming_timed_out(&mut self, stream: u64) {
        if let Some(client) = self.clients.get(&stream) {
            let id = self.client_id(stream, &client.node_id);
            self.events.push(XdsEvent::WarmingTimedOut(id));
        }
    }

    /// The events since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<XdsEvent> {
        std::mem::take(&mut self.events)
    }

    pub(crate) fn status(&self) -> FleetStatus {
        let resources = ResourceType::ALL.map(|ty| (ty, self.tables[ty.index()].len()));
        FleetStatus {
            revision: self.revisions.back().copied(),
            resources: resources.to_vec(),
            clients: self.clients.values().cloned().collect(),
            rejections: self.rejections.values().cloned().collect(),
        }
    }
}
