//! Ingresses: paths, hosts, default backends, TLS, Service ports and protocols.

use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Request};

use crate::backends::websocket;
use crate::harness::{
    DefaultFleet, Summary, backends, becomes, certificate, check, has_certificate, listening,
};

/// An Ingress with annotations, the other fields of its spec, and its rules.
fn ingress(name: &str, annotations: &[(&str, &str)], spec: &str, rules: &[String]) -> String {
    let annotations: Vec<String> = annotations
        .iter()
        .map(|(name, value)| format!("{name}: {value:?}"))
        .collect();
    let annotations = annotations.join(", ");
    let rules = rules.join(", ");
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n\
         spec:\n  ingressClassName: sesame\n  rules: [{rules}]\n{spec}\n---\n"
    )
}

/// A rule; the host may be empty.
fn rule(host: &str, paths: &[String]) -> String {
    let host = match host {
        "" => String::new(),
        host => format!("host: {host:?}, "),
    };
    format!("{{{host}http: {{paths: [{}]}}}}", paths.join(", "))
}

fn path(type_: &str, path: &str, service: &str) -> String {
    on_port(type_, path, service, "number: 80")
}

fn on_port(type_: &str, path: &str, service: &str, port: &str) -> String {
    format!(
        "{{path: {path:?}, pathType: {type_}, backend: {{service: {{name: {service}, port: {{{port}}}}}}}}}"
    )
}

fn default_backend(service: &str) -> String {
    format!("  defaultBackend: {{service: {{name: {service}, port: {{number: 80}}}}}}\n")
}

fn tls(secret: &str, hosts: &[&str]) -> String {
    format!("  tls: [{{secretName: {secret}, hosts: {hosts:?}}}]\n")
}

#[tokio::test]
async fn path_types_and_hosts_select_the_backend() {
    let (_backends, services) =
        backends(&["prefix", "exact", "text", "regex", "wild", "any"]).await;
    let rules = [
        rule(
            "a.example.com",
            &[
                path("Prefix", "/app/", "prefix"),
                path("Exact", "/app/exact", "exact"),
                path("ImplementationSpecific", "/text", "text"),
                path("ImplementationSpecific", "/v[0-9]+/.*", "regex"),
                path("Prefix", "/gone", "missing"),
            ],
        ),
        rule("*.example.com", &[path("Prefix", "/", "wild")]),
        rule("", &[path("Prefix", "/any", "any")]),
    ];
    let started =
        DefaultFleet::serving("Ingress", &(services + &ingress("web", &[], "", &rules))).await;
    let of_length = |length| format!("{}.example.com", "l".repeat(length));
    check(
        started.http,
        &[
            ("a.example.com", "/app", "prefix"),
            ("a.example.com", "/app/", "prefix"),
            ("a.example.com", "/app/x", "prefix"),
            ("a.example.com", "/application", "wild"),
            ("a.example.com", "/app/exact", "exact"),
            ("a.example.com", "/app/exact/", "prefix"),
            ("a.example.com", "/text", "text"),
            ("a.example.com", "/texture", "text"),
            ("a.example.com", "/v12/x", "regex"),
            ("a.example.com", "/v/x", "wild"),
            ("a.example.com", "/gone", "503"),
            // A wildcard matches exactly one label.
            ("b.example.com", "/", "wild"),
            ("B.Example.COM:80", "/", "wild"),
            ("a.b.example.com", "/", "404"),
            ("a.b.example.com", "/any", "any"),
            (&of_length(63), "/", "wild"),
            (&of_length(64), "/", "404"),
            ("example.com", "/", "404"),
            ("example.com", "/any/x", "any"),
            ("example.org", "/any", "any"),
        ],
    )
    .await;
}

