//! The objects that a fleet should be made of.
//!
//! In: what is wanted. Out: objects as JSON, each with all that Sesame says about it and nothing else: what is left out
//! belongs to others. Pure. It must not know what is there already.

mod pod;
mod service;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};
use sesame_model::{Autoscaling, FleetId, Workload};

use super::kind::Kind;
use super::labels;
use super::layout;
use super::names;
use super::spec::{Config, FleetSpec};

/// Envoys of a fleet, unless its owner says how many: one may go without an outage.
const REPLICAS: u32 = 2;

/// A fleet's objects.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Desired {
    /// By kind: a fleet has one of each at most, and all have the same name.
    pub(super) objects: BTreeMap<Kind, Value>,
    /// The number of Envoys with which to begin where we don't say it for ever: see [`Autoscaling`].
    pub(super) first_replicas: Option<u32>,
}

/// What all objects of a fleet share.
struct Common<'a> {
    config: &'a Config,
    fleet: &'a FleetId,
    spec: &'a FleetSpec,
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// The objects of a fleet.
pub(super) fn desired(config: &Config, fleet: &FleetId, spec: &FleetSpec) -> Desired {
    let name = names::object(fleet);
    let common = Common {
        config,
        fleet,
        spec,
        labels: labels::labels(config, spec, &name),
        annotations: labels::annotations(spec),
        name,
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
    // A Service without a port is refused. One that is there keeps its address until there are ports again.
    if !spec.ports.is_empty() {
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
        let gateway = &self.spec.gateway;
        let mut metadata = json!({
            "name": self.name,
            "namespace": &*gateway.namespace,
            "labels": self.labels,
            "ownerReferences": [owner_reference(self.spec)],
        });
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

    /// What Envoy starts with.
    fn files(&self) -> BTreeMap<&str, &str> {
        let files = self.spec.files.iter();
        files
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .chain([(layout::BOOTSTRAP_FILE, &*self.spec.bootstrap)])
            .collect()
    }

    fn selector(&self) -> Value {
        json!({ "matchLabels": labels::selector(&self.name) })
    }
}

/// Whatever happens to Sesame, a fleet's objects go with their Gateway. It doesn't wait for them: that would take a right on
/// its finalizers.
pub(super) fn owner_reference(spec: &FleetSpec) -> OwnerReference {
    OwnerReference {
        api_version: "gateway.networking.k8s.io/v1".to_owned(),
        kind: "Gateway".to_owned(),
        name: spec.gateway.name.to_string(),
        uid: spec.gateway_uid.clone(),
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
            // A new Envoy has its listeners before an old one goes.
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
            // No port of the node is used, so two can be on one for a while.
            "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 },
        },
        "template": pod::template(common, Workload::DaemonSet),
    })
}

fn disruption_budget(common: &Common<'_>) -> Value {
    json!({
        "maxUnavailable": 1,
        "selector": common.selector(),
        // An Envoy that never got ready protects nobody and would keep a node from being emptied.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    })
}

fn autoscaler(common: &Common<'_>, (min, max, cpu_percent): (u32, u32, u32)) -> Value {
    json!({
        "scaleTargetRef": {
            "apiVersion": Kind::Deployment.api_version(),
            "kind": Kind::Deployment.name(),
            "name": common.name,
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
