//! Assembles encoded rows into each fleet's resources.
//!
//! In: each commit of an engine that runs the [`stages`](crate::stages()). Out: changed resources per fleet. It must
//! not depend on resource contents or subscribers.
//!
//! Four things depend on several keys, so stages can't do them: route tables, whole or sharded, are joined from
//! their hosts; a fleet gets only its own clusters and secrets; every cluster gets an endpoints resource, even an empty
//! one; and certificates that Envoys request on demand have a resource for each server name.

mod chains;
mod form;
mod forms;
mod held;
mod listeners;
mod on_demand;
mod tables;

use std::collections::{BTreeMap, BTreeSet};

use prost::bytes::Bytes;
use sesame_engine::{Change, Commit};
use sesame_model::{
    CertificateKey, ClusterKey, DestinationKey, FleetId, ListenerKey, TrustBundleKey,
};

pub use self::held::{Part, RejectedVersion, Suspect};
use self::tables::Tables;
use crate::{Encoded, Inputs, Options, datagram_cluster, names, wire};

/// A resource that a fleet gained, changed or lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceChange {
    /// The fleet.
    pub fleet: FleetId,
    /// One of [`names::TYPES`].
    pub type_url: &'static str,
    /// The resource's name.
    pub name: String,
    /// The bytes of a `google.protobuf.Any`; `None` if removed.
    pub body: Option<Bytes>,
    /// The variant for Envoys that [have the module](crate::has_module), if different.
    pub with_module: Option<Bytes>,
}

impl ResourceChange {
    /// The message inside the `google.protobuf.Any`, without copying.
    pub fn message(&self) -> Option<Bytes> {
        let body = self.body.as_ref()?;
        Some(wire::any_value(self.type_url, body))
    }

    /// Like [`ResourceChange::message`], for Envoys that have the module; `None` if it is the same.
    pub fn message_with_module(&self) -> Option<Bytes> {
        let body = self.with_module.as_ref()?;
        Some(wire::any_value(self.type_url, body))
    }
}

/// The resources of all fleets. Shares bytes with the engine's rows and doesn't store joined tables, so it only needs
/// memory for keys.
#[derive(Debug)]
pub struct Assembler {
    inputs: Inputs,
    encoded: Encoded,
    tables: Tables,
    clusters: BTreeMap<ClusterKey, ClusterRows>,
    /// Clusters for forwarded connections.
    destinations: BTreeMap<DestinationKey, Bytes>,
    /// Endpoints for UDP ports.
    datagrams: BTreeMap<ListenerKey, Bytes>,
    secrets: BTreeMap<SecretKey, SecretRows>,
}

/// A sorted set of fleets, usually with one element; a vector takes the least memory.
type Fleets = Vec<FleetId>;

#[derive(Clone, Debug, Default)]
struct ClusterRows {
    cluster: Option<Bytes>,
    endpoints: Option<Bytes>,
    fleets: Fleets,
    /// The fleets with a destination that uses the endpoints.
    destinations: Fleets,
}

/// Identifies an SDS resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SecretKey {
    Certificate(CertificateKey),
    TrustBundle(TrustBundleKey),
}

#[derive(Clone, Debug, Default)]
struct SecretRows {
    secret: Option<Bytes>,
    fleets: Fleets,
}

impl Assembler {
    /// An assembler for the `encoded` tables that [`stages`](crate::stages()) returned for `inputs` and `options`.
    pub fn new(inputs: &Inputs, encoded: &Encoded, options: Options) -> Self {
        Self {
            inputs: *inputs,
            encoded: *encoded,
            tables: Tables::new(options.sharding),
            clusters: BTreeMap::new(),
            destinations: BTreeMap::new(),
            datagrams: BTreeMap::new(),
            secrets: BTreeMap::new(),
        }
    }

