//! Reads HTTPProxies from text, and prints their translation as text.

use std::fmt::Write as _;

use sesame_api::{Condition, HTTPProxy, Kind, Object, ObjectKey, ObjectStatus, SubCondition};
use sesame_engine::{Batch, Builder, Commit, Engine};
use sesame_model::{
    Action, BackendName, ClientValidation, FleetAddress, FleetId, FleetState, HeaderMatch,
    PathMatch, PathRewrite, QueryMatch, Rate, RateLimit, Redirect, RedirectPort, Route, TlsMode,
    ValueMatch,
};

use crate::pipeline::{self, Pipeline};
use crate::settings::{IngressSettings, Mode, Settings};

/// Parses YAML, which may be indented like the surrounding code.
pub(super) fn yaml(text: &str) -> serde_json::Value {
    serde_saphyr::from_str(text).expect("valid YAML")
}

/// Parses an HTTPProxy, and names it `shop/a`.
pub(super) fn proxy(text: &str) -> HTTPProxy {
    let mut value = yaml(text);
    value["metadata"] = serde_json::json!({"name": "a", "namespace": "shop"});
    serde_json::from_value(value).expect("an HTTPProxy")
}

/// An engine with the whole translation.
pub(super) struct World {
    engine: Engine,
    pipeline: Pipeline,
}

impl World {
    /// Creates a translation with Services `one`, `two` and `three` in namespace `shop`, each with ports 80 and 443.
    pub(super) fn new() -> Self {
        Self::in_mode(Mode::Managed)
    }

    pub(super) fn in_mode(mode: Mode) -> Self {
        let mut builder = Builder::new();
        let pipeline = pipeline::stages(&mut builder);
        let mut world = Self {
            engine: builder.build(),
            pipeline,
        };
        let mut batch = Batch::new();
        let inputs = world.pipeline.inputs;
        inputs.set_settings(&mut batch, Settings::new(mode));
        let state = FleetState {
            addresses: vec![FleetAddress::Ip([10, 0, 0, 1].into())],
            ready: true,
            ..FleetState::default()
        };
        inputs.set_fleet(&mut batch, FleetId::Default, Some(state));
        world.engine.commit(batch);
        for name in ["one", "two", "three"] {
            world.put(&format!(
                "
                apiVersion: v1
                kind: Service
                metadata: {{name: {name}, namespace: shop}}
                spec: {{ports: [{{port: 80}}, {{port: 443, name: tls, appProtocol: https}}]}}
                "
            ));
        }
        world
    }

    /// Replaces the settings for Ingresses and HTTPProxies.
    pub(super) fn set(&mut self, ingress: IngressSettings) {
        let mut batch = Batch::new();
        let inputs = self.pipeline.inputs;
        let settings = self.engine.get(inputs.settings, &()).expect("settings");
        let settings = Settings {
            ingress,
            ..Settings::clone(&settings)
        };
        inputs.set_settings(&mut batch, settings);
        self.engine.commit(batch);
    }

    /// Creates a translation with these HTTPProxies, each given as its name and spec.
    pub(super) fn with(proxies: &[(&str, &str)]) -> Self {
        let mut world = Self::new();
        for (name, spec) in proxies {
            world.proxy(name, spec);
        }
        world
    }

    /// Creates a translation for unmanaged Envoys, which serve HTTPProxies and a Gateway with this listener.
    pub(super) fn beside_gateway(listener: &str) -> Self {
        let mut world = Self::in_mode(Mode::Unmanaged { gateway: None });
        world.put(
            "
            apiVersion: gateway.networking.k8s.io/v1
            kind: GatewayClass
            metadata: {name: sesame}
            spec: {controllerName: projectsesame.io/gateway-controller}
            ",
        );
        world.put(&format!(
            "
            apiVersion: gateway.networking.k8s.io/v1
            kind: Gateway
            metadata: {{name: web, namespace: shop}}
            spec: {{gatewayClassName: sesame, listeners: [{{{listener}}}]}}
            "
        ));
        world
    }

