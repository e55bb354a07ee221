//! Engine stages from the model to bytes, one row at a time.
//!
//! In: tables of the model. Out: tables of encoded resources, each row encoded once however many Envoys get it.
//! It must not know fleets or how resources travel; [`Assembler`](crate::Assembler) gives each fleet its own.

use std::sync::Arc;

use prost::bytes::Bytes;
use sesame_engine::{Builder, Table};
use sesame_model::{
    Certificate, CertificateKey, Cluster, ClusterKey, Endpoints, FleetId, Listener, ListenerKey,
    RouteTable, RouteTableKey, VirtualHost, VirtualHostKey,
};

use crate::route::{reserved, table_head};
use crate::shard::is_everywhere;
use crate::{cluster, endpoints, secret, virtual_host, wire};

/// The tables of the model.
#[derive(Clone, Copy, Debug)]
pub struct Inputs {
    /// Ports.
    pub listeners: Table<ListenerKey, Listener>,
    /// Route tables without their hosts.
    pub route_tables: Table<RouteTableKey, RouteTable>,
    /// The hosts.
    pub virtual_hosts: Table<VirtualHostKey, VirtualHost>,
    /// Service ports.
    pub clusters: Table<ClusterKey, Cluster>,
    /// Their Pods.
    pub endpoints: Table<ClusterKey, Endpoints>,
    /// Certificates.
    pub certificates: Table<CertificateKey, Certificate>,
    /// Which fleet may see which cluster.
    pub fleet_clusters: Table<(FleetId, ClusterKey), ()>,
    /// Which fleet may see which certificate.
    pub fleet_certificates: Table<(FleetId, CertificateKey), ()>,
}

/// What holds for all resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Added to a Gateway's port to get the one that clients see; 0 in a cluster, where the Service maps ports.
    pub port_offset: u16,
    /// Which route tables are in shards.
    pub sharding: Sharding,
}

/// Which route tables are in shards: then a change costs an Envoy one shard instead of the table, and each request some
/// microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharding {
    /// Those with some hundreds of hosts.
    #[default]
    Auto,
    /// All of them.
    Always,
    /// None of them.
    Never,
}

/// The tables of encoded resources. Whole resources are the bytes of a `google.protobuf.Any`.
#[derive(Clone, Copy, Debug)]
pub struct Encoded {
    /// RDS resources without their names and hosts.
    pub route_tables: Table<RouteTableKey, EncodedTable>,
    /// Their hosts: the bytes of a `VirtualHost`.
    pub virtual_hosts: Table<VirtualHostKey, Bytes>,
    /// CDS resources.
    pub clusters: Table<ClusterKey, Bytes>,
    /// EDS resources.
    pub endpoints: Table<ClusterKey, Bytes>,
    /// SDS resources.
    pub certificates: Table<CertificateKey, Bytes>,
}

/// A route table apart from its name and the hosts that are rows of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedTable {
    /// Bytes of a `RouteConfiguration`: what stands between the name and the hosts.
    pub(crate) head: Bytes,
    /// Domains that must not fall to a wider host, sorted, with the bytes of the `VirtualHost` that sees to it where the
    /// domain has none of its own.
    pub(crate) reserved: Vec<(Arc<str>, Bytes)>,
    /// How many domains there are in `head` and `reserved` that would be in every shard.
    pub(crate) everywhere: usize,
}

impl EncodedTable {
    pub(crate) fn reserves(&self, domain: &str) -> bool {
        let at = self
            .reserved
            .binary_search_by(|(other, _)| (**other).cmp(domain));
        at.is_ok()
    }
}

/// Declares the stages, which run behind whatever makes `inputs`. A changed row costs its own encoding and nothing else.
pub fn stages(b: &mut Builder, inputs: Inputs, options: Options) -> Encoded {
    let Inputs {
        route_tables,
        virtual_hosts,
        clusters,
        endpoints,
        certificates,
        ..
    } = inputs;
    Encoded {
        route_tables: b.derive("envoy.route_tables", route_tables, move |reader, key| {
            let row = reader.get(route_tables, key)?;
            Some(encoded_table(&row))
        }),
        virtual_hosts: b.derive("envoy.virtual_hosts", virtual_hosts, move |reader, key| {
            let row = reader.get(virtual_hosts, key)?;
            let host = virtual_host(key, &row, options.port_offset);
            Some(wire::virtual_host(host).into())
        }),
        clusters: b.derive("envoy.clusters", clusters, move |reader, key| {
            let row = reader.get(clusters, key)?;
            Some(wire::resource(&cluster(key, &row)))
        }),
        endpoints: b.derive("envoy.endpoints", endpoints, move |reader, key| {
            let row = reader.get(endpoints, key)?;
            Some(wire::resource(&crate::endpoints(key, &row)))
        }),
        certificates: b.derive("envoy.certificates", certificates, move |reader, key| {
            let row = reader.get(certificates, key)?;
            Some(wire::resource(&secret(key, &row)))
        }),
    }
}

fn encoded_table(table: &RouteTable) -> EncodedTable {
    let mut reserved: Vec<(Arc<str>, Bytes)> = table
        .reserved
        .iter()
        .map(|domain| {
            (
                domain.as_str().into(),
                wire::virtual_host(self::reserved(domain)).into(),
            )
        })
        .collect();
    reserved.sort();
    let wide = reserved.iter().filter(|(domain, _)| is_everywhere(domain));
    EncodedTable {
        head: wire::table(table_head(table)).into(),
        everywhere: table.misdirected.len() + wide.count(),
        reserved,
    }
}

/// The EDS resource of a cluster that nobody answers for.
pub(crate) fn no_endpoints(key: &ClusterKey) -> Bytes {
    wire::resource(&endpoints(key, &Endpoints::default()))
}