    /// Applies a commit. Returns the resources that it changes, without duplicates, sorted by fleet, type (in
    /// [`names::TYPES`] order) and name.
    ///
    /// A route table with changed rows, or a listener whose certificates are requested on demand, may have the same
    /// bytes as before; all other returned resources differ. A changed host costs one copy of its table or shard; other
    /// changes cost their own size times the number of fleets that have them.
    ///
    /// # Panics
    /// If the commit is from another engine.
    pub fn apply(&mut self, commit: &Commit) -> Vec<ResourceChange> {
        let mut out = Vec::new();
        self.clusters(commit, &mut out);
        self.destinations(commit, &mut out);
        self.datagrams(commit, &mut out);
        self.secrets(commit, &mut out);
        self.tables
            .apply(&self.inputs, &self.encoded, commit, &mut out);
        self.certificates_on_demand(&mut out);
        out.sort_by(|a, b| order(a).cmp(&order(b)));
        out
    }

    /// The parts that may be the cause of a rejection. Costs O(hosts of the table or shard, or chains of the listener).
    pub fn suspects(&self, rejected: RejectedVersion<'_>) -> Vec<Suspect> {
        match rejected.type_url {
            names::LISTENER => self.tables.suspected_chains(rejected),
            _ => self.tables.suspected_hosts(rejected),
        }
    }

    /// Serves a part's last accepted version from the next [`Assembler::apply`] until the part changes or is released. If
    /// there isn't one, a host responds with 503, and a chain closes its connections.
    pub fn hold(&mut self, suspect: &Suspect) {
        let last_good = suspect.last_good.clone();
        match &suspect.part {
            Part::Host(host) => self.tables.hold(host, last_good),
            Part::Chain(listener, name) => self.tables.chains.hold(listener, name, last_good),
        }
    }

    /// Serves the current version of a part from the next [`Assembler::apply`].
    pub fn release(&mut self, part: &Part) {
        match part {
            Part::Host(host) => self.tables.release(host),
            Part::Chain(listener, name) => self.tables.chains.release(listener, name),
        }
    }

