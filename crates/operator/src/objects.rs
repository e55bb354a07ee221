//! The objects of an instance. Those in its namespace are the same as the chart's.
//!
//! Pure: no network.

mod deployment;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use sesame_api::{ConfigurationSpec, EnvoyNamespace};
use sesame_fleet::kube::{names, pods_selector};

use crate::OperatorConfig;
use crate::instance::{self, Instance};

/// The name of an instance's objects in its namespace.
pub(crate) const NAME: &str = "sesame";

/// The operator's name as a field manager.
pub(crate) const FIELD_MANAGER: &str = "sesame-operator";

/// Annotation: the configuration that an object belongs to, as `NAMESPACE/NAME`.
pub(crate) const CONFIGURATION: &str = "projectsesame.io/configuration";

/// Label: the namespace of that configuration.
const CONFIGURATION_NAMESPACE: &str = "projectsesame.io/configuration-namespace";

/// The ClusterRoles for instances, which are installed with the operator.
mod roles {
    /// Cluster-scoped objects.
    pub(super) const CLUSTER: &str = "sesame-instance-cluster";
    /// Reading objects, and writing their statuses.
    pub(super) const OBJECTS: &str = "sesame-instance-objects";
    /// Running Envoys.
    pub(super) const FLEETS: &str = "sesame-instance-fleets";
    /// Writing the Services of XBackends. [`FLEETS`] includes it.
    pub(super) const SERVICES: &str = "sesame-instance-services";
    /// The instance's own namespace.
    pub(super) const OWN: &str = "sesame-instance-own";
    /// Events about cluster-scoped objects.
    pub(super) const EVENTS: &str = "sesame-instance-events";
}

/// The namespace of Events about cluster-scoped objects.
const EVENTS_NAMESPACE: &str = "default";

/// A kind of object that the operator writes, in write order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstanceKind {
    ServiceAccount,
    ClusterRoleBinding,
    RoleBinding,
    Service,
    PodDisruptionBudget,
    NetworkPolicy,
    Deployment,
}

impl InstanceKind {
    pub(crate) const ALL: [Self; 7] = [
        Self::ServiceAccount,
        Self::ClusterRoleBinding,
        Self::RoleBinding,
        Self::Service,
        Self::PodDisruptionBudget,
        Self::NetworkPolicy,
        Self::Deployment,
    ];

    pub(crate) fn resource(self) -> ApiResource {
        let (group, version, kind) = match self {
            Self::ServiceAccount => ("", "v1", "ServiceAccount"),
            Self::ClusterRoleBinding => ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
            Self::RoleBinding => ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
            Self::Service => ("", "v1", "Service"),
            Self::PodDisruptionBudget => ("policy", "v1", "PodDisruptionBudget"),
            Self::NetworkPolicy => ("networking.k8s.io", "v1", "NetworkPolicy"),
            Self::Deployment => ("apps", "v1", "Deployment"),
        };
        // All these kinds have regular plurals.
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    }
}

/// A desired object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DesiredObject {
    pub(crate) kind: InstanceKind,
    /// `None` for a ClusterRoleBinding.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) object: Value,
}

/// The label selector for all objects that the operator writes.
pub(crate) fn selector() -> String {
    format!("app.kubernetes.io/managed-by={FIELD_MANAGER}")
}

/// The label selector for an instance's objects.
pub(crate) fn instance_selector(instance: &Instance) -> String {
    format!(
        "{},{CONFIGURATION_NAMESPACE}={}",
        selector(),
        instance.name.namespace
    )
}

/// The label selector for an instance's pods.
pub(crate) fn pod_selector(instance: &Instance) -> String {
    let name = instance.label_value();
    format!("app.kubernetes.io/name={NAME},app.kubernetes.io/instance={name}")
}

/// All objects of an instance, in write order.
pub(crate) fn objects(
    config: &OperatorConfig,
    instance: &Instance,
    spec: &ConfigurationSpec,
) -> Vec<DesiredObject> {
    let builder = Builder {
        config,
        instance,
        spec,
    };
    let mut objects = vec![builder.own(InstanceKind::ServiceAccount, NAME, json!({}))];
    objects.extend(builder.bindings());
    objects.push(builder.own(InstanceKind::Service, "sesame-xds", builder.xds_service()));
    objects.push(builder.own(
        InstanceKind::Service,
        "sesame-metrics",
        builder.metrics_service(),
    ));
    let budget = json!({
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": builder.pod_selector() } },
    });
    objects.push(builder.own(InstanceKind::PodDisruptionBudget, NAME, budget));
    objects.extend(builder.network_policy());
    objects.push(builder.own(InstanceKind::Deployment, NAME, builder.deployment()));
    objects
}

struct Builder<'a> {
    config: &'a OperatorConfig,
    instance: &'a Instance,
    spec: &'a ConfigurationSpec,
}

