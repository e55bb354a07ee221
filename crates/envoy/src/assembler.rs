//! Encoded rows as each fleet's resources.
//!
//! In: the commits of an engine with our [`stages`](crate::stages()), every one from the first on. Out: per fleet, which
//! resources changed. It must not know what the resources say, nor who asks for them.
//!
//! Three things can't be a row of one key and happen here: a route table is joined from its hosts, a fleet gets only the
//! clusters and certificates that it may see, and a cluster always has endpoints, if only none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prost::Message;
use prost::bytes::Bytes;
use sesame_engine::{Change, Commit, Engine};
use sesame_model::{CertificateKey, ClusterKey, FleetId, RouteTableKey};

use crate::route::table_tail;
use crate::stages::no_endpoints;
use crate::{Encoded, EncodedTable, Inputs, names, wire};

/// A resource of a fleet that appeared, changed or went away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceChange {
    /// Whose Envoys have it.
    pub fleet: FleetId,
    /// One of [`names::TYPES`].
    pub type_url: &'static str,
    /// By which they ask for it.
    pub name: String,
    /// The bytes of a `google.protobuf.Any`; `None`: it is gone.
    pub body: Option<Bytes>,
}

impl ResourceChange {
    /// The message alone, without the `google.protobuf.Any` around it; shares its memory.
    pub fn message(&self) -> Option<Bytes> {
        let body = self.body.as_ref()?;
        Some(wire::any_value(self.type_url, body))
    }
}

/// Keeps what each fleet has. Its memory is that of the keys: bytes are shared with the engine's rows, and joined tables
/// are not kept.
#[derive(Debug)]
pub struct Assembler {
    inputs: Inputs,
    encoded: Encoded,
    /// Behind the hosts of every table.
    tail: Bytes,
    tables: BTreeMap<RouteTableKey, TableRows>,
    clusters: BTreeMap<ClusterKey, ClusterRows>,
    certificates: BTreeMap<CertificateKey, CertificateRows>,
}

/// What a route table is joined from.
#[derive(Debug, Default)]
struct TableRows {
    /// Absent: hosts are here, but the table is not (yet).
    table: Option<Arc<EncodedTable>>,
    hosts: BTreeMap<Arc<str>, Bytes>,
}

/// Fleets in order, mostly one: a set, but in as little memory as that takes.
type Fleets = Vec<FleetId>;

#[derive(Clone, Debug, Default)]
struct ClusterRows {
    cluster: Option<Bytes>,
    endpoints: Option<Bytes>,
    fleets: Fleets,
}

#[derive(Clone, Debug, Default)]
struct CertificateRows {
    secret: Option<Bytes>,
    fleets: Fleets,
}

impl Assembler {
    /// Of the stages that were declared with `inputs` and gave `encoded`.
    pub fn new(inputs: &Inputs, encoded: &Encoded) -> Self {
        Self {
            inputs: *inputs,
            encoded: *encoded,
            tail: table_tail().encode_to_vec().into(),
            tables: BTreeMap::new(),
            clusters: BTreeMap::new(),
            certificates: BTreeMap::new(),
        }
    }

    /// What the commit changes for each fleet: sorted by fleet, type (in the order of [`names::TYPES`]) and name, each at
    /// most once.
    ///
    /// A route table whose rows changed may come out with the bytes that it had; other resources that come have changed.
    /// A changed host costs one copy of its table; other changes cost as much as themselves times their fleets.
    ///
    /// # Panics
    /// If the commit is of another engine.
    pub fn apply(&mut self, commit: &Commit) -> Vec<ResourceChange> {
        let mut out = Vec::new();
        self.clusters(commit, &mut out);
        self.certificates(commit, &mut out);
        self.listeners(commit, &mut out);
        self.tables(commit, &mut out);
        out.sort_by(|a, b| order(a).cmp(&order(b)));
        out
    }

