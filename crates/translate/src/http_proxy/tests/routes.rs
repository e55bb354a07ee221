//! Routes of a single HTTPProxy.

use std::time::Duration;

use sesame_model::{
    Action, Balancing, CrossScheme, Forward, HashOf, OriginMatch, PartsPerMillion, Route, Target,
};

use super::super::testing::World;

/// The routes and the status of an HTTPProxy with host `a.com`.
fn outcome(routes: &str) -> (String, String) {
    let world = World::with(&[("a", &spec(routes))]);
    (world.routes(80, "a.com"), world.status("a"))
}

fn spec(routes: &str) -> String {
    format!("virtualhost: {{fqdn: A.com}}\nroutes: {routes}")
}

/// The first route, which must be valid.
#[track_caller]
fn route(fields: &str) -> Route {
    let world = World::with(&[("a", &spec(&format!("[{{{fields}}}]")))]);
    assert_eq!(world.status("a"), "valid\n");
    world.first("a.com")
}

#[track_caller]
fn forward(fields: &str) -> Forward {
    match route(&format!("services: [{{name: one, port: 80}}], {fields}")).action {
        Action::Forward(forward) => *forward,
        other => panic!("{other:?}"),
    }
}

/// The errors of a route that answers 503.
#[track_caller]
fn refused(fields: &str) -> String {
    let (routes, status) = outcome(&format!("[{{{fields}}}]"));
    assert_eq!(routes, "/ / -> 503\n", "{fields}");
    assert!(status.starts_with("invalid\nerror "), "{fields}: {status}");
    status
}

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
fn weights_share_requests() {
    let services = |weights: [u32; 3]| {
        let [a, b, c] = weights;
        let list = format!(
            "[{{services: [{{name: one, port: 80, weight: {a}}}, {{name: two, port: 80, weight: {b}}}, \
             {{name: missing, port: 80, weight: {c}}}]}}]"
        );
        outcome(&list)
    };
    let (routes, status) = services([3, 1, 5]);
    assert_eq!(routes, "/ / -> shop/one:80*3 + shop/two:80*1\n");
    assert_eq!(
        status,
        "invalid\nerror ServiceError ServiceNotFound: spec.routes[0].services[2]: Service shop/missing does not exist\n"
    );
    let even = "/ / -> shop/one:80*1 + shop/two:80*1\n";
    assert_eq!(services([0, 0, 0]).0, even);
    assert_eq!(services([0, 0, 5]).0, even);
    assert_eq!(
        services([0, 2, 0]).0,
        "/ / -> shop/one:80*0 + shop/two:80*2\n"
    );
    let (routes, _) = outcome("[{services: [{name: missing, port: 80}]}]");
    assert_eq!(routes, "/ / -> 503\n");
}

#[test]
fn a_mirror_gets_a_percentage() {
    let services = |weight: u32| {
        format!(
            "[{{services: [{{name: one, port: 80}}, {{name: two, port: 80, mirror: true, weight: {weight}}}]}}]"
        )
    };
    let routes = |weight| outcome(&services(weight)).0;
    assert_eq!(routes(0), "/ / -> shop/one:80, 100% to shop/two:80\n");
    assert_eq!(routes(7), "/ / -> shop/one:80, 7% to shop/two:80\n");
    assert_eq!(routes(101), "/ / -> 503\n");
    let mirror = "{name: two, port: 80, mirror: true}";
    refused(&format!("services: [{mirror}]"));
    refused(&format!(
        "services: [{{name: one, port: 80}}, {mirror}, {mirror}]"
    ));
    let one = route(&format!(
        "services: [{{name: one, port: 80}}, {}]",
        "{name: two, port: 80, mirror: true, weight: 30}"
    ));
    let Action::Forward(forward) = one.action else {
        panic!("{one:?}");
    };
    assert_eq!(forward.mirrors[0].share, Some(PartsPerMillion(300_000)));
}

