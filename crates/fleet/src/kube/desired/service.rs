//! A fleet's Service: its ports and its address.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_model::{Port, Publishing, Transport};

use super::Common;
use crate::kube::addresses::RequestedAddresses;
use crate::kube::labels;

/// The owner's annotations, overridden by those for a cloud's load balancer, then by those for the Service.
pub(super) fn annotations(common: &Common<'_>) -> BTreeMap<String, String> {
    let parameters = &common.spec.parameters;
    let mut annotations = common.annotations.clone();
    if parameters.publishing.clone().unwrap_or_default() == Publishing::LoadBalancer {
        annotations.extend(
            parameters
                .load_balancer_annotations
                .clone()
                .unwrap_or_default(),
        );
    }
    annotations.extend(parameters.service_annotations.clone().unwrap_or_default());
    annotations
}

/// The Service's spec. The API server assigns node ports, so a port keeps its node port when other ports change.
pub(super) fn spec(common: &Common<'_>, requested: &RequestedAddresses) -> Value {
    let parameters = &common.spec.parameters;
    let publishing = parameters.publishing.clone().unwrap_or_default();
    let mut spec = of_type(common, &publishing);
    if matches!(publishing, Publishing::LoadBalancer | Publishing::NodePort)
        && let Some(policy) = parameters.external_traffic_policy
    {
        spec["externalTrafficPolicy"] = json!(match policy {
            sesame_model::TrafficPolicy::Cluster => "Cluster",
            sesame_model::TrafficPolicy::Local => "Local",
        });
    }
    if publishing == Publishing::LoadBalancer {
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
    let mut spec = of_type(common, &Publishing::ClusterIp);
    if let Some(ip) = requested.cluster_ip() {
        spec["clusterIP"] = json!(ip.to_string());
    }
    spec
}

fn of_type(common: &Common<'_>, publishing: &Publishing) -> Value {
    let ports: Vec<_> = common.spec.request.ports.iter().map(port).collect();
    json!({
        "type": match publishing {
            Publishing::LoadBalancer => "LoadBalancer",
            Publishing::NodePort => "NodePort",
            Publishing::ClusterIp | Publishing::Gateway(_) => "ClusterIP",
        },
        "ipFamilyPolicy": "PreferDualStack",
        "ports": ports,
        "selector": labels::selector(&common.key.name),
    })
}

/// Envoy listens on the Gateway's port, so the target port is the same.
fn port(port: &Port) -> Value {
    json!({
        "name": port_name(port),
        "port": port.number,
        "protocol": protocol(port),
        "targetPort": port.number,
    })
}

/// The name of a port and of its listeners.
pub(super) fn port_name(port: &Port) -> String {
    match port.transport {
        Transport::Tcp => format!("tcp-{}", port.number),
        Transport::Udp => format!("udp-{}", port.number),
    }
}

pub(super) fn protocol(port: &Port) -> &'static str {
    match port.transport {
        Transport::Tcp => "TCP",
        Transport::Udp => "UDP",
    }
}
