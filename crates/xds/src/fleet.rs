//! The state that all clients of a fleet share: resources, the log of their changes, and which versions clients have accepted.
//!
//! No IO: the caller locks, wakes streams and publishes events. Every operation costs what it touches, not the fleet's size.

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

/// The log keeps this many changes, or two per resource if that is more. A client that lags further behind compares all
/// resources instead.
const MIN_LOG: usize = 4096;
/// How many epochs have their revision kept. A client that lags further behind reports progress when it has caught up.
const REVISIONS: usize = 4096;
/// How many bytes of a client's error are kept.
const MESSAGE_BYTES: usize = 4096;

/// One resource.
#[derive(Debug)]
struct Entry {
    current: Resource,
    /// The epoch of `current`.
    changed: u64,
    /// A client has acknowledged `current`.
    acked: bool,
    /// The connected clients that have rejected `current`.
    rejected_by: Vec<u64>,
    /// The last acknowledged version, while `current` isn't acknowledged. Boxed, since it is mostly `None`.
    last_good: Option<Box<Resource>>,
}

/// What to send to a client for a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup<'a> {
    /// This version. The name last changed in this epoch.
    Serve(&'a Resource, u64),
    /// The resource exists, but has no version that the client can be sent: the client keeps what it has.
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
    /// The number of updates so far. Nothing is served before the first one.
    epoch: u64,
    removed: bool,
    /// Entries are boxed, since a third or more of a map's slots is empty.
    tables: [HashMap<Arc<str>, Box<Entry>>; ResourceType::ALL.len()],
    log: VecDeque<Change>,
    /// The position of the first change in the log since the fleet's creation.
    log_start: u64,
    /// The revisions of the latest epochs, up to the current one.
    revisions: VecDeque<u64>,
    /// The resources that wait for an accepted version.
    rejections: BTreeMap<(ResourceType, Arc<str>), Rejection>,
    clients: BTreeMap<u64, ClientStatus>,
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
        let resources: usize = self.tables.iter().map(HashMap::len).sum();
        let keep = MIN_LOG.max(2 * resources);
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
        // The name that the table and the streams share, not a new copy.
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

    /// A client has acknowledged this version, or had it when it connected.
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

    /// Ends the rejection of a resource, if there is one.
    fn recover(&mut self, ty: ResourceType, name: &Arc<str>) {
        if self.rejections.remove(&(ty, Arc::clone(name))).is_some() {
            self.events.push(XdsEvent::Recovered {
                fleet: self.id.clone(),
                resource_type: ty,
                name: Arc::clone(name),
            });
        }
    }

    /// A client has rejected this version. Ignored if the version has been replaced since.
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
        self.events.push(XdsEvent::Rejected {
            fleet: self.id.clone(),
            rejection,
        });
    }

    /// What to send for a name. `rejected` is the version that this client itself rejected last, and the epoch in which the
    /// name had last changed by then.
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

    /// The table's copy of a name, which all subscriptions share.
    pub(crate) fn shared_name(&self, ty: ResourceType, name: &str) -> Option<Arc<str>> {
        let (name, _) = self.tables[ty.index()].get_key_value(name)?;
        Some(Arc::clone(name))
    }

    pub(crate) fn has_any(&self, ty: ResourceType) -> bool {
        !self.tables[ty.index()].is_empty()
    }

    /// The first update has been applied.
    pub(crate) fn ready(&self) -> bool {
        self.epoch > 0
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The position after the last change in the log.
    pub(crate) fn log_end(&self) -> u64 {
        self.log_start + self.log.len() as u64
    }

    /// The changes since a position, if the log still has them all.
    pub(crate) fn changes_since(&self, position: u64) -> Option<Iter<'_, Change>> {
        let index = usize::try_from(position.checked_sub(self.log_start)?).ok()?;
        Some(self.log.range(index..))
    }

    /// The revision of an epoch, if it is still kept.
    pub(crate) fn revision(&self, epoch: u64) -> Option<u64> {
        let age = usize::try_from(self.epoch.checked_sub(epoch)?).ok()?;
        self.revisions.iter().rev().nth(age).copied()
    }

    pub(crate) fn id(&self) -> &FleetId {
        &self.id
    }

    /// Marks the fleet as removed: its streams end.
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

    /// Whether a listener or route is rejected. Clients may use an older version of it then, whose clusters must stay.
    pub(crate) fn has_rejected_traffic(&self) -> bool {
        // Keys are sorted by type, and the types that lead to clusters are the last ones.
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

    /// A client has connected.
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

    /// A client has disconnected. Its rejections end: the cause may have been its machine, so the next client may try.
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
        if let Some(client) = self.clients.remove(&stream) {
            let id = self.client_id(stream, &client.node_id);
            self.events.push(XdsEvent::Disconnected(id));
        }
    }

    pub(crate) fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// Stores the state of a client's stream.
    pub(crate) fn report(&mut self, stream: u64, types: impl Iterator<Item = TypeStatus>) {
        if let Some(client) = self.clients.get_mut(&stream) {
            client.types.clear();
            client.types.extend(types);
        }
    }

    /// A client has acknowledged all of this revision.
    pub(crate) fn progressed(&mut self, stream: u64, revision: u64) {
        let Some(client) = self.clients.get_mut(&stream) else {
            return;
        };
        client.acked_revision = Some(revision);
        let node_id = Arc::clone(&client.node_id);
        let client = self.client_id(stream, &node_id);
        self.events.push(XdsEvent::Acked { client, revision });
    }

    /// A client has not acknowledged its clusters in time.
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
