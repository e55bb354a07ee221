//! Filters on listeners: they check every request before a route is selected.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::Value;
use sesame_testkit::auth::Decision;
use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Request};

use crate::auth::{auth_server, grpc, http, pair};
use crate::harness::{
    Folder, HTTP, Https, Sesame, at, backends, becomes, certificate, check, eventually, gateway,
    https, listening, new_ip, on, route,
};
use crate::listener_sets::listener_set;

/// The fields of a listener with these filters.
fn filtered(listener: &str, filters: &[String]) -> String {
    format!(
        "{listener}, filters: {{requests: [{}]}}",
        filters.join(", ")
    )
}

fn host(name: &str, hostname: &str) -> String {
    format!("name: {name}, protocol: HTTP, port: 8080, hostname: {hostname:?}")
}

#[tokio::test]
async fn every_request_to_the_hosts_of_a_listener_is_checked() {
    let (backends, services) = backends(&["a", "auth"]).await;
    let objects = services
        + &route("open", &["web, sectionName: open"], &[], &[at("/", "a")])
        + &route(
            "narrow",
            &["web, sectionName: guarded"],
            &["a.guarded.com"],
            &[at("/served", "a")],
        )
        + &route(
            "wide",
            &["web, sectionName: guarded"],
            &["b.guarded.com"],
            &[at("/", "a")],
        );
    let guarded = filtered(&host("guarded", "*.guarded.com"), &[http("auth", "")]);
    let sesame = Sesame::with_gateway(&[HTTP.replace("http,", "open,"), guarded], &objects).await;
    check(
        sesame.at(8080),
        &[
            ("open.com", "/any", "a"),
            ("a.guarded.com", "/served", "a"),
            // Requests without a route are checked too.
            ("a.guarded.com", "/other", "404"),
            ("a.guarded.com", "/status/401", "401"),
            ("b.guarded.com", "/status/401", "401"),
            ("b.guarded.com", "/any", "a"),
            ("c.guarded.com", "/status/403", "403"),
            ("c.guarded.com", "/any", "404"),
            ("c.guarded.com:8080", "/status/401", "401"),
        ],
    )
    .await;
    assert_eq!((backends[0].count(), backends[1].count()), (3, 8));
}

#[tokio::test]
async fn the_route_is_selected_after_all_checks() {
    selects_the_route_after_all_checks("never").await;
}

#[tokio::test]
async fn the_route_is_selected_after_all_checks_in_shards() {
    selects_the_route_after_all_checks("always").await;
}

