//! Limits on objects that would multiply what others have.

use serde_json::{Value, json};
use sesame_api::{Kind, Object, ObjectKey};
use sesame_model::{Action, FleetId, PathMatch, Route};
use sesame_translate::settings::Mode;

use crate::rig::{Rig, class, fleet, gateway, route, said, set};

/// A Gateway with ten ports.
fn ten_ports(name: &str, settings: &Value) -> Value {
    let listener = |number: usize| {
        let mut listener =
            json!({"name": format!("l{number}"), "port": 8_000 + number, "protocol": "HTTP"});
        for (field, value) in settings.as_object().expect("an object") {
            listener[field] = value.clone();
        }
        listener
    };
    let listeners = (0..10).map(listener).collect();
    set(gateway(name, "edge", 1), "/spec/listeners", listeners)
}

/// The ports that serve the host of a fleet, sorted.
fn ports(rig: &Rig, of: &FleetId, host: &str) -> Vec<u16> {
    let hosts = rig.engine.iter(rig.pipeline.outputs.virtual_hosts);
    let hosts = hosts.filter(|(key, _)| key.table.fleet == *of && &*key.domain == host);
    let mut ports: Vec<u16> = hosts.map(|(key, _)| key.table.port).collect();
    ports.sort_unstable();
    ports
}

#[test]
fn a_host_of_a_route_is_served_on_few_ports() {
    let mut rig = Rig::new(Mode::Managed);
    let at = |number: usize| json!({"name": "web", "sectionName": format!("l{number}")});
    let all = set(
        route("all", &["web"]),
        "/spec/hostnames",
        json!(["a.example.com"]),
    );
    let last = set(
        route("last", &["web"]),
        "/spec/hostnames",
        json!(["b.example.com"]),
    );
    let last = set(last, "/spec/parentRefs", (0..10).rev().map(at).collect());
    rig.put([class("edge", 0), ten_ports("web", &json!({})), all, last]);
    let web = fleet("web");
    assert_eq!(
        ports(&rig, &web, "a.example.com"),
        Vec::from_iter(8_000..8_008)
    );
    // The first ports in the order of the parentRefs. A parentRef to other ports is refused.
    assert_eq!(
        ports(&rig, &web, "b.example.com"),
        Vec::from_iter(8_002..8_010)
    );
    let status = rig.route("last");
    assert_eq!(
        said(&status.parents[7].conditions, "Accepted"),
        "Accepted/Accepted"
    );
    let refused = said(&status.parents[8].conditions, "Accepted");
    assert!(
        refused.starts_with("not Accepted/UnsupportedValue: other ports of Gateway"),
        "{refused}"
    );
    let conditions = &rig.route("all").parents[0].conditions;
    assert_eq!(said(conditions, "Accepted"), "Accepted/Accepted");
    let message = format!("{conditions:?}");
    assert!(
        message.contains("at most 8 ports of a Gateway"),
        "{message}"
    );
}

#[test]
fn a_port_with_filters_counts_as_several() {
    let mut rig = Rig::new(Mode::Managed);
    let auth = json!({"type": "ExternalAuth", "externalAuth": {
        "protocol": "HTTP", "http": {}, "backendRef": {"name": "a", "port": 80},
    }});
    let filters = json!({"filters": {"requests": [auth]}});
    let to_host = set(
        route("all", &["web"]),
        "/spec/hostnames",
        json!(["a.example.com"]),
    );
    rig.put([
        class("edge", 0),
        ten_ports("web", &filters),
        service(),
        to_host,
    ]);
    assert_eq!(ports(&rig, &fleet("web"), "a.example.com"), [8_000, 8_001]);
}

#[test]
fn a_host_that_takes_all_requests_does_not_read_wider_hosts() {
    let mut rig = Rig::new(Mode::Managed);
    let of = |name: &str, host: &str, path: &str| {
        let route = set(route(name, &["web"]), "/spec/hostnames", json!([host]));
        set(
            route,
            "/spec/rules/0/matches",
            json!([{"path": {"value": path}}]),
        )
    };
    rig.put([
        class("edge", 0),
        gateway("web", "edge", 1),
        of("all", "a.example.com", "/"),
        of("some", "b.example.com", "/b"),
        of("wide", "*.example.com", "/"),
    ]);
    let commit = rig.put([of("wide", "*.example.com", "/wide")]);
    let mut work = commit.work().iter();
    let ran = work.find(|(stage, _)| *stage == "virtual host");
    assert_eq!(ran.map(|(_, keys)| *keys), Some(2));
}

