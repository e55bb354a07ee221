//! Gateways and what they refer to.

use serde_json::{Value, json};

use super::super::secret;
use super::configuration::of_a_gateway;
use super::{NAME, NAMESPACE, domains, list, named, names, object, path, services, text};
use crate::certs::{Authority, Identity};

/// The number of listeners of a Gateway, of certificates of a listener, and of headers.
const MANY: usize = 64;

/// The names of the listeners of the Gateway [`NAME`].
pub(super) fn listeners() -> impl Iterator<Item = String> + Clone {
    names(MANY, 253)
}

/// The name of the Gateway with TLS, TCP and UDP listeners.
pub(super) const WITH_TLS: &str = "tls";

/// The Gateways of [`bounds`](crate::generate::bounds), besides [`GATEWAYS`](crate::generate::GATEWAYS), by namespace and name.
pub const GATEWAYS_AT_BOUNDS: [(&str, &str); 2] = [(NAMESPACE, NAME), (NAMESPACE, WITH_TLS)];

/// The names of ConfigMaps with CA certificates.
pub(super) fn authorities(count: usize) -> Vec<Value> {
    let reference = |name| json!({"group": "", "kind": "ConfigMap", "name": name});
    names(count, 253).map(reference).collect()
}

pub(super) fn all() -> Vec<Value> {
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": NAME},
        "spec": {"controllerName": "projectsesame.io/gateway-controller", "description": text(64)},
    });
    let set = json!({
        "parentRef": {"namespace": NAMESPACE, "name": NAME},
        "listeners": plain_listeners(8080),
    });
    let set = object("gateway.networking.k8s.io/v1", "ListenerSet", set);
    [
        vec![class, with_names(), with_tls(), set],
        backends(),
        secrets(),
        config_maps(),
    ]
    .concat()
}

fn gateway(name: &str, spec: Value) -> Value {
    named("gateway.networking.k8s.io/v1", "Gateway", name, spec)
}

/// Listeners with the longest names and hostnames.
fn plain_listeners(port: u16) -> Value {
    let kinds = [
        "gateway.networking.k8s.io/HTTPRoute",
        "gateway.networking.k8s.io/GRPCRoute",
        "networking.k8s.io/Ingress",
        "projectsesame.io/HTTPProxy",
    ];
    let kind = |number: usize| {
        let (group, kind) = kinds[number % kinds.len()]
            .split_once('/')
            .expect("a group and a kind");
        json!({"group": group, "kind": kind})
    };
    let both = listeners().zip(domains(MANY));
    let listener = |(name, hostname): (String, String)| {
        json!({
            "name": name,
            "hostname": hostname,
            "port": port,
            "protocol": "HTTP",
            "allowedRoutes": {"namespaces": {"from": "All"}, "kinds": list(8, kind)},
        })
    };
    both.map(listener).collect()
}

/// As many listeners, addresses and labels as possible.
fn with_names() -> Value {
    let name = |number: usize| format!("example.com/{number}");
    let labels: Value = (0..8)
        .map(|number| (name(number), json!(text(63))))
        .collect();
    let annotations: Value = (0..16).map(|number| (name(number), json!("a"))).collect();
    let parameters =
        json!({"group": "projectsesame.io", "kind": "SesameConfiguration", "name": of_a_gateway()});
    gateway(
        NAME,
        json!({
            "gatewayClassName": NAME,
            "listeners": plain_listeners(80),
            "infrastructure": {"labels": labels, "annotations": annotations, "parametersRef": parameters},
            "allowedListeners": {"namespaces": {"from": "All"}},
        }),
    )
}

