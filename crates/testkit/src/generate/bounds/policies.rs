//! Policies, XBackends and ReferenceGrants.

use serde_json::{Value, json};

use super::gateways::{WITH_TLS, authorities};
use super::routes::sessions;
use super::{NAME, NAMESPACE, domains, list, named, names, object, services, text};

/// The names of XBackends: a host name, and pods.
pub(super) const XBACKENDS: [&str; 2] = ["host", "pods"];

pub(super) fn all() -> Vec<Value> {
    let [host, pods] = xbackends();
    vec![tls(), traffic(), telemetry(), grant(), host, pods]
}

fn validation() -> Value {
    let hosts = domains(3);
    let uri = format!("spiffe://{}/", text(63));
    json!({
        "caCertificateRefs": authorities(8),
        "hostname": hosts[0],
        "subjectAltNames": [
            {"type": "Hostname", "hostname": hosts[0]},
            {"type": "Hostname", "hostname": hosts[1]},
            {"type": "Hostname", "hostname": format!("*.{}", &hosts[2][2..])},
            {"type": "URI", "uri": format!("{uri}{}", text(253 - uri.len()))},
            {"type": "URI", "uri": "spiffe://example.com/a"},
        ],
    })
}

fn tls() -> Value {
    let options: Value = (0..16)
        .map(|number| (format!("example.com/{number}"), json!("a")))
        .collect();
    let target =
        |name| json!({"group": "", "kind": "Service", "name": name, "sectionName": text(15)});
    // The first Service is also the one of checks over plain text.
    let targets: Vec<Value> = services().map(target).collect();
    let spec = json!({"targetRefs": targets, "validation": validation(), "options": options});
    object("gateway.networking.k8s.io/v1", "BackendTLSPolicy", spec)
}

fn traffic() -> Value {
    let target = |name| json!({"group": "", "kind": "Service", "name": name});
    let targets: Vec<Value> = services().map(target).collect();
    let [session, _] = sessions();
    let retries = json!({
        "budget": {"percent": 100, "interval": "1h"},
        "minRetryRate": {"count": 1_000_000, "interval": "1h"},
    });
    let spec =
        json!({"targetRefs": targets, "retryConstraint": retries, "sessionPersistence": session});
    object(
        "gateway.networking.x-k8s.io/v1alpha1",
        "XBackendTrafficPolicy",
        spec,
    )
}

fn telemetry() -> Value {
    let target =
        |name: &str| json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name});
    let targets = [target(NAME), target(WITH_TLS)];
    let attribute = |(number, name): (usize, String)| {
        let source = match number % 3 {
            0 => json!({"sourceType": "Header", "headerName": name}),
            1 => json!({"sourceType": "Literal", "literalValue": text(1_024)}),
            _ => {
                json!({"sourceType": "Attribute", "attributeKey": format!("http.request.header.{}", text(236))})
            }
        };
        let mut attribute = source;
        attribute["name"] = name.into();
        attribute
    };
    let headers: Vec<Value> = names(16, 256)
        .map(|name| json!({"name": name, "value": text(4_096)}))
        .collect();
    let spec = json!({
        "targetRefs": targets,
        "tracing": {
            "mode": "Enabled",
            "provider": {"backendRef": {"name": services().nth(1), "port": 80}, "headers": headers},
            "serviceName": text(253),
            "spanName": text(256),
            "attributes": names(64, 256).enumerate().map(attribute).collect::<Vec<_>>(),
        },
    });
    object(
        "gateway.networking.x-k8s.io/v1alpha1",
        "XTelemetryPolicy",
        spec,
    )
}

fn grant() -> Value {
    let from = list(
        16,
        |_| json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": NAMESPACE}),
    );
    let to: Vec<Value> = names(16, 253)
        .map(|name| json!({"group": "", "kind": "Service", "name": name}))
        .collect();
    let spec = json!({"from": from, "to": to});
    object("gateway.networking.k8s.io/v1", "ReferenceGrant", spec)
}

fn xbackends() -> [Value; 2] {
    let tls = json!({
        "mode": "ClientAndServer",
        "validation": validation(),
        "clientCertificateRef": {"name": names(1, 253).next()},
    });
    let host = json!({
        "type": "ExternalHostname",
        "externalHostname": {"hostname": domains(1)[0]},
        "port": {"number": 65_535},
        "tls": tls,
    });
    let labels: Value = (0..64)
        .map(|number| (format!("example.com/{number}"), json!(text(63))))
        .collect();
    let [cookie, _] = sessions();
    let pods = json!({
        "type": "EndpointSelector",
        "endpointSelector": {"matchLabels": labels},
        "sessionPersistence": cookie,
        "port": {"number": 65_535},
    });
    let specs = [host, pods];
    std::array::from_fn(|at| {
        let version = "gateway.networking.x-k8s.io/v1alpha1";
        let mut backend = named(version, "XBackend", XBACKENDS[at], specs[at].clone());
        backend["metadata"]["uid"] = "1".into();
        backend
    })
}
