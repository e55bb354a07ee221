//! External authorization, and ExtensionServices.

use sesame_model::{AuthProtocol, ExternalAuth, TextPosition};

use super::super::testing::World;

/// An ExtensionService in namespace `shop`.
fn extension(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: projectsesame.io/v1alpha1, kind: ExtensionService, metadata: {{name: {name}, namespace: shop}}, \
         spec: {{{spec}}}}}"
    )
}

/// An HTTPProxy spec whose host has these authorization fields and routes.
fn host(authorization: &str, routes: &str) -> String {
    format!(
        "{{virtualhost: {{fqdn: a.com, authorization: {{{authorization}}}}}, routes: [{routes}]}}"
    )
}

const ROUTE: &str = "{services: [{name: one, port: 80}]}";
const GRPC: &str = "extensionRef: {name: grpc}";
const HTTP: &str = "extensionRef: {name: http}, serviceType: http";

/// Creates a translation with the ExtensionServices `grpc` and `http`.
fn world() -> World {
    let mut world = World::new();
    let service = "services: [{name: two, port: 80}]";
    world.put(&extension("grpc", &format!("{service}, protocol: h2c")));
    world.put(&extension(
        "http",
        &format!("{service}, protocol: http/1.1, timeoutPolicy: {{response: 9s}}"),
    ));
    world
}

/// The check of the only route, which must be valid.
#[track_caller]
fn check(authorization: &str, route: &str) -> Option<ExternalAuth> {
    let mut world = world();
    world.proxy(
        "a",
        &host(
            authorization,
            &ROUTE.replace("}]}", &format!("}}]{route}}}")),
        ),
    );
    assert_eq!(world.status("a"), "valid\n");
    world
        .first("a.com")
        .auth
        .map(|auth| ExternalAuth::clone(&auth))
}

/// The errors of a host whose requests get 503.
#[track_caller]
fn refused(authorization: &str) -> String {
    let mut world = world();
    world.proxy("a", &host(authorization, ROUTE));
    assert_eq!(world.routes(80, "a.com"), "/ / -> 503\n", "{authorization}");
    world.status("a")
}

#[test]
fn the_fields_of_a_check_are_read() {
    let auth = check(GRPC, "").expect("a check");
    assert_eq!(auth.cluster.to_string(), "extension:shop/grpc?protocol=h2");
    assert_eq!(
        (auth.timeout.as_secs(), auth.fail_open, auth.body),
        (5, false, None)
    );
    let auth = check(&format!("{HTTP}, failOpen: true"), "").expect("a check");
    assert_eq!(
        auth.cluster.to_string(),
        "extension:shop/http?protocol=http1"
    );
    assert_eq!((auth.timeout.as_secs(), auth.fail_open), (9, true));
    let none = check(&format!("{HTTP}, responseTimeout: infinity"), "").expect("a check");
    assert!(none.timeout.is_zero());
    let body = "withRequestBody: {allowPartialMessage: true, packAsBytes: true}";
    let body = check(&format!("{GRPC}, {body}"), "")
        .expect("a check")
        .body
        .expect("a body");
    assert_eq!((body.max, body.partial, body.bytes), (1_024, true, true));
    let settings = "httpSettings: {pathPrefix: /x/, allowedAuthorizationHeaders: [{prefix: x-a}], \
         allowedUpstreamHeaders: [{exact: x-a}, {exact: X-Y}, {contains: z}, {exact: authorization}]}";
    let auth = check(&format!("{HTTP}, {settings}"), "").expect("a check");
    assert_eq!(auth.before.remove, ["X-Y"]);
    let AuthProtocol::Http {
        path_prefix,
        request_headers,
        response_headers,
    } = auth.protocol
    else {
        panic!("not HTTP");
    };
    assert_eq!(path_prefix, "/x");
    assert_eq!(request_headers[0].position, TextPosition::Start);
    assert_eq!(response_headers.expect("a list").len(), 4);
}

