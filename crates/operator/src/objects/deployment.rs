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

/// Annotation: the sections of the configuration that take effect only when Sesame starts, as JSON. A change to them
/// replaces the pods.
const START_SETTINGS: &str = "projectsesame.io/start-settings";

/// These sections. The section `envoy` is one of them too, but adding or removing it changes the arguments.
const START_SECTIONS: [&str; 6] = [
    "unmanagedEnvoy",
    "watchNamespaces",
    "contourCompat",
    "xds",
    "metrics",
    "leaderElection",
];

impl Builder<'_> {
    pub(super) fn deployment(&self) -> Value {
        let instance = self.spec.instance.as_deref().cloned().unwrap_or_default();
        let mut metadata = json!({ "labels": self.labels() });
        if let Some(settings) = self.start_settings() {
            metadata["annotations"] = json!({ (START_SETTINGS): settings });
        }
        let election = self.spec.leader_election.as_ref();
        let replicas = match election.is_some_and(|election| election.disabled) {
            true => 1,
            false => instance.replicas.unwrap_or(REPLICAS),
        };
        json!({
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": self.pod_selector() },
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 },
                },
                "template": {
                    "metadata": metadata,
                    "spec": self.pod(&instance),
                },
            },
        })
    }

    fn start_settings(&self) -> Option<String> {
        let spec = json!(self.spec);
        let sections: serde_json::Map<String, Value> = START_SECTIONS
            .iter()
            .filter_map(|&section| Some((section.to_owned(), spec.get(section)?.clone())))
            .collect();
        (!sections.is_empty()).then(|| Value::Object(sections).to_string())
    }

    /// The port of the xDS server.
    pub(super) fn xds_port(&self) -> u16 {
        let section = self.spec.xds.as_ref();
        section.and_then(|xds| xds.port).unwrap_or(XDS_PORT)
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
                "limits": { "memory": "768Mi" },
            }),
        };
        let variable = |name: &str, field: &str| {
            json!({
                "name": name,
                "valueFrom": { "fieldRef": { "fieldPath": field } },
            })
        };
        let port = |name: &str, number: u16| json!({ "name": name, "containerPort": number, "protocol": "TCP" });
        let mut ports = vec![port("probes", PROBES_PORT), port("xds", self.xds_port())];
        if let Some(metrics) = &self.spec.metrics {
            ports.push(port("metrics", metrics.port));
        }
        let probe = |path: &str| json!({ "path": path, "port": "probes" });
        json!({
            "name": NAME,
            "image": self.config.image,
            "imagePullPolicy": "IfNotPresent",
            "args": self.args(),
            "env": [
                variable("POD_NAME", "metadata.name"),
                variable("POD_NAMESPACE", "metadata.namespace"),
            ],
            "ports": ports,
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

    /// Settings in the configuration override these.
    fn args(&self) -> Vec<String> {
        let mut args = vec![
            "serve".to_owned(),
            format!("--probes=0.0.0.0:{PROBES_PORT}"),
            format!("--xds=0.0.0.0:{XDS_PORT}"),
            "--log-format=json".to_owned(),
            "--log-level=info".to_owned(),
            format!("--configuration={}", self.instance.name.name),
        ];
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
