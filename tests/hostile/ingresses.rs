//! Ingresses.

use serde_json::{Value, json};

use super::{NAME, Shape, data, hostnames, list, object};
use crate::others::certificate;

fn backend() -> Value {
    json!({"service": {"name": "s", "port": {"number": 80}}})
}

fn path(number: usize) -> Value {
    json!({"path": format!("/p{number}"), "pathType": "Prefix", "backend": backend()})
}

fn paths(count: usize) -> Value {
    json!({"http": {"paths": list(count, path)}})
}

fn rule(host: &str, number: usize) -> Value {
    json!({"host": host, "http": {"paths": [path(number)]}})
}

fn wildcards(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("*.w{number}.{NAME}.example.com"))
        .collect()
}

fn ingress(rules: Value, tls: &[String]) -> Value {
    let mut spec = json!({"ingressClassName": "sesame", "rules": rules});
    if !tls.is_empty() {
        spec["tls"] = json!([{"hosts": tls, "secretName": "certificate"}]);
    }
    object("networking.k8s.io/v1", "Ingress", NAME, spec)
}

/// An Ingress with a path for each of these hosts.
fn with_rules(hosts: &[String], tls: &[String]) -> Value {
    let rules = hosts.iter().enumerate();
    ingress(
        rules.map(|(number, host)| rule(host, number)).collect(),
        tls,
    )
}

fn secret(chain_bytes: usize) -> Vec<Value> {
    vec![data("Secret", "certificate", certificate(chain_bytes))]
}

pub(crate) fn shapes() -> Vec<Option<Shape>> {
    let without_paths = hostnames(6_000)
        .into_iter()
        .map(|host| json!({"host": host}));
    let tls = hostnames(8_000);
    let default = |hosts: usize| {
        let mut ingress = ingress(json!([]), &wildcards(hosts));
        ingress["spec"]["defaultBackend"] = backend();
        ingress
    };
    let shapes = vec![
        shape!(
            "Ingress: 6,000 hosts without paths",
            vec![],
            ingress(without_paths.collect(), &[]),
        ),
        shape!(
            "Ingress: 6,000 hosts without paths, default backend",
            vec![],
            {
                let hosts = hostnames(6_000)
                    .into_iter()
                    .map(|host| json!({"host": host}));
                let mut ingress = ingress(hosts.collect(), &[]);
                ingress["spec"]["defaultBackend"] = backend();
                ingress
            },
        ),
        shape!(
            "Ingress: 1,300 hosts",
            vec![],
            with_rules(&hostnames(1_300), &[]),
        ),
        shape!(
            "Ingress: 8,000 TLS hosts",
            secret(0),
            ingress(json!([paths(1)]), &tls),
        ),
        shape!(
            "Ingress: 1,300 hosts with TLS",
            secret(0),
            with_rules(&hostnames(1_300), &hostnames(1_300)),
        ),
        shape!(
            "Ingress: 256 hosts with TLS, one chain of 300 KB",
            secret(300_000),
            with_rules(&hostnames(256), &hostnames(256)),
        ),
        shape!(
            "Ingress: 256 hosts with TLS in one entry each, one chain of 300 KB",
            secret(300_000),
            {
                let hosts = hostnames(256);
                let mut ingress = with_rules(&hosts, &[]);
                let entry = |host| json!({"hosts": [host], "secretName": "certificate"});
                ingress["spec"]["tls"] = hosts.into_iter().map(entry).collect();
                ingress
            },
        ),
        shape!(
            "Ingress: 1,000 paths for 3,500 wildcard hosts with TLS",
            secret(0),
            ingress(json!([paths(1_000)]), &wildcards(3_500)),
        ),
        shape!(
            "Ingress: 22 paths for 22 wildcard hosts with TLS, just below the limit",
            secret(0),
            ingress(json!([paths(22)]), &wildcards(22)),
        ),
        shape!(
            "Ingress: 1,300 wildcard hosts",
            vec![],
            with_rules(&wildcards(1_300), &[]),
        ),
        shape!(
            "Ingress: 1,300 wildcard hosts with TLS",
            secret(0),
            with_rules(&wildcards(1_300), &wildcards(1_300)),
        ),
        shape!(
            "Ingress: 2,500 paths on one host",
            vec![],
            ingress(
                json!([{"host": "hostile.example.com", "http": {"paths": list(2_500, path)}}]),
                &[],
            ),
        ),
        shape!(
            "Ingress: a default backend for 1,000 wildcard hosts with TLS",
            secret(0),
            default(1_000),
        ),
        shape!(
            "Ingress: a default backend for 7,000 wildcard hosts with TLS",
            secret(0),
            default(7_000),
        ),
        shape!(
            "Ingress: 7,000 rules without paths for a wildcard host",
            vec![],
            {
                let rule = json!({"host": format!("*.{NAME}.example.com")});
                let spec =
                    json!({"ingressClassName": "sesame", "rules": list(7_000, |_| rule.clone())});
                object("networking.k8s.io/v1", "Ingress", NAME, spec)
            }
        ),
    ];
    shapes
        .into_iter()
        .map(|shape| shape.map(Shape::copied))
        .collect()
}
