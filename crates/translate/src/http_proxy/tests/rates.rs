//! Rate limits.

use std::time::Duration;

use sesame_model::{GlobalRate, RateEntry};

use super::super::testing::World;
use super::hosts::secret;
use crate::settings::{IngressSettings, RateLimitSettings};

#[test]
fn the_rate_of_a_host_applies_to_routes_without_their_own() {
    let mut world = World::new();
    world.put_value(secret("shop"));
    let limit = "rateLimitPolicy: {local: {requests: 5, unit: minute, burst: 2}}";
    let own = "rateLimitPolicy: {local: {requests: 9, unit: hour}}";
    let routes = format!(
        "
        - conditions: [{{prefix: /aaaaa}}]
          services: [{{name: one, port: 80}}]
          {own}
        - conditions: [{{prefix: /aaaa}}]
          directResponsePolicy: {{statusCode: 200}}
        - conditions: [{{prefix: /aaa}}]
          requestRedirectPolicy: {{path: /b}}
          ipDenyPolicy: [{{source: Peer, cidr: 10.0.0.0/8}}]
        - conditions: [{{prefix: /aa}}]
        "
    );
    let spec = |tls: &str, routes: &str| {
        format!("virtualhost: {{fqdn: a.com, {limit}{tls}}}\nroutes: {routes}")
    };
    world.proxy("a", &spec("", &routes));
    assert_eq!(world.rates(80, "a.com"), "7: 9, host, host, host");
    let tls = ", tls: {secretName: cert}";
    world.proxy("a", &spec(tls, &routes));
    assert_eq!(world.rates(443, "a.com"), "7: 9, host, host, host");
    assert_eq!(world.rates(80, "a.com"), "none: none, none, none, none");
    let insecure = routes.replace(
        "statusCode: 200}",
        "statusCode: 200}\n          permitInsecure: true",
    );
    world.proxy("a", &spec(tls, &insecure));
    assert_eq!(world.rates(80, "a.com"), "7: none, host, none, none");
    let all_own = format!("[{{services: [{{name: one, port: 80}}], {own}}}]");
    world.proxy("a", &spec("", &all_own));
    assert_eq!(world.status("a"), "valid\n");
    assert_eq!(world.rates(80, "a.com"), "none: 9");
}

#[test]
fn included_routes_share_the_rate_of_the_root() {
    let world = World::with(&[
        (
            "a",
            "
            virtualhost: {fqdn: a.com, rateLimitPolicy: {local: {requests: 5, unit: second}}}
            includes: [{name: child, conditions: [{prefix: /child}]}, {name: missing, conditions: [{prefix: /missing}]}]
            ",
        ),
        ("child", "routes: [{services: [{name: one, port: 80}]}]"),
    ]);
    assert_eq!(
        world.routes(80, "a.com"),
        "^ /missing -> 502\n^ /child -> shop/one:80\n"
    );
    assert_eq!(world.rates(80, "a.com"), "5: host, host");
}

#[test]
fn an_invalid_rate_of_a_host_refuses_its_requests() {
    let spec = |limit: &str| {
        format!(
            "virtualhost: {{fqdn: a.com, rateLimitPolicy: {{local: {{{limit}}}}}}}\n\
             routes: [{{services: [{{name: one, port: 80}}]}}]"
        )
    };
    let world = World::with(&[("a", &spec("requests: 0, unit: second"))]);
    assert_eq!(world.routes(80, "a.com"), "/ / -> 503\n");
    assert_eq!(world.rates(80, "a.com"), "none: none");
    assert_eq!(
        world.status("a"),
        "invalid\nerror VirtualHostError InvalidRateLimitPolicy: \
         spec.virtualhost.rateLimitPolicy.local.requests: expected at least 1\n"
    );
}

#[test]
fn forwarded_connections_have_no_rate() {
    let world = World::with(&[(
        "a",
        "
        virtualhost: {fqdn: a.com, tls: {passthrough: true}, rateLimitPolicy: {local: {requests: 5, unit: second}}}
        tcpproxy: {services: [{name: one, port: 443}]}
        routes: [{services: [{name: one, port: 80}], permitInsecure: true}]
        ",
    )]);
    assert_eq!(
        world.status("a"),
        "valid\nwarning VirtualHostError InvalidRateLimitPolicy: spec.virtualhost.rateLimitPolicy: limits only \
         requests, not forwarded connections; remove either it or spec.tcpproxy\n"
    );
    assert_eq!(world.rates(80, "a.com"), "5: host");
}

