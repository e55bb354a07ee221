//! A fleet's resources depend only on the final rows, not on the history of changes.

use std::net::IpAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3 as pb;
use envoy_types::pb::google::protobuf::Any;
use proptest::prelude::*;
use prost::Message;
use sesame_engine::{Batch, Builder, Engine, Table};
use sesame_model::*;

use super::*;
use crate::route::changes_cookies;
use crate::shard::{SHARDS, ShardLookup, shard};
use crate::testing::{any_virtual_host, cluster_key, some_listener};
use crate::{
    Options, Sharding, cluster, endpoints, listener, route_table, secret, stages, virtual_host,
};

mod chains;
mod held;
mod sharding;
mod trust_bundles;

const OFFSET: u16 = 8000;

struct World {
    sharding: Sharding,
    engine: Engine,
    inputs: Inputs,
    encoded: Encoded,
    assembler: Assembler,
    /// The resources that Envoys have after all changes so far.
    fleets: BTreeMap<(FleetId, &'static str, String), Bytes>,
}

impl World {
    fn new(sharding: Sharding) -> Self {
        let mut b = Builder::new();
        let inputs = Inputs {
            listeners: b.input("listeners"),
            route_tables: b.input("route_tables"),
            virtual_hosts: b.input("virtual_hosts"),
            clusters: b.input("clusters"),
            destinations: b.input("destinations"),
            datagrams: b.input("datagrams"),
            endpoints: b.input("endpoints"),
            certificates: b.input("certificates"),
            fleet_clusters: b.input("fleet_clusters"),
            fleet_destinations: b.input("fleet_destinations"),
            fleet_certificates: b.input("fleet_certificates"),
            trust_bundles: b.input("trust_bundles"),
            fleet_trust_bundles: b.input("fleet_trust_bundles"),
        };
        let options = Options {
            port_offset: OFFSET,
            sharding,
        };
        let encoded = stages(&mut b, inputs, options);
        Self {
            sharding,
            engine: b.build(),
            assembler: Assembler::new(&inputs, &encoded, options),
            inputs,
            encoded,
            fleets: BTreeMap::new(),
        }
    }

    fn commit(&mut self, fill: impl FnOnce(&Inputs, &mut Batch)) -> (Commit, Vec<ResourceChange>) {
        let mut batch = Batch::new();
        fill(&self.inputs, &mut batch);
        let commit = self.engine.commit(batch);
        let changes = self.assembler.apply(&commit);
        self.take(&changes);
        (commit, changes)
    }

    fn settle(&mut self) -> Vec<ResourceChange> {
        let changes = self.assembler.settle();
        self.take(&changes);
        changes
    }

    fn take(&mut self, changes: &[ResourceChange]) {
        for change in changes.iter().cloned() {
            let body = change.body.as_deref();
            let any = body.map(|body| Any::decode(body).unwrap());
            let value = any.map(|any| Bytes::from(any.value));
            assert_eq!(change.message(), value, "the message in the Any");
            let key = (change.fleet, change.type_url, change.name);
            match change.body {
                Some(body) => {
                    let before = self.fleets.insert(key.clone(), body.clone());
                    // A host without routes and a reserved domain have the same bytes.
                    assert!(
                        key.1 == names::ROUTES || before != Some(body),
                        "{key:?} already existed"
                    );
                }
                None => assert!(self.fleets.remove(&key).is_some(), "{key:?} did not exist"),
            }
        }
    }