#[test]
fn few_ports_serve_http_proxies() {
    let mut rig = Rig::new(Mode::Managed);
    let kinds =
        json!({"allowedRoutes": {"kinds": [{"group": "projectsesame.io", "kind": "HTTPProxy"}]}});
    let proxy = proxy(
        "p",
        json!({"virtualhost": {"fqdn": "a.example.com"}, "routes": [{"services": [{"name": "a", "port": 80}]}]}),
    );
    rig.put([class("edge", 0), ten_ports("web", &kinds), proxy]);
    assert_eq!(ports(&rig, &fleet("web"), "a.example.com"), [8_000, 8_001]);
    let gateway = rig.gateway("web");
    let said = |number: usize| said(&gateway.listeners[number].conditions, "ResolvedRefs");
    assert_eq!(said(1), "ResolvedRefs/ResolvedRefs");
    let message = said(2);
    assert!(
        message
            .contains("InvalidRouteKinds: spec.listeners[2].allowedRoutes.kinds[0]: 2 other ports"),
        "{message}"
    );
}

fn ingress(rules: Value, hosts: &[&str]) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"ingressClassName": "sesame", "rules": rules, "tls": [{"hosts": hosts, "secretName": "s"}]},
    })
}

fn path(path: &str) -> Value {
    json!({"path": path, "pathType": "Prefix", "backend": {"service": {"name": "a", "port": {"number": 80}}}})
}

/// The Service of all paths.
fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"ports": [{"port": 80}]},
    })
}

/// The errors of Ingress `a` that contain a text.
fn errors(rig: &Rig, text: &str) -> Vec<String> {
    let key = ObjectKey::new(Kind::Ingress, "ns", "a");
    let notices = rig.engine.get(rig.pipeline.outputs.notices, &key);
    let errors = notices.iter().flat_map(|notices| &notices.errors);
    let errors = errors.filter(|error| error.message.contains(text));
    errors.map(|error| error.field.clone()).collect()
}

#[test]
fn the_number_of_paths_is_limited() {
    let mut rig = Rig::new(Mode::Unmanaged { gateway: None });
    let paths: Vec<Value> = (0..1_025)
        .map(|number| path(&format!("/{number}")))
        .collect();
    let rules = json!([{"host": "a.example.com", "http": {"paths": paths}}]);
    rig.put([service(), ingress(rules, &[])]);
    assert_eq!(
        errors(&rig, "at most 1024 paths"),
        ["spec.rules[0].http.paths[1024]"]
    );
    let hosts = rig.engine.iter(rig.pipeline.outputs.virtual_hosts);
    let (_, host) = hosts.into_iter().next().expect("a host");
    assert_eq!(host.routes.len(), 1_025);
    // Requests for the path that is left out don't fall through to a wider host.
    let last = host.routes.last().expect("a route");
    assert_eq!(**last, Route::respond_to_all(503));
}

/// A path of 1 KB.
fn long(number: usize) -> String {
    format!("/{number}{}", "a".repeat(1_000))
}

/// For each host, the paths of its routes, and whether they answer 503.
fn hosts(rig: &Rig) -> Vec<(String, Vec<(String, bool)>)> {
    let hosts = rig.engine.iter(rig.pipeline.outputs.virtual_hosts);
    let hosts = hosts.map(|(key, host)| {
        let routes = host.routes.iter().map(|route| {
            let path = match &route.matches.path {
                PathMatch::Exact(path)
                | PathMatch::Prefix(path)
                | PathMatch::StartsWith(path)
                | PathMatch::Regex(path) => path,
            };
            (path.clone(), route.action == Action::Respond(503))
        });
        (key.domain.to_string(), routes.collect())
    });
    hosts.collect()
}

/// A host with these routes.
fn host(name: &str, routes: &[(&str, bool)]) -> (String, Vec<(String, bool)>) {
    let routes = routes.iter();
    let routes = routes.map(|(path, unavailable)| ((*path).to_owned(), *unavailable));
    (name.to_owned(), routes.collect())
}

