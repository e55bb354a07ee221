//! A fleet's pods: Envoy, and a sidecar for its probes and graceful shutdown.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use sesame_model::{FleetLogLevel, FleetParameters, TaintEffect, Toleration, Workload};
use sha2::{Digest, Sha256};

use super::Common;
use crate::IGNORE_UNKNOWN;
use crate::kube::{labels, layout, names};
use crate::module::SEARCH_PATH;

/// Time for Envoy to exit after the drain, in seconds.
const EXIT_MARGIN: u64 = 10;

/// The pod template.
///
/// It doesn't depend on the listeners' ports, so that adding or removing a listener doesn't restart pods.
pub(super) fn template(common: &Common<'_>, workload: Workload) -> Value {
    let parameters = &common.spec.parameters;
    let mut annotations = common.annotations.clone();
    let digest = Sha256::digest(json!(common.files()).to_string().as_bytes());
    let digest: String = digest[..8].iter().map(|b| format!("{b:02x}")).collect();
    annotations.insert(labels::BOOTSTRAP.to_owned(), digest);

    let mut spec = json!({
        "automountServiceAccountToken": false,
        "containers": [envoy(common)],
        // Envoy doesn't need environment variables for the namespace's Services.
        "enableServiceLinks": false,
        "initContainers": [sidecar(common)],
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": layout::USER_ID,
            "runAsGroup": layout::USER_ID,
            "fsGroup": layout::USER_ID,
            "seccompProfile": { "type": "RuntimeDefault" },
            // Allows ports below 1024 without a capability.
            "sysctls": [{ "name": "net.ipv4.ip_unprivileged_port_start", "value": "0" }],
        },
        "serviceAccountName": &*common.key.name,
        "terminationGracePeriodSeconds":
            seconds(drain_delay(parameters) + drain_timeout(parameters)) + EXIT_MARGIN,
        "volumes": [
            { "name": "bootstrap", "configMap": { "name": &*common.key.name } },
            {
                "name": "certificates",
                "secret": {
                    "secretName": names::certificate_secret(common.fleet),
                    "defaultMode": 0o440,
                },
            },
            { "name": "run", "emptyDir": { "sizeLimit": "16Mi" } },
        ],
    });
    if workload == Workload::Deployment {
        spec["topologySpreadConstraints"] = json!([
            spread_constraint(common, "kubernetes.io/hostname"),
            spread_constraint(common, "topology.kubernetes.io/zone"),
        ]);
    }
    apply_pod_parameters(&mut spec, parameters);
    json!({
        "metadata": { "labels": common.labels, "annotations": annotations },
        "spec": spec,
    })
}

