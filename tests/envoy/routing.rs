//! Matching: paths, headers, query parameters, methods, and precedence.

use sesame_testkit::client::Request;

use crate::harness::{
    HTTP, Sesame, at, backends, check, check_requests, created, gateway, new_ip, on, route,
};

#[tokio::test]
async fn paths_are_matched() {
    let (_backends, services) = backends(&["one", "two", "exact", "regex", "any"]).await;
    let rules = [
        on("{path: {value: /one}}, {path: {value: /alias/}}", "one"),
        on("{path: {value: /one/two}}", "two"),
        on("{path: {type: Exact, value: /one/two/exact}}", "exact"),
        on("{path: {type: Exact, value: /One}}", "exact"),
        on(
            "{path: {type: RegularExpression, value: '/[a-z]+/[0-9]+'}}",
            "regex",
        ),
    ];
    let routes = route("paths", &["web"], &["paths.example.com"], &rules)
        + &route(
            "all",
            &["web"],
            &["all.example.com"],
            &["backendRefs: [{name: any, port: 80}]"],
        );
    let sesame = Sesame::with_gateway(&[HTTP], &(services + &routes)).await;
    check(
        sesame.at(8080),
        &[
            ("paths.example.com", "/one", "one"),
            ("paths.example.com", "/one/", "one"),
            ("paths.example.com", "/one/other", "one"),
            ("paths.example.com", "/one?query", "one"),
            ("paths.example.com", "/onetwo", "404"),
            ("paths.example.com", "/alias", "one"),
            ("paths.example.com", "/alias/x", "one"),
            ("paths.example.com", "/aliases", "404"),
            ("paths.example.com", "/one/two", "two"),
            ("paths.example.com", "/one/two/", "two"),
            ("paths.example.com", "/one/twofold", "one"),
            ("paths.example.com", "/one/two/exact", "exact"),
            ("paths.example.com", "/one/two/exact?query", "exact"),
            ("paths.example.com", "/one/two/exact/", "two"),
            ("paths.example.com", "/one/two/Exact", "two"),
            ("paths.example.com", "/One", "exact"),
            ("paths.example.com", "/One/", "404"),
            ("paths.example.com", "/ONE", "404"),
            ("paths.example.com", "/a/1", "regex"),
            ("paths.example.com", "/a/1/", "404"),
            ("paths.example.com", "/x/a/1", "404"),
            ("paths.example.com", "/", "404"),
            ("all.example.com", "/", "any"),
            ("all.example.com", "/whatever/else", "any"),
            ("other.example.com", "/one", "404"),
        ],
    )
    .await;
}

