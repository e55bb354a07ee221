//! Many routes on one Gateway, each with its own hostname, Service and EndpointSlice, for benches and cost tests.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_api::Object;

/// The namespace of all objects.
pub const NAMESPACE: &str = "many";

/// The name of the Gateway.
pub const GATEWAY: &str = "gateway";

/// The Service port.
pub const SERVICE_PORT: u16 = 80;

/// The hostname of route `index`, in one of four common forms.
pub fn host(index: usize) -> String {
    match index % 4 {
        0 => format!("host-{index:05}.example.com"),
        1 => format!("customer-{index}.saas.example.com"),
        2 => format!("pr-{index}.preview.example.com"),
        _ => format!("{index}.tenant.example.com"),
    }
}

/// The name of route `index` and its Service.
pub fn name(index: usize) -> String {
    format!("app-{index:05}")
}

/// An unreachable address for the Service of route `index`, unique for the first 16 million.
pub fn endpoint(index: usize) -> SocketAddr {
    let [_, a, b, c] = (index as u32).to_be_bytes();
    ([10, a, b, c], 8080).into()
}

/// Decodes an object as a source would.
///
/// # Panics
/// If it doesn't decode, which is a bug in the test.
pub fn object(value: &Value) -> Object {
    match Object::decode(value.clone()) {
        Ok(Some(object)) => object,
        other => panic!("{value} does not decode: {other:?}"),
    }
}

/// The Gateway, of class `sesame`, with one HTTP listener for routes in its namespace.
pub fn gateway(port: u16) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"namespace": NAMESPACE, "name": GATEWAY},
        "spec": {
            "gatewayClassName": "sesame",
            "listeners": [{"name": "http", "protocol": "HTTP", "port": port}],
        },
    })
}

/// A route that sends all paths of a host to Services on [`SERVICE_PORT`], by weight.
pub fn route(name: &str, host: &str, backends: &[(&str, u32)]) -> Value {
    let backends: Vec<Value> = backends
        .iter()
        .map(|(service, weight)| json!({"name": service, "port": SERVICE_PORT, "weight": weight}))
        .collect();
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {
            "parentRefs": [{"name": GATEWAY}],
            "hostnames": [host],
            "rules": [{
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "backendRefs": backends,
            }],
        },
    })
}

/// A Service with one port.
pub fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"ports": [{"name": "http", "port": SERVICE_PORT, "protocol": "TCP", "targetPort": 8080}]},
    })
}

/// The only EndpointSlice of a Service, with one endpoint.
pub fn slice(service: &str, endpoint: SocketAddr) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": NAMESPACE,
            "name": format!("{service}-1"),
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": if endpoint.is_ipv4() { "IPv4" } else { "IPv6" },
        "ports": [{"name": "http", "port": endpoint.port(), "protocol": "TCP"}],
        "endpoints": [{
            "addresses": [endpoint.ip().to_string()],
            "conditions": {"ready": true, "serving": true, "terminating": false},
        }],
    })
}

/// Route `index`, its Service and its slice.
pub fn app(index: usize, endpoint: SocketAddr) -> [Value; 3] {
    let name = name(index);
    [
        route(&name, &host(index), &[(&name, 1)]),
        service(&name),
        slice(&name, endpoint),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_decode() {
        let address = endpoint(70_000);
        assert_eq!(address.to_string(), "10.1.17.112:8080");
        let names: Vec<String> = app(7, address)
            .iter()
            .chain([&gateway(80)])
            .map(|value| object(value).key().to_string())
            .collect();
        assert_eq!(
            names,
            [
                "HTTPRoute/many/app-00007",
                "Service/many/app-00007",
                "EndpointSlice/many/app-00007-1",
                "Gateway/many/gateway",
            ]
        );
    }
}
