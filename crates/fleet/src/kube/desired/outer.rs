//! A Gateway of another implementation in front of a fleet's Service, its routes and its class.
//!
//! Fields with a default in the CRD are set explicitly, so that stored objects equal the desired ones.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_model::{
    CreatedClass, FleetParameters, FleetRequest, OuterClass, Port, Publishing, Transport,
};

use super::Common;
use super::service::{port_name, protocol};
use crate::kube::addresses::RequestedAddresses;
use crate::kube::kind::ObjectKind;
use crate::kube::labels;
use crate::kube::names;
use crate::kube::spec::{FleetSpec, FleetsConfig};

/// The API group.
const GROUP: &str = "gateway.networking.k8s.io";

/// The class of the Gateway in front of the fleet; `None` if the fleet has none.
pub(super) fn class(spec: &FleetSpec) -> Option<&OuterClass> {
    match spec.parameters.publishing.as_ref()? {
        Publishing::Gateway(class) => Some(class),
        Publishing::LoadBalancer | Publishing::NodePort | Publishing::ClusterIp => None,
    }
}

/// The GatewayClass that is created for the fleet.
pub(in crate::kube) fn created_class(spec: &FleetSpec) -> Option<&CreatedClass> {
    match class(spec)? {
        OuterClass::Created(class) => Some(class),
        OuterClass::Existing(_) => None,
    }
}

/// The spec of a GatewayClass that fleets share: only what its object depends on.
pub(in crate::kube) fn class_spec(class: CreatedClass, managed: bool) -> FleetSpec {
    FleetSpec {
        request: FleetRequest::new(),
        parameters: FleetParameters {
            publishing: Some(Publishing::Gateway(OuterClass::Created(class))),
            managed: Some(managed),
            ..FleetParameters::default()
        },
        bootstrap: "".into(),
        module: false,
        files: BTreeMap::new(),
    }
}

/// The Gateway's spec: a listener for each port of the Service.
pub(super) fn gateway(
    common: &Common<'_>,
    requested: &RequestedAddresses,
    class: &OuterClass,
) -> Value {
    let ports = common.spec.request.ports.iter();
    let listeners: Vec<Value> = ports
        .map(|port| {
            json!({
                "name": port_name(port),
                "port": port.number,
                "protocol": protocol(port),
            })
        })
        .collect();
    let name = match class {
        OuterClass::Existing(name) => name.clone(),
        OuterClass::Created(class) => names::gateway_class(&common.config.instance, class),
    };
    let mut spec = json!({ "gatewayClassName": name, "listeners": listeners });
    let addresses: Vec<Value> = requested
        .ips()
        .map(|ip| json!({ "type": "IPAddress", "value": ip.to_string() }))
        .collect();
    if !addresses.is_empty() {
        spec["addresses"] = json!(addresses);
    }
    spec
}

/// The kind of a port's route.
pub(super) fn route_kind(port: &Port) -> ObjectKind {
    match port.transport {
        Transport::Tcp => ObjectKind::TcpRoute(Some(port.number)),
        Transport::Udp => ObjectKind::UdpRoute(Some(port.number)),
    }
}

/// The spec of a port's route, from the Gateway's listener to the Service.
pub(super) fn route(common: &Common<'_>, port: &Port) -> Value {
    json!({
        "parentRefs": [{
            "group": GROUP,
            "kind": ObjectKind::Gateway.name(),
            "name": common.key.object_name(ObjectKind::Gateway),
            "sectionName": port_name(port),
        }],
        "rules": [{
            "backendRefs": [{
                "group": "",
                "kind": ObjectKind::Service.name(),
                "name": common.key.object_name(ObjectKind::Service),
                "port": port.number,
                "weight": 1,
            }],
        }],
    })
}

/// A GatewayClass that fleets share.
pub(super) fn gateway_class(config: &FleetsConfig, class: &CreatedClass) -> Value {
    let name = names::gateway_class(&config.instance, class);
    let mut spec = json!({
        "controllerName": class.controller_name,
        "description": "Gateways in front of Sesame's Envoys",
    });
    if let Some(parameters) = &class.parameters {
        let mut reference = json!({
            "group": parameters.group,
            "kind": parameters.kind,
            "name": parameters.name,
        });
        if let Some(namespace) = &parameters.namespace {
            reference["namespace"] = json!(namespace);
        }
        spec["parametersRef"] = reference;
    }
    json!({
        "apiVersion": ObjectKind::GatewayClass.api_version(),
        "kind": ObjectKind::GatewayClass.name(),
        "metadata": { "name": name, "labels": labels::class_labels(config, &name) },
        "spec": spec,
    })
}
