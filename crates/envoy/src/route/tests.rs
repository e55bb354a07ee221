//! Routes as Envoy routes.

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::route::v3 as pb;
use proptest::prelude::*;
use serde_json::{Value, json};
use sesame_model::*;

use super::*;
use crate::testing::*;
use crate::{to_json, wire};

fn host_with(domain: &str, routes: Vec<Route>) -> pb::VirtualHost {
    let key = VirtualHostKey {
        table: table_key(),
        domain: domain.into(),
    };
    let host = VirtualHost {
        routes: routes.into_iter().map(Arc::new).collect(),
        ..VirtualHost::default()
    };
    virtual_host(&key, &host, &mut |port| port)
}

/// The routes as JSON.
fn routes_of(domain: &str, routes: Vec<Route>) -> Vec<Value> {
    let host = to_json(&host_with(domain, routes)).unwrap();
    host["routes"].as_array().cloned().unwrap_or_default()
}

fn only(route: Route) -> Value {
    let routes = routes_of("example.com", vec![route]);
    assert_eq!(routes.len(), 1, "{routes:?}");
    routes.into_iter().next().unwrap()
}

fn forwarded(forward: Forward) -> Value {
    only(route(prefix("/"), Action::Forward(Arc::new(forward))))["route"].clone()
}

#[test]
fn a_simple_route_sets_only_non_default_fields() {
    let route = route(
        prefix("/a"),
        Action::Forward(Arc::new(forward(vec![target("web", 7)]))),
    );
    assert_eq!(
        only(route),
        json!({
            "match": {"path_separated_prefix": "/a"},
            "route": {"cluster": "ns/web:80", "timeout": "0s"},
        })
    );
}

#[test]
fn all_kinds_of_matches_are_encoded() {
    let mut route = route(PathMatch::Regex("/a+".to_owned()), Action::Respond(204));
    route.matches.method = Some("GET".into());
    route.matches.headers = vec![
        HeaderMatch {
            name: "Host".to_owned(),
            value: ValueMatch::Exact("a.b".to_owned()),
        },
        HeaderMatch {
            name: "X-A".to_owned(),
            value: ValueMatch::Regex("b+".to_owned()),
        },
    ];
    route.matches.query = vec![QueryMatch {
        name: "q".to_owned(),
        value: ValueMatch::Exact("1".to_owned()),
    }];
    route.matches.share = Some(PartsPerMillion(0));
    assert_eq!(
        only(route),
        json!({
            "match": {
                "safe_regex": {"regex": "/a+"},
                "headers": [
                    {"name": ":method", "string_match": {"exact": "GET"}},
                    {"name": ":authority", "string_match": {"exact": "a.b"}},
                    {"name": "X-A", "string_match": {"safe_regex": {"regex": "b+"}}},
                ],
                "query_parameters": [{"name": "q", "string_match": {"exact": "1"}}],
                "runtime_fraction": {"default_value": {"denominator": "MILLION"}},
            },
            "direct_response": {"status": 204},
        })
    );
}

#[test]
fn the_root_prefix_with_a_full_share_matches_everything() {
    let mut route = route(prefix("/"), Action::Respond(204));
    route.matches.share = Some(PartsPerMillion(1_000_000));
    assert_eq!(only(route)["match"], json!({"prefix": "/"}));
}

#[test]
fn zero_weights_are_omitted_and_targets_keep_their_settings() {
    let mut special = target("a", 3);
    special.request_headers.set = vec![("x-to".to_owned(), "a".to_owned())];
    special.host_rewrite = Some("a.host".into());
    let action = forwarded(forward(vec![special, target("b", 1), target("c", 0)]));
    assert_eq!(
        action["weighted_clusters"]["clusters"],
        json!([
            {
                "name": "ns/a:80",
                "weight": 3,
                "request_headers_to_add": [{
                    "header": {"key": "x-to", "value": "a"},
                    "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
                }],
                "host_rewrite_literal": "a.host",
            },
            {"name": "ns/b:80", "weight": 1},
        ])
    );
}

