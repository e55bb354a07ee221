//! Engine stages that encode the model, one row at a time.
//!
//! In: model tables. Out: tables of encoded resources, where each row is encoded once for all Envoys. It must not
//! depend on fleets or the xDS protocol; [`Assembler`](crate::Assembler) selects the resources of each fleet.

use prost::bytes::Bytes;
use sesame_engine::{Builder, Reader, Table};
use sesame_model::{
    Certificate, CertificateKey, Cluster, ClusterKey, Datagrams, DestinationKey, Endpoints,
    FleetId, Listener, ListenerKey, Port, RouteTable, RouteTableKey, TrustBundle, TrustBundleKey,
    VirtualHost, VirtualHostKey,
};

use crate::route::{self, PartKey};
use crate::{
    HostBytes, cluster, datagram_endpoints, destination, secret, trust_bundle, virtual_host, wire,
};

/// The tables of the model.
#[derive(Clone, Copy, Debug)]
pub struct Inputs {
    /// Listeners.
    pub listeners: Table<ListenerKey, Listener>,
    /// Route tables without their hosts.
    pub route_tables: Table<RouteTableKey, RouteTable>,
    /// Virtual hosts.
    pub virtual_hosts: Table<VirtualHostKey, VirtualHost>,
    /// Clusters.
    pub clusters: Table<ClusterKey, Cluster>,
    /// The clusters for forwarded connections.
    pub destinations: Table<DestinationKey, ClusterKey>,
    /// The backends for UDP ports.
    pub datagrams: Table<ListenerKey, Datagrams>,
    /// Endpoints of clusters with [`Discovery::Endpoints`](sesame_model::Discovery::Endpoints); may be empty.
    pub endpoints: Table<ClusterKey, Endpoints>,
    /// Certificates.
    pub certificates: Table<CertificateKey, Certificate>,
    /// CAs that verify backends and clients.
    pub trust_bundles: Table<TrustBundleKey, TrustBundle>,
    /// The clusters of each fleet.
    pub fleet_clusters: Table<(FleetId, ClusterKey), ()>,
    /// The clusters of each fleet's destinations.
    pub fleet_destinations: Table<(FleetId, ClusterKey), ()>,
    /// The certificates of each fleet.
    pub fleet_certificates: Table<(FleetId, CertificateKey), ()>,
    /// The trust bundles of each fleet.
    pub fleet_trust_bundles: Table<(FleetId, TrustBundleKey), ()>,
}

/// Options for all resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Added to a Gateway's port to get the port that clients see; 0 in a cluster, where the Service maps ports.
    pub port_offset: u16,
    /// Which route tables are sharded.
    pub sharding: Sharding,
}

/// Which route tables are sharded. With shards, a change costs an Envoy one shard instead of the whole table, but
/// each request takes a few microseconds more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharding {
    /// Route tables with several hundred hosts.
    #[default]
    Auto,
    /// All route tables.
    Always,
    /// No route tables.
    Never,
}

/// Tables of encoded resources: bytes of a `google.protobuf.Any` unless noted otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Encoded {
    /// Hosts.
    pub virtual_hosts: Table<VirtualHostKey, HostBytes>,
    /// CDS resources.
    pub clusters: Table<ClusterKey, Bytes>,
    /// EDS resources.
    pub endpoints: Table<ClusterKey, Bytes>,
    /// CDS resources for forwarded connections.
    pub destinations: Table<DestinationKey, Bytes>,
    /// EDS resources for UDP ports.
    pub datagrams: Table<ListenerKey, Bytes>,
    /// SDS resources.
    pub certificates: Table<CertificateKey, Bytes>,
    /// SDS resources.
    pub trust_bundles: Table<TrustBundleKey, Bytes>,
}

