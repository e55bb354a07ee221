//! What stands on a fleet's objects: what Sesame finds them by, and what their owner wants on them.

use std::collections::BTreeMap;

use super::names;
use super::spec::{Config, FleetSpec};

/// Whose objects these are.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`].
pub(super) const SESAME: &str = "sesame";
/// Which Sesame's.
pub(super) const INSTANCE: &str = "app.kubernetes.io/instance";
/// The fleet: the name of its objects. What Services and Deployments select by.
pub(super) const FLEET: &str = "projectsesame.io/fleet";
/// The Gateway, as the Gateway API wants it on what is made for one.
const GATEWAY: &str = "gateway.networking.k8s.io/gateway-name";
/// The Gateway's class.
const GATEWAY_CLASS: &str = "gateway.networking.k8s.io/gateway-class-name";
/// On pods: a hash of what they start with, so that others come when that changes.
pub(super) const BOOTSTRAP: &str = "projectsesame.io/bootstrap";

/// Labels by which controllers of Kubernetes tell pods apart. Given by somebody else they would break that.
const RESERVED: [&str; 3] = [
    "pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
];

/// Sesame's own keys, and those of Deployments' revisions.
const RESERVED_PREFIXES: [&str; 2] = ["projectsesame.io/", "deployment.kubernetes.io/"];

/// The labels of all objects of a fleet: the owner's, and ours over them.
pub(super) fn labels(
    config: &Config,
    spec: &FleetSpec,
    fleet_name: &str,
) -> BTreeMap<String, String> {
    let mut labels = allowed(&spec.labels);
    let ours = [
        (MANAGED_BY, SESAME.to_owned()),
        (INSTANCE, names::label_value(&config.instance)),
        ("app.kubernetes.io/name", "envoy".to_owned()),
        ("app.kubernetes.io/component", "gateway".to_owned()),
        (FLEET, fleet_name.to_owned()),
        (GATEWAY, names::label_value(&spec.gateway.name)),
        (GATEWAY_CLASS, names::label_value(&spec.gateway_class)),
    ];
    labels.extend(ours.map(|(key, value)| (key.to_owned(), value)));
    labels
}

/// What is selected by. It never changes for a name: a Deployment's selector can't.
pub(super) fn selector(fleet_name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(FLEET.to_owned(), fleet_name.to_owned())])
}

/// The annotations of all objects of a fleet.
pub(super) fn annotations(spec: &FleetSpec) -> BTreeMap<String, String> {
    allowed(&spec.annotations)
}

/// The selector of watches: all fleets of this Sesame.
pub(super) fn watched(config: &Config) -> String {
    let instance = names::label_value(&config.instance);
    format!("{MANAGED_BY}={SESAME},{INSTANCE}={instance},{FLEET}")
}

fn allowed(wanted: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let reserved = |key: &str| {
        RESERVED.contains(&key)
            || RESERVED_PREFIXES
                .iter()
                .any(|prefix| key.starts_with(prefix))
    };
    wanted
        .iter()
        .filter(|(key, _)| !reserved(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
