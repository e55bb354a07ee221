//! What all clients of a fleet share: its resources, the log of their changes, and the verdicts.
//!
//! In: updates, from the controller; acknowledgements and rejections, from sessions. Out: which
//! version of a name to send, what changed since a point in the log, events.
//! It must not know: streams, subscriptions or time. No IO; the caller locks and wakes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

mod status;
#[cfg(test)]
mod tests;

pub(crate) use status::Client;
pub use status::{ClientStatus, FleetStatus, Rejection, TypeStatus};

use crate::event::Event;
use crate::nack;
use crate::resource::{FleetId, Resource, ResourceType, Update, Version};
use crate::thrift;

/// Changes that are kept for clients that lag, beside two per resource. A client that lags more
/// compares all it has instead.
const LOG_FLOOR: usize = 4096;
/// Updates whose revisions are kept for clients that lag. One that lags more reports its progress
/// when it has caught up.
const REVISIONS: usize = 4096;
/// Bytes of a client's rejection that are kept.
const MESSAGE_BYTES: usize = 4096;

/// One name of one type.
#[derive(Debug)]
struct Entry {
    current: Resource,
    /// The epoch in which `current` came.
    changed: u64,
    /// Some client has acknowledged `current`.
    acked: bool,
    /// The clients that have rejected `current` and are still there.
    refusers: Vec<u64>,
    /// An earlier version was rejected, and no later one acknowledged: recovery is still to be told.
    troubled: bool,
    /// The last version that was acknowledged, while `current` isn't. Boxed, since mostly there is none.
    good: Option<Box<Resource>>,
}

/// What a fleet has under a name, for one client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Offer<'a> {
    /// This version is to be had; the latest change of the name was in that epoch.
    Serve(&'a Resource, u64),
    /// There is the name, but no version of it that the client could be sent: it keeps what it has.
    Keep,
    /// There is no such name.
    Absent,
}

/// One change in the log.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) epoch: u64,
    pub(crate) ty: ResourceType,
    pub(crate) name: Arc<str>,
}

/// The state of one fleet. Every operation costs what it touches, whatever the fleet's size.
#[derive(Debug)]
pub(crate) struct Fleet {
    id: FleetId,
    /// The number of updates so far; zero: none has come, nothing may be served.
    epoch: u64,
    removed: bool,
    /// Boxed, since a third or more of a map's places stands empty.
    tables: [HashMap<Arc<str>, Box<Entry>>; ResourceType::ALL.len()],
    log: VecDeque<Change>,
    /// The position in the log's whole history of the first change that is still there.
    log_start: u64,
    /// The revisions of the latest epochs, by epoch.
    revisions: VecDeque<(u64, u64)>,
    rejections: BTreeMap<(ResourceType, Arc<str>), Rejection>,
    clients: BTreeMap<u64, Client>,
    events: Vec<Event>,
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

    /// Takes the next step of the config.
    pub(crate) fn apply(&mut self, update: Update) {
        self.epoch += 1;
        self.revisions.push_back((self.epoch, update.revision));
        if self.revisions.len() > REVISIONS {
            self.revisions.pop_front();
        }
        for (ty, name) in update.removals {
            if let Some((name, entry)) = self.tables[ty.index()].remove_entry(&name) {
                if entry.troubled {
                    self.recover(ty, &name);
                }
                self.note(ty, &name);
            }
        }
        for (ty, resource) in update.upserts {
            self.upsert(ty, resource);
        }
        let resources: usize = self.tables.iter().map(HashMap::len).sum();
        let keep = LOG_FLOOR.max(2 * resources);
        while self.log.len() > keep {
            self.log.pop_front();
            self.log_start += 1;
        }
        thrift::queue(&mut self.log);
        self.tables.iter_mut().for_each(thrift::map);
    }

