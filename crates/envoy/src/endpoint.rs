//! Endpoints as EDS resources.
//!
//! In: [`Endpoints`]. Out: `ClusterLoadAssignment`. It must not depend on the cluster's protocol.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as pb;
use sesame_model::{ClusterKey, Endpoint, Endpoints};

use crate::{names, wire};

/// A cluster's load assignment: one locality with all endpoints in order. If there are none, the assignment is empty,
/// and Envoy responds with 503; without an assignment the cluster would stay warming.
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
