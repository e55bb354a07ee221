//! The Deployment of an instance.

use serde_json::{Value, json};
use sesame_api::InstanceConfiguration;

use super::{Builder, NAME};

/// The port of the xDS server.
pub(super) const XDS_PORT: u16 = 18_000;
/// The port of the pages for the kubelet and Prometheus.
pub(super) const PROBES_PORT: u16 = 8_080;

/// The default number of replicas.
const REPLICAS: u32 = 2;

impl Builder<'_> {
    pub(super) fn deployment(&self) -> Value {
        let instance = self.spec.instance.as_deref().cloned().unwrap_or_default();
        json!({
            "spec": {
                "replicas": instance.replicas.unwrap_or(REPLICAS),
                "selector": { "matchLabels": self.pod_selector() },
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 },
                },
                "template": {
                    "metadata": { "labels": self.labels() },
                    "spec": self.pod(&instance),
                },
            },
        })
    }

    fn pod(&self, instance: &InstanceConfiguration) -> Value {
        let selector = json!({ "matchLabels": self.pod_selector() });
        let mut pod = json!({
            "serviceAccountName": NAME,
            // Environment variables for a Service named `sesame-…` would be read as settings.
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 30,
            "affinity": {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{
                        "weight": 100,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": selector,
                        },
                    }],
                },
            },
            "topologySpreadConstraints": [{
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": selector,
            }],
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [self.container(instance)],
        });
        if let Some(secrets) = &instance.image_pull_secrets {
            let secrets: Vec<Value> = secrets.iter().map(|name| json!({ "name": name })).collect();
            pod["imagePullSecrets"] = json!(secrets);
        }
        if let Some(class) = &instance.priority_class_name {
            pod["priorityClassName"] = json!(class);
        }
        if let Some(labels) = &instance.node_selector {
            pod["nodeSelector"] = json!(labels);
        }
        if let Some(tolerations) = &instance.tolerations {
            pod["tolerations"] = json!(tolerations);
        }
        pod
    }

    fn container(&self, instance: &InstanceConfiguration) -> Value {
        let resources = match &instance.resources {
            Some(resources) => json!(resources),
            None => json!({
                "requests": { "cpu": "50m", "memory": "64Mi" },
                "limits": { "memory": "512Mi" },
            }),
        };
        let variable = |name: &str, field: &str| {
            json!({
                "name": name,
                "valueFrom": { "fieldRef": { "fieldPath": field } },
            })
        };
        let probe = |path: &str| json!({ "path": path, "port": "probes" });
        json!({
            "name": NAME,
            "image": self.config.image,
            "imagePullPolicy": "IfNotPresent",
            "args": self.args(instance),
            "env": [
                variable("POD_NAME", "metadata.name"),
                variable("POD_NAMESPACE", "metadata.namespace"),
            ],
            "ports": [
                { "name": "probes", "containerPort": PROBES_PORT, "protocol": "TCP" },
                { "name": "xds", "containerPort": XDS_PORT, "protocol": "TCP" },
            ],
            "startupProbe": {
                "httpGet": probe("/healthz"),
                "periodSeconds": 1,
                "failureThreshold": 60,
            },
            "readinessProbe": {
                "httpGet": probe("/readyz"),
                "periodSeconds": 2,
                "timeoutSeconds": 2,
            },
            "livenessProbe": {
                "httpGet": probe("/healthz"),
                "periodSeconds": 10,
                "timeoutSeconds": 5,
                "failureThreshold": 6,
            },
            "resources": resources,
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] },
            },
        })
    }

    fn args(&self, instance: &InstanceConfiguration) -> Vec<String> {
        let log = &instance.log;
        let format = log.format.as_ref().map_or("json", |format| format.as_str());
        let level = log.level.as_ref().map_or("info", |level| level.as_str());
        let mut args = vec![
            "serve".to_owned(),
            format!("--probes=0.0.0.0:{PROBES_PORT}"),
            format!("--xds=0.0.0.0:{XDS_PORT}"),
            format!("--log-format={format}"),
            format!("--log-level={level}"),
            format!("--configuration={}", self.instance.name.name),
        ];
        if let Some(namespaces) = self.watched_namespaces() {
            let namespaces = Vec::from_iter(namespaces);
            args.push(format!("--watch-namespaces={}", namespaces.join(",")));
        }
        // Adding or removing the `envoy` section requires a restart, which a change to the arguments causes.
        if self.spec.envoy.is_some() {
            args.push(format!("--envoy-image={}", self.config.envoy_image));
            args.push(format!("--sidecar-image={}", self.config.image));
            if self.has_own_envoy_namespace() {
                args.push("--envoy-namespace=sesame".to_owned());
            }
        }
        args
    }
}