    fn upsert(&mut self, ty: ResourceType, resource: Resource) {
        let epoch = self.epoch;
        let Some(entry) = self.tables[ty.index()].get_mut(resource.name()) else {
            let name = Arc::clone(resource.name());
            self.note(ty, &name);
            let entry = Entry {
                current: resource,
                changed: epoch,
                acked: false,
                refusers: Vec::new(),
                troubled: false,
                good: None,
            };
            self.tables[ty.index()].insert(name, Box::new(entry));
            return;
        };
        if entry.current.version() == resource.version() {
            return;
        }
        // The table's own name goes on being shared, rather than a new copy of it.
        let name = Arc::clone(entry.current.name());
        let before = std::mem::replace(&mut entry.current, resource);
        if entry.acked {
            entry.good = Some(Box::new(before));
        }
        entry.changed = epoch;
        entry.refusers.clear();
        entry.acked = false;
        let back_to_good = entry
            .good
            .as_ref()
            .is_some_and(|good| good.version() == entry.current.version());
        let version = entry.current.version();
        self.note(ty, &name);
        if back_to_good {
            self.acked(ty, &name, version);
        }
    }

    /// Logs that clients should look at a name again.
    fn note(&mut self, ty: ResourceType, name: &Arc<str>) {
        self.log.push_back(Change {
            epoch: self.epoch,
            ty,
            name: Arc::clone(name),
        });
    }

    /// A client has acknowledged this version, or come with it.
    pub(crate) fn acked(&mut self, ty: ResourceType, name: &Arc<str>, version: Version) {
        let Some(entry) = self.tables[ty.index()].get_mut(name) else {
            return;
        };
        if entry.current.version() != version || entry.acked {
            return;
        }
        entry.acked = true;
        entry.good = None;
        if !entry.troubled {
            return;
        }
        let agreed = entry.refusers.is_empty();
        if agreed {
            entry.troubled = false;
        }
        // Whether clients agree or not, those that were refused it until now may have it.
        self.note(ty, name);
        if agreed {
            self.recover(ty, name);
        }
    }

    fn recover(&mut self, ty: ResourceType, name: &Arc<str>) {
        self.rejections.remove(&(ty, Arc::clone(name)));
        self.events.push(Event::Recovered {
            fleet: self.id.clone(),
            resource_type: ty,
            name: Arc::clone(name),
        });
    }

