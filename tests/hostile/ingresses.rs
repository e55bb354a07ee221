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
    let without_paths = hostnames(25_000)
        .into_iter()
        .map(|host| json!({"host": host}));
    let tls = hostnames(20_000);
    let default = |hosts: usize| {
        let mut ingress = ingress(json!([]), &wildcards(hosts));
        ingress["spec"]["defaultBackend"] = backend();
        ingress
    };
    vec![
        shape!(
            "Ingress: 25,000 hosts without paths",
            vec![],
            ingress(without_paths.collect(), &[]),
        ),
        shape!(
            "Ingress: 25,000 hosts without paths, default backend",
            vec![],
            {
                let hosts = hostnames(25_000)
                    .into_iter()
                    .map(|host| json!({"host": host}));
                let mut ingress = ingress(hosts.collect(), &[]);
                ingress["spec"]["defaultBackend"] = backend();
                ingress
            },
        ),
        shape!(
            "Ingress: 5,000 hosts",
            vec![],
            with_rules(&hostnames(5_000), &[]),
        )
        .map(Shape::copied),
        shape!(
            "Ingress: 20,000 TLS hosts",
            secret(0),
            ingress(json!([paths(1)]), &tls),
        ),
        shape!(
            "Ingress: 5,000 hosts with TLS",
            secret(0),
            with_rules(&hostnames(5_000), &hostnames(5_000)),
        ),
        shape!(
            "Ingress: 1,000 hosts with TLS, one chain of 300 KB",
            secret(300_000),
            with_rules(&hostnames(1_000), &hostnames(1_000)),
        ),
        shape!(
            "Ingress: 1,000 hosts with TLS in one entry each, one chain of 300 KB",
            secret(300_000),
            {
                let hosts = hostnames(1_000);
                let mut ingress = with_rules(&hosts, &[]);
                let entry = |host| json!({"hosts": [host], "secretName": "certificate"});
                ingress["spec"]["tls"] = hosts.into_iter().map(entry).collect();
                ingress
            },
        ),
        shape!(
            "Ingress: 6,000 paths for 9,000 wildcard hosts with TLS",
            secret(0),
            ingress(json!([paths(6_000)]), &wildcards(9_000)),
        ),
        shape!(
            "Ingress: 64 paths for 64 wildcard hosts with TLS, just below the limit",
            secret(0),
            ingress(json!([paths(64)]), &wildcards(64)),
        ),
        shape!(
            "Ingress: 4,096 wildcard hosts",
            vec![],
            with_rules(&wildcards(4_096), &[]),
        ),
        shape!(
            "Ingress: 4,096 wildcard hosts with TLS",
            secret(0),
            with_rules(&wildcards(4_096), &wildcards(4_096)),
        ),
        shape!(
            "Ingress: 12,000 paths on one host",
            vec![],
            ingress(
                json!([{"host": "hostile.example.com", "http": {"paths": list(12_000, path)}}]),
                &[],
            ),
        ),
        shape!(
            "Ingress: a default backend for 1,000 wildcard hosts with TLS",
            secret(0),
            default(1_000),
        ),
        shape!(
            "Ingress: a default backend for 30,000 wildcard hosts with TLS",
            secret(0),
            default(30_000),
        ),
    ]
}