    /// The held parts that were released since the last call because they changed.
    pub fn take_changed(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.tables.changed)
    }

    /// The number of times that route tables have switched to another number of shards, which replaces their listeners. A
    /// switched table is also served in its former form until [`Assembler::settle`], so that draining connections don't
    /// use outdated routes.
    pub fn replaced(&self) -> u64 {
        self.tables.replaced()
    }

    /// Removes the old forms of tables. Call it once replaced listeners have drained. Returns the changes in the same
    /// order as [`Assembler::apply`].
    pub fn settle(&mut self) -> Vec<ResourceChange> {
        let mut out = Vec::new();
        self.tables.settle(&mut out);
        out.sort_by(|a, b| order(a).cmp(&order(b)));
        out
    }

    /// All resources of a fleet, in the same order as [`Assembler::apply`]. Costs O(all rows): for inspection, not for
    /// Envoys.
    pub fn resources(&self, fleet: &FleetId) -> Vec<ResourceChange> {
        let mut out = Vec::new();
        let mut push = |type_url, name, body| {
            out.push(ResourceChange {
                fleet: fleet.clone(),
                type_url,
                name,
                body: Some(body),
                with_module: None,
            });
        };
        for (key, rows) in &self.clusters {
            if let Some(body) = rows.cluster_of(fleet) {
                push(names::CLUSTER, names::cluster(key), body.clone());
            }
            if let Some(body) = rows.endpoints_of(fleet) {
                push(names::ENDPOINTS, names::cluster(key), body.clone());
            }
        }
        for (key, body) in &self.destinations {
            if key.listener.fleet == *fleet {
                push(names::CLUSTER, names::destination(key), body.clone());
            }
        }
        for (key, endpoints) in &self.datagrams {
            if key.fleet == *fleet {
                let cluster = wire::resource(&datagram_cluster(key));
                push(names::CLUSTER, names::datagrams(key), cluster);
                push(names::ENDPOINTS, names::datagrams(key), endpoints.clone());
            }
        }
        for (key, rows) in &self.secrets {
            if let Some(body) = rows.secret_of(fleet) {
                push(names::SECRET, key.name(), body.clone());
            }
        }
        for name in self.tables.on_demand.names(fleet) {
            let body = self.certificate_on_demand(fleet, name);
            out.extend(body.map(|body| secret_change(fleet, name.to_string(), Some(body))));
        }
        self.tables.resources(fleet, &mut out);
        out.sort_by(|a, b| order(a).cmp(&order(b)));
        out
    }

    fn clusters(&mut self, commit: &Commit, out: &mut Vec<ResourceChange>) {
        let mut before: BTreeMap<ClusterKey, ClusterRows> = BTreeMap::new();
        let rows = &mut self.clusters;
        let mut touch = |key: &ClusterKey, change: &dyn Fn(&mut ClusterRows)| {
            let rows = rows.entry(key.clone()).or_default();
            before.entry(key.clone()).or_insert_with(|| rows.clone());
            change(rows);
        };
        for (key, change) in commit.changes(self.encoded.clusters) {
            touch(key, &|rows| rows.cluster = bytes(change));
        }
        for (key, change) in commit.changes(self.encoded.endpoints) {
            touch(key, &|rows| rows.endpoints = bytes(change));
        }
        for ((fleet, key), change) in commit.changes(self.inputs.fleet_clusters) {
            touch(key, &|rows| member(&mut rows.fleets, fleet, change));
        }
        for ((fleet, key), change) in commit.changes(self.inputs.fleet_destinations) {
            touch(key, &|rows| member(&mut rows.destinations, fleet, change));
        }
        for (key, before) in before {
            let after = self.clusters.remove(&key).unwrap_or_default();
            let name = names::cluster(&key);
            let fleets: BTreeSet<&FleetId> =
                before.all_fleets().chain(after.all_fleets()).collect();
            for fleet in fleets {
                let pairs = [
                    (names::CLUSTER, ClusterRows::cluster_of as Select<'_>),
                    (names::ENDPOINTS, ClusterRows::endpoints_of),
                ];
                for (type_url, select) in pairs {
                    let body = select(&after, fleet);
                    if body != select(&before, fleet) {
                        out.push(ResourceChange {
                            fleet: fleet.clone(),
                            type_url,
                            name: name.clone(),
                            body: body.cloned(),
                            with_module: None,
                        });
                    }
                }
            }
            if !after.is_empty() {
                self.clusters.insert(key, after);
            }
        }
    }

    fn destinations(&mut self, commit: &Commit, out: &mut Vec<ResourceChange>) {
        for (key, change) in commit.changes(self.encoded.destinations) {
            let body = bytes(change);
            match &body {
                Some(body) => drop(self.destinations.insert(key.clone(), body.clone())),
                None => drop(self.destinations.remove(key)),
            }
            out.push(ResourceChange {
                fleet: key.listener.fleet.clone(),
                type_url: names::CLUSTER,
                name: names::destination(key),
                body,
                with_module: None,
            });
        }
    }

    fn datagrams(&mut self, commit: &Commit, out: &mut Vec<ResourceChange>) {
        for (key, change) in commit.changes(self.encoded.datagrams) {
            let mut push = |type_url, body| {
                out.push(ResourceChange {
                    fleet: key.fleet.clone(),
                    type_url,
                    name: names::datagrams(key),
                    body,
                    with_module: None,
                });
            };
            let endpoints = bytes(change);
            let before = match &endpoints {
                Some(endpoints) => self.datagrams.insert(key.clone(), endpoints.clone()),
                None => self.datagrams.remove(key),
            };
            if before.is_some() != endpoints.is_some() {
                let cluster = || wire::resource(&datagram_cluster(key));
                push(names::CLUSTER, endpoints.is_some().then(cluster));
            }
            push(names::ENDPOINTS, endpoints);
        }
    }

    fn secrets(&mut self, commit: &Commit, out: &mut Vec<ResourceChange>) {
        let mut before: BTreeMap<SecretKey, SecretRows> = BTreeMap::new();
        let rows = &mut self.secrets;
        let mut touch = |key: SecretKey, change: &dyn Fn(&mut SecretRows)| {
            let rows = rows.entry(key.clone()).or_default();
            before.entry(key).or_insert_with(|| rows.clone());
            change(rows);
        };
        for (key, change) in commit.changes(self.encoded.certificates) {
            let key = SecretKey::Certificate(key.clone());
            touch(key, &|rows| rows.secret = bytes(change));
        }
        for (key, change) in commit.changes(self.encoded.trust_bundles) {
            let key = SecretKey::TrustBundle(key.clone());
            touch(key, &|rows| rows.secret = bytes(change));
        }
        for ((fleet, key), change) in commit.changes(self.inputs.fleet_certificates) {
            let key = SecretKey::Certificate(key.clone());
            touch(key, &|rows| member(&mut rows.fleets, fleet, change));
        }
        for ((fleet, key), change) in commit.changes(self.inputs.fleet_trust_bundles) {
            let key = SecretKey::TrustBundle(key.clone());
            touch(key, &|rows| member(&mut rows.fleets, fleet, change));
        }
        for (key, before) in before {
            let after = self.secrets.remove(&key).unwrap_or_default();
            for fleet in &either(&before.fleets, &after.fleets) {
                let body = after.secret_of(fleet);
                if body != before.secret_of(fleet) {
                    out.push(secret_change(fleet, key.name(), body.cloned()));
                    if let SecretKey::Certificate(key) = &key {
                        self.tables.on_demand.certificate(fleet, key);
                    }
                }
            }
            if !after.is_empty() {
                self.secrets.insert(key, after);
            }
        }
    }

    fn certificates_on_demand(&mut self, out: &mut Vec<ResourceChange>) {
        for (fleet, name) in self.tables.on_demand.take_changed() {
            let body = self.certificate_on_demand(&fleet, &name);
            out.push(secret_change(&fleet, name.to_string(), body));
        }
    }

    /// The secret for a server name.
    fn certificate_on_demand(&self, fleet: &FleetId, name: &str) -> Option<Bytes> {
        let key = self.tables.on_demand.get(fleet, name)?;
        let secret = self.secrets.get(&SecretKey::Certificate(key.clone()))?;
        Some(wire::renamed_secret(secret.secret_of(fleet)?, name))
    }
}