#[test]
fn protocols_and_settings_are_part_of_the_cluster() {
    let cluster = |service: &str, policies: &str| {
        let (routes, status) = outcome(&format!(
            "[{{services: [{{name: one, {service}}}], {policies}}}]"
        ));
        assert_eq!(status, "valid\n", "{service} {policies}");
        let (_, cluster) = routes.trim_end().split_once(" -> ").expect("an action");
        cluster.to_owned()
    };
    for (service, policies, expected) in [
        ("port: 80", "", "shop/one:80"),
        ("port: 80, protocol: h2c", "", "shop/one:80?protocol=h2"),
        (
            "port: 80, protocol: h2",
            "",
            "shop/one:80?protocol=h2&tls=unverified",
        ),
        (
            "port: 80, protocol: tls",
            "",
            "shop/one:80?protocol=http1&tls=unverified",
        ),
        ("port: 443", "", "shop/one:443"),
        (
            "port: 80",
            "loadBalancerPolicy: {strategy: Random}",
            "shop/one:80?lb=random",
        ),
        (
            "port: 80",
            "timeoutPolicy: {idleConnection: 5m}",
            "shop/one:80?idle=300000ms",
        ),
        (
            "port: 80, healthPort: 81",
            "healthCheckPolicy: {path: /up}",
            "shop/one:80?health=5000ms,2000ms,3,2,port:81,,/up",
        ),
        ("port: 80, healthPort: 81", "", "shop/one:80"),
        (
            "port: 80",
            "healthCheckPolicy: {path: /up, host: up.com, intervalSeconds: 1, timeoutSeconds: 3, unhealthyThresholdCount: 4, \
             healthyThresholdCount: 5, expectedStatuses: [{start: 200, end: 300}]}",
            "shop/one:80?health=1000ms,3000ms,4,5,up.com,/up,200-300",
        ),
        (
            "port: 80, slowStartPolicy: {window: 30s, aggression: '1.5'}",
            "loadBalancerPolicy: {strategy: WeightedLeastRequest}",
            "shop/one:80?lb=least-request&slow-start=30000ms,1500,10",
        ),
    ] {
        assert_eq!(cluster(service, policies), expected);
    }
}

#[test]
fn the_certificates_of_backends_are_verified() {
    let service = |protocol: &str, secret: &str| {
        format!(
            "[{{services: [{{name: one, {protocol}, validation: {{caSecret: {secret}, subjectName: one.shop}}}}]}}]"
        )
    };
    let ca = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    let key = rcgen::KeyPair::generate().expect("a key");
    let ca = ca.self_signed(&key).expect("a certificate").pem();
    let world = |spec: &str, namespace: &str| {
        let mut world = World::new();
        let value = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "ca", "namespace": namespace},
            "stringData": {"ca.crt": ca},
        });
        world.put_value(value);
        world.proxy("a", spec);
        world
    };
    let own = world(&spec(&service("port: 80, protocol: tls", "ca")), "shop");
    assert_eq!(own.status("a"), "valid\n");
    assert_eq!(
        own.routes(80, "a.com"),
        "/ / -> shop/one:80?protocol=http1&tls=secret:shop/ca,one.shop\n"
    );
    // The Service itself says that it uses TLS.
    let own = world(&spec(&service("port: 443", "ca")), "shop");
    assert_eq!(
        own.routes(80, "a.com"),
        "/ / -> shop/one:443?tls=secret:shop/ca,one.shop\n"
    );
    let plain = world(&spec(&service("port: 80", "ca")), "shop");
    assert_eq!(plain.routes(80, "a.com"), "/ / -> shop/one:80\n");
    assert!(
        plain
            .status("a")
            .contains("warning ServiceError InvalidValidation")
    );
    let missing = world(&spec(&service("port: 80, protocol: tls", "other")), "shop");
    assert_eq!(missing.routes(80, "a.com"), "/ / -> refused\n");
    assert_eq!(missing.clusters(), [""; 0]);
    assert!(
        missing
            .status("a")
            .contains("Secret shop/other does not exist")
    );
    let mut foreign = world(&spec(&service("port: 80, protocol: tls", "pki/ca")), "pki");
    assert_eq!(foreign.routes(80, "a.com"), "/ / -> refused\n");
    assert!(
        foreign
            .status("a")
            .contains("no TLSCertificateDelegation in namespace pki")
    );
    foreign.put(
        "
        apiVersion: projectsesame.io/v1
        kind: TLSCertificateDelegation
        metadata: {name: d, namespace: pki}
        spec: {delegations: [{secretName: ca, targetNamespaces: [shop]}]}
        ",
    );
    assert_eq!(foreign.status("a"), "valid\n");
    assert_eq!(
        foreign.clusters(),
        ["shop/one:80?protocol=http1&tls=secret:pki/ca,one.shop"]
    );
}