#[test]
fn an_ingress_with_a_large_spec_keeps_its_paths() {
    let mut rig = Rig::new(Mode::Unmanaged { gateway: None });
    let mut paths = vec![path("/a"), path("/b")];
    paths[1]["backend"]["service"]["name"] = "b".repeat(300_000).into();
    let mut large = ingress(
        json!([{"host": "a.example.com", "http": {"paths": paths}}]),
        &[],
    );
    large["spec"]["defaultBackend"] = path("/")["backend"].clone();
    rig.put([service()]);
    rig.put_admitted(large);
    assert_eq!(
        hosts(&rig),
        [
            host("*", &[("/", false)]),
            host("a.example.com", &[("/a", true), ("/b", true), ("/", false)]),
        ]
    );
    assert_eq!(errors(&rig, "takes 294 KiB"), ["spec"]);
    assert_eq!(errors(&rig, "backend"), [""; 0]);
}

#[test]
fn an_ingress_with_large_paths_keeps_its_hosts() {
    let mut rig = Rig::new(Mode::Unmanaged { gateway: None });
    let paths: Vec<Value> = (0..300).map(|number| path(&long(number))).collect();
    let mut large = ingress(
        json!([{"host": "a.example.com", "http": {"paths": paths}}]),
        &[],
    );
    large["spec"]["defaultBackend"] = path("/")["backend"].clone();
    let error = Object::decode(large.clone()).expect_err("it is too large");
    let message = "spec: takes 322 KiB; the limit is 256 KiB; divide the object into several";
    assert!(error.to_string().ends_with(message), "{error}");
    rig.put([service()]);
    rig.put_admitted(large);
    let unavailable = [("/", true)];
    assert_eq!(
        hosts(&rig),
        [host("*", &unavailable), host("a.example.com", &unavailable)]
    );
    assert_eq!(errors(&rig, "takes 322 KiB"), ["spec"]);
    // Without its hosts, an Ingress would be lost.
    let hosts = (0..1_200).map(|number| format!("{number}.{}", "a".repeat(240)));
    let rules = hosts.map(|host| json!({"host": host})).collect();
    let error = Object::decode_admitted(ingress(rules, &[])).expect_err("it is too large");
    assert!(error.to_string().contains("spec: takes"), "{error}");
}

fn proxy(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1", "kind": "HTTPProxy",
        "metadata": {"name": name, "namespace": "ns"}, "spec": spec,
    })
}

/// Applies a root, and a child that another root includes, whose routes are too large.
fn put_large(rig: &mut Rig, routes: &[Value]) {
    rig.put([
        service(),
        proxy(
            "including",
            json!({
                "virtualhost": {"fqdn": "b.example.com"},
                "routes": [{"services": [{"name": "a", "port": 80}]}],
                "includes": [{"name": "child", "conditions": [{"prefix": "/child"}]}],
            }),
        ),
    ]);
    rig.put_admitted(proxy(
        "root",
        json!({"virtualhost": {"fqdn": "a.example.com"}, "routes": routes}),
    ));
    rig.put_admitted(proxy("child", json!({"routes": routes})));
    for name in ["root", "child"] {
        let status = format!("{:?}", rig.status(Kind::HTTPProxy, name));
        let limit = status.contains("LimitExceeded") && status.contains("spec: takes 3");
        assert!(limit && !status.contains("is required"), "{status}");
    }
}

#[test]
fn an_http_proxy_with_a_large_spec_keeps_its_routes() {
    let mut rig = Rig::new(Mode::Unmanaged { gateway: None });
    let header = |number| json!({"name": format!("x-{number}"), "value": "a".repeat(4_000)});
    let set: Vec<Value> = (0..80).map(header).collect();
    put_large(
        &mut rig,
        &[
            json!({"conditions": [{"prefix": "/x"}], "services": [{"name": "a", "port": 80}]}),
            json!({
                "conditions": [{"exact": "/y"}],
                "services": [{"name": "a", "port": 80}],
                "requestHeadersPolicy": {"set": set},
            }),
        ],
    );
    assert_eq!(
        hosts(&rig),
        [
            host("a.example.com", &[("/y", true), ("/x", true)]),
            host(
                "b.example.com",
                &[("/child/y", true), ("/child/x", true), ("/", false)]
            ),
        ]
    );
}

