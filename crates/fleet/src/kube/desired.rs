//! Builds a fleet's desired objects.
//!
//! In: a fleet's spec. Out: objects as JSON, with exactly the fields that Sesame manages. Pure. Must not depend on
//! observed objects.

mod outer;
mod pod;
mod service;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};
use sesame_model::{Autoscaling, FleetId, Port, Workload};

use super::addresses::RequestedAddresses;
use super::kind::ObjectKind;
use super::labels;
use super::layout;
use super::observed::FleetKey;
use super::spec::{FleetSpec, FleetsConfig};

pub(super) use self::outer::{class_spec, created_class};

/// The default number of Envoys: one of them can fail without an outage.
const DEFAULT_REPLICAS: u32 = 2;

/// A fleet's objects.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DesiredObjects {
    /// By kind. A fleet has at most one object of each kind, and of kinds with a port, one for each port.
    pub(super) objects: BTreeMap<ObjectKind, Value>,
    /// The initial number of Envoys if an autoscaler manages it.
    pub(super) initial_replicas: Option<u32>,
}

/// Shared by all of a fleet's objects.
struct Common<'a> {
    config: &'a FleetsConfig,
    fleet: &'a FleetId,
    spec: &'a FleetSpec,
    key: FleetKey,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// Builds a fleet's objects.
pub(super) fn desired_objects(
    config: &FleetsConfig,
    fleet: &FleetId,
    spec: &FleetSpec,
) -> DesiredObjects {
    let key = FleetKey::new(config, fleet);
    let common = Common {
        config,
        fleet,
        spec,
        labels: labels::labels(config, spec, fleet),
        annotations: labels::annotations(spec),
        key,
    };
    let parameters = &spec.parameters;
    let workload = parameters.workload.unwrap_or_default();
    let autoscaling = match workload {
        Workload::Deployment => parameters.autoscaling.unwrap_or_default(),
        Workload::DaemonSet => Autoscaling::Off,
    };

    let mut objects = BTreeMap::new();
    let mut add = |kind: ObjectKind, fields: Value| {
        objects.insert(kind, common.object(kind, fields));
    };
    add(
        ObjectKind::ServiceAccount,
        json!({ "automountServiceAccountToken": false }),
    );
    add(ObjectKind::ConfigMap, json!({ "data": common.files() }));
    // The API server rejects a Service without ports. An existing Service is kept, with its address.
    if !spec.request.ports.is_empty() {
        let requested = RequestedAddresses::of(spec);
        if requested.needs_service() {
            let fields = json!({ "spec": service::spec(&common, &requested) });
            add(ObjectKind::Service, fields);
            if let Some(class) = outer::class(spec) {
                let fields = json!({ "spec": outer::gateway(&common, &requested, class) });
                add(ObjectKind::Gateway, fields);
                for port in &spec.request.ports {
                    let fields = json!({ "spec": outer::route(&common, port) });
                    add(outer::route_kind(port), fields);
                }
            }
        }
        if requested.needs_cluster_service() {
            let fields = json!({ "spec": service::cluster_spec(&common, &requested) });
            add(ObjectKind::ClusterService, fields);
        }
    }
    if parameters.network_policy.unwrap_or(false) {
        let fields = json!({ "spec": network_policy(&common) });
        add(ObjectKind::NetworkPolicy, fields);
    }
    match workload {
        Workload::Deployment => {
            add(
                ObjectKind::Deployment,
                json!({ "spec": deployment(&common, autoscaling) }),
            );
            if parameters.disruption_budget.unwrap_or(true) {
                add(
                    ObjectKind::PodDisruptionBudget,
                    json!({ "spec": disruption_budget(&common) }),
                );
            }
        }
        Workload::DaemonSet => add(
            ObjectKind::DaemonSet,
            json!({ "spec": daemon_set(&common) }),
        ),
    }
    let mut initial_replicas = None;
    if let Autoscaling::Between {
        min,
        max,
        cpu_percent,
    } = autoscaling
    {
        initial_replicas = Some(min);
        add(
            ObjectKind::HorizontalPodAutoscaler,
            json!({ "spec": autoscaler(&common, min, max, cpu_percent) }),
        );
    }
    DesiredObjects {
        objects,
        initial_replicas,
    }
}

/// Builds the GatewayClass that is created for a fleet with this spec.
pub(super) fn class_objects(config: &FleetsConfig, spec: &FleetSpec) -> DesiredObjects {
    let class = created_class(spec);
    let objects = class.map(|class| {
        (
            ObjectKind::GatewayClass,
            outer::gateway_class(config, class),
        )
    });
    DesiredObjects {
        objects: objects.into_iter().collect(),
        initial_replicas: None,
    }
}

