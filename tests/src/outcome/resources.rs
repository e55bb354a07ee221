//! Resources of each fleet: listeners, clusters with their endpoints, and certificates. For routes, see `routes`.

use std::collections::BTreeSet;

use serde_json::Value;
use sesame_control::Resources;

use super::{Constants, Fields, Outcome, downstream_tls, routes, upstream_tls};
use crate::yaml::Node;

/// Each fleet's resources that are not in `shared`.
pub(super) fn all(whole: &Outcome, shared: &Outcome, constants: &mut Constants) -> Node {
    let none = Resources::default();
    let mut out = Vec::new();
    for (fleet, resources) in &whole.translation.fleets {
        let theirs = shared.translation.fleets.get(fleet).unwrap_or(&none);
        let node = fleet_of(resources, theirs, shared, constants);
        if !node.is_empty() || !shared.translation.fleets.contains_key(fleet) {
            out.push((fleet.to_string(), node));
        }
    }
    Node::Map(out)
}

fn fleet_of(
    own: &Resources,
    theirs: &Resources,
    shared: &Outcome,
    constants: &mut Constants,
) -> Node {
    let mut out = Vec::new();
    let mut push = |name: &str, nodes: Vec<(String, Node)>| {
        if !nodes.is_empty() {
            out.push((name.to_owned(), Node::Map(nodes)));
        }
    };
    let new = |own: &[Value], theirs: &[Value]| -> Vec<Value> {
        own.iter()
            .filter(|value| !theirs.contains(value))
            .cloned()
            .collect()
    };
    let listeners = new(&own.listeners, &theirs.listeners).into_iter();
    push(
        "listeners",
        listeners.map(|each| listener(each, constants)).collect(),
    );
    push(
        "routes",
        routes::all(&own.routes, &theirs.routes, constants),
    );
    // Clusters for shared Services without policies are omitted even if no shared route uses them.
    let endpoints = |cluster: &str| {
        own.endpoints
            .iter()
            .find(|each| each["cluster_name"] == cluster)
            .cloned()
    };
    let clusters = new(&own.clusters, &theirs.clusters)
        .into_iter()
        .filter(|each| {
            let shared = shared.has_service(each["name"].as_str().unwrap_or_default());
            !shared || each.pointer(RETRY_BUDGET).is_some()
        });
    push(
        "clusters",
        clusters
            .map(|each| {
                let endpoints = endpoints(service(&each));
                cluster(each, endpoints, constants)
            })
            .collect(),
    );
    let orphans = own.endpoints.iter().filter(|each| {
        let clusters = &mut own.clusters.iter();
        !clusters.any(|cluster| each["cluster_name"] == service(cluster))
    });
    push(
        "endpoints without a cluster",
        orphans
            .map(|each| (each["cluster_name"].to_string(), Node::from(each.clone())))
            .collect(),
    );
    let secrets = new(&own.secrets, &theirs.secrets).into_iter();
    push("certificates", secrets.map(secret).collect());
    Node::Map(out)
}

impl Outcome {
    /// Whether the objects include the Service of a cluster `namespace/name:port`.
    fn has_service(&self, cluster: &str) -> bool {
        self.generations.keys().any(|key| {
            key.kind == sesame_api::Kind::Service
                && cluster
                    .strip_prefix(&format!("{}/{}:", key.namespace, key.name))
                    .is_some_and(|port| !port.contains('?'))
        })
    }
}

/// A cluster's EDS service name.
fn service(cluster: &Value) -> &str {
    let name = cluster["eds_cluster_config"]["service_name"].as_str();
    name.or(cluster["name"].as_str()).unwrap_or_default()
}