/// Listeners of each protocol, with as many certificates, checks and sources of CA certificates as possible.
fn with_tls() -> Value {
    let certificates: Vec<Value> = names(MANY, 253).map(|name| json!({"name": name})).collect();
    let options: Value = (0..16)
        .map(|number| (format!("example.com/{number}"), json!("a")))
        .collect();
    // The paths and names of a listener's checks total 1 KiB.
    let headers: Vec<String> = names(8, 12).collect();
    let service = services().next().expect("Services");
    let http =
        json!({"path": path(64), "allowedHeaders": headers, "allowedResponseHeaders": headers});
    let http =
        json!({"protocol": "HTTP", "http": http, "backendRef": {"name": service, "port": 80}});
    let grpc = json!({"protocol": "GRPC", "grpc": {"allowedHeaders": headers}, "backendRef": {"name": service, "port": 80}});
    let check = |auth: &Value| json!({"requests": list(4, |_| json!({"type": "ExternalAuth", "externalAuth": auth}))});
    let validation = json!({"validation": {"caCertificateRefs": authorities(16)}});
    let port = |number: usize| {
        let port = [443, 8443].get(number).copied().unwrap_or(number);
        json!({"port": port, "tls": validation})
    };
    let https = |name: &str, port: u16, auth: &Value| {
        json!({
            "name": name, "port": port, "protocol": "HTTPS",
            "tls": {"certificateRefs": certificates, "options": options},
            "filters": check(auth),
        })
    };
    gateway(
        WITH_TLS,
        json!({
            "gatewayClassName": NAME,
            "listeners": [
                https("http", 443, &http),
                https("grpc", 8443, &grpc),
                {"name": "tls", "port": 8080, "protocol": "TLS", "tls": {"mode": "Passthrough"}},
                {"name": "tcp", "port": 80, "protocol": "TCP"},
                {"name": "udp", "port": 80, "protocol": "UDP"},
            ],
            "tls": {
                "frontend": {"default": validation, "perPort": list(MANY, port)},
                "backend": {"clientCertificateRef": {"name": names(1, 253).next()}},
            },
        }),
    )
}

/// Services with the longest names, each with many endpoints. Their addresses are loopback addresses without a server: a
/// health check fails at once there, and Envoy uses a cluster only after the first check of each of its endpoints.
fn backends() -> Vec<Value> {
    let both = services().map(|name| {
        let service = json!({"ports": [
            {"name": text(15), "port": 80},
            {"name": "udp", "port": 81, "protocol": "UDP"},
        ]});
        let service = named("v1", "Service", &name, service);
        let endpoint = |number: usize| json!({"addresses": [format!("127.1.{}.{}", number / 250, number % 250 + 1)]});
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"namespace": NAMESPACE, "name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"name": text(15), "port": 8080}, {"name": "udp", "port": 8081, "protocol": "UDP"}],
            "endpoints": list(1_000, endpoint),
        });
        [service, slice]
    });
    both.flatten().collect()
}

/// A Secret for each certificate of a listener: with the largest keys, chains, CRLs and sets of JSON Web Keys first.
fn secrets() -> Vec<Value> {
    let authority = Authority::new().expect("an authority");
    let list = authority.revocations(&[1]).expect("a list").repeat(100);
    let small = Identity::self_signed(&["example.com"]).expect("a certificate");
    let issued = authority.issue(&["example.net"]).expect("a certificate");
    let long = format!("{}{}", issued.chain, authority.pem().repeat(99));
    let first = secret::rsa().chain([(long, issued.private_key)]);
    let rest = std::iter::repeat((small.chain, small.private_key));
    let key = json!({"kty": "oct", "alg": "HS512", "k": text(512)});
    let keys = json!({"keys": vec![key; 100]}).to_string();
    let secret = |(name, (chain, key)): (String, (String, String))| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": NAMESPACE, "name": name},
            "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": chain, "tls.key": key, "ca.crt": authority.pem(), "crl.pem": list, text(253): keys},
        })
    };
    names(MANY, 253)
        .zip(first.chain(rest))
        .map(secret)
        .collect()
}

/// CA certificates: 1,000 in the first ConfigMap.
fn config_maps() -> Vec<Value> {
    let pem = Authority::new().expect("an authority").pem().to_owned();
    let map = |(number, name): (usize, String)| {
        let text = if number == 0 {
            pem.repeat(1_000)
        } else {
            pem.clone()
        };
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": NAMESPACE, "name": name},
            "data": {"ca.crt": text},
        })
    };
    names(16, 253).enumerate().map(map).collect()
}