    /// All that a fleet has now, in the order of [`Assembler::apply`]. `engine` is the one whose commits were applied.
    /// Costs as much as all rows: for people who look, not for Envoys.
    ///
    /// # Panics
    /// If the engine is another one.
    pub fn resources(&self, engine: &Engine, fleet: &FleetId) -> Vec<ResourceChange> {
        let mut out = Vec::new();
        let mut push = |type_url, name, body| {
            out.push(ResourceChange {
                fleet: fleet.clone(),
                type_url,
                name,
                body: Some(body),
            });
        };
        for (key, rows) in &self.clusters {
            let empty = no_endpoints(key);
            if let Some(body) = rows.cluster_of(fleet, &empty) {
                push(names::CLUSTER, names::cluster(key), body.clone());
            }
            if let Some(body) = rows.endpoints_of(fleet, &empty) {
                push(names::ENDPOINTS, names::cluster(key), body.clone());
            }
        }
        for (key, rows) in &self.certificates {
            if let Some(body) = rows.secret_of(fleet) {
                push(names::SECRET, names::secret(key), body.clone());
            }
        }
        for (key, body) in engine.iter(self.encoded.listeners) {
            if key.fleet == *fleet {
                push(names::LISTENER, names::listener(key), Bytes::clone(body));
            }
        }
        for (key, rows) in &self.tables {
            if key.fleet == *fleet
                && let Some(body) = rows.join(&self.tail)
            {
                push(names::ROUTES, names::routes(key), body);
            }
        }
        out.sort_by(|a, b| order(a).cmp(&order(b)));
        out
    }

    fn listeners(&self, commit: &Commit, out: &mut Vec<ResourceChange>) {
        for (key, change) in commit.changes(self.encoded.listeners) {
            out.push(ResourceChange {
                fleet: key.fleet.clone(),
                type_url: names::LISTENER,
                name: names::listener(key),
                body: bytes(change),
            });
        }
    }

    fn tables(&mut self, commit: &Commit, out: &mut Vec<ResourceChange>) {
        let mut changed = BTreeSet::new();
        let mut gone = BTreeSet::new();
        for (key, change) in commit.changes(self.encoded.route_tables) {
            let rows = self.tables.entry(key.clone()).or_default();
            if rows.table.is_some() && change.value().is_none() {
                gone.insert(key.clone());
            }
            let before = std::mem::replace(&mut rows.table, change.value().cloned());
            // A domain that is reserved no more shows only if it has no host of its own.
            if rows.shown(before.as_deref()) != rows.shown(rows.table.as_deref()) {
                changed.insert(key.clone());
            }
        }
        for (key, change) in commit.changes(self.encoded.virtual_hosts) {
            let rows = self.tables.entry(key.table.clone()).or_default();
            match bytes(change) {
                Some(host) => rows.hosts.insert(key.domain.clone(), host),
                None => rows.hosts.remove(&key.domain),
            };
            changed.insert(key.table.clone());
        }
        for key in changed {
            let body = self.tables.get(&key).and_then(|rows| rows.join(&self.tail));
            if body.is_some() || gone.contains(&key) {
                out.push(ResourceChange {
                    fleet: key.fleet.clone(),
                    type_url: names::ROUTES,
                    name: names::routes(&key),
                    body,
                });
            }
            if self.tables.get(&key).is_some_and(TableRows::is_empty) {
                self.tables.remove(&key);
            }
        }
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
        for (key, before) in before {
            let after = self.clusters.remove(&key).unwrap_or_default();
            let name = names::cluster(&key);
            let empty = no_endpoints(&key);
            for fleet in &either(&before.fleets, &after.fleets) {
                let pairs = [
                    (names::CLUSTER, ClusterRows::cluster_of as Seen<'_>),
                    (names::ENDPOINTS, ClusterRows::endpoints_of),
                ];
                for (type_url, seen) in pairs {
                    let body = seen(&after, fleet, &empty);
                    if body != seen(&before, fleet, &empty) {
                        out.push(ResourceChange {
                            fleet: fleet.clone(),
                            type_url,
                            name: name.clone(),
                            body: body.cloned(),
                        });
                    }
                }
            }
            if !after.is_empty() {
                self.clusters.insert(key, after);
            }
        }
    }

    fn certificates(&mut self, commit: &Commit, out: &mut Vec<ResourceChange>) {
        let mut before: BTreeMap<CertificateKey, CertificateRows> = BTreeMap::new();
        let rows = &mut self.certificates;
        let mut touch = |key: &CertificateKey, change: &dyn Fn(&mut CertificateRows)| {
            let rows = rows.entry(key.clone()).or_default();
            before.entry(key.clone()).or_insert_with(|| rows.clone());
            change(rows);
        };
        for (key, change) in commit.changes(self.encoded.certificates) {
            touch(key, &|rows| rows.secret = bytes(change));
        }
        for ((fleet, key), change) in commit.changes(self.inputs.fleet_certificates) {
            touch(key, &|rows| member(&mut rows.fleets, fleet, change));
        }
        for (key, before) in before {
            let after = self.certificates.remove(&key).unwrap_or_default();
            for fleet in &either(&before.fleets, &after.fleets) {
                let body = after.secret_of(fleet);
                if body != before.secret_of(fleet) {
                    out.push(ResourceChange {
                        fleet: fleet.clone(),
                        type_url: names::SECRET,
                        name: names::secret(&key),
                        body: body.cloned(),
                    });
                }
            }
            if !after.is_empty() {
                self.certificates.insert(key, after);
            }
        }
    }
}

/// What a fleet sees of a cluster's rows; the last argument stands for missing endpoints.
type Seen<'a> = fn(&'a ClusterRows, &FleetId, &'a Bytes) -> Option<&'a Bytes>;

/// The head of a table, and the reserved domains that have no host of their own.
type Shown<'a> = (&'a Bytes, Vec<&'a (Arc<str>, Bytes)>);

impl TableRows {
    /// What is seen of a table beside the hosts that are here.
    fn shown<'a>(&'a self, table: Option<&'a EncodedTable>) -> Option<Shown<'a>> {
        let table = table?;
        let reserved = table.reserved.iter();
        let shown = reserved.filter(|(domain, _)| !self.hosts.contains_key(domain));
        Some((&table.head, shown.collect()))
    }

