//! Hostnames of listeners and routes: intersection, precedence, isolation.

use sesame_testkit::client::{Connect, Request};

use crate::harness::{
    HTTP, Sesame, Summary, at, backends, check, check_requests, created, listening, route, to,
};

#[tokio::test]
async fn exact_hostnames_precede_longer_wildcards_then_shorter_ones_then_any() {
    let (_backends, services) = backends(&["exact", "long", "short", "any"]).await;
    let routes = route("exact", &["web"], &["a.b.example.com"], &[&to("exact")])
        + &route("long", &["web"], &["*.b.example.com"], &[&to("long")])
        + &route("short", &["web"], &["*.example.com"], &[&to("short")])
        + &route("any", &["web"], &[], &[&to("any")]);
    let sesame = Sesame::with_gateway(&[HTTP], &(services + &routes)).await;
    check(
        sesame.at(8080),
        &[
            ("a.b.example.com", "/", "exact"),
            ("a.b.example.com:8080", "/", "exact"),
            ("a.b.example.com:1", "/", "exact"),
            ("A.B.Example.COM", "/", "exact"),
            ("a.b.example.com.", "/", "exact"),
            ("c.b.example.com", "/", "long"),
            ("c.b.example.com:8080", "/", "long"),
            ("d.c.b.example.com", "/", "long"),
            ("b.example.com", "/", "short"),
            ("x.y.z.example.com", "/", "short"),
            ("X.Example.com", "/", "short"),
            ("example.com", "/", "any"),
            ("badexample.com", "/", "any"),
            ("192.0.2.1", "/", "any"),
        ],
    )
    .await;
    // Also over HTTP/2, where the host is a pseudo-header.
    let h2 = Connect::plain().h2();
    let request = Request::get("c.b.example.com:8080", "/");
    assert_eq!((&h2, &request).of(sesame.at(8080)).await, "long");
}

#[tokio::test]
async fn requests_fall_through_to_wider_hostnames() {
    let (_backends, services) = backends(&["exact", "wide"]).await;
    let routes = route(
        "exact",
        &["web"],
        &["very.specific.com", "other.specific.com"],
        &[&at("/s1", "exact")],
    ) + &route(
        "wide",
        &["web"],
        &["*.specific.com"],
        &[&at("/s3", "wide"), &at("/s1/deeper", "wide")],
    );
    let sesame = Sesame::with_gateway(&[HTTP], &(services + &routes)).await;
    check(
        sesame.at(8080),
        &[
            ("very.specific.com", "/s1", "exact"),
            ("very.specific.com", "/s3", "wide"),
            ("other.specific.com", "/s3", "wide"),
            // The narrower host takes precedence, however short its path.
            ("very.specific.com", "/s1/deeper", "exact"),
            ("more.specific.com", "/s1/deeper", "wide"),
            ("more.specific.com", "/s1", "404"),
            ("very.specific.com", "/s4", "404"),
            ("specific.com", "/s3", "404"),
        ],
    )
    .await;
}

/// On a narrower listener, two routes may have the same intersection: their own hostnames decide.
#[tokio::test]
async fn routes_with_the_same_intersection_are_ordered_by_their_own_hostnames() {
    let (_backends, services) = backends(&["narrow", "wide"]).await;
    let header = |name: &str, backend: &str| {
        format!(
            "matches: [{{path: {{value: /header}}, headers: [{{name: {name}, value: x}}]}}], {}",
            to(backend)
        )
    };
    let listeners = [
        "name: exact, protocol: HTTP, port: 8080, hostname: abc.example.com",
        "name: wide, protocol: HTTP, port: 8081, hostname: '*.example.com'",
    ];
    let pair = |listener: &str, narrow: &str, wide: &str| {
        let parent = format!("web, sectionName: {listener}");
        let narrow_rules = [
            at("/same", "narrow"),
            at("/path", "narrow"),
            header("header-a", "narrow"),
        ];
        let wide_rules = [
            at("/same", "wide"),
            at("/path/prefix", "wide"),
            header("header-b", "wide"),
        ];
        created(
            &route(
                &format!("{listener}-wide"),
                &[&parent],
                &[wide],
                &wide_rules,
            ),
            "2025-01-01",
        ) + &created(
            &route(
                &format!("{listener}-narrow"),
                &[&parent],
                &[narrow],
                &narrow_rules,
            ),
            "2026-01-01",
        )
    };
    let routes =
        pair("exact", "abc.example.com", "*.example.com") + &pair("wide", "*.example.com", "*.com");
    let sesame = Sesame::with_gateway(&listeners, &(services + &routes)).await;
    for port in [8080, 8081] {
        let get = |path| Request::get("abc.example.com", path);
        check_requests(
            sesame.at(port),
            [
                (get("/same"), "narrow"),
                (get("/path/prefix"), "narrow"),
                (
                    get("/header")
                        .header("header-a", "x")
                        .header("header-b", "x"),
                    "narrow",
                ),
                (get("/header").header("header-b", "x"), "wide"),
                (get("/header"), "404"),
                (get("/else"), "404"),
            ],
        )
        .await;
    }
}

