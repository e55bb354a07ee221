//! The desired objects of a fleet.
//!
//! In: a fleet's spec. Out: objects as JSON, with exactly the fields that Sesame manages. Pure. Must not depend on the
//! observed objects.

mod pod;
mod service;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};
use sesame_model::{Autoscaling, FleetId, GatewayOwner, Workload};

use super::kind::Kind;
use super::labels;
use super::layout;
use super::seen::FleetKey;
use super::spec::{FleetSpec, FleetsConfig};

/// The default number of Envoys: one can fail without an outage.
const REPLICAS: u32 = 2;

/// A fleet's objects.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Desired {
    /// By kind: a fleet has one of each at most, and all have the same name.
    pub(super) objects: BTreeMap<Kind, Value>,
    /// The initial number of Envoys, where Sesame doesn't manage it: see [`Autoscaling`].
    pub(super) first_replicas: Option<u32>,
}

/// What all objects of a fleet share.
struct Common<'a> {
    config: &'a FleetsConfig,
    fleet: &'a FleetId,
    spec: &'a FleetSpec,
    key: FleetKey,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// The objects of a fleet.
pub(super) fn desired(config: &FleetsConfig, fleet: &FleetId, spec: &FleetSpec) -> Desired {
    let key = FleetKey::of(config, fleet);
    let common = Common {
        config,
        fleet,
        spec,
        labels: labels::labels(config, spec, &key.name),
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
    let mut add = |kind: Kind, rest: Value| {
        objects.insert(kind, common.object(kind, rest));
    };
    add(
        Kind::ServiceAccount,
        json!({ "automountServiceAccountToken": false }),
    );
    add(Kind::ConfigMap, json!({ "data": common.files() }));
    // The API server rejects a Service without ports. An existing Service is kept, and so is its address.
    if !spec.request.ports.is_empty() {
        add(Kind::Service, json!({ "spec": service::spec(&common) }));
    }
    match workload {
        Workload::Deployment => {
            add(
                Kind::Deployment,
                json!({ "spec": deployment(&common, autoscaling) }),
            );
            if parameters.disruption_budget.unwrap_or(true) {
                add(
                    Kind::PodDisruptionBudget,
                    json!({ "spec": disruption_budget(&common) }),
                );
            }
        }
        Workload::DaemonSet => add(Kind::DaemonSet, json!({ "spec": daemon_set(&common) })),
    }
    let mut first_replicas = None;
    if let Autoscaling::Between {
        min,
        max,
        cpu_percent,
    } = autoscaling
    {
        first_replicas = Some(min);
        let bounds = (min, max, cpu_percent);
        add(
            Kind::HorizontalPodAutoscaler,
            json!({ "spec": autoscaler(&common, bounds) }),
        );
    }
    Desired {
        objects,
        first_replicas,
    }
}

impl Common<'_> {
    fn object(&self, kind: Kind, rest: Value) -> Value {
        let mut metadata = json!({
            "name": &*self.key.name,
            "namespace": &*self.key.namespace,
            "labels": self.labels,
        });
        if let Some(owner) = &self.spec.request.owner {
            metadata["ownerReferences"] = json!([owner_reference(owner)]);
        }
        let annotations = match kind {
            Kind::Service => service::annotations(self),
            _ => self.annotations.clone(),
        };
        if !annotations.is_empty() {
            metadata["annotations"] = json!(annotations);
        }
        let mut object = Map::from_iter([
            ("apiVersion".to_owned(), json!(kind.api_version())),
            ("kind".to_owned(), json!(kind.name())),
            ("metadata".to_owned(), metadata),
        ]);
        if let Value::Object(rest) = rest {
            object.extend(rest);
        }
        Value::Object(object)
    }

    /// The files that Envoy reads at its start.
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

/// The reference by which Kubernetes deletes a fleet's objects with their Gateway, even without Sesame.
/// `blockOwnerDeletion` would require permission to update the Gateway's finalizers.
pub(super) fn owner_reference(owner: &GatewayOwner) -> OwnerReference {
    OwnerReference {
        api_version: "gateway.networking.k8s.io/v1".to_owned(),
        kind: "Gateway".to_owned(),
        name: owner.name.to_string(),
        uid: owner.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
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
        spec["replicas"] = json!(common.spec.parameters.replicas.unwrap_or(REPLICAS));
    }
    spec
}

fn daemon_set(common: &Common<'_>) -> Value {
    json!({
        "revisionHistoryLimit": 3,
        "selector": common.selector(),
        "updateStrategy": {
            "type": "RollingUpdate",
            // Pods use no host ports, so a node can run two during an update.
            "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 },
        },
        "template": pod::template(common, Workload::DaemonSet),
    })
}

fn disruption_budget(common: &Common<'_>) -> Value {
    json!({
        "maxUnavailable": 1,
        "selector": common.selector(),
        // An Envoy that never became ready serves no client, and would block the drain of a node.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    })
}

fn autoscaler(common: &Common<'_>, (min, max, cpu_percent): (u32, u32, u32)) -> Value {
    json!({
        "scaleTargetRef": {
            "apiVersion": Kind::Deployment.api_version(),
            "kind": Kind::Deployment.name(),
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