/// Selects a fleet's resource from a cluster's rows.
type Select<'a> = fn(&'a ClusterRows, &FleetId) -> Option<&'a Bytes>;

impl ClusterRows {
    fn cluster_of(&self, fleet: &FleetId) -> Option<&Bytes> {
        self.cluster
            .as_ref()
            .filter(|_| self.fleets.contains(fleet))
    }

    fn endpoints_of(&self, fleet: &FleetId) -> Option<&Bytes> {
        self.cluster.as_ref()?;
        let used = self.fleets.contains(fleet) || self.destinations.contains(fleet);
        self.endpoints.as_ref().filter(|_| used)
    }

    fn all_fleets(&self) -> impl Iterator<Item = &FleetId> {
        self.fleets.iter().chain(&self.destinations)
    }

    fn is_empty(&self) -> bool {
        self.cluster.is_none() && self.endpoints.is_none() && self.all_fleets().next().is_none()
    }
}

impl SecretKey {
    fn name(&self) -> String {
        match self {
            Self::Certificate(key) => names::secret(key),
            Self::TrustBundle(key) => names::trust_bundle(key),
        }
    }
}

impl SecretRows {
    fn secret_of(&self, fleet: &FleetId) -> Option<&Bytes> {
        self.secret.as_ref().filter(|_| self.fleets.contains(fleet))
    }

    fn is_empty(&self) -> bool {
        self.secret.is_none() && self.fleets.is_empty()
    }
}

fn secret_change(fleet: &FleetId, name: String, body: Option<Bytes>) -> ResourceChange {
    ResourceChange {
        fleet: fleet.clone(),
        type_url: names::SECRET,
        name,
        body,
        with_module: None,
    }
}

fn bytes(change: &Change<Bytes>) -> Option<Bytes> {
    change.value().map(|bytes| Bytes::clone(bytes))
}

fn member(fleets: &mut Fleets, fleet: &FleetId, change: &Change<()>) {
    match (fleets.binary_search(fleet), change) {
        (Err(place), Change::Upsert(_)) => {
            fleets.reserve_exact(1);
            fleets.insert(place, fleet.clone());
        }
        (Ok(place), Change::Remove) => drop(fleets.remove(place)),
        (Ok(_), Change::Upsert(_)) | (Err(_), Change::Remove) => {}
    }
}

fn either(before: &Fleets, after: &Fleets) -> BTreeSet<FleetId> {
    before.iter().chain(after).cloned().collect()
}

fn order(change: &ResourceChange) -> (&FleetId, Option<usize>, &str) {
    let kind = names::TYPES
        .iter()
        .position(|type_url| *type_url == change.type_url);
    (&change.fleet, kind, &change.name)
}

#[cfg(test)]
mod tests;