    /// A client has rejected this version. A verdict on a version that has been replaced since is moot.
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
        entry.refusers.push(client);
        if entry.refusers.len() > 1 {
            return;
        }
        entry.troubled = true;
        let message: Arc<str> = shorten(&nack::without_dump(message)).into();
        self.rejections.insert(
            (ty, Arc::clone(name)),
            Rejection {
                resource_type: ty,
                name: Arc::clone(name),
                version,
                message: Arc::clone(&message),
            },
        );
        self.events.push(Event::Rejected {
            fleet: self.id.clone(),
            resource_type: ty,
            name: Arc::clone(name),
            version,
            message,
        });
    }

    /// What there is under a name, for a client that itself refused the version `refused` of it when
    /// the name had last changed in that epoch.
    pub(crate) fn offer(
        &self,
        ty: ResourceType,
        name: &str,
        refused: Option<(Version, u64)>,
    ) -> Offer<'_> {
        let Some(entry) = self.tables[ty.index()].get(name) else {
            return Offer::Absent;
        };
        let usable = if !entry.refusers.is_empty() && !entry.acked {
            entry.good.as_deref()
        } else {
            Some(&entry.current)
        };
        match usable {
            Some(resource) if refused != Some((resource.version(), entry.changed)) => {
                Offer::Serve(resource, entry.changed)
            }
            _ => Offer::Keep,
        }
    }

    /// The epoch in which a name last changed, if it is there.
    pub(crate) fn changed(&self, ty: ResourceType, name: &str) -> Option<u64> {
        let entry = self.tables[ty.index()].get(name)?;
        Some(entry.changed)
    }

    /// All names of a type, in no order.
    pub(crate) fn names(&self, ty: ResourceType) -> impl Iterator<Item = &Arc<str>> {
        self.tables[ty.index()].keys()
    }

    /// The table's own copy of a name, so that a million subscriptions share one text.
    pub(crate) fn shared_name(&self, ty: ResourceType, name: &str) -> Option<Arc<str>> {
        let (name, _) = self.tables[ty.index()].get_key_value(name)?;
        Some(Arc::clone(name))
    }

    pub(crate) fn has_any(&self, ty: ResourceType) -> bool {
        !self.tables[ty.index()].is_empty()
    }

    /// The first update has come.
    pub(crate) fn ready(&self) -> bool {
        self.epoch > 0
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The position behind the last change of the log.
    pub(crate) fn log_end(&self) -> u64 {
        self.log_start + self.log.len() as u64
    }

    /// The change at a position; `None` where it isn't kept any more (or isn't there yet).
    pub(crate) fn change(&self, position: u64) -> Option<&Change> {
        let index = position.checked_sub(self.log_start)?;
        self.log.get(usize::try_from(index).ok()?)
    }

    /// The revision of an epoch, while it is remembered.
    pub(crate) fn revision(&self, epoch: u64) -> Option<u64> {
        let index = self.revisions.partition_point(|(at, _)| *at < epoch);
        let (at, revision) = self.revisions.get(index)?;
        (*at == epoch).then_some(*revision)
    }

    pub(crate) fn id(&self) -> &FleetId {
        &self.id
    }

    /// Marks the fleet as gone: its streams are to end.
    pub(crate) fn remove(&mut self) {
        self.removed = true;
        for (ty, name) in std::mem::take(&mut self.rejections).into_keys() {
            self.recover(ty, &name);
        }
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed
    }

    /// Whether something that leads traffic stands refused: clients may be using an older version of it, and
    /// what that refers to must stay.
    pub(crate) fn refused_traffic(&self) -> bool {
        // Sorted by type, and the types that lead traffic are the last ones.
        let last = self.rejections.last_key_value();
        last.is_some_and(|((ty, _), _)| ty.waits_for_clusters())
    }

    /// Refusals that stand.
    pub(crate) fn refusals(&self) -> usize {
        self.rejections.len()
    }

    /// A client appeared.
    pub(crate) fn join(&mut self, id: u64, node_id: Arc<str>) {
        self.events.push(Event::Connected {
            fleet: self.id.clone(),
            node_id: Arc::clone(&node_id),
            client: id,
        });
        self.clients.insert(id, Client::new(node_id));
    }

    /// A client is gone, and its verdicts with it: what it refused for lack of something on its machine
    /// may suit the next one.
    pub(crate) fn leave(&mut self, id: u64) {
        let mut recovered = Vec::new();
        for (ty, name) in self.rejections.keys() {
            let Some(entry) = self.tables[ty.index()].get_mut(name) else {
                continue;
            };
            let refusers = entry.refusers.len();
            entry.refusers.retain(|refuser| *refuser != id);
            if entry.refusers.len() == refusers || !entry.refusers.is_empty() {
                continue;
            }
            if entry.acked {
                entry.troubled = false;
                recovered.push((*ty, Arc::clone(name)));
            }
        }
        for (ty, name) in recovered {
            self.recover(ty, &name);
        }
        if let Some(client) = self.clients.remove(&id) {
            self.events.push(Event::Disconnected {
                fleet: self.id.clone(),
                node_id: client.node_id,
                client: id,
            });
        }
    }

    pub(crate) fn client_mut(&mut self, id: u64) -> Option<&mut Client> {
        self.clients.get_mut(&id)
    }

    pub(crate) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// A client has all of this revision.
    pub(crate) fn progressed(&mut self, id: u64, revision: u64) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        client.acked_revision = Some(revision);
        self.events.push(Event::Acked {
            fleet: self.id.clone(),
            node_id: Arc::clone(&client.node_id),
            client: id,
            revision,
        });
    }

    /// A client's clusters took too long.
    pub(crate) fn warming_timed_out(&mut self, id: u64) {
        if let Some(client) = self.clients.get(&id) {
            self.events.push(Event::WarmingTimedOut {
                fleet: self.id.clone(),
                node_id: Arc::clone(&client.node_id),
                client: id,
            });
        }
    }

    /// The events since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// What an administrator sees.
    pub(crate) fn status(&self) -> FleetStatus {
        FleetStatus {
            revision: self.revisions.back().map(|(_, revision)| *revision),
            resources: ResourceType::ALL
                .into_iter()
                .map(|ty| (ty, self.tables[ty.index()].len()))
                .collect(),
            clients: self
                .clients
                .iter()
                .map(|(id, client)| client.status(*id))
                .collect(),
            rejections: self.rejections.values().cloned().collect(),
        }
    }
}

/// The beginning of a text, cut between characters.
fn shorten(text: &str) -> &str {
    &text[..text.floor_char_boundary(MESSAGE_BYTES)]
}
