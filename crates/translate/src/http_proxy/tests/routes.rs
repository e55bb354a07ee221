//! Routes of a single HTTPProxy.

use std::time::Duration;

use sesame_model::{Action, CrossScheme, OriginMatch, Rate};

use super::super::testing::World;
use super::{forward, outcome, refused, route};

#[test]
fn routes_are_in_order_of_precedence() {
    let (routes, status) = outcome(
        "
        - services: [{name: one, port: 80}]
        - conditions: [{prefix: /a}]
          services: [{name: two, port: 80}]
        - conditions: [{prefix: /a}, {header: {name: x, present: true}}]
          services: [{name: three, port: 80}]
        - conditions: [{regex: '/a.*'}]
          directResponsePolicy: {statusCode: 200, body: hello}
        - conditions: [{exact: /a}, {queryParameter: {name: q, exact: v}}]
          requestRedirectPolicy: {hostname: b.com, statusCode: 301}
        ",
    );
    assert_eq!(status, "valid\n");
    assert_eq!(
        routes,
        "\
= /a ?q=v -> 301 same://b.com:same
~ /a.* -> 200 \"hello\"
^ /a x:* -> shop/three:80
^ /a -> shop/two:80
/ / -> shop/one:80
"
    );
}

#[test]
fn many_routes_of_equal_rank_keep_their_order() {
    // More than a byte can count, and neither ascending nor descending.
    const ROUTES: usize = 600;
    let values = || (0..ROUTES).map(|n| n * 7 % ROUTES);
    let list: Vec<String> = values()
        .map(|value| {
            format!(
                "{{conditions: [{{prefix: /a}}, {{header: {{name: x, exact: '{value}'}}}}], \
                 directResponsePolicy: {{statusCode: 204}}}}"
            )
        })
        .collect();
    let (routes, status) = outcome(&format!("[{}]", list.join(", ")));
    assert_eq!(status, "valid\n");
    let expected: String = values()
        .map(|value| format!("^ /a x:{value} -> 204\n"))
        .collect();
    assert_eq!(routes, expected);
}

#[test]
fn a_method_outranks_any_number_of_headers() {
    let route = |conditions: &str, status: u16| {
        format!(
            "{{conditions: [{{prefix: /a}}, {conditions}], directResponsePolicy: {{statusCode: {status}}}}}"
        )
    };
    let header =
        |name: &str, value: &str| format!("{{header: {{name: '{name}', exact: {value}}}}}");
    let two = [header("x", "a"), header("y", "a")].join(", ");
    let (routes, status) = outcome(&format!(
        "[{}, {}]",
        route(&two, 201),
        route(&header(":method", "GET"), 202)
    ));
    assert_eq!(status, "valid\n");
    assert_eq!(routes, "^ /a -> 202\n^ /a x:a y:a -> 201\n");
}

#[test]
fn routes_with_the_conditions_of_an_earlier_one_are_warnings() {
    let (routes, status) = outcome(
        "
        - services: [{name: one, port: 80}]
        - conditions: [{prefix: /a}]
          services: [{name: two, port: 80}]
        - conditions: [{prefix: /}]
          services: [{name: three, port: 80}]
        - conditions: [{prefix: /a}, {header: {name: x, present: true}}]
          services: [{name: three, port: 80}]
        ",
    );
    assert_eq!(
        status,
        "valid\nwarning RouteError Overlap: spec.routes[2].conditions: the same as the conditions of \
         spec.routes[0], which takes precedence; change or remove one of the routes\n"
    );
    assert!(
        routes.ends_with("^ /a -> shop/two:80\n/ / -> shop/one:80\n"),
        "{routes}"
    );
}

#[test]
fn prefixes_are_replaced_with_both_slashes() {
    let (routes, status) = outcome(
        "
        - conditions: [{prefix: /a}]
          services: [{name: one, port: 80}]
          pathRewritePolicy: {replacePrefix: [{replacement: /any}, {prefix: /a, replacement: /x/}]}
        - conditions: [{prefix: /a/}]
          services: [{name: two, port: 80}]
        - conditions: [{exact: /b}]
          services: [{name: three, port: 80}]
          pathRewritePolicy: {replacePrefix: [{replacement: /y}]}
        - conditions: [{prefix: /r}]
          requestRedirectPolicy: {prefix: /, statusCode: 308}
        ",
    );
    assert_eq!(
        routes,
        "\
= /b -> 503
^ /a/ -> shop/two:80
^ /r/ -> 308 same://same:same/
^ /a/ -> shop/one:80 as /x/
^ /a -> shop/one:80 as /x
= /r -> 308 same://same:same/
"
    );
    assert!(
        status.starts_with("invalid\nerror PrefixReplaceError InvalidReplacement: spec.routes[2].pathRewritePolicy: needs"),
        "{status}"
    );
}