fn listener(value: Value, constants: &mut Constants) -> (String, Node) {
    let mut fields = Fields::of(value);
    let name = fields.text("name");
    let mut out = Vec::new();
    let mut bind: Vec<Node> = fields.take("address").map(socket).into_iter().collect();
    for each in fields.list("additional_addresses") {
        let mut each = Fields::of(each);
        bind.extend(each.take("address").map(socket));
        each.rest(&mut out);
    }
    out.push(("bind".to_owned(), Node::List(bind)));
    if fields
        .0
        .get("stat_prefix")
        .is_some_and(|prefix| *prefix == name)
    {
        fields.take("stat_prefix");
    }
    let mut filters = fields.take_all(&["listener_filters"]);
    let constant = match filters.pointer_mut("/listener_filters/0/typed_config/stat_prefix") {
        Some(prefix) if *prefix == name => {
            prefix.take();
            cluster_of_datagrams(&mut filters, &mut out);
            "listener filters of UDP"
        }
        _ => "listener filters with TLS",
    };
    let any = filters.as_object().is_some_and(|all| !all.is_empty());
    if any && !constants.is(constant, &filters) {
        out.push(("listener_filters".to_owned(), Node::from(filters)));
    }
    let buffer = fields.take_all(&["per_connection_buffer_limit_bytes"]);
    if buffer != serde_json::json!({}) && !constants.is("buffers", &buffer) {
        out.push(("buffers".to_owned(), Node::from(buffer)));
    }
    let chains = fields.list("filter_chains");
    let mut shown: Vec<(String, Node)> = chains
        .into_iter()
        .map(|chain| filter_chain(chain, &name, constants))
        .collect();
    match &mut shown[..] {
        [(plain, Node::Map(chain))] if plain.is_empty() => out.append(chain),
        [] => {}
        _ => out.push(("chains".to_owned(), Node::Map(shown))),
    }
    fields.rest(&mut out);
    (name, Node::Map(out))
}

fn cluster_of_datagrams(filters: &mut Value, out: &mut Vec<(String, Node)>) {
    let action = "/listener_filters/0/typed_config/matcher/on_no_match/action";
    if let Some(cluster) = filters.pointer_mut(&format!("{action}/typed_config/cluster")) {
        out.push(("datagrams".to_owned(), Node::from(cluster.take())));
    }
}

/// A filter chain, by server name; empty for a plain port.
fn filter_chain(value: Value, port: &str, constants: &mut Constants) -> (String, Node) {
    let mut fields = Fields::of(value);
    let mut out = Vec::new();
    let name = fields
        .take("name")
        .map(|_| ())
        .map_or(String::new(), |()| "*".to_owned());
    let name = match fields.take("filter_chain_match") {
        None => name,
        Some(matches) => {
            let mut matches = Fields::of(matches);
            let names = matches.list("server_names");
            matches.rest(&mut out);
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
            match names[..] {
                [] => name,
                _ => names.join(" "),
            }
        }
    };
    if let Some(socket) = fields.take("transport_socket") {
        downstream_tls::transport_socket(socket, constants, &mut out);
    }
    let timeout = fields.take_all(&["transport_socket_connect_timeout"]);
    if timeout != serde_json::json!({}) && !constants.is("handshake", &timeout) {
        out.push(("handshake".to_owned(), Node::from(timeout)));
    }
    let mut filters = fields.list("filters");
    let mut filter = filters.pop().expect("a chain has a filter");
    let is_tcp = filter["name"] == "envoy.filters.network.tcp_proxy";
    let config = &mut filter["typed_config"];
    let prefix = config["stat_prefix"].take();
    if prefix != port {
        out.push(("stat_prefix".to_owned(), Node::from(prefix)));
    }
    if is_tcp {
        let config = config.as_object_mut().expect("a configuration");
        let connections = match config.remove("weighted_clusters") {
            Some(weighted) => shares(&weighted["clusters"]),
            None => Node::from(config.remove("cluster").unwrap_or_default()),
        };
        out.push(("connections".to_owned(), connections));
        if !constants.is("tcp proxy", &filter) {
            out.push(("tcp_proxy".to_owned(), Node::from(filter)));
        }
        let path =
            "/typed_config/on_new_connection/0/format_string/text_format_source/inline_string";
        for mut filter in filters {
            let format = filter
                .pointer_mut(path)
                .map(Value::take)
                .unwrap_or_default();
            out.push(("cluster".to_owned(), Node::from(format)));
            if !constants.is("set_filter_state", &filter) {
                out.push(("filter".to_owned(), Node::from(filter)));
            }
        }
    } else {
        let mutation = "/early_header_mutation_extensions/0/typed_config/mutations/0/append/header";
        let listener = config
            .pointer_mut(&format!("{mutation}/value"))
            .map(Value::take);
        let constant = match listener {
            Some(_) => "http connection manager with TLS",
            None => "http connection manager",
        };
        if let Some(listener) = listener.filter(|listener| *listener != name) {
            out.push(("listener".to_owned(), Node::from(listener)));
        }
        let routes = config["rds"]["route_config_name"].take();
        out.push(("routes".to_owned(), Node::from(routes)));
        for field in [
            "tracing",
            "request_id_extension",
            "forward_client_cert_details",
            "set_current_client_cert_details",
        ] {
            let value = config.as_object_mut().and_then(|all| all.remove(field));
            out.extend(value.map(|value| (field.to_owned(), Node::from(value))));
        }
        if !constants.is(constant, &filter) {
            let usual = constants.get(constant);
            let changes = changes(&filter["typed_config"], &usual["typed_config"]);
            out.push(("http".to_owned(), Node::from(changes)));
        }
    }
    fields.rest(&mut out);
    (name, Node::Map(out))
}