#[test]
fn weights_never_exceed_envoys_limit_on_their_sum() {
    let action = forwarded(forward(vec![
        target("a", u32::MAX),
        target("b", u32::MAX),
        target("c", 1),
    ]));
    let weights: Vec<u64> = action["weighted_clusters"]["clusters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cluster| cluster["weight"].as_u64().unwrap())
        .collect();
    assert!(weights.iter().sum::<u64>() <= u64::from(u32::MAX));
    assert_eq!(weights[0], weights[1]);
    assert_eq!(weights[2], 1);
}

#[test]
fn the_share_of_a_refused_target_gets_the_refused_status() {
    let part = forwarded(forward(vec![target("a", 1), refused(1)]));
    assert_eq!(
        part["cluster_not_found_response_code"],
        "INTERNAL_SERVER_ERROR"
    );
    assert_eq!(part["weighted_clusters"]["clusters"][1]["name"], "refused");
    let unavailable = forwarded(Forward {
        refused_status: 503,
        ..forward(vec![target("a", 1), refused(1)])
    });
    // Envoy's default is 503.
    assert!(unavailable.get("cluster_not_found_response_code").is_none());

    let all = only(route(
        prefix("/"),
        Action::Forward(Arc::new(forward(vec![refused(1), target("a", 0)]))),
    ));
    assert_eq!(all["direct_response"], json!({"status": 500}));
    assert!(all.get("route").is_none());
}

#[test]
fn timeouts_and_retries_are_encoded() {
    let action = forwarded(Forward {
        timeout: Some(Duration::from_secs(2)),
        try_timeout: Some(Duration::from_millis(500)),
        ..forward(vec![target("a", 1)])
    });
    assert_eq!(action["timeout"], "2s");
    assert_eq!(action["retry_policy"], json!({"per_try_timeout": "0.500s"}));
    assert!(action.get("idle_timeout").is_none());

    let retry = |retry| {
        forwarded(Forward {
            retry: Some(Box::new(retry)),
            ..forward(vec![target("a", 1)])
        })["retry_policy"]
            .clone()
    };
    let policy = retry(Retry {
        attempts: 2,
        on: vec![],
        codes: vec![500, 503],
        backoff: Some(Duration::ZERO),
    });
    assert_eq!(
        policy["retry_on"],
        "connect-failure,refused-stream,reset-before-request,retriable-status-codes"
    );
    assert_eq!(policy["num_retries"], 2);
    assert_eq!(policy["retriable_status_codes"], json!([500, 503]));
    assert_eq!(policy["retry_back_off"], json!({"base_interval": "0.001s"}));
    let none = retry(Retry {
        attempts: 0,
        on: vec![],
        codes: vec![500],
        backoff: None,
    });
    assert!(none.is_null(), "{none}");

    let idle = |timeout: Option<u64>, try_timeout: Option<u64>| {
        let action = forwarded(Forward {
            timeout: timeout.map(Duration::from_secs),
            try_timeout: try_timeout.map(Duration::from_secs),
            ..forward(vec![target("a", 1)])
        });
        action["idle_timeout"].clone()
    };
    assert_eq!(idle(Some(7200), None), "7200s");
    assert_eq!(idle(None, Some(7200)), "7200s");
    assert_eq!(idle(Some(0), Some(7200)), "0s");
    assert_eq!(idle(None, None), json!(null));
}

#[test]
fn mirrors_keep_the_host_and_count_as_a_pass() {
    let mirror = |share| Mirror {
        cluster: cluster_key("m"),
        share,
    };
    let action = forwarded(Forward {
        mirrors: vec![
            mirror(None),
            mirror(Some(PartsPerMillion(250_000))),
            mirror(Some(PartsPerMillion(0))),
        ],
        ..forward(vec![target("a", 1)])
    });
    let pass = json!([{"append": {"header": {"key": "cdn-loop", "value": "sesame"}}}]);
    assert_eq!(
        action["request_mirror_policies"],
        json!([
            {
                "cluster": "ns/m:80",
                "disable_shadow_host_suffix_append": true,
                "request_headers_mutations": pass,
            },
            {
                "cluster": "ns/m:80",
                "disable_shadow_host_suffix_append": true,
                "request_headers_mutations": pass,
                "runtime_fraction": {
                    "default_value": {"numerator": 250_000, "denominator": "MILLION"}
                },
            },
        ])
    );
}

#[test]
fn header_values_are_literal_and_reserved_names_are_omitted() {
    let mut route = route(
        prefix("/"),
        Action::Forward(Arc::new(forward(vec![target("a", 1)]))),
    );
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    route.request_headers = HeaderLists {
        set: vec![
            own("x-a", "50%REQ(x)%"),
            own("Host", "new.host"),
            own(":path", "/x"),
        ],
        add: vec![own("x-b", "")],
        remove: vec!["x-c".to_owned(), ":path".to_owned()],
        computed: vec![own("x-d", "100%%: %REQ(x)%"), own("host", "%REQ(x)%")],
    }
    .into();
    let route = only(route);
    assert_eq!(
        route["request_headers_to_add"],
        json!([
            {
                "header": {"key": "x-a", "value": "50%%REQ(x)%%"},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            },
            {
                "header": {"key": "x-d", "value": "100%%: %REQ(x)%"},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            },
            {"header": {"key": "x-b"}, "keep_empty_value": true},
        ])
    );
    assert_eq!(route["request_headers_to_remove"], json!(["x-c"]));
}

/// Envoy applies a backend's modifications before the route's.
#[test]
fn a_backends_header_modifications_win_over_the_routes() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut own = target("a", 1);
    own.request_headers = HeaderLists {
        set: vec![pair("X-Set", "backend")],
        add: vec![pair("x-more", "backend")],
        remove: vec!["x-gone".to_owned()],
        computed: vec![],
    }
    .into();
    let action = Action::Forward(Arc::new(forward(vec![own, target("b", 1)])));
    let mut route = route(PathMatch::Prefix("/".to_owned()), action);
    route.request_headers = HeaderLists {
        set: vec![pair("x-set", "route"), pair("x-gone", "route")],
        add: vec![pair("x-more", "route"), pair("x-only", "route")],
        remove: vec!["x-removed".to_owned()],
        computed: vec![],
    }
    .into();
    route.response_headers.remove = vec!["x-set".to_owned()];
    let route = only(route);
    assert_eq!(route.get("request_headers_to_add"), None);
    assert_eq!(route["response_headers_to_remove"], json!(["x-set"]));
    let clusters = &route["route"]["weighted_clusters"]["clusters"];
    let added = |cluster: usize| -> Vec<String> {
        let added = clusters[cluster]["request_headers_to_add"].as_array();
        let header = |header: &Value| format!("{}: {}", header["key"], header["value"]);
        let added = added.into_iter().flatten();
        added
            .map(|option| header(&option["header"]).replace('"', ""))
            .collect()
    };
    let merged = [
        "X-Set: backend",
        "x-more: route",
        "x-only: route",
        "x-more: backend",
    ];
    assert_eq!(added(0), merged);
    assert_eq!(
        clusters[0]["request_headers_to_remove"],
        json!(["x-removed", "x-gone"])
    );
    let routes = [
        "x-set: route",
        "x-gone: route",
        "x-more: route",
        "x-only: route",
    ];
    assert_eq!(added(1), routes);
}

