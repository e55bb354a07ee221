//! Endpoints of a Service: named ports, several slices, endpoint conditions, both address families, and changes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};

use sesame_testkit::backend::Backend;
use sesame_testkit::client::{Connect, Request};

use crate::harness::{
    DefaultFleet, HTTP, Sesame, Summary, at, backends, becomes, check, eventually, gateway,
    listening, new_ip, route, service, shares,
};

async fn start(name: &str) -> Backend {
    let any = ([127, 0, 0, 1], 0).into();
    Backend::start(name, any).await.expect("a backend")
}

/// An EndpointSlice for a Service, with these ports and endpoints.
fn slice(name: &str, service: &str, ports: &str, endpoints: &str) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}, labels: {{kubernetes.io/service-name: \
         {service}}}}}\naddressType: IPv4\nports: [{ports}]\nendpoints: [{endpoints}]\n---\n"
    )
}

#[tokio::test]
async fn named_ports_and_endpoints_are_found_in_all_slices() {
    let (one, two, three) = (start("one").await, start("two").await, start("three").await);
    let named = "apiVersion: v1\nkind: Service\nmetadata: {name: named}\nspec: {clusterIP: None, ports: [{name: web, port: \
                 80, targetPort: 1}, {name: admin, port: 81, targetPort: named}]}\n---\n"
        .to_owned();
    let ports = |web: u16, admin: u16| {
        format!("{{name: admin, port: {admin}}}, {{name: web, port: {web}}}")
    };
    let here = "{addresses: [127.0.0.1]}";
    let rules = [
        "matches: [{path: {value: /web}}], backendRefs: [{name: named, port: 80}]",
        "matches: [{path: {value: /admin}}], backendRefs: [{name: named, port: 81}]",
        "matches: [{path: {value: /no-port}}], backendRefs: [{name: named, port: 82}]",
        "matches: [{path: {value: /no-service}}], backendRefs: [{name: other, port: 80}]",
    ];
    let services = named
        + &slice(
            "named-x",
            "named",
            &ports(one.address().port(), three.address().port()),
            here,
        )
        + &slice(
            "named-y",
            "named",
            &ports(two.address().port(), three.address().port()),
            here,
        )
        + &slice(
            "named-z",
            "named",
            &ports(two.address().port(), three.address().port()),
            "",
        )
        + &slice("other", "other", &ports(three.address().port(), 1), here);
    let sesame = Sesame::with_rules(&services, &rules).await;
    let found = shares(sesame.at(8080), &Request::get("a.example.com", "/web"), 100).await;
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        ["one", "two"],
        "{found:?}"
    );
    let found = shares(
        sesame.at(8080),
        &Request::get("a.example.com", "/admin"),
        10,
    )
    .await;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["three"], "{found:?}");
    check(
        sesame.at(8080),
        &[
            ("a.example.com", "/no-port", "500"),
            ("a.example.com", "/no-service", "500"),
        ],
    )
    .await;
}

#[tokio::test]
async fn terminating_endpoints_serve_if_no_others_are_ready() {
    let (ready, leaving) = (start("ready").await, start("leaving").await);
    let service_text =
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n---\n";
    let of = |backend: &Backend, name: &str, state: &str| {
        let port = format!("{{port: {}}}", backend.address().port());
        slice(
            name,
            "a",
            &port,
            &format!("{{addresses: [127.0.0.1], conditions: {{{state}}}}}"),
        )
    };
    let slices = |ready_state: &str, leaving_state: &str| {
        of(&ready, "a-1", ready_state) + &of(&leaving, "a-2", leaving_state)
    };
    let out = "ready: false, serving: true, terminating: true";
    let gone = "ready: false, serving: false, terminating: true";
    let sesame = Sesame::serving(|ip| {
        let text = gateway("web", ip, &[HTTP]) + service_text;
        let rules = [at("/", "a")];
        vec![
            (
                "all.yaml",
                text + &route("a", &["web"], &["a.example.com"], &[&rules[0]]),
            ),
            ("slices.yaml", slices("ready: true", out)),
        ]
    })
    .await;
    let address = sesame.at(8080);
    let only = async |name: &str| {
        let what = format!("only {name} responds");
        eventually(&what, async || {
            let found = shares(address, &Request::get("a.example.com", "/"), 20).await;
            anyhow::ensure!(found.keys().eq([name]), "{found:?}");
            Ok(())
        })
        .await;
    };
    only("ready").await;
    sesame
        .folder()
        .replace("slices.yaml", &slices("ready: false", out));
    only("leaving").await;
    sesame
        .folder()
        .replace("slices.yaml", &slices("ready: false", gone));
    only("503").await;
    sesame.folder().replace("slices.yaml", &slices("", gone));
    only("ready").await;
}