#[tokio::test]
async fn requests_without_a_rule_go_to_the_default_backend() {
    let (_backends, services) = backends(&["a", "default", "override"]).await;
    let rules = [
        rule("a.example.com", &[path("Prefix", "/app", "a")]),
        "{host: all.example.com}".to_owned(),
    ];
    let web = ingress("web", &[], &default_backend("default"), &rules);
    let started = DefaultFleet::serving("Ingress", &(services + &web)).await;
    check(
        started.http,
        &[
            ("a.example.com", "/app", "a"),
            ("a.example.com", "/", "default"),
            ("all.example.com", "/app", "default"),
            ("example.org", "/", "default"),
        ],
    )
    .await;
    let rules = [rule("", &[path("Prefix", "/", "override")])];
    let other = ingress("other", &[], "", &rules);
    started.sesame.folder().write("other.yaml", &other);
    becomes(started.http, "example.org", "/", "override").await;
    check(started.http, &[("all.example.com", "/app", "default")]).await;
}

#[tokio::test]
async fn hosts_with_tls_are_served_with_and_without_it() {
    let (_backends, services) = backends(&["a", "wild", "default", "other"]).await;
    let identity = Identity::self_signed(&["*.example.com"]).expect("a certificate");
    let spec = tls(
        "web",
        &["a.example.com", "*.example.com", "bare.example.org"],
    ) + &default_backend("default");
    let rules = [
        rule("a.example.com", &[path("Prefix", "/app", "a")]),
        rule("*.example.com", &[path("Prefix", "/", "wild")]),
        rule("plain.org", &[path("Prefix", "/", "a")]),
    ];
    let beside = [rule("a.example.com", &[path("Prefix", "/other", "other")])];
    let objects = certificate("web", &identity)
        + &ingress("web", &[], &spec, &rules)
        + &ingress("other", &[], "", &beside)
        + &services;
    let started = DefaultFleet::serving("Ingress", &objects).await;
    listening(started.https).await;
    let mut wrong = Vec::new();
    for (host, path, expected) in [
        ("a.example.com", "/app", "a"),
        // A path from another Ingress, which doesn't have a certificate.
        ("a.example.com", "/other", "other"),
        ("a.example.com", "/", "default"),
        ("b.example.com", "/", "wild"),
        // A wildcard matches exactly one label, also for the default backend.
        ("a.b.example.com", "/", "404"),
        ("bare.example.org", "/", "default"),
        ("plain.org", "/", "no response"),
    ] {
        let request = Request::get(host, path);
        let found = (&Connect::tls(host), &request).of(started.https).await;
        if found != expected {
            wrong.push(format!("{host}{path}: got {found}, expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    check(
        started.http,
        &[
            ("a.example.com", "/app", "a"),
            ("b.example.com", "/", "wild"),
            ("plain.org", "/", "a"),
        ],
    )
    .await;
    let connect = Connect::tls("a.example.com");
    let connection = connect.open(started.https).await.expect("a handshake");
    assert!(has_certificate(&connection, "*.example.com"));
}

#[tokio::test]
async fn requests_without_tls_are_redirected_or_refused() {
    let (_backends, services) = backends(&["a"]).await;
    let hosts = [
        "redirected.example.com",
        "*.redirected.org",
        "refused.example.com",
    ];
    let identity = Identity::self_signed(&hosts).expect("a certificate");
    let to_a = |host: &str| rule(host, &[path("Prefix", "/", "a")]);
    let redirect = [("ingress.kubernetes.io/force-ssl-redirect", "true")];
    let refuse = [("kubernetes.io/ingress.allow-http", "false")];
    let objects = certificate("all", &identity)
        + &ingress(
            "web",
            &redirect,
            &tls("all", &hosts[..2]),
            &[to_a(hosts[0]), to_a(hosts[1])],
        )
        + &ingress(
            "refused",
            &refuse,
            &tls("all", &hosts[2..]),
            &[to_a(hosts[2])],
        )
        + &services;
    let started = DefaultFleet::serving("Ingress", &objects).await;
    listening(started.https).await;
    for host in ["redirected.example.com", "x.redirected.org"] {
        let with_port = format!("{host}:{}", started.http.port());
        let request = Request::get(&with_port, "/path?query");
        let response = started.send(&request).await;
        assert_eq!(response.status, 301);
        let location = format!("https://{host}:{}/path?query", started.https.port());
        assert_eq!(response.header("location"), location);
    }
    check(started.http, &[("refused.example.com", "/", "404")]).await;
    for host in [
        "redirected.example.com",
        "x.redirected.org",
        "refused.example.com",
    ] {
        let request = Request::get(host, "/");
        let found = (&Connect::tls(host), &request).of(started.https).await;
        assert_eq!(found, "a", "{host}");
    }
}

/// An invalid certificate or version doesn't affect other hosts.
#[tokio::test]
async fn an_invalid_ingress_does_not_affect_others() {
    let (_backends, services) = backends(&["a"]).await;
    let identity = Identity::self_signed(&["good.example.com"]).expect("a certificate");
    let to_a = |host: &str| vec![rule(host, &[path("Prefix", "/", "a")])];
    let versions = [
        ("projectsesame.io/tls-minimum-protocol-version", "1.3"),
        ("projectsesame.io/tls-maximum-protocol-version", "1.2"),
    ];
    let contradiction = ["contradiction.example.com"];
    let objects = certificate("good", &identity)
        + &ingress(
            "web",
            &[],
            &tls("good", &["good.example.com"]),
            &to_a("good.example.com"),
        )
        + &ingress(
            "missing",
            &[],
            &tls("none", &["bad.example.com"]),
            &to_a("bad.example.com"),
        )
        + &ingress(
            "contradiction",
            &versions,
            &tls("good", &contradiction),
            &to_a(contradiction[0]),
        )
        + &services;
    let started = DefaultFleet::serving("Ingress", &objects).await;
    listening(started.https).await;
    for (host, expected) in [
        ("good.example.com", "a"),
        ("contradiction.example.com", "a"),
        ("bad.example.com", "no response"),
    ] {
        let request = Request::get(host, "/");
        let found = (&Connect::tls(host), &request).of(started.https).await;
        assert_eq!(found, expected, "{host}");
    }
    check(started.http, &[("bad.example.com", "/", "a")]).await;
}

#[tokio::test]
async fn ports_have_names_and_protocols() {
    let (backends, services) = backends(&["plain", "h2c"]).await;
    let service = |name: &str, annotations: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\nspec: {{ports: \
             [{{name: web, port: 8000}}]}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: \
             {name}-named, labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{name: web, port: \
             {}}}]\nendpoints: [{{addresses: [127.0.0.1]}}]\n---\n",
            backends[1].address().port()
        )
    };
    let protocol = "projectsesame.io/upstream-protocol.h2c: web";
    let objects = services + &service("named", "") + &service("http2", protocol);
    let rules = [rule(
        "a.example.com",
        &[
            on_port("Prefix", "/named", "named", "name: web"),
            on_port("Prefix", "/number", "named", "number: 8000"),
            on_port("Prefix", "/http2", "http2", "name: web"),
            on_port("Prefix", "/unknown", "named", "name: other"),
            path("Prefix", "/", "plain"),
        ],
    )];
    let started =
        DefaultFleet::serving("Ingress", &(objects + &ingress("web", &[], "", &rules))).await;
    for (path, backend, protocol) in [
        ("/named", "h2c", "HTTP/1.1"),
        ("/number", "h2c", "HTTP/1.1"),
        ("/http2", "h2c", "HTTP/2"),
        ("/", "plain", "HTTP/1.1"),
    ] {
        let request = Request::get("a.example.com", path);
        let response = started.send(&request).await;
        assert_eq!(response.backend(), backend, "{path}");
        assert_eq!(response.json()["protocol"], protocol, "{path}");
    }
    check(started.http, &[("a.example.com", "/unknown", "503")]).await;
}

#[tokio::test]
async fn websockets_work_on_all_routes() {
    let (_backends, services) = backends(&["a", "default"]).await;
    let rules = [
        rule("exact.example.com", &[path("Exact", "/ws", "a")]),
        rule("*.prefix.example.com", &[path("Prefix", "/", "a")]),
        rule(
            "regex.example.com",
            &[path("ImplementationSpecific", "/w.*", "a")],
        ),
    ];
    let web = ingress("web", &[], &default_backend("default"), &rules);
    let started = DefaultFleet::serving("Ingress", &(services + &web)).await;
    for host in [
        "exact.example.com",
        "a.prefix.example.com",
        "regex.example.com",
        "default.example.org",
    ] {
        websocket(started.http, host).await;
    }
}
