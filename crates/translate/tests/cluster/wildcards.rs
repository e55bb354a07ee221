//! The limit on large rules for wildcard hosts.

use serde_json::{Value, json};
use sesame_api::{Kind, ObjectStatus};
use sesame_model::{Action, FleetId, Route, RouteTableKey, VirtualHostKey};
use sesame_translate::settings::Mode;

use crate::rig::{Rig, class, fleet, gateway, named, route, said, set};

/// A route of about 360 KiB: 64 matches with 6 headers of 890 bytes. A lower number is older.
fn large(number: usize, hostname: &str) -> Value {
    let matches = (0..64).map(|path| json!({"path": {"value": format!("/{path}")}}));
    let value = "v".repeat(890);
    let headers = (0..6).map(|header| json!({"name": format!("x-{header}"), "value": value}));
    let rule = json!({
        "matches": Vec::from_iter(matches),
        "filters": [
            {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": Vec::from_iter(headers)}},
            {"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}},
        ],
    });
    let large = route(&format!("large-{number}"), &["web"]);
    let large = set(large, "/spec/hostnames", json!([hostname]));
    let large = set(large, "/spec/rules", json!([rule]));
    let created = format!("2026-01-01T00:{number:02}:00Z");
    set(large, "/metadata/creationTimestamp", created.into())
}

/// The number of routes of a host on port 80, and the status that its first route answers with, if any.
fn served(rig: &Rig, fleet: FleetId, domain: &str) -> (usize, Option<u16>) {
    let key = VirtualHostKey {
        table: RouteTableKey { fleet, port: 80 },
        domain: domain.into(),
    };
    let host = rig.engine.get(rig.pipeline.outputs.virtual_hosts, &key);
    let host = host.expect("a virtual host");
    let status = |route: &Route| match route.action {
        Action::Respond(status) => Some(status),
        _ => None,
    };
    (
        host.routes.len(),
        host.routes.first().and_then(|route| status(route)),
    )
}

#[test]
fn large_rules_for_wildcard_hosts_are_served_up_to_a_limit_from_the_oldest() {
    let mut rig = Rig::new(Mode::Managed);
    let host = |number: usize| format!("*.large-{number}.example.com");
    rig.put([class("edge", 0), gateway("web", "edge", 1)]);
    let of_host = |rig: &Rig, number: usize| served(rig, fleet("web"), &host(number));
    let is_complete = |rig: &Rig, number: usize| {
        let conditions = &rig.route(&format!("large-{number}")).parents[0].conditions;
        conditions
            .iter()
            .all(|condition| &*condition.type_ != "PartiallyInvalid")
    };
    rig.put((0..2).map(|number| large(number, &host(number))));
    for number in 0..2 {
        assert_eq!(of_host(&rig, number), (64, None), "{number}");
        assert!(is_complete(&rig, number), "{number}");
    }

    // Hosts without wildcards, and small rules, have no such limit.
    let small = set(
        route("small", &["web"]),
        "/spec/hostnames",
        json!(["*.small.example.com"]),
    );
    rig.put([large(2, &host(2)), large(3, "large.example.com"), small]);
    assert_eq!(of_host(&rig, 2), (1, Some(500)));
    let conditions = &rig.route("large-2").parents[0].conditions;
    assert_eq!(
        said(conditions, "PartiallyInvalid"),
        "PartiallyInvalid/UnsupportedValue"
    );
    let message = conditions.iter().map(|condition| &*condition.message);
    let expected = "KiB on wildcard hosts of port 80, where those of older objects take";
    assert!(
        message.clone().any(|message| message.contains(expected)),
        "{conditions:#?}"
    );
    assert_eq!(served(&rig, fleet("web"), "large.example.com"), (64, None));
    assert_eq!(served(&rig, fleet("web"), "*.small.example.com"), (1, None));
    assert!(is_complete(&rig, 3));

    // A smaller, younger route fits; the large one does once an older one has gone.
    let short = set(
        large(4, &host(4)),
        "/spec/rules/0/filters/0/responseHeaderModifier/set",
        json!([]),
    );
    rig.put([short]);
    assert_eq!(of_host(&rig, 4), (64, None));
    rig.remove(Kind::HTTPRoute, "ns", "large-1");
    assert_eq!(of_host(&rig, 2), (64, None));
    assert!(is_complete(&rig, 2));
}

#[test]
fn ingresses_and_http_proxies_share_the_limit() {
    let mut rig = Rig::new(Mode::Unmanaged { gateway: None });
    let value = "v".repeat(1_000);
    let proxy = |number: usize| {
        let route = |route: usize| {
            json!({
                "conditions": [{"prefix": format!("/{route}")}],
                "directResponsePolicy": {"statusCode": 204},
                "responseHeadersPolicy": {"set": [{"name": "x-a", "value": value}]},
            })
        };
        json!({
            "apiVersion": "projectsesame.io/v1", "kind": "HTTPProxy",
            "metadata": {"name": format!("proxy-{number}"), "namespace": "ns"},
            "spec": {
                "virtualhost": {"fqdn": format!("*.proxy-{number}.example.com")},
                "routes": Vec::from_iter((0..200).map(route)),
            },
        })
    };
    // Few paths for each of many wildcard hosts.
    let path = |path| json!({"path": path, "pathType": "Prefix", "backend": {"service": {"name": "a", "port": {"number": 80}}}});
    let paths = Vec::from_iter(["/", "/a", "/b", "/c"].map(path));
    let rule = |number: usize| json!({"host": format!("*.ingress-{number}.example.com"), "http": {"paths": paths}});
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "ingress", "namespace": "ns"},
        "spec": {"ingressClassName": "sesame", "rules": Vec::from_iter((0..250).map(rule))},
    });
    rig.put((10..50).map(proxy).chain([ingress]));
    let of = |number: usize| {
        let host = format!("*.proxy-{number}.example.com");
        served(&rig, FleetId::Unmanaged, &host)
    };
    // Each takes about 240 KiB.
    let first = (10..50).find(|number| of(*number).0 != 200);
    let first = first.expect("an HTTPProxy above the limit");
    assert!((12..15).contains(&first), "{first}");
    assert_eq!(of(first), (1, Some(503)));
    let name = format!("proxy-{first}");
    let ObjectStatus::HttpProxy(status) = rig.status(Kind::HTTPProxy, &name) else {
        panic!("another kind of status");
    };
    let expected = "KiB on wildcard hosts of port 80";
    let message = format!("{:?}", status.conditions);
    assert!(message.contains(expected), "{message}");
    let key = named("ingress").of_kind(Kind::Ingress);
    let notices = rig.engine.get(rig.pipeline.outputs.notices, &key);
    let message = format!("{notices:?}");
    assert!(message.contains(expected), "{message}");
}