fn redirected(domain: &str, redirect: Redirect) -> Vec<Value> {
    routes_of(
        domain,
        vec![route(prefix("/a"), Action::Redirect(Arc::new(redirect)))],
    )
}

#[test]
fn a_redirect_includes_only_non_default_ports() {
    let plain = Redirect {
        scheme: None,
        hostname: None,
        port: RedirectPort::OfListener,
        path: None,
        status: 302,
    };
    let listener = redirected("example.com", plain.clone());
    assert_eq!(
        listener[0]["redirect"],
        json!({"port_redirect": 8080, "response_code": "FOUND"})
    );

    let scheme = Redirect {
        scheme: Some("https".to_owned()),
        port: RedirectPort::OfScheme,
        status: 301,
        ..plain.clone()
    };
    // The domain is the host, so the request's port is dropped.
    assert_eq!(
        redirected("example.com", scheme.clone())[0]["redirect"],
        json!({"scheme_redirect": "https", "host_redirect": "example.com"})
    );
    // The host is unknown, so requests with a port get the default port.
    let wildcard = redirected("*.example.com", scheme);
    assert_eq!(wildcard.len(), 2);
    assert_eq!(
        wildcard[0]["match"]["headers"],
        json!([{
            "name": ":authority",
            "string_match": {"suffix": ".example.com", "ignore_case": true},
            "invert_match": true,
        }])
    );
    assert_eq!(
        wildcard[0]["redirect"],
        json!({"scheme_redirect": "https", "port_redirect": 443})
    );
    assert_eq!(wildcard[1]["redirect"], json!({"scheme_redirect": "https"}));

    let named = Redirect {
        hostname: Some("other.org".to_owned()),
        port: RedirectPort::Exact(80),
        path: Some(PathRewrite::Full("/b".to_owned())),
        ..plain
    };
    assert_eq!(
        redirected("*", named),
        [json!({
            "match": {"path_separated_prefix": "/a"},
            "redirect": {
                "host_redirect": "other.org",
                "path_redirect": "/b",
                "response_code": "FOUND",
            },
        })]
    );
}