async fn selects_the_route_after_all_checks(shards: &str) {
    let (backends, services) = backends(&["gold", "usual", "second", "route"]).await;
    let (first, calls) = auth_server("first", |path| match path {
        "/denied" => Decision {
            denied: Some(403),
            ..Decision::default()
        },
        "/host" => Decision {
            set: vec![pair("host", "other.com"), pair("x-tier", "gold")],
            ..Decision::default()
        },
        _ => Decision {
            set: vec![pair("x-tier", "gold"), pair("x-order", "first")],
            ..Decision::default()
        },
    })
    .await;
    // The second service receives the header that the first one sets, and replaces it.
    let second = http(
        "second",
        "allowedHeaders: [x-order, x-echo-set-header], allowedResponseHeaders: [x-order]",
    );
    let gold = format!(
        "filters: [{{type: CORS, cors: {{allowOrigins: ['http://o.test']}}}}, {}], sessionPersistence: {{type: Header, \
         header: {{name: x-session}}}}, {}",
        http("route", "allowedHeaders: [x-order]"),
        on("{headers: [{name: x-tier, value: gold}]}", "gold")
    );
    let objects = services
        + &calls
        + &route("a", &["web"], &["a.example.com"], &[gold, at("/", "usual")])
        + &route("other", &["web"], &["other.com"], &[at("/", "usual")]);
    let listener = filtered(HTTP, &[grpc("first", ""), second]);
    let ip = new_ip();
    let folder = Folder::new(&[("all.yaml", gateway("web", ip, &[listener]) + &objects)]);
    let sesame = Sesame::start(ip, folder, &["--route-shards", shards]).await;
    sesame.programmed().await;
    listening(sesame.at(8080)).await;
    let request = |path: &str| {
        Request::get("a.example.com", path)
            .header("origin", "http://o.test")
            .header("x-echo-set-header", "x-order: second")
    };
    let response = sesame.ask_well(&request("/")).await;
    // The filters of the selected route apply, although the request first matched another route.
    assert_eq!(response.backend(), "gold");
    assert_eq!(
        response.header("access-control-allow-origin"),
        "http://o.test"
    );
    assert!(!response.header("x-session").is_empty(), "{response:?}");
    assert_eq!(
        response.json()["headers"]["x-order"],
        serde_json::json!(["second"])
    );
    assert_eq!(first.checked().len(), 1);
    for (backend, order) in [(&backends[2], "first"), (&backends[3], "second")] {
        let requests = backend.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        assert_eq!(requests[0].header("x-order"), Some(order));
    }
    // After a denial, the second service is not called; a changed Host has no effect.
    assert_eq!(sesame.send(&request("/denied")).await.status, 403);
    assert_eq!(backends[2].count(), 1);
    let response = sesame.ask_well(&request("/host")).await;
    assert_eq!(response.backend(), "gold");
    assert_eq!(response.json()["host"], Value::from("a.example.com"));
    // A route's check can deny a request that the listener's checks have permitted.
    assert_eq!(sesame.send(&request("/status/401")).await.status, 401);
}

/// The service permits these requests without setting the header, so the gateway must remove the client's own.
#[tokio::test]
async fn a_client_cannot_select_a_route_by_a_header_of_the_service() {
    let (_backends, services) = backends(&["admin", "usual", "auth"]).await;
    let admin = on("{headers: [{name: x-tenant, value: admin}]}", "admin");
    let objects = services + &route("a", &["web"], &[], &[admin, at("/", "usual")]);
    let listener = filtered(HTTP, &[http("auth", "allowedResponseHeaders: [x-tenant]")]);
    let sesame = Sesame::with_gateway(&[listener], &objects).await;
    let address = sesame.at(8080);
    becomes(address, "a.example.com", "/", "usual").await;
    let forged = Request::get("a.example.com", "/").header("x-tenant", "admin");
    assert_eq!(sesame.ask_well(&forged).await.backend(), "usual");
    // The service sets the header.
    let set = "/?set-header=x-tenant:admin";
    becomes(address, "a.example.com", set, "admin").await;
}

#[tokio::test]
async fn listeners_with_invalid_filters_serve_nothing_and_their_neighbours_everything() {
    let (backends, services) = backends(&["a", "auth"]).await;
    let extension =
        "{type: ExtensionRef, extensionRef: {group: example.com, kind: Guard, name: dog}}"
            .to_owned();
    let listeners = [
        HTTP.replace("http,", "open,"),
        filtered(
            &host("extension", "extension.com"),
            &[http("auth", ""), extension],
        ),
        filtered(&host("missing", "missing.com"), &[http("missing", "")]),
    ];
    let hosts = ["extension.com", "missing.com", "other.com"];
    let objects = services + &route("all", &["web"], &hosts, &[at("/", "a")]);
    let sesame = Sesame::with_gateway(&listeners, &objects).await;
    check(
        sesame.at(8080),
        &[
            ("extension.com", "/", "500"),
            ("missing.com", "/", "500"),
            ("other.com", "/", "a"),
        ],
    )
    .await;
    assert_eq!((backends[0].count(), backends[1].count()), (1, 0));
    for (listener, type_, reason) in [
        ("extension", "Accepted", "UnsupportedValue"),
        ("extension", "ResolvedRefs", "InvalidListenerFilterRef"),
        ("missing", "Accepted", "Accepted"),
        ("missing", "ResolvedRefs", "InvalidListenerFilterRef"),
        ("open", "Accepted", "Accepted"),
    ] {
        let found = sesame.of_listener("web", listener, type_).await;
        assert_eq!(found.expect("a condition").reason, reason, "{listener}");
    }
}