/// A Gateway and endpoints with IPv4 and IPv6 addresses. If IPv6 is unavailable, tests IPv4 only.
#[tokio::test]
async fn both_address_families_are_served() {
    let loopback = Ipv6Addr::LOCALHOST;
    let v4 = start("v4").await;
    let v6 = match Backend::start("v6", (loopback, 0).into()).await {
        Ok(backend) => Some(backend),
        Err(error) => {
            assert_eq!(
                error.kind(),
                std::io::ErrorKind::AddrNotAvailable,
                "{error}"
            );
            None
        }
    };
    let addresses: Vec<SocketAddr> = std::iter::once(&v4)
        .chain(&v6)
        .map(Backend::address)
        .collect();
    let names: Vec<&str> = std::iter::once(&v4).chain(&v6).map(Backend::name).collect();
    // A port that is currently free.
    let port = match &v6 {
        Some(_) => TcpListener::bind((loopback, 0)).and_then(|listener| listener.local_addr()),
        None => Ok((new_ip(), 8080).into()),
    };
    let port = port.expect("a free port").port();
    let sesame = Sesame::serving(|ip| {
        let listener = format!("name: http, protocol: HTTP, port: {port}");
        let both = format!(
            "{{type: IPAddress, value: \"{ip}\"}}, {{type: IPAddress, value: \"{loopback}\"}}"
        );
        let mut web = gateway("web", ip, &[&listener]);
        if v6.is_some() {
            web = web.replace(&format!("{{type: IPAddress, value: \"{ip}\"}}"), &both);
        }
        let dual = "spec: {ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv4, IPv6], ports";
        let services = service("a", &addresses).replace("spec: {ports", dual);
        vec![(
            "all.yaml",
            web + &services + &route("a", &["web"], &["a.example.com"], &[&at("/", "a")]),
        )]
    })
    .await;
    let mut listeners = vec![sesame.at(port)];
    listeners.extend(v6.as_ref().map(|_| SocketAddr::from((loopback, port))));
    for address in listeners {
        let found = shares(address, &Request::get("a.example.com", "/"), 100).await;
        // The gateway may prefer either family, but it must respond.
        assert!(
            !found.is_empty() && found.keys().all(|name| names.contains(&name.as_str())),
            "{address}: {found:?}"
        );
    }
    // If all endpoints are IPv6, they are used.
    if let Some(v6) = &v6 {
        let only = service("a", &[v6.address()]);
        let text = std::fs::read_to_string(sesame.folder().file("all.yaml")).expect("a file");
        let (head, _) = text.split_once("apiVersion: v1\n").expect("a Service");
        let (_, tail) = text
            .rsplit_once("---\napiVersion: gateway")
            .expect("a route");
        sesame.folder().replace(
            "all.yaml",
            &format!("{head}{only}apiVersion: gateway{tail}"),
        );
        becomes(sesame.at(port), "a.example.com", "/", "v6").await;
    }
}