    /// Adds or replaces an object.
    pub(super) fn put(&mut self, text: &str) -> Commit {
        self.put_value(yaml(text))
    }

    pub(super) fn put_value(&mut self, value: serde_json::Value) -> Commit {
        let object = Object::decode_admitted(value).expect("a valid object");
        let object = object.expect("a served kind");
        let mut batch = Batch::new();
        self.pipeline.inputs.upsert(&mut batch, object);
        self.engine.commit(batch)
    }

    /// Adds or replaces an HTTPProxy in namespace `shop`, or in the namespace before a slash in its name.
    pub(super) fn proxy(&mut self, name: &str, spec: &str) -> Commit {
        let (namespace, name) = name.split_once('/').unwrap_or(("shop", name));
        self.put_value(serde_json::json!({
            "apiVersion": "projectsesame.io/v1",
            "kind": "HTTPProxy",
            "metadata": {"name": name, "namespace": namespace, "generation": 1},
            "spec": yaml(spec),
        }))
    }

    pub(super) fn remove(&mut self, name: &str) -> Commit {
        let mut batch = Batch::new();
        let key = ObjectKey::new(Kind::HTTPProxy, "shop", name);
        self.pipeline.inputs.remove(&mut batch, &key);
        self.engine.commit(batch)
    }

    /// The routes of a virtual host, one per line; empty if the virtual host doesn't exist.
    pub(super) fn routes(&self, port: u16, domain: &str) -> String {
        let hosts = self.engine.iter(self.pipeline.outputs.virtual_hosts);
        let mut text = String::new();
        for (key, host) in hosts {
            if key.table.port == port && *key.domain == *domain {
                for route in &host.routes {
                    let _ = writeln!(text, "{}", line(route));
                }
            }
        }
        text
    }

    /// The first route of a host for requests without TLS.
    pub(super) fn first(&self, domain: &str) -> Route {
        let hosts = self.engine.iter(self.pipeline.outputs.virtual_hosts);
        let mut hosts = hosts.filter(|(key, _)| key.table.port == 80 && *key.domain == *domain);
        let (_, host) = hosts.next().expect("a virtual host");
        Route::clone(&host.routes[0])
    }

    /// The host's local rate limit, if a route shares it, then each route's limit: the number of requests allowed at
    /// once, or `host` for the shared limit.
    pub(super) fn rates(&self, port: u16, domain: &str) -> String {
        let hosts = self.engine.iter(self.pipeline.outputs.virtual_hosts);
        let mut hosts = hosts.filter(|(key, _)| key.table.port == port && *key.domain == *domain);
        let (_, host) = hosts.next().expect("a virtual host");
        let limit = |of: &RateLimit| (of.requests + of.burst).to_string();
        let own = host.rate.as_deref().map(limit);
        let routes = host.routes.iter().map(|route| {
            let policy = route.policy.as_deref();
            match policy.and_then(|policy| policy.rate.as_ref()) {
                None => "none".to_owned(),
                Some(Rate::OfHost) => "host".to_owned(),
                Some(Rate::Own(of)) => limit(of),
            }
        });
        let routes = routes.collect::<Vec<_>>().join(", ");
        format!("{}: {routes}", own.as_deref().unwrap_or("none"))
    }

    /// The filter chains of all listeners, one per line.
    pub(super) fn chains(&self) -> String {
        let mut text = String::new();
        for (key, listener) in self.engine.iter(self.pipeline.outputs.listeners) {
            for chain in &listener.chains {
                let name = chain.server_name().unwrap_or("*");
                let mode = chain.tls.as_ref().map(|tls| &tls.mode);
                let _ = writeln!(text, "{} {name} {mode:?} {:?}", key.port, chain.target);
            }
        }
        text
    }