#[test]
fn redirects_use_the_ports_that_clients_see() {
    for (port, shown) in [
        (RedirectPort::OfScheme, 1443),
        (RedirectPort::Exact(8443), 9443),
        (RedirectPort::OfListener, 9080),
    ] {
        let redirect = Redirect {
            scheme: Some("https".to_owned()),
            hostname: None,
            port,
            path: None,
            status: 302,
        };
        let key = VirtualHostKey {
            table: table_key(),
            domain: "example.com".into(),
        };
        let host = VirtualHost {
            routes: vec![Arc::new(route(
                prefix("/a"),
                Action::Redirect(Arc::new(redirect)),
            ))],
            ..VirtualHost::default()
        };
        let out = to_json(&virtual_host(&key, &host, &mut |port| port + 1000)).unwrap();
        assert_eq!(out["routes"][0]["redirect"]["port_redirect"], shown);
    }
}

#[test]
fn a_route_with_cors_and_a_method_also_matches_preflights() {
    let mut base = route(prefix("/a"), Action::Respond(200));
    base.cors = Some(Arc::new(Cors {
        origins: vec![
            OriginMatch::Exact("https://Example.com".to_owned()),
            OriginMatch::Wildcard {
                before: "https://".to_owned(),
                behind: ".b.com".to_owned(),
            },
        ],
        credentials: true,
        ..cors()
    }));
    let policy = only(base.clone())["typed_per_filter_config"]["envoy.filters.http.cors"].clone();
    assert_eq!(
        policy,
        json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy",
            "allow_origin_string_match": [
                {"exact": "https://Example.com", "ignore_case": true},
                {"safe_regex": {"regex": r"https://[0-9a-z_-]+(?:\.[0-9a-z_-]+)*\.b\.com"}},
            ],
            "allow_methods": "*",
            "allow_headers": "x-a, x-b",
            "max_age": "5",
            "allow_credentials": true,
            "forward_not_matching_preflights": false,
        })
    );

    base.matches.method = Some("PUT".into());
    let routes = routes_of("*", vec![base.clone()]);
    assert_eq!(routes.len(), 2);
    assert_eq!(
        routes[0]["match"]["headers"],
        json!([
            {"name": ":method", "string_match": {"exact": "OPTIONS"}},
            {"name": "access-control-request-method", "string_match": {"exact": "PUT"}},
            {"name": "origin", "present_match": true},
        ])
    );
    base.cors = None;
    assert_eq!(routes_of("*", vec![base]).len(), 1);
}