    /// The resources for the engine's input tables, built from scratch.
    fn expected(&self) -> BTreeMap<(FleetId, &'static str, String), Bytes> {
        let (engine, inputs) = (&self.engine, &self.inputs);
        let mut out = BTreeMap::new();
        for (key, row) in engine.iter(inputs.listeners) {
            let always = self.sharding == Sharding::Always;
            let there = |table: &_| always && engine.get(inputs.route_tables, table).is_some();
            let shards = |table: &_| there(table).then_some(SHARDS);
            let body = wire::resource(&listener(key, row, shards, ShardLookup::Expressions, false));
            let name = names::listener(key);
            out.insert((key.fleet.clone(), names::LISTENER, name), body);
        }
        for (key, row) in engine.iter(inputs.route_tables) {
            let hosts = engine
                .iter(inputs.virtual_hosts)
                .filter(|(host, _)| host.table == *key)
                .map(|(host, row)| {
                    let encoded = virtual_host(host, row, &mut |port| {
                        let listener = ListenerKey {
                            fleet: host.table.fleet.clone(),
                            port: Port::tcp(port),
                        };
                        let moved = engine.get(inputs.listeners, &listener).is_some();
                        port.saturating_add(if moved { OFFSET } else { 0 })
                    });
                    (encoded, changes_cookies(row))
                })
                .collect::<Vec<_>>();
            if self.sharding == Sharding::Always {
                out.extend(shards(key, row, &hosts));
                continue;
            }
            let body = wire::resource(&joined(key, row, hosts.iter()));
            out.insert((key.fleet.clone(), names::ROUTES, names::routes(key)), body);
        }
        for ((fleet, key), _) in engine.iter(inputs.fleet_clusters) {
            let Some(row) = engine.get(inputs.clusters, key) else {
                continue;
            };
            let name = names::cluster(key);
            let body = wire::resource(&cluster(key, &row));
            out.insert((fleet.clone(), names::CLUSTER, name.clone()), body);
            if let Some(row) = engine.get(inputs.endpoints, key) {
                let body = wire::resource(&endpoints(key, &row));
                out.insert((fleet.clone(), names::ENDPOINTS, name), body);
            }
        }
        for ((fleet, key), _) in engine.iter(inputs.fleet_certificates) {
            if let Some(row) = engine.get(inputs.certificates, key) {
                let body = wire::resource(&secret(key, &row));
                out.insert((fleet.clone(), names::SECRET, names::secret(key)), body);
            }
        }
        out
    }

    fn check(&self) {
        let expected = self.expected();
        let keys: Vec<_> = self.fleets.keys().collect();
        assert_eq!(keys, expected.keys().collect::<Vec<_>>());
        for fleet in keys.iter().map(|key| &key.0).collect::<BTreeSet<_>>() {
            let resources = self.assembler.resources(fleet).into_iter();
            let resources = resources.map(|resource| {
                let key = (resource.fleet, resource.type_url, resource.name);
                (key, resource.body.unwrap())
            });
            let mut resources: Vec<_> = resources.collect();
            resources.sort();
            let of_it = self.fleets.iter().filter(|(key, _)| key.0 == *fleet);
            let of_it = of_it.map(|(key, body)| (key.clone(), body.clone()));
            assert_eq!(resources, of_it.collect::<Vec<_>>());
        }
        for (key, body) in &self.fleets {
            if key.1 == names::ROUTES {
                let (joined, whole) = (table(body), table(&expected[key]));
                assert_eq!(joined, whole, "{key:?}");
                assert_eq!(body.len(), expected[key].len(), "no extra bytes");
            } else {
                assert_eq!(body, &expected[key], "{key:?}");
            }
        }
    }
}

/// The table joined from `hosts`, each with whether it changes cookies.
fn joined<'a>(
    key: &RouteTableKey,
    row: &RouteTable,
    hosts: impl Iterator<Item = &'a (pb::VirtualHost, bool)> + Clone,
) -> pb::RouteConfiguration {
    let scripted = hosts.clone().any(|(_, scripted)| *scripted);
    route_table(key, row, hosts.map(|(host, _)| host.clone()), scripted)
}

