//! Labels and annotations of a fleet's objects: Sesame's own, and the owner's.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use sesame_model::{FLEET_LABEL, FleetId};

use super::kind::ObjectKind;
use super::names;
use super::spec::{FleetSpec, FleetsConfig};

/// The name of the program that manages the object.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`].
pub(super) const SESAME: &str = "sesame";
/// The instance of Sesame that manages the object.
pub(super) const INSTANCE: &str = "app.kubernetes.io/instance";
/// The name of the fleet's objects. Services and workloads select pods by this label.
pub(super) const FLEET: &str = FLEET_LABEL;
/// Set on the Service for addresses inside the cluster.
pub(super) const ROUTABILITY: &str = "projectsesame.io/routability";
/// The Gateway. The Gateway API requires this label on a Gateway's resources.
pub(super) const GATEWAY: &str = "gateway.networking.k8s.io/gateway-name";
/// The Gateway's namespace, if it isn't the object's.
const GATEWAY_NAMESPACE: &str = "projectsesame.io/gateway-namespace";
/// The Gateway's class.
const GATEWAY_CLASS: &str = "gateway.networking.k8s.io/gateway-class-name";
/// Set on pods: a hash of their files. Changing a file changes the pod template, so the pods are replaced.
pub(super) const BOOTSTRAP: &str = "projectsesame.io/bootstrap";

/// Set on workloads: the release of Sesame that applied them. Workloads of another release are upgraded in order.
pub(super) const RELEASE: &str = "projectsesame.io/release";

/// Labels that Kubernetes' controllers set to distinguish pods. Owners can't override them.
const RESERVED: [&str; 3] = [
    "pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
];

/// Prefixes of Sesame's own keys and the Deployment controller's. Owners can't set them.
const RESERVED_PREFIXES: [&str; 2] = ["projectsesame.io/", "deployment.kubernetes.io/"];

/// The labels of a fleet's objects: the owner's, overridden by ours.
pub(super) fn labels(
    config: &FleetsConfig,
    spec: &FleetSpec,
    fleet: &FleetId,
) -> BTreeMap<String, String> {
    let mut labels = without_reserved(&spec.request.labels);
    let ours = [
        (MANAGED_BY, SESAME.to_owned()),
        (INSTANCE, names::label_value(&config.instance)),
        ("app.kubernetes.io/name", "envoy".to_owned()),
        ("app.kubernetes.io/component", "gateway".to_owned()),
        (FLEET, names::object(fleet)),
    ];
    let of_owner = spec.request.owner.iter().flat_map(|owner| {
        [
            (GATEWAY, names::label_value(&owner.name)),
            (GATEWAY_CLASS, names::label_value(&owner.class)),
        ]
    });
    let namespace = match fleet {
        FleetId::Gateway { namespace, .. } if config.own_namespace => {
            Some((GATEWAY_NAMESPACE, namespace.to_string()))
        }
        _ => None,
    };
    let ours = ours.into_iter().chain(of_owner).chain(namespace);
    labels.extend(ours.map(|(key, value)| (key.to_owned(), value)));
    labels
}

/// The labels of a GatewayClass that fleets share.
pub(super) fn class_labels(config: &FleetsConfig, name: &str) -> BTreeMap<String, String> {
    let ours = [
        (MANAGED_BY, SESAME.to_owned()),
        (INSTANCE, names::label_value(&config.instance)),
        (FLEET, name.to_owned()),
    ];
    ours.map(|(key, value)| (key.to_owned(), value)).into()
}

/// The selector of a fleet's pods. It depends only on the name, since a Deployment's selector is immutable.
pub(super) fn selector(fleet_name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(FLEET.to_owned(), fleet_name.to_owned())])
}

/// The annotations of a fleet's objects.
pub(super) fn annotations(spec: &FleetSpec) -> BTreeMap<String, String> {
    without_reserved(&spec.request.annotations)
}

/// The label selector for all objects of an instance's fleets.
pub(super) fn instance_selector(instance: &str) -> String {
    let instance = names::label_value(instance);
    format!("{MANAGED_BY}={SESAME},{INSTANCE}={instance},{FLEET}")
}

/// Selects the pods of all of an instance's fleets, as in a NetworkPolicy.
pub fn pods_selector(instance: &str) -> LabelSelector {
    let labels = [
        (MANAGED_BY, SESAME.to_owned()),
        (INSTANCE, names::label_value(instance)),
    ];
    LabelSelector {
        match_labels: Some(labels.map(|(key, value)| (key.to_owned(), value)).into()),
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: FLEET.to_owned(),
            operator: "Exists".to_owned(),
            values: None,
        }]),
    }
}

/// The label selector for watching a kind in all of this instance's fleets.
pub(super) fn watch_selector(config: &FleetsConfig, kind: ObjectKind) -> String {
    let fleets = instance_selector(&config.instance);
    let which = match kind {
        ObjectKind::Service => format!(",!{ROUTABILITY}"),
        ObjectKind::ClusterService => format!(",{ROUTABILITY}"),
        _ => String::new(),
    };
    format!("{fleets}{which}")
}

/// Removes keys that owners can't set.
fn without_reserved(from_owner: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let reserved = |key: &str| {
        RESERVED.contains(&key)
            || RESERVED_PREFIXES
                .iter()
                .any(|prefix| key.starts_with(prefix))
    };
    from_owner
        .iter()
        .filter(|(key, _)| !reserved(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