#[test]
fn reserved_hosts_are_in_the_table() {
    let table = RouteTable {
        reserved: vec!["a.com".into(), "b.com".into()],
        secure: false,
    };
    let own = host_with("b.com", vec![route(prefix("/"), Action::Respond(200))]);
    let out = to_json(&route_table(&table_key(), &table, [own], false)).unwrap();
    assert_eq!(
        out,
        json!({
            "name": "8080",
            "ignore_port_in_host_matching": true,
            "most_specific_header_mutations_wins": true,
            "virtual_hosts": [
                {"name": "a.com", "domains": ["a.com"]},
                {
                    "name": "b.com",
                    "domains": ["b.com"],
                    "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}],
                },
            ],
        })
    );
}

#[test]
fn requests_on_connections_of_other_listeners_are_misdirected() {
    let misdirected = json!({
        "match": {
            "prefix": "/",
            "headers": [{
                "name": "x-sesame-listener",
                "string_match": {"exact": "*.com"},
                "invert_match": true,
            }],
        },
        "direct_response": {"status": 421},
    });
    let table = RouteTable {
        reserved: vec!["*.com".into()],
        secure: true,
    };
    let out = to_json(&route_table(&table_key(), &table, [], false)).unwrap();
    let removed = json!(["x-sesame-listener"]);
    assert_eq!(out["request_headers_to_remove"], removed);
    assert_eq!(out["virtual_hosts"][0]["routes"], json!([misdirected]));

    let key = VirtualHostKey {
        table: table_key(),
        domain: "b.com".into(),
    };
    let paths = |count: usize, fallback| {
        let paths = (0..count).map(|index| prefix(&format!("/{index}")));
        let routes = paths.map(|path| Arc::new(route(path, Action::Respond(200))));
        let host = VirtualHost {
            listener: Some("*.com".into()),
            fallback,
            routes: routes.collect(),
            ..VirtualHost::default()
        };
        to_json(&virtual_host(&key, &host, &mut |port| port)).unwrap()
    };
    let list = paths(2, false);
    assert_eq!(list["routes"][0], misdirected);
    let tree = &paths(100, false)["matcher"];
    let first = "/action/typed_config/routes/0";
    assert_eq!(tree["on_no_match"].pointer(first), Some(&misdirected));
    let map = &tree["matcher_tree"]["prefix_match_map"]["map"];
    let keys = map.as_object().unwrap();
    assert!(
        keys.values()
            .all(|of_key| of_key.pointer(first) == Some(&misdirected))
    );
    let except = |listener: &str| {
        json!({
            "name": "x-sesame-listener", "string_match": {"exact": listener}, "invert_match": true,
        })
    };
    assert_eq!(
        paths(2, true)["routes"][0]["match"]["headers"],
        json!([except("*.com"), except("*")])
    );
}

proptest! {
    /// Each hash map has its own iteration order.
    #[test]
    fn equal_hosts_encode_to_equal_bytes_and_decode_back(host in any_virtual_host()) {
        let key = VirtualHostKey { table: table_key(), domain: "*.example.com".into() };
        let bytes = wire::virtual_host(virtual_host(&key, &host, &mut |port| port));
        for _ in 0..3 {
            prop_assert_eq!(&wire::virtual_host(virtual_host(&key, &host, &mut |port| port)), &bytes);
        }
        let decoded = <pb::VirtualHost as prost::Message>::decode(&*bytes).unwrap();
        prop_assert_eq!(decoded, virtual_host(&key, &host, &mut |port| port));
    }

    /// Random routes satisfy Envoy's field validation rules.
    #[test]
    fn routes_pass_envoys_validation(host in any_virtual_host()) {
        let key = VirtualHostKey { table: table_key(), domain: "*".into() };
        for route in virtual_host(&key, &host, &mut |port| port).routes {
            prop_assert!(route.r#match.is_some_and(|matches| matches.path_specifier.is_some()));
            if let Some(pb::route::Action::Route(action)) = route.action {
                prop_assert!(action.cluster_specifier.is_some());
                prop_assert!(action.prefix_rewrite.is_empty() || action.regex_rewrite.is_none());
                prop_assert!(action.prefix_rewrite.is_empty() || action.prefix_rewrite.starts_with('/'));
            }
        }
    }
}