#[test]
fn timeouts_are_durations_or_infinite() {
    let timeouts = |policy: &str| {
        let forward = forward(&format!("timeoutPolicy: {policy}"));
        let idle = forward.options.and_then(|options| options.idle_timeout);
        (forward.timeout, idle)
    };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(timeouts("{}"), (seconds(15), None));
    assert_eq!(timeouts("{response: 0s, idle: ''}"), (seconds(15), None));
    assert_eq!(
        timeouts("{response: 1m30s, idle: 10s}"),
        (seconds(90), seconds(10))
    );
    assert_eq!(
        timeouts("{response: infinity, idle: infinite}"),
        (seconds(0), seconds(0))
    );
    let services = "services: [{name: one, port: 80}]";
    let status = refused(&format!("{services}, timeoutPolicy: {{response: soon}}"));
    assert!(
        status.contains("spec.routes[0].timeoutPolicy.response: \"soon\""),
        "{status}"
    );
}

#[test]
fn retries_follow_the_policy() {
    let retry = |policy: &str| {
        let forward = forward(&format!("retryPolicy: {policy}"));
        (forward.retry, forward.try_timeout)
    };
    let (found, limit) = retry("{count: 3, perTryTimeout: 2s}");
    let found = found.expect("retries");
    assert_eq!((found.attempts, limit), (3, Some(Duration::from_secs(2))));
    assert_eq!(found.on, ["5xx"]);
    assert_eq!(retry("{count: -1}").0, None);
    assert_eq!(retry("{count: 0}").0.expect("retries").attempts, 1);
    let (found, _) =
        retry("{retryOn: [retriable-status-codes, reset], retriableStatusCodes: [503, 429, 503]}");
    let found = found.expect("retries");
    assert_eq!(found.on, ["reset", "retriable-status-codes"]);
    assert_eq!(found.codes, [429, 503]);
    let services = "services: [{name: one, port: 80}]";
    refused(&format!("{services}, retryPolicy: {{count: -2}}"));
    refused(&format!("{services}, retryPolicy: {{retryOn: [always]}}"));
    refused(&format!(
        "{services}, retryPolicy: {{retriableStatusCodes: [99]}}"
    ));
}

