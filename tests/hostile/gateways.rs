//! Gateways and ListenerSets.

use serde_json::{Value, json};
use sesame_testkit::certs::Identity;
use sesame_testkit::many::{self, NAMESPACE};

use super::{NAME, Shape, data, hostnames, list, object};
use crate::others::{authorities, certificate};
use crate::routes::{check, http_route};

const VERSION: &str = "gateway.networking.k8s.io/v1";

fn listener(number: usize, settings: &Value) -> Value {
    let mut listener =
        json!({"name": format!("l{number}"), "port": 9_000 + number, "protocol": "HTTP"});
    for (field, value) in settings.as_object().unwrap() {
        listener[field] = value.clone();
    }
    listener
}

/// A Gateway with a listener on each of 64 ports.
pub(crate) fn gateway(name: &str, settings: &Value) -> Value {
    let spec = json!({
        "gatewayClassName": "sesame",
        "allowedListeners": {"namespaces": {"from": "All"}},
        "listeners": list(64, |number| listener(number, settings)),
    });
    object(VERSION, "Gateway", name, spec)
}

fn listener_set(settings: &Value) -> Value {
    let listener = |number| listener(1_000 + number, settings);
    let spec = json!({"parentRef": {"name": many::GATEWAY}, "listeners": list(64, listener)});
    object(VERSION, "ListenerSet", NAME, spec)
}

/// HTTPS listeners with these certificates.
pub(crate) fn https(secrets: &[String]) -> Value {
    let refs: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
    json!({"protocol": "HTTPS", "tls": {"certificateRefs": refs}})
}

/// A Gateway with 64 hosts on one port, which have the same certificates.
fn hosts_of_a_port(secrets: &[String]) -> Value {
    let mut gateway = gateway(NAME, &https(secrets));
    let listeners = gateway["spec"]["listeners"].as_array_mut().unwrap();
    for (listener, host) in listeners.iter_mut().zip(hostnames(64)) {
        listener["port"] = 9_000.into();
        listener["hostname"] = host.into();
    }
    gateway
}