impl Common<'_> {
    fn object(&self, kind: ObjectKind, fields: Value) -> Value {
        let mut metadata = json!({
            "name": self.key.object_name(kind),
            "namespace": &*self.key.namespace,
            "labels": self.labels,
        });
        match kind {
            ObjectKind::ClusterService => {
                metadata["labels"][labels::ROUTABILITY] = json!("cluster");
            }
            // With this label, the Gateway API requires the Gateway's annotations too.
            ObjectKind::ServiceAccount => {
                let mut without = self.labels.clone();
                without.remove(labels::GATEWAY);
                metadata["labels"] = json!(without);
            }
            _ => {}
        }
        if let Some(owner) = owner_reference(self.config, self.spec) {
            metadata["ownerReferences"] = json!([owner]);
        }
        let mut annotations = match kind {
            ObjectKind::Service => service::annotations(self),
            // Its annotations can give it permissions in a cloud.
            ObjectKind::ServiceAccount => {
                let annotations = &self.spec.parameters.service_account_annotations;
                annotations.clone().unwrap_or_default()
            }
            _ => self.annotations.clone(),
        };
        if kind.is_workload() {
            annotations.insert(labels::RELEASE.to_owned(), self.config.release.clone());
        }
        if !annotations.is_empty() {
            metadata["annotations"] = json!(annotations);
        }
        let mut object = Map::from_iter([
            ("apiVersion".to_owned(), json!(kind.api_version())),
            ("kind".to_owned(), json!(kind.name())),
            ("metadata".to_owned(), metadata),
        ]);
        if let Value::Object(fields) = fields {
            object.extend(fields);
        }
        Value::Object(object)
    }

    /// The files that Envoy reads when it starts.
    fn files(&self) -> BTreeMap<&str, &str> {
        let files = self.spec.files.iter();
        files
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .chain([(layout::BOOTSTRAP_FILE, &*self.spec.bootstrap)])
            .collect()
    }

    fn selector(&self) -> Value {
        json!({ "matchLabels": labels::selector(&self.key.name) })
    }
}

/// The owner reference that makes Kubernetes delete a fleet's objects with their Gateway, even while Sesame isn't
/// running. An owner must be in the same namespace; without one, Sesame deletes the objects.
pub(super) fn owner_reference(config: &FleetsConfig, spec: &FleetSpec) -> Option<OwnerReference> {
    let owner = spec
        .request
        .owner
        .as_ref()
        .filter(|_| !config.own_namespace)?;
    Some(OwnerReference {
        api_version: "gateway.networking.k8s.io/v1".to_owned(),
        kind: "Gateway".to_owned(),
        name: owner.name.to_string(),
        uid: owner.uid.clone(),
        controller: Some(true),
        // `true` would require permission to update the Gateway's finalizers.
        block_owner_deletion: Some(false),
    })
}

/// Connections from anywhere to the listeners and the sidecar. Backends and collectors can be anywhere, so connections from
/// the Envoys are left to other policies.
fn network_policy(common: &Common<'_>) -> Value {
    let listeners = &common.spec.request.ports;
    let sidecar = Port::tcp(layout::sidecar_port(listeners));
    let ports: Vec<_> = listeners
        .iter()
        .chain([&sidecar])
        .map(|port| json!({ "port": port.number, "protocol": service::protocol(port) }))
        .collect();
    json!({
        "podSelector": common.selector(),
        "policyTypes": ["Ingress"],
        "ingress": [{ "ports": ports }],
    })
}

fn deployment(common: &Common<'_>, autoscaling: Autoscaling) -> Value {
    let mut spec = json!({
        "revisionHistoryLimit": 3,
        "selector": common.selector(),
        "strategy": {
            "type": "RollingUpdate",
            // Make before break: a new Envoy is ready before an old one drains.
            "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": 0 },
        },
        "template": pod::template(common, Workload::Deployment),
    });
    if autoscaling == Autoscaling::Off {
        spec["replicas"] = json!(common.spec.parameters.replicas.unwrap_or(DEFAULT_REPLICAS));
    }
    spec
}

fn daemon_set(common: &Common<'_>) -> Value {
    json!({
        "revisionHistoryLimit": 3,
        "selector": common.selector(),
        "updateStrategy": {
            "type": "RollingUpdate",
            // Pods don't use host ports, so a node can run two during an update.
            "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 },
        },
        "template": pod::template(common, Workload::DaemonSet),
    })
}

fn disruption_budget(common: &Common<'_>) -> Value {
    json!({
        "maxUnavailable": 1,
        "selector": common.selector(),
        // An Envoy that isn't ready doesn't serve clients, but would block its node's drain.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    })
}

fn autoscaler(common: &Common<'_>, min: u32, max: u32, cpu_percent: u32) -> Value {
    json!({
        "scaleTargetRef": {
            "apiVersion": ObjectKind::Deployment.api_version(),
            "kind": ObjectKind::Deployment.name(),
            "name": &*common.key.name,
        },
        "minReplicas": min,
        "maxReplicas": max,
        "metrics": [{
            "type": "Resource",
            "resource": {
                "name": "cpu",
                "target": { "type": "Utilization", "averageUtilization": cpu_percent },
            },
        }],
    })
}