#[test]
fn requests_are_hashed_by_the_strategy() {
    let hash = |policy: &str| {
        let fields = format!("services: [{{name: one, port: 80}}], loadBalancerPolicy: {policy}");
        let world = World::with(&[("a", &spec(&format!("[{{{fields}}}]")))]);
        let route = world.first("a.com");
        let Action::Forward(forward) = route.action else {
            panic!("{route:?}");
        };
        let Target::Cluster(cluster) = &forward.targets[0].target else {
            panic!("{forward:?}");
        };
        let settings = cluster
            .policy
            .as_ref()
            .and_then(|policy| policy.connections.clone());
        let hash = forward
            .options
            .map_or_else(Vec::new, |options| options.hash);
        (
            settings.and_then(|settings| settings.balancing),
            hash,
            world.status("a"),
        )
    };
    let (balancing, policies, status) = hash("{strategy: Cookie}");
    let cookie = HashOf::Cookie {
        name: "X-Sesame-Session-Affinity".into(),
        path: "/".into(),
    };
    assert_eq!((balancing, &*status), (Some(Balancing::Hash), "valid\n"));
    assert_eq!(policies[0].of, cookie);
    let (balancing, policies, status) = hash(
        "{strategy: RequestHash, requestHashPolicies: [{headerHashOptions: {headerName: x}, terminal: true}, \
         {queryParameterHashOptions: {parameterName: q}}, {hashSourceIP: true}, {}, {hashSourceIP: true}]}",
    );
    assert_eq!(balancing, Some(Balancing::Hash));
    assert!(policies[0].terminal && !policies[1].terminal);
    let parts: Vec<HashOf> = policies.into_iter().map(|policy| policy.of).collect();
    assert_eq!(
        parts,
        [
            HashOf::Header("x".into()),
            HashOf::Query("q".into()),
            HashOf::Source
        ]
    );
    assert!(status.contains("requestHashPolicies[3]") && status.contains("requestHashPolicies[4]"));
    let (balancing, policies, status) = hash("{strategy: RequestHash}");
    assert_eq!(
        (balancing, policies.len()),
        (Some(Balancing::RoundRobin), 0)
    );
    assert!(status.starts_with("valid\nwarning"), "{status}");
    let (balancing, _, status) = hash("{strategy: Best}");
    assert_eq!(balancing, Some(Balancing::RoundRobin));
    assert!(status.contains("unknown strategy \"Best\""), "{status}");
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
^ /a/ -> shop/one:80 as /x/
^ /r/ -> 308 same://same:same/
^ /a -> shop/one:80 as /x
^ /r -> 308 same://same:same/
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
    let options = forward.options.expect("options");
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
        let rate = policy.rate.as_ref().expect("a rate");
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
fn unsupported_fields_fail_closed() {
    for (field, name) in [
        ("authPolicy: {disabled: true}", "authPolicy"),
        (
            "jwtVerificationPolicy: {disabled: true}",
            "jwtVerificationPolicy",
        ),
        (
            "rateLimitPolicy: {global: {disabled: true}}",
            "rateLimitPolicy.global",
        ),
        (
            "cookieRewritePolicies: [{name: a, secure: true}]",
            "cookieRewritePolicies",
        ),
    ] {
        let status = refused(&format!("services: [{{name: one, port: 80}}], {field}"));
        assert!(
            status.contains(&format!("spec.routes[0].{name}: is not supported yet")),
            "{status}"
        );
    }
    refused("services: [{name: one, port: 80, cookieRewritePolicies: [{name: a, secure: true}]}]");
    for (field, name) in [
        ("authorization: {}", "authorization"),
        (
            "jwtProviders: [{name: a, localJWKS: {secretName: b, key: c}}]",
            "jwtProviders",
        ),
        (
            "rateLimitPolicy: {local: {requests: 1, unit: second}}",
            "rateLimitPolicy",
        ),
        (
            "tls: {clientValidation: {caSecret: a}}",
            "tls.clientValidation",
        ),
        (
            "tls: {enableFallbackCertificate: true}",
            "tls.enableFallbackCertificate",
        ),
    ] {
        let world = World::with(&[(
            "a",
            &format!(
                "{{virtualhost: {{fqdn: a.com, {field}}}, routes: [{{services: [{{name: one, port: 80}}], permitInsecure: true}}]}}"
            ),
        )]);
        assert_eq!(world.routes(80, "a.com"), "/ / -> 503\n", "{field}");
        let status = world.status("a");
        assert!(
            status.contains(&format!("spec.virtualhost.{name}: is not supported yet")),
            "{status}"
        );
    }
}