#[test]
fn routes_disable_the_check_or_add_context() {
    let context = |authorization: &str, route: &str| {
        let auth = check(authorization, route)?;
        let text = match auth.protocol {
            AuthProtocol::GrpcWithContext(context) => format!("{context:?}"),
            AuthProtocol::Grpc { .. } => String::new(),
            AuthProtocol::Http { .. } => "http".to_owned(),
        };
        Some(text)
    };
    let of_host = format!("{GRPC}, authPolicy: {{context: {{a: host, b: host}}}}");
    let off = format!("{GRPC}, authPolicy: {{disabled: true}}");
    for (authorization, route, expected) in [
        (GRPC, "", Some("")),
        (GRPC, ", authPolicy: {disabled: true}", None),
        (
            GRPC,
            ", authPolicy: {context: {a: route}}",
            Some(r#"{"a": "route"}"#),
        ),
        (&of_host, "", Some(r#"{"a": "host", "b": "host"}"#)),
        (
            &of_host,
            ", authPolicy: {context: {a: route}}",
            Some(r#"{"a": "route", "b": "host"}"#),
        ),
        (
            &of_host,
            ", authPolicy: {disabled: true, context: {a: x}}",
            None,
        ),
        (&off, "", None),
        (&off, ", authPolicy: {}", Some("")),
        (HTTP, ", authPolicy: {disabled: true}", None),
    ] {
        let found = context(authorization, route);
        assert_eq!(found.as_deref(), expected, "{authorization} {route}");
    }
}

#[test]
fn a_check_that_cannot_be_made_refuses_the_requests_that_need_it() {
    for (authorization, error) in [
        ("", "extensionRef: is required"),
        (
            "extensionRef: {name: missing}",
            "ExtensionService shop/missing does not exist",
        ),
        (
            "extensionRef: {name: grpc, namespace: other}",
            "ExtensionService other/grpc does not exist",
        ),
        (
            "extensionRef: {name: grpc, apiVersion: v1}",
            "unknown API version",
        ),
        (
            "extensionRef: {name: http}",
            "the grpc service type needs h2 or h2c",
        ),
        (
            &format!("{GRPC}, responseTimeout: soon"),
            "responseTimeout: \"soon\" is not a duration",
        ),
        (
            &format!("{GRPC}, withRequestBody: {{maxRequestBytes: 8388609}}"),
            "from 1 to 8388608",
        ),
        (
            &format!(
                "{GRPC}, withRequestBody: {{maxRequestBytes: 1048577, allowPartialMessage: true}}"
            ),
            "from 1 to 1048576 with allowPartialMessage",
        ),
        (
            &format!("{HTTP}, authPolicy: {{context: {{a: b}}}}"),
            "authPolicy.context: can't be sent",
        ),
        (
            &format!("{HTTP}, httpSettings: {{pathPrefix: /a?b}}"),
            "pathPrefix: a path cannot contain",
        ),
        (
            &format!("{HTTP}, httpSettings: {{allowedUpstreamHeaders: [{{exact: a b}}]}}"),
            "allowedUpstreamHeaders[0]: needs exactly one",
        ),
        (
            &format!(
                "{HTTP}, httpSettings: {{allowedAuthorizationHeaders: [{}]}}",
                "{contains: a}, ".repeat(17)
            ),
            "allowedAuthorizationHeaders: has more than 16 entries with contains",
        ),
        (
            &format!(
                "{GRPC}, authPolicy: {{context: {{a: {}}}}}",
                "x".repeat(4_096)
            ),
            "total 4097 bytes",
        ),
    ] {
        let status = refused(authorization);
        assert!(
            status.contains("error AuthError") && status.contains(error),
            "{status}"
        );
    }
    let mut world = world();
    let routes = format!(
        "{ROUTE}, {{conditions: [{{prefix: /open}}], services: [{{name: one, port: 80}}], authPolicy: {{disabled: true}}}}"
    );
    world.proxy("a", &host("extensionRef: {name: late}", &routes));
    assert_eq!(
        world.routes(80, "a.com"),
        "^ /open -> shop/one:80\n/ / -> 503\n"
    );
    world.put(&extension("late", "services: [{name: two, port: 80}]"));
    assert_eq!(
        world.routes(80, "a.com"),
        "^ /open -> shop/one:80\n/ / -> shop/one:80\n"
    );
    assert_eq!(world.status("a"), "valid\n");
    // A route's context in an included HTTPProxy.
    world.proxy(
        "child",
        "{routes: [{services: [{name: one, port: 80}], authPolicy: {context: {a: b}}}]}",
    );
    let include = |auth: &str| {
        host(auth, "").replace(
            "routes: []",
            "includes: [{name: child, conditions: [{prefix: /}]}]",
        )
    };
    world.proxy("a", &include(HTTP));
    assert_eq!(world.routes(80, "a.com"), "/ / -> 503\n");
    let status = world.status("child");
    assert!(
        status.contains("spec.routes[0].authPolicy.context: can't be sent"),
        "{status}"
    );
    world.proxy("a", &include(GRPC));
    assert_eq!(world.routes(80, "a.com"), "/ / -> shop/one:80\n");
}

#[test]
fn forwarded_connections_cannot_be_authorized() {
    let mut world = world();
    let tls = "fqdn: a.com, tls: {passthrough: true}";
    let tcp = "tcpproxy: {services: [{name: one, port: 80}]}";
    let spec = format!("{{virtualhost: {{{tls}, authorization: {{{GRPC}}}}}, {tcp}}}");
    world.proxy("a", &spec);
    let status = world.status("a");
    assert!(
        status.contains(
            "AuthError InvalidAuthorization: spec.virtualhost.authorization: can't be applied"
        ),
        "{status}"
    );
    assert!(world.clusters().is_empty(), "{:?}", world.clusters());
}

#[test]
fn an_extension_service_has_a_cluster_for_all_its_services() {
    let outcome = |spec: &str| {
        let mut world = World::new();
        world.put(&extension("x", spec));
        world.proxy(
            "a",
            &host("extensionRef: {name: x}, serviceType: http", ROUTE),
        );
        let clusters = world.clusters().into_iter();
        let mut clusters = clusters.filter(|cluster| cluster.starts_with("extension:"));
        (clusters.next().unwrap_or_default(), world.extension("x"))
    };
    let one = "services: [{name: one, port: 80}]";
    let valid = "True\n".to_owned();
    for (spec, cluster) in [
        ("", "?protocol=h2&tls=unverified"),
        (", protocol: h2c", "?protocol=h2"),
        (", protocol: http/1.1", "?protocol=http1"),
        (
            ", protocol: h2c, loadBalancerPolicy: {strategy: Random}, timeoutPolicy: {idleConnection: 1m}",
            "?protocol=h2&lb=random&idle=60s",
        ),
        (
            ", protocol: h2c, circuitBreakerPolicy: {maxConnections: 1, maxPendingRequests: 2, maxRequests: 3, maxRetries: 4, \
             perHostMaxConnections: 5}",
            "?protocol=h2&limits=1,2,3,4,5",
        ),
        (
            ", protocol: h2c, circuitBreakerPolicy: {maxRetries: 0}",
            "?protocol=h2",
        ),
    ] {
        let found = outcome(&format!("{one}{spec}"));
        assert_eq!(
            found,
            (format!("extension:shop/x{cluster}"), valid.clone()),
            "{spec}"
        );
    }
    for (spec, usable, error) in [
        (
            "services: [{name: missing, port: 80}]",
            false,
            "error ServiceError ServiceNotFound: spec.services[0]: Service shop/missing",
        ),
        (
            "services: [{name: one, port: 80}, {name: one, port: 81}]",
            true,
            "spec.services[1]: Service shop/one has no port 81",
        ),
        (
            &format!("{one}, validation: {{caSecret: ca, subjectName: a.com}}"),
            false,
            "Secret shop/ca",
        ),
        (
            &format!("{one}, validation: {{caSecret: certs/ca, subjectName: a.com}}"),
            false,
            "no TLSCertificateDelegation",
        ),
        (
            &format!("{one}, protocol: h2c, validation: {{caSecret: ca, subjectName: a.com}}"),
            false,
            "can't be applied to protocol h2c",
        ),
        (
            &format!("{one}, timeoutPolicy: {{response: soon}}"),
            false,
            "error SpecError InvalidTimeout",
        ),
        (
            &format!("{one}, timeoutPolicy: {{idle: 1s}}"),
            true,
            "warning SpecError InvalidTimeout: spec.timeoutPolicy.idle",
        ),
        (
            &format!("{one}, loadBalancerPolicy: {{strategy: Cookie}}"),
            true,
            "warning SpecError InvalidLoadBalancerPolicy",
        ),
    ] {
        let (cluster, status) = outcome(spec);
        assert_eq!(!cluster.is_empty(), usable, "{spec}");
        assert!(status.contains(error), "{status}");
    }
}

#[test]
fn the_endpoints_of_an_extension_service_have_weights() {
    let mut world = World::new();
    for name in ["one", "two"] {
        world.put(&format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {name}, namespace: shop, labels: \
             {{kubernetes.io/service-name: {name}}}}}, addressType: IPv4, ports: [{{port: 8080}}], endpoints: \
             [{{addresses: [10.0.0.1]}}]}}"
        ));
    }
    let mut shares = |weights: [u32; 4]| {
        let [one, two, three, again] = weights;
        world.put(&extension(
            "x",
            &format!(
                "services: [{{name: two, port: 80, weight: {two}}}, {{name: one, port: 80, weight: {one}}}, {{name: three, \
                 port: 80, weight: {three}}}, {{name: two, port: 80, weight: {again}}}, {{name: missing, port: 80, weight: 7}}]"
            ),
        ));
        world.shares("x")
    };
    assert_eq!(shares([3, 1, 5, 2]), "shop/one:80*3 shop/two:80*3");
    assert_eq!(shares([0, 1, 0, 0]), "shop/two:80*1");
    assert_eq!(shares([0, 0, 0, 0]), "shop/one:80*1 shop/two:80*1");
    assert_eq!(
        shares([0, 0, 1, 0]),
        "",
        "the only Service with a share has no endpoints"
    );
}
