//! Endpoints as EDS resources.
//!
//! In: [`Endpoints`]. Out: `ClusterLoadAssignment`. It must not depend on the cluster's protocol.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as pb;
use sesame_model::{ClusterKey, Endpoint, EndpointShare, Endpoints};

use crate::{names, wire};

/// A cluster's load assignment: one locality with all endpoints in order, or one for each share. Without endpoints, the
/// assignment is empty, and Envoy responds with 503; without an assignment the cluster would stay warming.
pub fn endpoints(key: &ClusterKey, endpoints: &Endpoints) -> pb::ClusterLoadAssignment {
    let hosts: Vec<_> = endpoints.endpoints.iter().map(host).collect();
    let whole = (!hosts.is_empty()).then(|| pb::LocalityLbEndpoints {
        lb_endpoints: hosts,
        ..Default::default()
    });
    let shares = endpoints.shares.iter().map(share);
    pb::ClusterLoadAssignment {
        cluster_name: names::cluster(key),
        endpoints: whole.into_iter().chain(shares).collect(),
        ..Default::default()
    }
}

/// The locality for a share. If two Services have an endpoint in common, Envoy uses it only for the first.
pub(crate) fn share(share: &EndpointShare) -> pb::LocalityLbEndpoints {
    let name = names::cluster(&share.cluster);
    locality(name, share.weight, &share.endpoints)
}

/// An endpoint whose locality changes loses its sessions, so a locality is named after its backend.
pub(crate) fn locality(
    name: String,
    weight: u32,
    endpoints: &[Endpoint],
) -> pb::LocalityLbEndpoints {
    pb::LocalityLbEndpoints {
        locality: Some(core::Locality {
            sub_zone: name,
            ..Default::default()
        }),
        load_balancing_weight: wire::uint32(weight),
        lb_endpoints: endpoints.iter().map(host).collect(),
        ..Default::default()
    }
}

pub(crate) fn host(endpoint: &Endpoint) -> pb::LbEndpoint {
    let address = SocketAddr::new(endpoint.address, endpoint.port);
    host_of(pb::Endpoint {
        address: Some(wire::socket_address(address)),
        health_check_config: endpoint
            .health_port
            .map(|port| pb::endpoint::HealthCheckConfig {
                port_value: port.into(),
                ..Default::default()
            }),
        ..Default::default()
    })
}

pub(crate) fn host_at(address: core::Address) -> pb::LbEndpoint {
    host_of(pb::Endpoint {
        address: Some(address),
        ..Default::default()
    })
}

fn host_of(endpoint: pb::Endpoint) -> pb::LbEndpoint {
    pb::LbEndpoint {
        host_identifier: Some(pb::lb_endpoint::HostIdentifier::Endpoint(endpoint)),
        ..Default::default()
    }
}