/// Creates a translation whose rate limit service is the ExtensionService `limits`; it has this spec, or doesn't exist.
fn limited(extension: Option<&str>, fail_open: bool) -> World {
    let mut world = World::new();
    world.set(IngressSettings {
        rate_limits: Some(RateLimitSettings {
            service: sesame_api::NamespacedName::new("shop", "limits"),
            domain: "edge".into(),
            fail_open,
            headers: false,
            resource_exhausted: true,
            default: None,
        }),
        ..IngressSettings::default()
    });
    if let Some(spec) = extension {
        world.put(&format!(
            "{{apiVersion: projectsesame.io/v1alpha1, kind: ExtensionService, metadata: {{name: limits, namespace: shop}}, \
             spec: {{services: [{{name: two, port: 80}}], {spec}}}}}"
        ));
    }
    world
}

/// A host with global limits and two routes, the second of which disables the limits.
const GLOBAL: &str = "
    virtualhost: {fqdn: a.com, rateLimitPolicy: {global: {descriptors: [{entries: [{genericKey: {value: host}}]}]}}}
    routes:
    - services: [{name: one, port: 80}]
    - conditions: [{prefix: /open}]
      services: [{name: one, port: 80}]
      rateLimitPolicy: {global: {disabled: true}}
    ";

/// The global limits of the only route.
#[track_caller]
fn global(host: &str, route: &str) -> Option<GlobalRate> {
    let mut world = limited(Some("protocol: h2c"), false);
    world.proxy(
        "a",
        &format!(
            "virtualhost: {{fqdn: a.com, rateLimitPolicy: {{global: {{{host}}}}}}}\n\
             routes: [{{services: [{{name: one, port: 80}}], rateLimitPolicy: {{global: {{{route}}}}}}}]"
        ),
    );
    assert_eq!(world.status("a"), "valid\n");
    let policy = world.first("a.com").policy?;
    policy.global_rate.as_deref().cloned()
}