    /// The prefix of each route, and the provider whose token it requires.
    pub(super) fn tokens(&self, port: u16, domain: &str) -> String {
        let hosts = self.engine.iter(self.pipeline.outputs.virtual_hosts);
        let mut hosts = hosts.filter(|(key, _)| key.table.port == port && *key.domain == *domain);
        let Some((_, host)) = hosts.next() else {
            return String::new();
        };
        let routes = host.routes.iter().map(|route| {
            let token = route.policy.as_ref().and_then(|policy| policy.jwt.clone());
            let path = match &route.matches.path {
                PathMatch::Prefix(path) | PathMatch::StartsWith(path) => path,
                other => panic!("{other:?}"),
            };
            format!("{path} {}", token.as_deref().unwrap_or("none"))
        });
        routes.collect::<Vec<_>>().join(", ")
    }

    /// The client validation of each filter chain, one per line.
    pub(super) fn clients(&self) -> String {
        let mut text = String::new();
        for (_, listener) in self.engine.iter(self.pipeline.outputs.listeners) {
            for chain in &listener.chains {
                let TlsMode::Terminate(termination) = (match &chain.tls {
                    Some(tls) => &tls.mode,
                    None => continue,
                }) else {
                    continue;
                };
                let Some(clients) = termination.clients.as_deref() else {
                    continue;
                };
                let ClientValidation {
                    authorities,
                    optional,
                    untrusted,
                    revocable_leaf,
                    forwarded,
                } = clients;
                let authorities = authorities.as_ref().map(ToString::to_string);
                let _ = writeln!(
                    text,
                    "authorities: {}, optional: {optional}, untrusted: {untrusted}, revocable_leaf: {revocable_leaf}, \
                     forwarded: {forwarded:?}",
                    authorities.as_deref().unwrap_or("none")
                );
            }
        }
        text
    }

    /// The hosts that are served on connections that use the fallback certificate.
    pub(super) fn with_fallback(&self) -> Vec<String> {
        let hosts = self.engine.iter(self.pipeline.outputs.virtual_hosts);
        let hosts = hosts.filter(|(_, host)| host.fallback);
        hosts.map(|(key, _)| key.domain.to_string()).collect()
    }

    /// The number of virtual hosts that a commit changed.
    pub(super) fn changed_hosts(&self, commit: &Commit) -> usize {
        commit.changes(self.pipeline.outputs.virtual_hosts).len()
    }

    /// The clusters that are sent to Envoys.
    pub(super) fn clusters(&self) -> Vec<String> {
        let clusters = self.engine.iter(self.pipeline.outputs.fleet_clusters);
        let mut clusters: Vec<String> = clusters.map(|((_, key), _)| key.to_string()).collect();
        clusters.sort();
        clusters
    }

    /// The status of an HTTPProxy: its state, then errors and warnings, one per line.
    pub(super) fn status(&self, name: &str) -> String {
        let (namespace, name) = name.split_once('/').unwrap_or(("shop", name));
        self.status_of(&ObjectKey::new(Kind::HTTPProxy, namespace, name))
    }

    pub(super) fn status_of(&self, key: &ObjectKey) -> String {
        let status = self.engine.get(self.pipeline.outputs.statuses, key);
        let Some(ObjectStatus::HttpProxy(status)) = status.as_deref() else {
            return "none\n".to_owned();
        };
        let state = status.current_status.as_ref().expect("a state");
        let mut text = format!("{}\n", state.as_str());
        findings(&mut text, &status.conditions);
        text
    }

    /// The status of an ExtensionService: whether it is valid, then errors and warnings, one per line.
    pub(super) fn extension(&self, name: &str) -> String {
        self.extension_of(&ObjectKey::new(Kind::ExtensionService, "shop", name))
    }

    pub(super) fn extension_of(&self, key: &ObjectKey) -> String {
        let status = self.engine.get(self.pipeline.outputs.statuses, key);
        let Some(ObjectStatus::Conditions(status)) = status.as_deref() else {
            return "none\n".to_owned();
        };
        let mut text = format!("{}\n", status.conditions[0].status.as_str());
        findings(&mut text, &status.conditions);
        text
    }