    /// Own hosts and the reserved ones without a host, merged in the order of their domains.
    fn join(&self, tail: &Bytes) -> Option<Bytes> {
        let table = self.table.as_ref()?;
        let mut hosts: Vec<(&str, &Bytes)> = self
            .hosts
            .iter()
            .map(|(domain, host)| (&**domain, host))
            .collect();
        let own = hosts.len();
        for (domain, host) in &table.reserved {
            if !self.hosts.contains_key(domain) {
                hosts.push((domain, host));
            }
        }
        if hosts.len() > own {
            hosts.sort_by_key(|(domain, _)| *domain);
        }
        let hosts = hosts.iter().map(|(_, host)| *host);
        Some(wire::join_table(&table.head, hosts, tail))
    }

    fn is_empty(&self) -> bool {
        self.table.is_none() && self.hosts.is_empty()
    }
}

impl ClusterRows {
    fn cluster_of<'a>(&'a self, fleet: &FleetId, _: &'a Bytes) -> Option<&'a Bytes> {
        self.cluster
            .as_ref()
            .filter(|_| self.fleets.contains(fleet))
    }

    fn endpoints_of<'a>(&'a self, fleet: &FleetId, empty: &'a Bytes) -> Option<&'a Bytes> {
        self.cluster_of(fleet, empty)
            .map(|_| self.endpoints.as_ref().unwrap_or(empty))
    }

    fn is_empty(&self) -> bool {
        self.cluster.is_none() && self.endpoints.is_none() && self.fleets.is_empty()
    }
}

impl CertificateRows {
    fn secret_of(&self, fleet: &FleetId) -> Option<&Bytes> {
        self.secret.as_ref().filter(|_| self.fleets.contains(fleet))
    }

    fn is_empty(&self) -> bool {
        self.secret.is_none() && self.fleets.is_empty()
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