impl Builder<'_> {
    fn namespace(&self) -> &str {
        &self.instance.name.namespace
    }

    /// The labels that select the instance's pods.
    fn pod_selector(&self) -> Value {
        json!({
            "app.kubernetes.io/name": NAME,
            "app.kubernetes.io/instance": self.instance.label_value(),
        })
    }

    fn labels(&self) -> Value {
        let mut labels = self.pod_selector();
        labels["app.kubernetes.io/version"] = json!(names::label_value(&self.config.version));
        labels
    }

    fn object(&self, kind: InstanceKind, name: String, fields: Value) -> DesiredObject {
        let resource = kind.resource();
        let mut labels = self.labels();
        labels["app.kubernetes.io/managed-by"] = json!(FIELD_MANAGER);
        labels[CONFIGURATION_NAMESPACE] = json!(self.namespace());
        let mut object = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": { (CONFIGURATION): self.instance.name.to_string() },
            },
        });
        for (field, value) in fields.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        DesiredObject {
            kind,
            namespace: None,
            name,
            object,
        }
    }

    /// An object in the instance's namespace.
    fn own(&self, kind: InstanceKind, name: &str, fields: Value) -> DesiredObject {
        let mut desired = self.in_namespace(kind, self.namespace(), name.to_owned(), fields);
        let resource = instance::resource();
        desired.object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": &*self.instance.name.name,
            "uid": self.instance.uid,
            "controller": true,
        }]);
        desired
    }

    fn in_namespace(
        &self,
        kind: InstanceKind,
        namespace: &str,
        name: String,
        fields: Value,
    ) -> DesiredObject {
        let mut desired = self.object(kind, name, fields);
        desired.object["metadata"]["namespace"] = json!(namespace);
        desired.namespace = Some(namespace.to_owned());
        desired
    }

    /// The namespaces that the instance watches; `None` means all.
    fn watched_namespaces(&self) -> Option<BTreeSet<&str>> {
        let listed = self.spec.watch_namespaces.as_ref()?;
        let own = std::iter::once(self.namespace());
        Some(listed.iter().map(|name| &**name).chain(own).collect())
    }

    /// Whether all Envoys run in the instance's namespace.
    fn has_own_envoy_namespace(&self) -> bool {
        let instance = self.spec.instance.as_deref();
        instance.is_some_and(|instance| instance.envoy_namespace == Some(EnvoyNamespace::Sesame))
    }

    /// The bindings that give the instance its permissions.
    fn bindings(&self) -> Vec<DesiredObject> {
        let writing = match self.spec.envoy {
            Some(_) if self.has_own_envoy_namespace() => None,
            Some(_) => Some(roles::FLEETS),
            None => Some(roles::SERVICES),
        };
        let of_objects = || std::iter::once(roles::OBJECTS).chain(writing);
        let mut bindings = vec![self.cluster_binding(roles::CLUSTER)];
        match self.watched_namespaces() {
            None => bindings.extend(of_objects().map(|role| self.cluster_binding(role))),
            Some(namespaces) => {
                let events = self.binding(EVENTS_NAMESPACE, roles::EVENTS);
                bindings.extend((!namespaces.contains(EVENTS_NAMESPACE)).then_some(events));
                for namespace in namespaces {
                    bindings.extend(of_objects().map(|role| self.binding(namespace, role)));
                }
            }
        }
        if writing.is_none() {
            bindings.push(self.binding(self.namespace(), roles::FLEETS));
        }
        bindings.push(self.binding(self.namespace(), roles::OWN));
        bindings
    }

    fn cluster_binding(&self, role: &str) -> DesiredObject {
        let kind = InstanceKind::ClusterRoleBinding;
        self.object(kind, self.binding_name(role), self.grant(role))
    }

    /// A binding for a namespace.
    fn binding(&self, namespace: &str, role: &str) -> DesiredObject {
        let name = self.binding_name(role);
        self.in_namespace(InstanceKind::RoleBinding, namespace, name, self.grant(role))
    }

    /// A name that is unique in the cluster, since other instances have bindings in the same namespace.
    fn binding_name(&self, role: &str) -> String {
        format!("{role}:{}", self.namespace())
    }

    fn grant(&self, role: &str) -> Value {
        json!({
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role,
            },
            "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": self.namespace() }],
        })
    }

    /// Connections to Sesame. Those from Sesame aren't limited, as in the chart.
    fn network_policy(&self) -> Option<DesiredObject> {
        let instance = self.spec.instance.as_deref();
        let wanted = instance.and_then(|instance| instance.network_policy);
        if !wanted.unwrap_or(true) {
            return None;
        }
        let port = |name: &str| json!({ "port": name, "protocol": "TCP" });
        let metrics = self.spec.metrics.as_ref().map(|_| port("metrics"));
        let pages: Vec<Value> = [port("probes")].into_iter().chain(metrics).collect();
        let mut xds = json!({ "ports": [port("xds")] });
        if self.spec.envoy.is_some() {
            let envoys = pods_selector(self.namespace());
            xds["from"] = json!([{ "namespaceSelector": {}, "podSelector": envoys }]);
        }
        let policy = json!({
            "spec": {
                "podSelector": { "matchLabels": self.pod_selector() },
                "policyTypes": ["Ingress"],
                "ingress": [{ "ports": pages }, xds],
            },
        });
        Some(self.own(InstanceKind::NetworkPolicy, NAME, policy))
    }

    fn xds_service(&self) -> Value {
        let section = self.spec.xds.as_ref();
        let advertised = section.and_then(|xds| xds.advertised_port);
        json!({
            "spec": {
                "type": "ClusterIP",
                "selector": self.pod_selector(),
                "ports": [{
                    "name": "xds",
                    "port": advertised.unwrap_or(self.xds_port()),
                    "targetPort": "xds",
                    "protocol": "TCP",
                    "appProtocol": "grpc",
                }],
            },
        })
    }

    fn metrics_service(&self) -> Value {
        let (port, target) = match &self.spec.metrics {
            Some(metrics) => (metrics.port, "metrics"),
            None => (deployment::PROBES_PORT, "probes"),
        };
        json!({
            "spec": {
                "type": "ClusterIP",
                // Each replica has its own metrics.
                "clusterIP": "None",
                "selector": self.pod_selector(),
                "ports": [{
                    "name": "metrics",
                    "port": port,
                    "targetPort": target,
                    "protocol": "TCP",
                }],
            },
        })
    }
}