/// Endpoints are added and removed under constant load.
#[tokio::test]
async fn endpoint_changes_drop_no_requests() {
    let (one, two) = (start("one").await, start("two").await);
    let sesame = Sesame::serving(|ip| {
        let text = gateway("web", ip, &[HTTP])
            + &route("a", &["web"], &["a.example.com"], &[&at("/", "a")]);
        vec![
            ("all.yaml", text),
            ("a.yaml", service("a", &[one.address()])),
        ]
    })
    .await;
    let address = sesame.at(8080);
    listening(address).await;
    let done = AtomicBool::new(false);
    let changes = async {
        for round in 0..15 {
            let (now, name) = match round % 3 {
                0 => (vec![two.address()], "two"),
                1 => (vec![one.address(), two.address()], ""),
                _ => (vec![one.address()], "one"),
            };
            sesame.folder().replace("a.yaml", &service("a", &now));
            if name.is_empty() {
                eventually("both respond", async || {
                    let found = shares(address, &Request::get("a.example.com", "/"), 30).await;
                    anyhow::ensure!(found.len() == 2, "{found:?}");
                    Ok(())
                })
                .await;
            } else {
                becomes(address, "a.example.com", "/", name).await;
            }
        }
        done.store(true, Ordering::Relaxed);
    };
    let steady = async {
        let mut kept = Connect::plain().open(address).await.expect("a connection");
        let request = Request::get("a.example.com", "/");
        let mut asked = 0;
        while !done.load(Ordering::Relaxed) {
            let response = kept
                .send(&request)
                .await
                .expect("a response on the open connection");
            assert_eq!(response.status, 200, "after {asked} responses");
            let fresh = request.of(address).await;
            assert!(
                ["one", "two"].contains(&fresh.as_str()),
                "{fresh} after {asked} responses"
            );
            asked += 2;
        }
        asked
    };
    let ((), asked) = tokio::join!(changes, steady);
    assert!(asked >= 30, "only {asked} requests were sent meanwhile");
}

/// An HTTPProxy for the host `NAME.test`, with further fields of its route.
fn proxy(name: &str, service: &str, fields: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {{name: {name}}}\nspec: {{virtualhost: {{fqdn: {name}.test}}, \
         routes: [{{services: [{{name: {service}, port: 80}}], {fields}}}]}}\n---\n"
    )
}

/// A server that accepts connections, but never responds.
fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

#[tokio::test]
async fn an_endpoint_that_does_not_respond_to_checks_does_not_hold_other_hosts() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let (_silent, address) = silent();
    let services = services + &service("silent", &[address]);
    let objects = |round: usize, backend: &str| {
        let policy = format!("healthCheckPolicy: {{path: /{round}, timeoutSeconds: 86400}}");
        services.clone() + &proxy("silent", "silent", &policy) + &proxy("web", backend, "")
    };
    let fleet = DefaultFleet::serving("HTTPProxy", &objects(0, "a")).await;
    becomes(fleet.http, "web.test", "/", "a").await;
    // Nor do clusters with other checks hold changes.
    for round in 1..=5 {
        let backend = ["a", "b"][round % 2];
        let folder = fleet.sesame.folder();
        folder.replace("all.yaml", &objects(round, backend));
        becomes(fleet.http, "web.test", "/", backend).await;
    }
}

#[tokio::test]
async fn an_endpoint_that_does_not_respond_to_checks_gets_no_requests() {
    let backend = start("a").await;
    let (_silent, address) = silent();
    let policies =
        "healthCheckPolicy: {path: /, timeoutSeconds: 86400}, timeoutPolicy: {response: 1s}";
    let objects = service("both", &[backend.address(), address]) + &proxy("web", "both", policies);
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    eventually("the other endpoint gets all requests", async || {
        for _ in 0..20 {
            let found = Request::get("web.test", "/").of(fleet.http).await;
            anyhow::ensure!(found == "a", "{found}");
        }
        Ok(())
    })
    .await;
}