/// The fields of a connection manager that differ from the usual one's. Of its filters, the additional ones.
fn changes(manager: &Value, usual: &Value) -> Value {
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (manager, usual) = (fields(manager), fields(usual));
    let names: BTreeSet<&String> = manager.keys().chain(usual.keys()).collect();
    let mut changes = serde_json::Map::new();
    for name in names {
        let (own, other) = (manager.get(name), usual.get(name));
        let change = match (own, other) {
            _ if own == other => continue,
            (Some(Value::Array(own)), Some(Value::Array(other))) => {
                let added = own.iter().filter(|each| !other.contains(each));
                Value::Array(added.cloned().collect())
            }
            (own, _) => own.cloned().unwrap_or_default(),
        };
        changes.insert(name.clone(), change);
    }
    Value::Object(changes)
}

/// Clusters and their weights.
fn shares(clusters: &Value) -> Node {
    let clusters = clusters.as_array().into_iter().flatten();
    let shares = clusters.map(|cluster| {
        let mut fields = Fields::of(cluster.clone());
        let name = fields.text("name");
        let weight = fields.take("weight").unwrap_or_default();
        assert!(
            fields.0.is_empty(),
            "more than a name and a weight: {cluster}"
        );
        (name, Node::from(weight))
    });
    Node::Map(shares.collect())
}

/// The limit on retries to a cluster.
const RETRY_BUDGET: &str = "/circuit_breakers/thresholds/0/retry_budget";

/// A cluster with its endpoints; only the endpoints if the rest is constant.
fn cluster(value: Value, endpoints: Option<Value>, constants: &mut Constants) -> (String, Node) {
    let mut fields = Fields::of(value);
    let name = fields.text("name");
    let mut out = Vec::new();
    let endpoints = endpoints.or_else(|| fields.take("load_assignment"));
    let eds = fields.0.get_mut("eds_cluster_config");
    let service = eds.and_then(|eds| eds.as_object_mut()?.remove("service_name"));
    let service = service.and_then(|service| service.as_str().map(str::to_owned));
    if let Some(service) = &service {
        out.push(("service".to_owned(), Node::text(service)));
    }
    let mut usual = fields.take_all(&[
        "type",
        "eds_cluster_config",
        "lb_policy",
        "circuit_breakers",
        "common_lb_config",
        "cluster_type",
        "wait_for_warm_on_init",
    ]);
    let constant = match usual.get("cluster_type") {
        Some(_) => "cluster of an external host",
        None if name.ends_with("/udp/*") => "cluster of a UDP port",
        None => "cluster",
    };
    let thresholds = usual.pointer_mut("/circuit_breakers/thresholds/0");
    let retries = thresholds.and_then(|all| all.as_object_mut()?.remove("retry_budget"));
    if !constants.is(constant, &usual) {
        out.push(("cluster".to_owned(), Node::from(usual)));
    }
    if let Some(retries) = retries {
        out.push(("retry_budget".to_owned(), Node::from(retries)));
    }
    if let Some(socket) = fields.0.get("transport_socket")
        && let Some(tls) = upstream_tls::verified(socket, constants)
    {
        fields.take("transport_socket");
        out.push(("tls".to_owned(), tls));
    }
    let endpoints = match endpoints {
        Some(endpoints) => assignment(endpoints, service.as_deref().unwrap_or(&name)),
        None => Node::text("(missing)"),
    };
    fields.rest(&mut out);
    if out.is_empty() {
        return (name, endpoints);
    }
    out.push(("endpoints".to_owned(), endpoints));
    (name, Node::Map(out))
}