#[test]
fn an_http_proxy_with_large_conditions_keeps_its_host_or_place() {
    let mut rig = Rig::new(Mode::Unmanaged { gateway: None });
    let route = |number| json!({"conditions": [{"prefix": long(number)}], "services": [{"name": "a", "port": 80}]});
    let routes: Vec<Value> = (0..300).map(route).collect();
    put_large(&mut rig, &routes);
    assert_eq!(
        hosts(&rig),
        [
            host("a.example.com", &[("/", true)]),
            host("b.example.com", &[("/child", true), ("/", false)]),
        ]
    );
    // Half of it is in effect.
    let half = json!({"virtualhost": {"fqdn": "a.example.com"}, "routes": routes[..150]});
    rig.put([proxy("root", half)]);
    let status = format!("{:?}", rig.status(Kind::HTTPProxy, "root"));
    assert!(status.contains("\"Valid\""), "{status}");
}

#[test]
fn wildcard_hosts_with_tls_are_limited() {
    let mut rig = Rig::new(Mode::Unmanaged { gateway: None });
    let with_hosts = |wildcards: usize| {
        let wildcards = (0..wildcards).map(|number| format!("*.w{number}.example.com"));
        let others = (0..100).map(|number| format!("h{number}.example.com"));
        let hosts: Vec<String> = wildcards.chain(others).collect();
        let hosts: Vec<&str> = hosts.iter().map(|host| &**host).collect();
        ingress(json!([{"http": {"paths": [path("/")]}}]), &hosts)
    };
    rig.put([service(), with_hosts(64)]);
    let message = "only the first 256 hosts have TLS, and only the first 64 wildcard hosts";
    assert_eq!(errors(&rig, message), [""; 0]);
    rig.put([with_hosts(65)]);
    assert_eq!(errors(&rig, message), ["spec.tls"]);
}

#[test]
fn certificates_are_limited_for_all_hosts_of_an_ingress() {
    let mut rig = Rig::new(Mode::Unmanaged { gateway: None });
    let names: Vec<String> = (0..300)
        .map(|number| format!("h{number}.example.com"))
        .collect();
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(names.clone()).expect("parameters");
    let certificate = parameters.self_signed(&key).expect("a certificate").pem();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "s", "namespace": "ns"},
        "stringData": {"tls.crt": certificate.repeat(100), "tls.key": key.serialize_pem()},
    });
    let with_hosts = |count: usize| {
        let hosts: Vec<&str> = names.iter().take(count).map(|name| &**name).collect();
        let rule = |host: &&str| json!({"host": host, "http": {"paths": [path("/")]}});
        ingress(hosts.iter().map(rule).collect(), &hosts)
    };
    rig.put([service(), secret, with_hosts(5)]);
    assert_eq!(errors(&rig, "24 MiB"), [""; 0]);
    rig.put([with_hosts(100)]);
    assert_eq!(errors(&rig, "24 MiB"), ["spec.tls[0].secretName"]);
}

#[test]
fn client_authorities_are_limited_for_all_ports_of_a_gateway() {
    let mut rig = Rig::new(Mode::Managed);
    let key = rcgen::KeyPair::generate().expect("a key");
    // 290 KB each.
    let authorities = |number: usize| {
        let names = (0..1_000).map(|name| format!("{number}.{name}.{}", "a".repeat(200)));
        let parameters = rcgen::CertificateParams::new(Vec::from_iter(names)).expect("parameters");
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("ca{number}"), "namespace": "ns"},
            "data": {"ca.crt": parameters.self_signed(&key).expect("a certificate").pem()},
        })
    };
    let validation = |number: usize| {
        json!({"validation": {"caCertificateRefs": [
            {"group": "", "kind": "ConfigMap", "name": format!("ca{number}")},
        ]}})
    };
    let listener = |port: usize| {
        json!({
            "name": format!("l{port}"), "port": port, "protocol": "HTTPS",
            "tls": {"certificateRefs": [{"name": "c"}]},
        })
    };
    // The second port has the references of the first.
    let frontend = json!({"perPort": [
        {"port": 1, "tls": validation(0)},
        {"port": 2, "tls": validation(0)},
        {"port": 3, "tls": validation(1)},
    ]});
    let web = set(
        gateway("web", "edge", 1),
        "/spec/tls",
        json!({"frontend": frontend}),
    );
    let web = set(web, "/spec/listeners", (1..4).map(listener).collect());
    rig.put([class("edge", 0), authorities(0), authorities(1), web]);
    let status = rig.gateway("web");
    let exceeding = status.listeners.iter().map(|listener| {
        let conditions = format!("{:?}", listener.conditions);
        conditions.contains("all ports take more than 512 KiB")
    });
    assert_eq!(Vec::from_iter(exceeding), [false, false, true]);
}