/// A request belongs only to the most specific listener on its port.
#[tokio::test]
async fn listeners_are_isolated_from_each_other() {
    let (_backends, services) = backends(&["any", "wide", "narrow", "exact"]).await;
    let listeners = |port: u16| {
        [
            ("any", String::new()),
            ("wide", ", hostname: '*.example.com'".to_owned()),
            ("narrow", ", hostname: '*.foo.example.com'".to_owned()),
            ("exact", ", hostname: abc.foo.example.com".to_owned()),
        ]
        .map(|(name, hostname)| {
            format!("name: {name}-{port}, protocol: HTTP, port: {port}{hostname}")
        })
    };
    let mut objects = services;
    let all: Vec<String> = [8080, 8081].into_iter().flat_map(listeners).collect();
    for (name, hostname) in [
        ("any", "bar.com"),
        ("wide", "*.example.com"),
        ("narrow", "*.foo.example.com"),
        ("exact", "abc.foo.example.com"),
    ] {
        let path = format!("/{name}");
        // Hostnames on the listeners only, and on both listeners and routes.
        objects += &route(
            &format!("{name}-8080"),
            &[&format!("web, sectionName: {name}-8080")],
            &[],
            &[&at(&path, name)],
        );
        objects += &route(
            &format!("{name}-8081"),
            &[&format!("web, sectionName: {name}-8081")],
            &[hostname],
            &[&at(&path, name)],
        );
    }
    let sesame = Sesame::with_gateway(&all, &objects).await;
    let paths = ["any", "wide", "narrow", "exact"];
    for port in [8080, 8081] {
        listening(sesame.at(port)).await;
        for (host, served) in [
            ("bar.com", "any"),
            ("bar.example.com", "wide"),
            ("bar.foo.example.com", "narrow"),
            ("abc.foo.example.com", "exact"),
        ] {
            for path in paths {
                let expected = if path == served { served } else { "404" };
                check(sesame.at(port), &[(host, &format!("/{path}"), expected)]).await;
            }
        }
    }
}

#[tokio::test]
async fn routes_attach_by_listener_by_port_and_by_both() {
    let (_backends, services) = backends(&["section", "port", "both"]).await;
    let listeners = [
        "name: bar, protocol: HTTP, port: 8080, hostname: bar.com",
        "name: foo-bar, protocol: HTTP, port: 8080, hostname: foo.bar.com",
        "name: wild, protocol: HTTP, port: 8080, hostname: '*.foo.com'",
        "name: other-bar, protocol: HTTP, port: 8081, hostname: bar.com",
        "name: other-foo, protocol: HTTP, port: 8081, hostname: foo.com",
        "name: third-bar, protocol: HTTP, port: 8082, hostname: bar.com",
        "name: third-foo, protocol: HTTP, port: 8082, hostname: foo.com",
    ];
    let routes = route(
        "section",
        &["web, sectionName: bar", "web, sectionName: wild"],
        &[],
        &[&to("section")],
    ) + &route("port", &["web, port: 8081"], &[], &[&to("port")])
        + &route(
            "both",
            &["web, port: 8082, sectionName: third-foo"],
            &[],
            &[&to("both")],
        );
    let sesame = Sesame::with_gateway(&listeners, &(services + &routes)).await;
    check(
        sesame.at(8080),
        &[
            ("bar.com", "/", "section"),
            ("foo.bar.com", "/", "404"),
            ("x.foo.com", "/", "section"),
            ("x.y.foo.com", "/", "section"),
            ("foo.com", "/", "404"),
            ("other.com", "/", "404"),
        ],
    )
    .await;
    check(
        sesame.at(8081),
        &[("bar.com:8081", "/", "port"), ("foo.com:8081", "/", "port")],
    )
    .await;
    check(
        sesame.at(8082),
        &[("bar.com:8082", "/", "404"), ("foo.com:8082", "/", "both")],
    )
    .await;
    for (listener, attached) in [
        ("bar", 1),
        ("foo-bar", 0),
        ("wild", 1),
        ("other-bar", 1),
        ("third-bar", 0),
    ] {
        let status = sesame.listener("web", listener).await.expect("a listener");
        assert_eq!(status["attachedRoutes"], attached, "{listener}");
    }
}

#[tokio::test]
async fn only_hostnames_within_the_listeners_hostname_are_served() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let listeners = ["name: http, protocol: HTTP, port: 8080, hostname: '*.wildcard.io'"];
    let hosts = [
        "one.wildcard.io",
        "*.two.wildcard.io",
        "*.io",
        "wildcard.io",
        "elsewhere.com",
    ];
    let routes = route("some", &["web"], &hosts, &[&at("/a", "a")])
        + &route(
            "none",
            &["web"],
            &["wildcard.io", "*.elsewhere.com"],
            &[&at("/b", "b")],
        );
    let sesame = Sesame::with_gateway(&listeners, &(services + &routes)).await;
    check(
        sesame.at(8080),
        &[
            ("one.wildcard.io", "/a", "a"),
            ("x.two.wildcard.io", "/a", "a"),
            ("three.wildcard.io", "/a", "a"),
            ("wildcard.io", "/a", "404"),
            ("other.io", "/a", "404"),
            ("elsewhere.com", "/a", "404"),
            ("wildcard.io", "/b", "404"),
            ("x.elsewhere.com", "/b", "404"),
        ],
    )
    .await;
    sesame
        .assert_route("none", "Accepted", ("False", "NoMatchingListenerHostname"))
        .await;
    let status = sesame.listener("web", "http").await.expect("a listener");
    assert_eq!(status["attachedRoutes"], 1);
}