fn assignment(value: Value, cluster: &str) -> Node {
    let whole = Node::from(value.clone());
    let mut fields = Fields::of(value);
    let mut out = Vec::new();
    let same_name = fields.text("cluster_name") == cluster;
    for locality in fields.list("endpoints") {
        let mut locality = Fields::of(locality);
        let hosts = locality.list("lb_endpoints").into_iter().map(host);
        match locality.take("load_balancing_weight") {
            None => out.extend(hosts),
            Some(weight) => {
                let backend = locality.take("locality").unwrap_or_default();
                let backend = backend["sub_zone"].as_str().unwrap_or_default();
                out.push(Node::Map(vec![
                    (backend.to_owned(), Node::List(hosts.collect())),
                    ("weight".to_owned(), Node::from(weight)),
                ]));
            }
        }
        if !locality.0.is_empty() {
            return whole;
        }
    }
    match same_name && fields.0.is_empty() {
        true => Node::List(out),
        false => whole,
    }
}

fn host(endpoint: Value) -> Node {
    match endpoint.pointer("/endpoint/address") {
        Some(address) if endpoint == serde_json::json!({"endpoint": {"address": address}}) => {
            socket(address.clone())
        }
        _ => Node::from(endpoint),
    }
}

/// `ip:port`, followed by `/udp` for UDP.
fn socket(address: Value) -> Node {
    let whole = Node::from(address.clone());
    let mut fields = Fields::of(address);
    let Some(socket) = fields.take("socket_address") else {
        return whole;
    };
    let mut socket = Fields::of(socket);
    let (ip, port) = (socket.text("address"), socket.take("port_value"));
    let transport = match socket.take("protocol") {
        None => "",
        Some(protocol) if protocol == "UDP" => "/udp",
        Some(_) => return whole,
    };
    match (fields.0.is_empty() && socket.0.is_empty(), port) {
        (true, Some(port)) if ip.contains(':') => Node::text(format!("[{ip}]:{port}{transport}")),
        (true, Some(port)) => Node::text(format!("{ip}:{port}{transport}")),
        _ => whole,
    }
}

/// A certificate or trust bundle by name. The certificates are in the case, and the key is hidden.
fn secret(value: Value) -> (String, Node) {
    let mut fields = Fields::of(value);
    let name = fields.text("name");
    let chain = fields
        .0
        .get("tls_certificate")
        .and_then(|pair| pair.pointer("/certificate_chain/inline_string"))
        .and_then(Value::as_str)
        .is_some_and(|chain| chain.starts_with("-----BEGIN CERTIFICATE-----"));
    let hidden = serde_json::json!({"inline_string": "(hidden)"});
    let pair = fields.0.get("tls_certificate");
    if chain && pair.is_some_and(|pair| pair["private_key"] == hidden) && fields.0.len() == 1 {
        return (name, Node::text("(chain and key)"));
    }
    let bundle = fields.0.get("validation_context");
    let bundle = bundle.and_then(|context| context.pointer("/trusted_ca/inline_string"));
    if let Some(pem) = bundle.and_then(Value::as_str)
        && fields.0["validation_context"]
            == serde_json::json!({"trusted_ca": {"inline_string": pem}})
    {
        let count = pem.matches("-----BEGIN CERTIFICATE-----").count();
        return (name, Node::text(format!("({count} CA certificates)")));
    }
    let mut out = Vec::new();
    fields.rest(&mut out);
    (name, Node::Map(out))
}