#[test]
fn large_rules_of_a_wildcard_host_are_on_few_hosts_below() {
    let mut rig = Rig::new(Mode::Managed);
    rig.put([class("edge", 0), gateway("web", "edge", 1)]);
    let small = |number: usize, path: &str| {
        let name = format!("small-{number}");
        let of_host = json!([format!("{name}.example.com")]);
        let small = set(route(&name, &["web"]), "/spec/hostnames", of_host);
        set(
            small,
            "/spec/rules/0/matches",
            json!([{"path": {"value": path}}]),
        )
    };
    let of = |rig: &Rig, domain: &str| served(rig, fleet("web"), domain);
    rig.put([large(1, "*.example.com")]);
    rig.put((0..5).map(|number| small(number, "/a")));
    for (domain, routes) in [
        ("*.example.com", 64),
        ("small-0.example.com", 65),
        ("small-4.example.com", 65),
    ] {
        assert_eq!(of(&rig, domain), (routes, None), "{domain}");
    }

    // On the youngest host, requests without a route of their own get errors: they don't go to a wider route.
    rig.put([small(5, "/a")]);
    assert_eq!(of(&rig, "*.example.com"), (64, None));
    assert_eq!(of(&rig, "small-0.example.com"), (65, None));
    assert_eq!(of(&rig, "small-5.example.com"), (2, None));
    let message = said(&rig.route("large-1").parents[0].conditions, "Accepted");
    assert_eq!(message, "Accepted/Accepted");
    let conditions = format!("{:?}", rig.route("large-1").parents[0].conditions);
    assert!(
        conditions.contains("not served on 1 of the 6 hosts below"),
        "{conditions}"
    );

    // A host that takes all its requests has no copy.
    rig.put([small(1, "/")]);
    for (domain, routes) in [("small-1.example.com", 1), ("small-5.example.com", 65)] {
        assert_eq!(of(&rig, domain), (routes, None), "{domain}");
    }
}