#[test]
fn headers_are_changed_for_the_route_and_for_services() {
    let route = route(
        "
        services: [{name: one, port: 80,
          requestHeadersPolicy: {set: [{name: x-service, value: '%SESAME_SERVICE_NAME%:%CONTOUR_SERVICE_PORT%'},
            {name: host, value: one.com}]},
          responseHeadersPolicy: {remove: [x-powered-by]}}],
        requestHeadersPolicy: {set: [{name: Host, value: '%REQ(X-Host)%'}, {name: x-ns, value: '%SESAME_NAMESPACE%'}]},
        responseHeadersPolicy: {set: [{name: x-ip, value: '50% %DOWNSTREAM_LOCAL_ADDRESS%'}]}
        ",
    );
    assert_eq!(route.request_headers.set, [("x-ns".into(), "shop".into())]);
    assert_eq!(
        route.response_headers.computed,
        [("x-ip".into(), "50%% %DOWNSTREAM_LOCAL_ADDRESS%".into())]
    );
    let Action::Forward(forward) = route.action else {
        panic!("{route:?}");
    };
    let options = forward.options.as_ref().expect("options");
    assert_eq!(options.host_from_header.as_deref(), Some("x-host"));
    let target = &forward.targets[0];
    assert_eq!(
        target.request_headers.set,
        [("x-service".into(), "one:80".into())]
    );
    assert_eq!(target.response_headers.remove, ["x-powered-by"]);
    assert_eq!(target.host_rewrite.as_deref(), Some("one.com"));
    refused(
        "services: [{name: one, port: 80}], responseHeadersPolicy: {set: [{name: host, value: a}]}",
    );
    refused("services: [{name: one, port: 80}], requestHeadersPolicy: {remove: [connection]}");
}

#[test]
fn redirects_and_responses_keep_the_policies_of_the_route() {
    for action in [
        "requestRedirectPolicy: {path: /b}",
        "directResponsePolicy: {statusCode: 204}",
    ] {
        let route = route(&format!(
            "{action}, responseHeadersPolicy: {{set: [{{name: a, value: b}}]}}, \
             ipDenyPolicy: [{{source: Peer, cidr: 10.0.0.0/8}}], \
             rateLimitPolicy: {{local: {{requests: 5, unit: minute, burst: 2}}}}"
        ));
        assert_eq!(route.response_headers.set.len(), 1);
        let policy = route.policy.expect("limits");
        let sources = policy.sources.as_ref().expect("sources");
        assert!(!sources.allow && sources.ranges[0].peer);
        let Some(Rate::Own(rate)) = &policy.rate else {
            panic!("{policy:?}");
        };
        assert_eq!((rate.requests, rate.burst, rate.status), (5, 2, 429));
        assert_eq!(rate.interval, Duration::from_secs(60));
    }
    refused("requestRedirectPolicy: {statusCode: 300}");
    refused("requestRedirectPolicy: {path: /a, prefix: /b}");
    refused("directResponsePolicy: {statusCode: 100}");
    refused(&format!(
        "directResponsePolicy: {{statusCode: 200, body: {}}}",
        "a".repeat(4_097)
    ));
    refused("services: [{name: one, port: 80}], directResponsePolicy: {statusCode: 200}");
    refused("permitInsecure: true");
    refused("directResponsePolicy: {statusCode: 200}, ipAllowPolicy: [{source: Peer, cidr: a}]");
    refused(
        "directResponsePolicy: {statusCode: 200}, rateLimitPolicy: {local: {requests: 0, unit: hour}}",
    );
    for status in [418, 425, 499, 509] {
        let status = refused(&format!(
            "directResponsePolicy: {{statusCode: 200}}, \
             rateLimitPolicy: {{local: {{requests: 1, unit: hour, responseStatusCode: {status}}}}}"
        ));
        assert!(status.contains("responseStatusCode"), "{status}");
    }
    let limit = |count: usize| {
        let headers: String = (0..count)
            .map(|n| format!("{{name: x-{n}, value: a}}, "))
            .collect();
        format!(
            "directResponsePolicy: {{statusCode: 200}}, \
             rateLimitPolicy: {{local: {{requests: 1, unit: hour, responseHeadersToAdd: [{headers}]}}}}"
        )
    };
    route(&limit(10));
    refused(&limit(11));
    refused(&limit(1).replace("value: a", &format!("value: {}", "a".repeat(4_097))));
}

