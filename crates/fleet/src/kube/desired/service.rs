//! A fleet's Service: its ports and its address.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_model::{Port, ServiceType, Transport};

use super::Common;
use crate::kube::addresses::RequestedAddresses;
use crate::kube::labels;

/// The owner's annotations, overridden by those for the load balancer.
pub(super) fn annotations(common: &Common<'_>) -> BTreeMap<String, String> {
    let mut annotations = common.annotations.clone();
    annotations.extend(
        common
            .spec
            .parameters
            .service_annotations
            .clone()
            .unwrap_or_default(),
    );
    annotations
}

/// The Service's spec. The API server assigns node ports, so a port keeps its node port when other ports change.
pub(super) fn spec(common: &Common<'_>, requested: &RequestedAddresses) -> Value {
    let parameters = &common.spec.parameters;
    let type_ = parameters.service_type.unwrap_or_default();
    let mut spec = of_type(common, type_);
    if type_ != ServiceType::ClusterIp
        && let Some(policy) = parameters.external_traffic_policy
    {
        spec["externalTrafficPolicy"] = json!(match policy {
            sesame_model::TrafficPolicy::Cluster => "Cluster",
            sesame_model::TrafficPolicy::Local => "Local",
        });
    }
    if type_ == ServiceType::LoadBalancer {
        if let Some(class) = &parameters.load_balancer_class {
            spec["loadBalancerClass"] = json!(class);
        }
        if let Some(ranges) = &parameters.load_balancer_source_ranges {
            spec["loadBalancerSourceRanges"] = json!(ranges);
        }
        if let Some(ip) = requested.ip() {
            spec["loadBalancerIP"] = json!(ip.to_string());
        }
    }
    spec
}

/// The spec of the Service for addresses inside the cluster.
pub(super) fn cluster_spec(common: &Common<'_>, requested: &RequestedAddresses) -> Value {
    let mut spec = of_type(common, ServiceType::ClusterIp);
    if let Some(ip) = requested.cluster_ip() {
        spec["clusterIP"] = json!(ip.to_string());
    }
    spec
}

fn of_type(common: &Common<'_>, type_: ServiceType) -> Value {
    let ports: Vec<_> = common.spec.request.ports.iter().map(port).collect();
    json!({
        "type": match type_ {
            ServiceType::LoadBalancer => "LoadBalancer",
            ServiceType::NodePort => "NodePort",
            ServiceType::ClusterIp => "ClusterIP",
        },
        "ipFamilyPolicy": "PreferDualStack",
        "ports": ports,
        "selector": labels::selector(&common.key.name),
    })
}

/// Envoy listens on the Gateway's port, so the target port is the same.
fn port(port: &Port) -> Value {
    let (prefix, protocol) = match port.transport {
        Transport::Tcp => ("tcp", "TCP"),
        Transport::Udp => ("udp", "UDP"),
    };
    json!({
        "name": format!("{prefix}-{}", port.number),
        "port": port.number,
        "protocol": protocol,
        "targetPort": port.number,
    })
}