/// Declares the stages. A changed row costs only its own encoding.
pub fn stages(b: &mut Builder, inputs: Inputs, options: Options) -> Encoded {
    let Inputs {
        clusters,
        endpoints,
        destinations,
        datagrams,
        certificates,
        trust_bundles,
        ..
    } = inputs;
    Encoded {
        virtual_hosts: hosts(b, &inputs, options),
        clusters: b.derive("envoy.clusters", clusters, move |reader, key| {
            let row = reader.get(clusters, key)?;
            Some(wire::resource(&cluster(key, &row)))
        }),
        endpoints: b.derive("envoy.endpoints", endpoints, move |reader, key| {
            let row = reader.get(endpoints, key)?;
            Some(wire::resource(&crate::endpoints(key, &row)))
        }),
        destinations: b.derive("envoy.destinations", destinations, move |reader, key| {
            let to = reader.get(destinations, key)?;
            let row = reader.get(clusters, &to)?;
            Some(wire::resource(&destination(key, &to, &row)))
        }),
        datagrams: b.derive("envoy.datagrams", datagrams, move |reader, key| {
            let row = reader.get(datagrams, key)?;
            Some(wire::resource(&datagram_endpoints(key, &row)))
        }),
        certificates: b.derive("envoy.certificates", certificates, move |reader, key| {
            let row = reader.get(certificates, key)?;
            Some(wire::resource(&secret(key, &row)))
        }),
        trust_bundles: b.derive("envoy.trust_bundles", trust_bundles, move |reader, key| {
            let row = reader.get(trust_bundles, key)?;
            Some(wire::resource(&trust_bundle(key, &row)))
        }),
    }
}

/// Encodes hosts. A host with many routes is joined from parts, and only the parts with a changed route are encoded
/// again.
fn hosts(b: &mut Builder, inputs: &Inputs, options: Options) -> Table<VirtualHostKey, HostBytes> {
    let (hosts, listeners) = (inputs.virtual_hosts, inputs.listeners);
    let visible = move |reader: &mut Reader<'_>, key: &VirtualHostKey, port| {
        let listener = ListenerKey {
            fleet: key.table.fleet.clone(),
            port: Port::tcp(port),
        };
        // A port without a listener belongs to another server.
        let moved = options.port_offset > 0 && reader.get(listeners, &listener).is_some();
        port.saturating_add(if moved { options.port_offset } else { 0 })
    };
    let with_parts = b.index(hosts, "hosts with parts", |key: &VirtualHostKey, host| {
        Vec::from_iter(route::may_have_parts(host).then(|| key.clone()))
    });
    let outlines = b.derive("envoy.outlines", with_parts, move |reader, key| {
        Some(route::Outline::of(&reader.get(hosts, key)?.routes))
    });
    let trees = b.derive("envoy.trees", outlines, move |reader, key| {
        reader.get(outlines, key)?.tree()
    });
    let parts = b.derive_many(
        "envoy.routes of parts",
        trees,
        move |reader, key: &VirtualHostKey| {
            let (Some(host), Some(tree)) = (reader.get(hosts, key), reader.get(trees, key)) else {
                return Vec::new();
            };
            let parts = route::parts(&host, &tree).into_iter();
            let parts = parts.map(|(text, part)| ((key.clone(), text), part));
            parts.collect()
        },
    );
    let encoded = b.derive("envoy.parts", parts, move |reader, key: &PartKey| {
        let part = reader.get(parts, key)?;
        Some(part.encode(key, &mut |port| visible(reader, &key.0, port)))
    });
    let by_host = b.index(encoded, "parts by host", |(host, _): &PartKey, _| {
        vec![host.clone()]
    });
    b.derive("envoy.virtual_hosts", hosts, move |reader, key| {
        let host = reader.get(hosts, key)?;
        let parts = match route::may_have_parts(&host) {
            true => reader.by(by_host, key),
            false => Vec::new(),
        };
        if parts.is_empty() {
            let host = virtual_host(key, &host, &mut |port| visible(reader, key, port));
            return Some(wire::virtual_host(host).into());
        }
        let parts: Vec<Bytes> = parts.iter().map(|(_, part)| Bytes::clone(part)).collect();
        let host = route::without_routes(key, &host);
        Some(wire::host_of_parts(host, &route::tree(), &parts))
    })
}