#[test]
fn backends_redirects_are_followed_if_the_policy_says_so() {
    let internal = |policy: &str| {
        let options = forward(&format!("internalRedirectPolicy: {policy}")).options;
        options.and_then(|options| options.internal_redirects)
    };
    let found = internal("{}").expect("redirects");
    assert_eq!(
        (found.max, found.codes, found.cross_scheme),
        (1, vec![302], CrossScheme::Never)
    );
    let found = internal(
        "{maxInternalRedirects: 3, redirectResponseCodes: [307, 301], allowCrossSchemeRedirect: SafeOnly, \
         denyRepeatedRouteRedirect: true}",
    );
    let found = found.expect("redirects");
    assert_eq!(
        (found.max, found.codes, found.cross_scheme),
        (3, vec![301, 307], CrossScheme::SafeOnly)
    );
    assert!(found.deny_repeated);
    assert_eq!(internal("{maxInternalRedirects: 0}"), None);
    let (_, status) = outcome(
        "[{services: [{name: one, port: 80}], internalRedirectPolicy: {maxInternalRedirects: 4}}]",
    );
    assert!(status.contains("4 is too many; 3 are followed"), "{status}");
}

#[test]
fn policies_of_the_host_apply_to_routes_without_their_own() {
    let world = World::with(&[(
        "a",
        "
        virtualhost:
          fqdn: a.com
          ipAllowPolicy: [{source: Remote, cidr: 10.0.0.1}]
          corsPolicy: {allowOrigin: ['*', 'https://b.com', 'https://.*'], allowMethods: [GET], maxAge: 10m}
        routes:
        - conditions: [{prefix: /own}]
          directResponsePolicy: {statusCode: 200}
          ipDenyPolicy: [{source: Peer, cidr: '::/0'}]
        ",
    )]);
    assert_eq!(world.status("a"), "valid\n");
    let route = world.first("a.com");
    let policy = route.policy.expect("limits");
    assert!(!policy.sources.as_ref().expect("sources").allow);
    let cors = route.cors.expect("a policy");
    assert_eq!(cors.max_age, Duration::from_secs(600));
    assert_eq!(
        cors.origins,
        [
            OriginMatch::Any,
            OriginMatch::Exact("https://b.com".into()),
            OriginMatch::Regex("https://.*".into())
        ]
    );
    let world = World::with(&[(
        "a",
        "
        virtualhost: {fqdn: a.com, ipAllowPolicy: [{source: Remote, cidr: 10.0.0.1}]}
        routes:
        - directResponsePolicy: {statusCode: 200}
          rateLimitPolicy: {local: {requests: 1, unit: second}}
        ",
    )]);
    let policy = world.first("a.com").policy.expect("limits");
    assert!(policy.sources.as_ref().expect("sources").allow);
    assert!(policy.rate.is_some());
}

#[test]
fn a_wrong_route_leaves_the_others() {
    let (routes, status) = outcome(
        "
        - conditions: [{prefix: /a}]
          services: [{name: one, port: 80}]
        - conditions: [{prefix: /b}]
          services: [{name: one, port: 80}]
          retryPolicy: {perTryTimeout: x}
        - conditions: [{prefix: c}]
          services: [{name: one, port: 80}]
        ",
    );
    assert_eq!(routes, "^ /a -> shop/one:80\n^ /b -> 503\n");
    assert!(
        status.contains("spec.routes[1].retryPolicy.perTryTimeout"),
        "{status}"
    );
    assert!(
        status.contains("spec.routes[2].conditions[0].prefix"),
        "{status}"
    );
    assert!(status.contains("SeveralReasons"), "{status}");
}

#[test]
fn invalid_policies_of_the_host_refuse_all_its_requests() {
    for (field, name) in [
        (
            "corsPolicy: {allowOrigin: ['('], allowMethods: [GET]}",
            "corsPolicy",
        ),
        ("ipDenyPolicy: [{source: Peer, cidr: none}]", "ipDenyPolicy"),
        (
            "rateLimitPolicy: {local: {requests: 0, unit: second}}",
            "rateLimitPolicy",
        ),
    ] {
        let world = World::with(&[(
            "a",
            &format!(
                "{{virtualhost: {{fqdn: a.com, {field}}}, routes: [{{services: [{{name: one, port: 80}}]}}]}}"
            ),
        )]);
        assert_eq!(world.routes(80, "a.com"), "/ / -> 503\n", "{field}");
        let status = world.status("a");
        assert!(
            status.contains(&format!("spec.virtualhost.{name}")),
            "{status}"
        );
    }
}