    /// The Services of an ExtensionService that have endpoints, with their weights.
    pub(super) fn shares(&self, name: &str) -> String {
        let rows = self.engine.iter(self.pipeline.outputs.endpoints);
        let mut rows = rows.filter(|(key, _)| {
            matches!(&key.backend, BackendName::ExtensionService { name: other } if **other == *name)
        });
        let (_, endpoints) = rows.next().expect("a cluster");
        let shares = endpoints.shares.iter();
        let shares = shares.map(|share| format!("{}*{}", share.cluster, share.weight));
        Vec::from_iter(shares).join(" ")
    }
}

/// Appends errors and warnings, one per line.
fn findings(text: &mut String, conditions: &[Condition]) {
    let mut lines = |kind: &str, list: &[SubCondition]| {
        for entry in list {
            let SubCondition {
                type_,
                reason,
                message,
                ..
            } = entry;
            let _ = writeln!(text, "{kind} {type_} {reason}: {message}");
        }
    };
    for condition in conditions {
        lines("error", &condition.errors);
        lines("warning", &condition.warnings);
    }
}

fn line(route: &Route) -> String {
    let mut text = match &route.matches.path {
        PathMatch::Exact(path) => format!("= {path}"),
        PathMatch::Regex(pattern) => format!("~ {pattern}"),
        PathMatch::Prefix(path) => format!("/ {path}"),
        PathMatch::StartsWith(path) => format!("^ {path}"),
    };
    for HeaderMatch { name, value } in &route.matches.headers {
        let _ = write!(text, " {name}:{}", value_text(value));
    }
    for QueryMatch { name, value } in &route.matches.query {
        let _ = write!(text, " ?{name}={}", value_text(value));
    }
    let action = match &route.action {
        Action::Respond(status) => format!("{status}"),
        Action::RespondWith(response) => format!("{} {:?}", response.status, response.body),
        Action::Redirect(redirect) => redirect_text(redirect),
        Action::Forward(forward) => {
            let targets = forward.targets.iter().map(|target| {
                let name = match target.target.cluster() {
                    Some(key) => key.to_string(),
                    None => "refused".to_owned(),
                };
                match forward.targets.len() {
                    1 => name,
                    _ => format!("{name}*{}", target.weight),
                }
            });
            let mut text = targets.collect::<Vec<_>>().join(" + ");
            for mirror in &forward.mirrors {
                let share = mirror.share.map_or(100, |share| share.0 / 10_000);
                let _ = write!(text, ", {share}% to {}", mirror.cluster);
            }
            if let Some(path) = &forward.path_rewrite {
                let _ = write!(text, " as {}", path_text(path));
            }
            text
        }
    };
    format!("{text} -> {action}")
}

fn value_text(value: &ValueMatch) -> String {
    match value {
        ValueMatch::Exact(text) => text.clone(),
        ValueMatch::Regex(text) => format!("~{text}"),
        ValueMatch::Present => "*".to_owned(),
        ValueMatch::Absent => "-".to_owned(),
        ValueMatch::Text(text) => {
            let case = if text.ignore_case { "(i)" } else { "" };
            format!("{:?}({}){case}", text.position, text.text)
        }
        ValueMatch::Not(value) => format!("!{}", value_text(value)),
        ValueMatch::NotOrAbsent(value) => format!("!-{}", value_text(value)),
    }
}

fn redirect_text(redirect: &Redirect) -> String {
    let scheme = redirect.scheme.as_deref().unwrap_or("same");
    let host = redirect.hostname.as_deref().unwrap_or("same");
    let port = match redirect.port {
        RedirectPort::Exact(port) => format!(":{port}"),
        RedirectPort::OfScheme => String::new(),
        RedirectPort::OfListener => ":same".to_owned(),
    };
    let path = redirect.path.as_ref().map_or_else(String::new, path_text);
    format!("{} {scheme}://{host}{port}{path}", redirect.status)
}

fn path_text(path: &PathRewrite) -> String {
    match path {
        PathRewrite::Full(path) => format!("={path}"),
        PathRewrite::Prefix(path) | PathRewrite::Text(path) => path.clone(),
    }
}
