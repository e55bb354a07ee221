//! Addresses of a cluster as EDS resources.
//!
//! In: [`Endpoints`]. Out: `ClusterLoadAssignment`. It must not know how the cluster speaks to them.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::endpoint::v3 as pb;
use sesame_model::{ClusterKey, Endpoint, Endpoints};

use crate::{names, wire};

/// The assignment of that cluster: one locality with all endpoints in their order. Without endpoints it is empty, which
/// Envoy answers with 503 at once; a missing assignment would let the cluster wait for it.
pub fn endpoints(key: &ClusterKey, endpoints: &Endpoints) -> pb::ClusterLoadAssignment {
    let hosts: Vec<_> = endpoints.endpoints.iter().map(host).collect();
    pb::ClusterLoadAssignment {
        cluster_name: names::cluster(key),
        endpoints: if hosts.is_empty() {
            vec![]
        } else {
            vec![pb::LocalityLbEndpoints {
                lb_endpoints: hosts,
                ..Default::default()
            }]
        },
        ..Default::default()
    }
}

fn host(endpoint: &Endpoint) -> pb::LbEndpoint {
    let address = SocketAddr::new(endpoint.address, endpoint.port);
    pb::LbEndpoint {
        host_identifier: Some(pb::lb_endpoint::HostIdentifier::Endpoint(pb::Endpoint {
            address: Some(wire::socket_address(address)),
            ..Default::default()
        })),
        ..Default::default()
    }
}