#[test]
fn global_limits_of_a_route_replace_those_of_its_host() {
    let fixed =
        |value: &str| format!("descriptors: [{{entries: [{{genericKey: {{value: {value}}}}}]}}]");
    let (host, route) = (fixed("host"), fixed("route"));
    let values = |host: &str, route: &str| {
        let rate = global(host, route)?;
        let entries = rate.descriptors.iter().map(|entries| match &entries[..] {
            [RateEntry::Fixed { key, value }] if key == "generic_key" => value.clone(),
            other => panic!("{other:?}"),
        });
        Some(entries.collect::<Vec<_>>().join(", "))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(values(&host, &route), some("route"));
    assert_eq!(values(&host, ""), some("host"));
    assert_eq!(values("", &route), some("route"));
    let only = format!("disabled: true, {route}");
    assert_eq!(values(&host, &only), some("route"));
    assert_eq!(values(&host, "disabled: true"), None);
    assert_eq!(values(&format!("disabled: true, {host}"), ""), some("host"));
    assert_eq!(values("", ""), None);
}

#[test]
fn the_rate_limit_service_is_that_of_the_settings() {
    let mut world = limited(Some("protocol: h2c"), true);
    world.proxy("a", GLOBAL);
    let policy = world.first("a.com").policy;
    assert_eq!(policy, None, "the route that disables them is the first");
    let clusters = world.clusters();
    assert!(
        clusters.iter().any(|key| key.contains("limits")),
        "{clusters:?}"
    );
    let rate = global("", "descriptors: [{entries: [{remoteAddress: {}}]}]").expect("limits");
    let service = rate.service;
    assert_eq!(
        (&*service.domain, service.timeout),
        ("edge", Duration::from_secs(1))
    );
    assert!(service.resource_exhausted && !service.headers && !service.fail_open);
    assert_eq!(*rate.descriptors[0], [RateEntry::ClientAddress]);
}

#[test]
fn without_a_usable_service_limited_requests_are_refused_unless_they_may_pass() {
    let refused = "^ /open -> shop/one:80\n/ / -> 503\n";
    let served = "^ /open -> shop/one:80\n/ / -> shop/one:80\n";
    let mut world = World::with(&[("a", GLOBAL)]);
    assert_eq!(world.routes(80, "a.com"), refused);
    assert_eq!(
        world.status("a"),
        "invalid\nerror VirtualHostError RateLimitServiceNotUsable: spec.virtualhost.rateLimitPolicy.global: Sesame has no rate \
         limit service; set rateLimitService in its configuration or start it with --rate-limit-service, or remove the field\n"
    );
    for (extension, message) in [
        (None, "ExtensionService shop/limits does not exist"),
        (
            Some("protocol: http/1.1"),
            "ExtensionService shop/limits has protocol http/1.1, but a rate limit service needs h2 or h2c",
        ),
    ] {
        world = limited(extension, false);
        world.proxy("a", GLOBAL);
        assert_eq!(world.routes(80, "a.com"), refused);
        let about =
            "VirtualHostError RateLimitServiceNotUsable: spec.virtualhost.rateLimitPolicy.global";
        assert_eq!(
            world.status("a"),
            format!("invalid\nerror {about}: {message}\n")
        );
        world = limited(extension, true);
        world.proxy("a", GLOBAL);
        assert_eq!(world.routes(80, "a.com"), served);
        assert_eq!(
            world.status("a"),
            format!("valid\nwarning {about}: {message}; requests aren't rate limited\n")
        );
    }
    // The root's limits apply to included routes too.
    let mut world = limited(None, false);
    world.proxy("child", "routes: [{services: [{name: one, port: 80}]}]");
    let root = GLOBAL.split("routes:").next().expect("a host");
    world.proxy("a", &format!("{root}includes: [{{name: child}}]"));
    assert_eq!(world.routes(80, "a.com"), "/ / -> 503\n");
    assert_eq!(world.status("child"), "valid\n");
}

#[test]
fn invalid_descriptors_are_errors() {
    for (entry, message) in [
        (
            "{genericKey: {value: ''}}",
            "genericKey.value: must not be empty",
        ),
        (
            "{requestHeader: {headerName: 'a b', descriptorKey: a}}",
            "requestHeader.headerName: \"a b\" is not a valid header name",
        ),
        (
            "{requestHeader: {headerName: a, descriptorKey: ''}}",
            "requestHeader.descriptorKey: must not be empty",
        ),
        (
            "{requestHeaderValueMatch: {headers: [], value: a}}",
            "requestHeaderValueMatch.headers: expected at least 1 condition",
        ),
        (
            "{requestHeaderValueMatch: {headers: [{name: a}], value: a}}",
            "requestHeaderValueMatch.headers[0]: ",
        ),
        (
            "{requestHeaderValueMatch: {headers: [{name: a, regex: '.*a.{20}'}], value: a}}",
            "requestHeaderValueMatch.headers[0]: the regular expression .*a.{20} needs too many states",
        ),
        (
            "{remoteAddress: {}, genericKey: {value: a}}",
            "exactly one of genericKey, requestHeader, requestHeaderValueMatch and remoteAddress is required",
        ),
    ] {
        let global =
            format!("global: {{descriptors: [{{entries: [{{remoteAddress: {{}}}}, {entry}]}}]}}");
        let mut world = limited(Some("protocol: h2c"), true);
        let service = "services: [{name: one, port: 80}]";
        world.proxy(
            "a",
            &format!("virtualhost: {{fqdn: a.com}}\nroutes: [{{{service}, rateLimitPolicy: {{{global}}}}}]"),
        );
        assert_eq!(world.routes(80, "a.com"), "/ / -> 503\n", "{entry}");
        let status = world.status("a");
        let error = format!(
            "error RouteError InvalidRateLimitPolicy: spec.routes[0].rateLimitPolicy.global.descriptors[0].entries[1]: {message}"
        );
        assert!(status.contains(&error), "{status}");
    }
    let long = format!(
        "{{entries: [{{genericKey: {{value: {}}}}}]}}",
        "a".repeat(4_096)
    );
    let of_header = "{requestHeader: {headerName: a, descriptorKey: b}}, ".repeat(9);
    let repeated = format!("{{entries: [{of_header}]}}");
    for descriptor in ["{entries: []}", &long, &repeated] {
        let mut world = limited(Some("protocol: h2c"), true);
        world.proxy(
            "a",
            &GLOBAL.replace(
                "[{entries: [{genericKey: {value: host}}]}]",
                &format!("[{descriptor}]"),
            ),
        );
        assert_eq!(
            world.routes(80, "a.com"),
            "^ /open -> shop/one:80\n/ / -> 503\n"
        );
        let status = world.status("a");
        assert!(
            status.contains("spec.virtualhost.rateLimitPolicy.global.descriptors"),
            "{status}"
        );
    }
}

#[test]
fn only_forwarded_requests_have_global_limits() {
    let mut world = limited(None, false);
    world.proxy(
        "a",
        "
        virtualhost: {fqdn: a.com, rateLimitPolicy: {global: {descriptors: [{entries: [{remoteAddress: {}}]}]}}}
        routes:
        - conditions: [{prefix: /redirect}]
          requestRedirectPolicy: {path: /a}
        - directResponsePolicy: {statusCode: 200}
          rateLimitPolicy: {global: {descriptors: [{entries: [{remoteAddress: {}}]}]}}
        ",
    );
    assert_eq!(world.first("a.com").policy, None);
    assert_eq!(
        world.routes(80, "a.com"),
        "^ /redirect -> 302 same://same:same=/a\n/ / -> 200\n"
    );
    let status = world.status("a");
    assert!(
        status.contains(
            "warning RouteError InvalidRateLimitPolicy: spec.routes[1].rateLimitPolicy.global: has no effect, since only \
             forwarded requests are limited; remove it"
        ),
        "{status}"
    );
}