/// A Secret whose certificate has 10,000 names, the most that fit. None of them is the host of a listener.
fn with_names(name: &str) -> Value {
    let names: Vec<String> = (0..10_000).map(|number| format!("{number:x}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Identity { chain, private_key } = Identity::self_signed(&names).unwrap();
    data(
        "Secret",
        name,
        json!({"tls.crt": chain, "tls.key": private_key}),
    )
}

/// A Gateway whose ports verify the certificates of clients.
fn verifying() -> Value {
    let validation = json!({"validation": {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}});
    let port = |number| json!({"port": 9_000 + number, "tls": validation});
    let mut gateway = gateway(NAME, &https(&["certificate".to_owned()]));
    gateway["spec"]["tls"] =
        json!({"frontend": {"default": validation, "perPort": list(64, port)}});
    gateway
}

/// The namespace of all objects, with many labels.
pub(crate) fn namespace(labels: usize) -> Value {
    let labels: Value = (0..labels)
        .map(|number| (format!("k{number}"), json!("v")))
        .collect();
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
}

/// Listeners that select namespaces by `count` expressions each.
fn selecting(count: usize) -> Value {
    let expression =
        |number: usize| json!({"key": format!("k{number}"), "operator": "NotIn", "values": ["a"]});
    let selector = json!({"matchExpressions": list(count, expression)});
    json!({"allowedRoutes": {"namespaces": {"from": "Selector", "selector": selector}}})
}

/// Routes of a Gateway for 16 hosts each.
pub(crate) fn routes(count: usize, gateway: &str) -> Vec<Value> {
    let route = |number: usize| {
        let mut route = http_route(16, &[json!({"backendRefs": [{"name": "s", "port": 80}]})]);
        let host = |host| format!("h{host}.r{number}.example.com");
        route["metadata"]["name"] = format!("r{number}").into();
        route["spec"]["hostnames"] = (0..16).map(host).collect::<Vec<_>>().into();
        route["spec"]["parentRefs"] = json!([{"name": gateway}]);
        route
    };
    (0..count).map(route).collect()
}

fn ca(bytes: usize) -> Value {
    data("ConfigMap", "ca", json!({"ca.crt": authorities(bytes)}))
}

pub(crate) fn shapes() -> Vec<Option<Shape>> {
    let names: Vec<String> = (0..64)
        .map(|number| format!("certificate-{number}"))
        .collect();
    let secret = |name: &str, bytes| data("Secret", name, certificate(bytes));
    let secrets: Vec<Value> = names.iter().map(|name| secret(name, 20_000)).collect();
    let one = secret("certificate", 0);
    let https_one = https(&["certificate".to_owned()]);
    let filters = json!({"filters": {"requests": check(64, 12)}});
    let with_routes = |first: Value, gateway: &str| [vec![first], routes(10, gateway)].concat();
    let http = json!({});
    let mut sets = vec![gateway(many::GATEWAY, &http)];
    sets.extend(routes(100, many::GATEWAY));
    let mut for_sets = routes(20, many::GATEWAY);
    for route in &mut for_sets {
        route["spec"]["parentRefs"] =
            json!([{"kind": "ListenerSet", "group": "gateway.networking.k8s.io", "name": NAME}]);
    }
    for_sets.push(gateway(many::GATEWAY, &http));
    vec![
        shape!("Gateway: 64 ports", vec![], gateway(NAME, &http)).map(Shape::copied),
        shape!(
            "Gateway: 64 ports, 1,600 hosts",
            routes(100, NAME),
            gateway(NAME, &http),
        ),
        shape!(
            "Gateway: 64 ports, external authorization with names of 1 KB, 1,600 hosts",
            routes(100, NAME),
            gateway(NAME, &filters),
        ),
        shape!(
            "Gateway: 64 ports, clients' CA certificates of 900 KB",
            vec![one.clone(), ca(900_000)],
            verifying(),
        ),
        shape!(
            "Gateway: 64 ports, clients' CA certificates of 370 KB",
            vec![one.clone(), ca(370_000)],
            verifying(),
        )
        .map(Shape::copied),
        shape!(
            "ConfigMap: clients' CA certificates of 370 KB, 64 ports",
            vec![one.clone(), verifying()],
            {
                let mut map = ca(370_000);
                map["metadata"]["labels"] = json!({"a": NAME});
                map
            },
        ),
        shape!(
            "Gateway: selectors of 1.3 MB, 20,000 labels, 160 hosts",
            with_routes(namespace(20_000), NAME),
            gateway(NAME, &selecting(350)),
        ),
        shape!(
            "Namespace: 20,000 labels, selectors of 1.3 MB, 160 hosts",
            with_routes(gateway(many::GATEWAY, &selecting(350)), many::GATEWAY),
            namespace(20_000),
        ),
        shape!(
            "Gateway: 64 ports, 64 certificates of 20 KB",
            secrets,
            gateway(NAME, &https(&names)),
        ),
        shape!(
            "Gateway: 64 ports, one chain of 1 MB",
            vec![secret("certificate", 1_000_000)],
            gateway(NAME, &https_one),
        ),
        shape!(
            "Secret: a chain of 1 MB, 64 ports",
            vec![gateway(many::GATEWAY, &https_one)],
            secret("certificate", 1_000_000),
        ),
        shape!(
            "Gateway: 64 hosts of a port, 64 certificates with 10,000 names",
            names.iter().map(|name| with_names(name)).collect(),
            hosts_of_a_port(&names),
        ),
        shape!(
            "Secret: a certificate with 10,000 names, 64 hosts of a port",
            vec![hosts_of_a_port(&["certificate".to_owned()])],
            with_names("certificate"),
        ),
        shape!(
            "Gateway: external authorization with names of 1 KB, 5,008 hosts",
            routes(313, NAME),
            {
                let mut gateway = gateway(NAME, &http);
                gateway["spec"]["listeners"] = json!([listener(0, &filters)]);
                gateway
            },
        ),
        shape!(
            "ListenerSet: 64 ports, routes of the Gateway with 1,600 hosts",
            sets,
            listener_set(&http),
        ),
        shape!(
            "ListenerSet: 64 ports, its routes with 320 hosts",
            for_sets,
            listener_set(&filters),
        ),
        shape!(
            "HTTPRoute: 16 hosts, selectors of 1.3 MB, 20,000 labels",
            vec![namespace(20_000), gateway(many::GATEWAY, &selecting(350))],
            {
                let mut route =
                    http_route(16, &[json!({"backendRefs": [{"name": "s", "port": 80}]})]);
                route["spec"]["hostnames"] = hostnames(16).into();
                route
            },
        ),
    ]
}