#[tokio::test]
async fn filters_apply_to_https_listeners_and_listener_sets() {
    let (_backends, services) = backends(&["a", "auth"]).await;
    let identity = Identity::self_signed(&["one.test", "two.test"]).expect("a certificate");
    let of = |name, hostname| {
        https(Https {
            name,
            port: 8443,
            hostname,
            certificates: &["cert"],
        })
    };
    let set = listener_set(
        "set",
        &[&filtered(
            "name: set, protocol: HTTP, port: 8081",
            &[http("auth", "")],
        )],
    );
    let web = |ip: IpAddr| {
        let listeners = [
            filtered(&of("one", "one.test"), &[http("auth", "")]),
            of("two", "two.test"),
        ];
        let gateway = gateway("web", ip, &listeners);
        gateway.replacen(
            "spec:\n",
            "spec:\n  allowedListeners: {namespaces: {from: Same}}\n",
            1,
        )
    };
    let objects = services
        + &certificate("cert", &identity)
        + &set
        + &route(
            "a",
            &["web", "set, kind: ListenerSet"],
            &[],
            &[at("/", "a")],
        );
    let sesame = Sesame::serving(|ip| vec![("all.yaml", web(ip) + &objects)]).await;
    listening(sesame.at(8443)).await;
    let denied = Request::get("one.test", "/status/401");
    let other = Connect::tls("two.test");
    let misdirected = other.send(sesame.at(8443), &denied).await;
    assert_eq!(misdirected.expect("a response").status, 421);
    for (name, by) in [("one.test", "auth"), ("two.test", "a")] {
        let denied = Request::get(name, "/status/401");
        let response = Connect::tls(name).send(sesame.at(8443), &denied).await;
        let response = response.expect("a response");
        assert_eq!((response.status.as_u16(), &*response.backend()), (401, by));
    }
    check(
        sesame.at(8081),
        &[("any.test", "/status/401", "401"), ("any.test", "/", "a")],
    )
    .await;
}

#[tokio::test]
async fn filters_come_and_go_on_open_connections_without_a_failed_request() {
    let (backends, services) = backends(&["a", "one", "two"]).await;
    let objects = services + &route("a", &["web"], &[], &[at("/", "a")]);
    let file = |ip: IpAddr, filters: &[String]| gateway("web", ip, &[filtered(HTTP, filters)]);
    let sesame =
        Sesame::serving(|ip| vec![("gateway.yaml", file(ip, &[])), ("all.yaml", objects)]).await;
    becomes(sesame.at(8080), "a.example.com", "/", "a").await;
    let mut kept = sesame.open().await;
    for (filters, expected) in [
        (vec![http("one", "")], [true, false]),
        (vec![http("one", ""), http("two", "")], [true, true]),
        (vec![http("two", "")], [false, true]),
        (vec![], [false, false]),
    ] {
        sesame
            .folder()
            .write("gateway.yaml", &file(sesame.ip, &filters));
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let counts = || [backends[1].count(), backends[2].count()];
            let before = counts();
            let response = kept.send(&Request::get("a.example.com", "/")).await;
            let response = response.expect("the connection stays open");
            assert_eq!((response.status.as_u16(), &*response.backend()), (200, "a"));
            let after = counts();
            if [0, 1].map(|index| after[index] > before[index]) == expected {
                break;
            }
            assert!(Instant::now() < deadline, "{expected:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    eventually("the Gateway is programmed", async || {
        let programmed = sesame.of_gateway("web", "Programmed").await?;
        ensure!(programmed.status == "True", "{programmed:?}");
        Ok(())
    })
    .await;
}