#[tokio::test]
async fn headers_query_parameters_and_methods_are_matched() {
    let (_backends, services) = backends(&[
        "plain", "one", "two", "regex", "query", "queries", "post", "longer",
    ])
    .await;
    let rules = [
        on("{path: {value: /}}", "plain"),
        on("{headers: [{name: Version, value: one}]}", "one"),
        on(
            "{headers: [{name: version, value: two}, {name: color, value: blue}]}, {headers: [{name: color, value: red}]}",
            "two",
        ),
        on(
            "{headers: [{name: version, type: RegularExpression, value: 'r[0-9]+'}]}",
            "regex",
        ),
        on("{queryParams: [{name: animal, value: whale}]}", "query"),
        on(
            "{queryParams: [{name: animal, value: whale}, {name: size, type: RegularExpression, value: '[0-9]+'}]}",
            "queries",
        ),
        on("{method: POST}", "post"),
        on("{path: {value: /longer}}", "longer"),
    ];
    let sesame = Sesame::with_rules(&services, &rules).await;
    let get = |path| Request::get("a.example.com", path);
    check_requests(
        sesame.at(8080),
        [
            (get("/"), "plain"),
            (get("/").header("version", "one"), "one"),
            (get("/").header("VERSION", "one"), "one"),
            (get("/").header("version", "One"), "plain"),
            (get("/").header("version", "ones"), "plain"),
            (get("/").header("version", "two"), "plain"),
            (
                get("/").header("version", "two").header("color", "blue"),
                "two",
            ),
            (get("/").header("color", "red"), "two"),
            // Each has one of the headers: the first rule wins.
            (
                get("/").header("version", "one").header("color", "red"),
                "one",
            ),
            (get("/").header("version", "r12"), "regex"),
            (get("/").header("version", "r12x"), "plain"),
            (get("/?animal=whale"), "query"),
            (get("/?other=1&animal=whale"), "query"),
            (get("/?animal=Whale"), "plain"),
            (get("/?Animal=whale"), "plain"),
            (get("/?animal=whales"), "plain"),
            (get("/?animal=whale&size=30"), "queries"),
            (get("/?animal=whale&size=big"), "query"),
            // Paths take precedence over methods, methods over headers, headers over query parameters.
            (
                get("/?animal=whale&size=30").header("version", "one"),
                "one",
            ),
            (get("/").header("version", "one").method("POST"), "post"),
            (get("/?animal=whale").method("POST"), "post"),
            (get("/").method("PUT"), "plain"),
            (
                get("/longer").method("POST").header("version", "one"),
                "longer",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn across_routes_specificity_then_age_then_name_decides() {
    let (_backends, services) = backends(&["old", "young", "a", "b", "long"]).await;
    let hosts = ["a.example.com"];
    let root = |backend: &str| on("{path: {value: /}}", backend);
    let routes = [
        created(
            &route("a-young", &["web"], &hosts, &[&root("young")]),
            "2026-02-01",
        ),
        created(
            &route("z-old", &["web"], &hosts, &[&root("old")]),
            "2026-01-01",
        ),
        created(
            &route(
                "long",
                &["web"],
                &["a.example.com", "b.example.com"],
                &[&on("{path: {value: /long}}", "long")],
            ),
            "2026-03-01",
        ),
        created(
            &route("b", &["web"], &["b.example.com"], &[&root("b")]),
            "2026-01-01",
        ),
        created(
            &route("a", &["web"], &["b.example.com"], &[&root("a")]),
            "2026-01-01",
        ),
    ];
    let sesame = Sesame::with_gateway(&[HTTP], &(services + &routes.concat())).await;
    check(
        sesame.at(8080),
        &[
            ("a.example.com", "/", "old"),
            ("a.example.com", "/long/way", "long"),
            ("b.example.com", "/", "a"),
            ("b.example.com", "/long", "long"),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_first_of_equal_rules_responds_even_if_its_backend_is_missing() {
    let (_backends, services) = backends(&["first", "second"]).await;
    let both = |backend: &str, one: &str, other: &str| {
        on(
            &format!(
                "{{path: {{value: /order}}, headers: [{{name: {one}, value: x}}, {{name: {other}, value: x}}]}}"
            ),
            backend,
        )
    };
    let rules = [
        both("first", "a", "b"),
        both("second", "b", "a"),
        on("{path: {value: /missing}}", "missing"),
        on("{path: {value: /missing}}", "second"),
        "matches: [{path: {value: /empty}}], backendRefs: []".to_owned(),
        "matches: [{path: {value: /none}}]".to_owned(),
        "matches: [{path: {value: /kind}}], backendRefs: [{group: example.com, kind: Bucket, name: first, port: 80}]".to_owned(),
        "matches: [{path: {value: /extension}}], filters: [{type: ExtensionRef, extensionRef: {group: example.com, kind: \
         Filter, name: x}}], backendRefs: [{name: second, port: 80}]".to_owned(),
        on("{path: {value: /}}", "second"),
    ];
    let sesame = Sesame::with_rules(&services, &rules).await;
    check_requests(
        sesame.at(8080),
        [
            (
                Request::get("a.example.com", "/order")
                    .header("a", "x")
                    .header("b", "x"),
                "first",
            ),
            (
                Request::get("a.example.com", "/order").header("a", "x"),
                "second",
            ),
            (Request::get("a.example.com", "/missing"), "500"),
            (Request::get("a.example.com", "/empty"), "500"),
            (Request::get("a.example.com", "/none/at/all"), "500"),
            (Request::get("a.example.com", "/kind"), "500"),
            (Request::get("a.example.com", "/extension"), "500"),
            (Request::get("a.example.com", "/else"), "second"),
        ],
    )
    .await;
    let resolved = sesame
        .of_route("a", "ResolvedRefs")
        .await
        .expect("a condition");
    assert_eq!(resolved.status, "False", "{resolved:?}");
    assert!(resolved.message.contains("missing"), "{resolved:?}");
}

#[tokio::test]
async fn gateways_respond_differently_on_the_same_port() {
    let (_backends, services) = backends(&["shared", "left", "right"]).await;
    let other = new_ip();
    let sesame = Sesame::serving(|ip| {
        let routes = route(
            "shared",
            &["left", "right"],
            &["a.example.com"],
            &[&on("{path: {value: /shared}}", "shared")],
        ) + &route(
            "left",
            &["left"],
            &["a.example.com"],
            &[&on("{path: {value: /}}", "left")],
        ) + &route(
            "right",
            &["right"],
            &["a.example.com"],
            &[&on("{path: {value: /}}", "right")],
        );
        let gateways = gateway("left", ip, &[HTTP]) + &gateway("right", other, &[HTTP]);
        vec![("all.yaml", gateways + &services + &routes)]
    })
    .await;
    check(
        sesame.at(8080),
        &[
            ("a.example.com", "/shared", "shared"),
            ("a.example.com", "/", "left"),
        ],
    )
    .await;
    check(
        (other, 8080).into(),
        &[
            ("a.example.com", "/shared", "shared"),
            ("a.example.com", "/", "right"),
        ],
    )
    .await;
}

/// A route tree requires paths: Envoy would reject a host without any, and with it every host on the port.
#[tokio::test]
async fn many_routes_without_a_path_leave_other_hosts_alone() {
    let (_backends, services) = backends(&["many", "other"]).await;
    let headers: Vec<String> = (0..64)
        .map(|n| format!("{{headers: [{{name: x-n, value: '{n}'}}]}}"))
        .collect();
    let routes = route(
        "many",
        &["web"],
        &["many.example.com"],
        &[on(&headers.join(", "), "many")],
    ) + &route(
        "other",
        &["web"],
        &["other.example.com"],
        &[at("/", "other")],
    );
    let sesame = Sesame::with_gateway(&[HTTP], &(services + &routes)).await;
    let requests = |n: &str| Request::get("many.example.com", "/").header("x-n", n);
    check_requests(
        sesame.at(8080),
        [
            (requests("0"), "many"),
            (requests("63"), "many"),
            (requests("64"), "404"),
            (Request::get("other.example.com", "/"), "other"),
        ],
    )
    .await;
}