/// The resources of a sharded table.
fn shards<'a>(
    key: &'a RouteTableKey,
    row: &'a RouteTable,
    hosts: &'a [(pb::VirtualHost, bool)],
) -> impl Iterator<Item = ((FleetId, &'static str, String), Bytes)> + 'a {
    (0..SHARDS).flat_map(move |number| {
        let name = names::shard(key, SHARDS, number);
        let here = |domain: &str| domain.starts_with('*') || shard(domain) == number;
        let row = RouteTable {
            reserved: row
                .reserved
                .iter()
                .filter(|domain| here(domain))
                .cloned()
                .collect(),
            secure: row.secure,
        };
        let hosts = hosts.iter().filter(|(host, _)| here(&host.name));
        let mut table = joined(key, &row, hosts);
        table.name.clone_from(&name);
        let header = crate::shard::HEADER.to_owned();
        table.request_headers_to_remove.push(header);
        let scope = wire::resource(&crate::route::scope(&name, &name));
        [
            ((key.fleet.clone(), names::SCOPE, name.clone()), scope),
            (
                (key.fleet.clone(), names::ROUTES, name),
                wire::resource(&table),
            ),
        ]
    })
}

fn table(body: &Bytes) -> pb::RouteConfiguration {
    let any = Any::decode(&**body).unwrap();
    assert_eq!(any.type_url, names::ROUTES);
    pb::RouteConfiguration::decode(&*any.value).unwrap()
}

fn fleet(index: u8) -> FleetId {
    FleetId::of_gateway("ns", format!("gw{index}"))
}

fn table_key(index: u8) -> RouteTableKey {
    RouteTableKey {
        fleet: fleet(index % 2),
        port: if index >= 2 { 443 } else { 80 },
    }
}

fn plain_host(status: u16) -> VirtualHost {
    VirtualHost {
        routes: vec![Arc::new(Route::respond_to_all(status))],
        ..VirtualHost::default()
    }
}

fn numbered(index: u16) -> VirtualHostKey {
    VirtualHostKey {
        table: table_key(0),
        domain: format!("h{index}.example.com").into(),
    }
}

const DOMAINS: [&str; 4] = ["*", "*.example.com", "a.example.com", "b.example.com"];

fn host_key(index: u8) -> VirtualHostKey {
    VirtualHostKey {
        table: table_key(index % 3),
        domain: DOMAINS[usize::from(index / 3) % DOMAINS.len()].into(),
    }
}

fn service(index: u8) -> ClusterKey {
    cluster_key(&format!("s{index}"))
}

fn certificate(index: u8) -> CertificateKey {
    CertificateKey {
        namespace: "ns".into(),
        name: format!("c{index}").into(),
    }
}

fn some_table(reserved: u8) -> RouteTable {
    RouteTable {
        reserved: DOMAINS[1..]
            .iter()
            .take(usize::from(reserved))
            .map(|domain| (*domain).into())
            .collect(),
        secure: reserved == 1,
    }
}

fn some_endpoints(ports: &[u16]) -> Endpoints {
    let mut endpoints: Vec<_> = ports
        .iter()
        .map(|port| Endpoint {
            address: IpAddr::from([10, 0, 0, 1]),
            port: *port,
            health_port: None,
        })
        .collect();
    endpoints.sort();
    endpoints.dedup();
    Endpoints {
        endpoints,
        ..Endpoints::default()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Listener(u8, Option<(bool, Option<u32>)>),
    Table(u8, Option<u8>),
    Host(u8, Option<VirtualHost>),
    Cluster(u8, Option<bool>),
    Endpoints(u8, Option<Vec<u16>>),
    Certificate(u8, Option<u8>),
    FleetCluster(u8, u8, bool),
    FleetCertificate(u8, u8, bool),
}

fn any_op() -> impl Strategy<Value = Op> {
    let maybe = prop::option::of::<std::ops::Range<u8>>;
    prop_oneof![
        (
            0..2u8,
            prop::option::of((any::<bool>(), prop::option::of(0..2u32)))
        )
            .prop_map(|(k, v)| Op::Listener(k, v)),
        (0..3u8, maybe(0..4)).prop_map(|(k, v)| Op::Table(k, v)),
        (0..12u8, prop::option::of(any_virtual_host())).prop_map(|(k, v)| Op::Host(k, v)),
        (0..2u8, prop::option::of(any::<bool>())).prop_map(|(k, v)| Op::Cluster(k, v)),
        (
            0..2u8,
            prop::option::of(prop::collection::vec(1..4u16, 0..3))
        )
            .prop_map(|(k, v)| Op::Endpoints(k, v)),
        (0..2u8, maybe(0..3)).prop_map(|(k, v)| Op::Certificate(k, v)),
        (0..2u8, 0..2u8, any::<bool>()).prop_map(|(f, k, v)| Op::FleetCluster(f, k, v)),
        (0..2u8, 0..2u8, any::<bool>()).prop_map(|(f, k, v)| Op::FleetCertificate(f, k, v)),
    ]
}

fn put<K, V>(batch: &mut Batch, table: Table<K, V>, key: K, value: Option<V>)
where
    K: sesame_engine::Key,
    V: sesame_engine::Value,
{
    match value {
        Some(value) => batch.upsert(table, key, value),
        None => batch.remove(table, key),
    }
}

fn perform(op: Op, inputs: &Inputs, batch: &mut Batch) {
    match op {
        Op::Listener(index, value) => {
            let key = ListenerKey {
                fleet: fleet(index),
                port: Port::tcp(80),
            };
            let value = value.map(|(secure, trusted_hops)| Listener {
                settings: Arc::new(ListenerSettings {
                    trusted_hops,
                    ..ListenerSettings::default()
                }),
                ..some_listener(&key, secure.then(|| certificate(0)))
            });
            put(batch, inputs.listeners, key, value);
        }
        Op::Table(index, reserved) => put(
            batch,
            inputs.route_tables,
            table_key(index),
            reserved.map(some_table),
        ),
        Op::Host(index, value) => put(batch, inputs.virtual_hosts, host_key(index), value),
        Op::Cluster(index, http2) => {
            let value = http2.map(|http2| Cluster {
                discovery: Discovery::Endpoints,
                protocol: [Protocol::Http1, Protocol::Http2][usize::from(http2)],
                tls: None,
                retries: None,
                connections: None,
            });
            put(batch, inputs.clusters, service(index), value);
        }
        Op::Endpoints(index, ports) => {
            let value = ports.map(|ports| some_endpoints(&ports));
            put(batch, inputs.endpoints, service(index), value);
        }
        Op::Certificate(index, content) => {
            let value = content.map(|content| Certificate {
                chain: vec![content].into(),
                private_key: vec![content].into(),
            });
            put(batch, inputs.certificates, certificate(index), value);
        }
        Op::FleetCluster(of, index, here) => {
            let key = (fleet(of), service(index));
            put(batch, inputs.fleet_clusters, key, here.then_some(()));
        }
        Op::FleetCertificate(of, index, here) => {
            let key = (fleet(of), certificate(index));
            put(batch, inputs.fleet_certificates, key, here.then_some(()));
        }
    }
}

proptest! {
    #[test]
    fn resources_depend_only_on_the_final_rows(
        batches in prop::collection::vec(prop::collection::vec(any_op(), 1..6), 1..12),
        sharding in prop_oneof![Just(Sharding::Auto), Just(Sharding::Always)],
    ) {
        let mut world = World::new(sharding);
        for ops in batches {
            world.commit(|inputs, batch| {
                for op in ops {
                    perform(op, inputs, batch);
                }
            });
            world.check();
        }
    }
}

#[test]
fn only_the_changed_host_is_encoded_and_only_one_table_changes() {
    let mut world = World::new(Sharding::Never);
    let (host, key) = (plain_host, numbered);
    world.commit(|inputs, batch| {
        for index in 0..3 {
            batch.upsert(inputs.route_tables, table_key(index), some_table(0));
        }
        for index in 0..1000 {
            batch.upsert(inputs.virtual_hosts, key(index), host(200));
        }
    });
    let (commit, changes) = world.commit(|inputs, batch| {
        batch.upsert(inputs.virtual_hosts, key(7), host(404));
    });
    assert_eq!(commit.ran(world.encoded.virtual_hosts), [key(7)]);
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].type_url, names::ROUTES);
    world.check();
}

#[test]
fn changes_are_sorted() {
    let mut world = World::new(Sharding::Auto);
    let (_, changes) = world.commit(|inputs, batch| {
        for op in [
            Op::Table(1, Some(0)),
            Op::Table(0, Some(0)),
            Op::Listener(0, Some((true, None))),
            Op::Cluster(0, Some(true)),
            Op::Endpoints(0, Some(vec![1])),
            Op::FleetCluster(0, 0, true),
            Op::Certificate(0, Some(1)),
            Op::FleetCertificate(0, 0, true),
            Op::Certificate(1, Some(1)),
        ] {
            perform(op, inputs, batch);
        }
    });
    let seen: Vec<_> = changes
        .iter()
        .map(|change| (change.fleet.clone(), change.type_url))
        .collect();
    let mut expected: Vec<_> = names::TYPES.map(|kind| (fleet(0), kind)).to_vec();
    expected.retain(|(_, kind)| *kind != names::SCOPE);
    expected.push((fleet(1), names::ROUTES));
    assert_eq!(seen, expected);
}

#[test]
fn removing_all_rows_removes_all_resources() {
    let mut world = World::new(Sharding::Auto);
    let ops = |here: bool| {
        vec![
            Op::Table(0, here.then_some(2)),
            Op::Host(0, here.then(VirtualHost::default)),
            Op::Cluster(0, here.then_some(true)),
            Op::Endpoints(0, here.then(|| vec![1])),
            Op::FleetCluster(0, 0, here),
            Op::Certificate(0, here.then_some(1)),
            Op::FleetCertificate(0, 0, here),
        ]
    };
    for here in [true, false] {
        for op in ops(here) {
            world.commit(|inputs, batch| perform(op, inputs, batch));
        }
    }
    assert!(world.fleets.is_empty());
    let Assembler {
        tables,
        clusters,
        secrets,
        ..
    } = &world.assembler;
    assert!(tables.is_empty() && clusters.is_empty() && secrets.is_empty());
}