fn envoy(common: &Common<'_>) -> Value {
    let parameters = &common.spec.parameters;
    let config = format!("{}/{}", layout::CONFIG_DIR, layout::BOOTSTRAP_FILE);
    let level = match parameters.log_level.unwrap_or_default() {
        FleetLogLevel::Trace => "trace",
        FleetLogLevel::Debug => "debug",
        FleetLogLevel::Info => "info",
        FleetLogLevel::Warning => "warning",
        FleetLogLevel::Error => "error",
        FleetLogLevel::Critical => "critical",
    };
    let port = layout::sidecar_port(&common.spec.request.ports);
    let variable = |name: &str, path: &str| {
        json!({
            "name": name,
            "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": path } },
        })
    };
    let mut env = vec![
        variable("POD_NAME", "metadata.name"),
        variable("POD_NAMESPACE", "metadata.namespace"),
    ];
    if common.spec.module {
        env.push(json!({ "name": SEARCH_PATH, "value": layout::RUN_DIR }));
    }
    let mut args = vec![
        "-c".to_owned(),
        config,
        "--service-node".to_owned(),
        "$(POD_NAME)".to_owned(),
        "--concurrency".to_owned(),
        layout::concurrency(parameters).to_string(),
        "--log-level".to_owned(),
        level.to_owned(),
        "--disable-hot-restart".to_owned(),
        IGNORE_UNKNOWN.to_owned(),
        "--drain-strategy".to_owned(),
        "immediate".to_owned(),
        "--drain-time-s".to_owned(),
        seconds(drain_timeout(parameters)).max(1).to_string(),
    ];
    if parameters.memory_limit.is_none() {
        // Without a limit, the memory that the node has for pods.
        let memory = json!({ "resource": "limits.memory", "divisor": "0" });
        env.push(json!({ "name": "MEMORY", "valueFrom": { "resourceFieldRef": memory } }));
        args.extend(["--config-yaml".to_owned(), heap_monitor("$(MEMORY)")]);
    }
    json!({
        "name": "envoy",
        "image": parameters.image.as_ref().unwrap_or(&common.config.envoy_image),
        "imagePullPolicy": "IfNotPresent",
        "command": ["envoy"],
        "args": args,
        "env": env,
        // The response is sent when the drain is over; the kubelet sends SIGTERM only after that.
        "lifecycle": { "preStop": { "httpGet": { "path": "/drained", "port": port, "scheme": "HTTP" } } },
        // The sidecar queries Envoy's admin interface, which is exempt from overload actions and the connection limit.
        // A restart drops all connections and isn't urgent, since the readiness probe diverts new ones within seconds:
        // only two minutes without a response mean that Envoy hangs, not that it is busy.
        "livenessProbe": {
            "httpGet": { "path": "/live", "port": port, "scheme": "HTTP" },
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 12,
            // A hung Envoy ignores SIGTERM, so there is no drain to wait for.
            "terminationGracePeriodSeconds": 10,
        },
        "readinessProbe": {
            "httpGet": { "path": "/ready", "port": port, "scheme": "HTTP" },
            "periodSeconds": 1,
            "timeoutSeconds": 3,
            "failureThreshold": 3,
        },
        "resources": resources(parameters),
        "securityContext": restricted_security_context(),
        "volumeMounts": [
            { "name": "bootstrap", "mountPath": layout::CONFIG_DIR, "readOnly": true },
            { "name": "certificates", "mountPath": layout::CERTIFICATES_DIR, "readOnly": true },
            { "name": "run", "mountPath": layout::RUN_DIR },
        ],
    })
}

/// The heap monitor that a bootstrap without a limit in bytes needs. `memory` is the machine's, in bytes.
fn heap_monitor(memory: &str) -> String {
    json!({
        "overload_manager": { "resource_monitors": [{
            "name": "envoy.resource_monitors.fixed_heap",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
                "max_heap_size_bytes": memory,
            },
        }] },
    })
    .to_string()
}

/// A native sidecar (an init container with `restartPolicy: Always`): it starts before Envoy and stops after it.
fn sidecar(common: &Common<'_>) -> Value {
    let parameters = &common.spec.parameters;
    let milliseconds = |time: Duration| time.as_millis().to_string();
    // Only a command in this container can start a drain; the kubelet runs it when the pod is stopped. Network clients
    // can only wait for the drain to end.
    let drain = json!({ "exec": { "command": ["sesame", "envoy-sidecar", "drain"] } });
    let mut lifecycle = json!({ "preStop": drain });
    if common.spec.module {
        // The kubelet starts Envoy after this hook.
        lifecycle["postStart"] =
            json!({ "exec": { "command": ["sesame", "envoy-sidecar", "module"] } });
    }
    json!({
        "name": "sidecar",
        "image": common.config.sidecar_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sesame"],
        "args": [
            "envoy-sidecar", "serve",
            "--port", layout::sidecar_port(&common.spec.request.ports).to_string(),
            "--delay-ms", milliseconds(drain_delay(parameters)),
            "--timeout-ms", milliseconds(drain_timeout(parameters)),
        ],
        "lifecycle": lifecycle,
        "resources": {
            "requests": { "cpu": "10m", "memory": "16Mi" },
            "limits": { "memory": "128Mi" },
        },
        "restartPolicy": "Always",
        "securityContext": restricted_security_context(),
        "volumeMounts": [{ "name": "run", "mountPath": layout::RUN_DIR }],
    })
}

/// A container's security context under the restricted Pod Security Standard.
fn restricted_security_context() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "readOnlyRootFilesystem": true,
    })
}

fn spread_constraint(common: &Common<'_>, topology: &str) -> Value {
    json!({
        "maxSkew": 1,
        "topologyKey": topology,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": common.selector(),
        // Counts only pods of the same revision.
        "matchLabelKeys": ["pod-template-hash"],
    })
}

fn apply_pod_parameters(spec: &mut Value, parameters: &FleetParameters) {
    if let Some(secrets) = &parameters.image_pull_secrets {
        let named: Vec<_> = secrets.iter().map(|name| json!({ "name": name })).collect();
        spec["imagePullSecrets"] = json!(named);
    }
    if let Some(labels) = &parameters.node_selector {
        spec["nodeSelector"] = json!(labels);
    }
    if let Some(class) = &parameters.priority_class {
        spec["priorityClassName"] = json!(class);
    }
    if let Some(tolerations) = &parameters.tolerations {
        spec["tolerations"] = tolerations.iter().map(toleration).collect();
    }
}

fn toleration(toleration: &Toleration) -> Value {
    let mut out = Map::new();
    let mut set = |key: &str, value: Value| out.insert(key.to_owned(), value);
    if let Some(key) = &toleration.key {
        set("key", json!(key));
    }
    match &toleration.value {
        Some(value) => {
            set("operator", json!("Equal"));
            set("value", json!(value));
        }
        None => {
            set("operator", json!("Exists"));
        }
    }
    if let Some(effect) = toleration.effect {
        let effect = match effect {
            TaintEffect::NoSchedule => "NoSchedule",
            TaintEffect::PreferNoSchedule => "PreferNoSchedule",
            TaintEffect::NoExecute => "NoExecute",
        };
        set("effect", json!(effect));
    }
    if let Some(seconds) = toleration.seconds {
        set("tolerationSeconds", json!(seconds));
    }
    Value::Object(out)
}

fn resources(parameters: &FleetParameters) -> Value {
    /// The default CPU request, in thousandths of a CPU.
    const CPU: u64 = 100;
    /// The default memory request, in bytes.
    const MEMORY: u64 = 128 << 20;
    // The API server rejects requests above the limit.
    let request_or_default = |request: Option<u64>, limit: Option<u64>, default: u64| {
        request.unwrap_or(limit.map_or(default, |limit| limit.min(default)))
    };
    let requests = BTreeMap::from([
        (
            "cpu",
            cpu(request_or_default(
                parameters.cpu_request,
                parameters.cpu_limit,
                CPU,
            )),
        ),
        (
            "memory",
            memory(request_or_default(
                parameters.memory_request,
                parameters.memory_limit,
                MEMORY,
            )),
        ),
    ]);
    let mut limits = BTreeMap::new();
    if let Some(limit) = parameters.cpu_limit {
        limits.insert("cpu", cpu(limit));
    }
    if let Some(limit) = parameters.memory_limit {
        limits.insert("memory", memory(limit));
    }
    let mut out = json!({ "requests": requests });
    if !limits.is_empty() {
        out["limits"] = json!(limits);
    }
    out
}

/// A CPU quantity in canonical form, which the API server doesn't change.
fn cpu(thousandths: u64) -> String {
    if thousandths.is_multiple_of(1000) {
        (thousandths / 1000).to_string()
    } else {
        format!("{thousandths}m")
    }
}

/// Bytes as a quantity, also in canonical form.
fn memory(bytes: u64) -> String {
    let scaled = |base: u64, suffixes: [&str; 4]| {
        let mut out = (bytes, "");
        for suffix in suffixes {
            if out.0 == 0 || !out.0.is_multiple_of(base) {
                break;
            }
            out = (out.0 / base, suffix);
        }
        format!("{}{}", out.0, out.1)
    };
    if bytes.is_multiple_of(1024) {
        scaled(1024, ["Ki", "Mi", "Gi", "Ti"])
    } else {
        scaled(1000, ["k", "M", "G", "T"])
    }
}

fn drain_delay(parameters: &FleetParameters) -> Duration {
    parameters.drain_delay.unwrap_or(layout::DRAIN_DELAY)
}

fn drain_timeout(parameters: &FleetParameters) -> Duration {
    parameters.drain_timeout.unwrap_or(layout::DRAIN_TIMEOUT)
}

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_canonical() {
        let cpus = [0, 1, 100, 1000, 1500, 64_000].map(cpu);
        assert_eq!(cpus, ["0", "1m", "100m", "1", "1500m", "64"]);
        let memories = [
            0,
            1,
            1000,
            1024,
            1536 << 20,
            1 << 30,
            1_500_000,
            5_000_000_000,
        ]
        .map(memory);
        assert_eq!(
            memories,
            ["0", "1", "1k", "1Ki", "1536Mi", "1Gi", "1500k", "5G"]
        );
    }
}
