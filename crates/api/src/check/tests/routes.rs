//! The route kinds.

use serde_json::{Value, json};

use super::{accepted, many, refused};

pub(super) const HTTP: &str = "HTTPRoute";

/// Asserts that an HTTPRoute whose first rule has `value` at `pointer` is rejected, with an error at `path`.
pub(super) fn rule(pointer: &str, value: Value, path: &str, message: &str) {
    let pointer = format!("/spec/rules/0/{pointer}");
    refused(
        HTTP,
        &[(&pointer, value)],
        &format!("spec.rules[0].{path}"),
        message,
    );
}

#[test]
fn invalid_parents_are_rejected() {
    let parent = |n: usize| json!({"name": format!("g{n}")});
    for kind in [HTTP, "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"] {
        let refs = "/spec/parentRefs";
        accepted(kind, &[(refs, many(32, parent))]);
        refused(
            kind,
            &[(refs, many(33, parent))],
            "spec.parentRefs",
            "at most 32",
        );
        refused(
            kind,
            &[(refs, json!([{"name": ""}]))],
            "spec.parentRefs[0].name",
            "empty",
        );
        let section = |name: &str| json!({"name": "g", "sectionName": name});
        accepted(kind, &[(refs, json!([section("a"), section("b")]))]);
        for (first, second) in [
            (section("a"), section("a")),
            (section("a"), json!({"name": "g"})),
            (section("a"), json!({"name": "g", "port": 1})),
            (
                json!({"name": "g", "port": 1}),
                json!({"name": "g", "port": 1}),
            ),
        ] {
            let both = json!([first, second]);
            refused(
                kind,
                &[(refs, both)],
                "spec.parentRefs[1]",
                "sectionName or port",
            );
        }
        let apart =
            json!([{"name": "g"}, {"name": "g", "namespace": "n"}, {"name": "g", "kind": "X"}]);
        accepted(kind, &[(refs, apart)]);
        let port = json!([{"name": "g", "port": 0}]);
        refused(kind, &[(refs, port)], "spec.parentRefs[0].port", "from 1");
    }
}

#[test]
fn invalid_hostnames_and_rules_are_rejected() {
    let host = |n: usize| json!(format!("h{n}.example.com"));
    for (kind, max) in [(HTTP, 16), ("GRPCRoute", 16), ("TLSRoute", 1024)] {
        accepted(kind, &[("/spec/hostnames", many(max, host))]);
        let message = format!("at most {max}");
        refused(
            kind,
            &[("/spec/hostnames", many(max + 1, host))],
            "spec.hostnames",
            &message,
        );
        refused(
            kind,
            &[("/spec/hostnames/0", json!("a_b"))],
            "spec.hostnames[0]",
            "hostname",
        );
    }
    refused(
        "TLSRoute",
        &[("/spec/hostnames", json!([]))],
        "spec.hostnames",
        "at least one",
    );
    refused(
        "TLSRoute",
        &[("/spec/hostnames/0", json!("1.2.3.4"))],
        "spec.hostnames[0]",
        "IP",
    );

    refused(
        HTTP,
        &[("/spec/rules", json!([]))],
        "spec.rules",
        "at least one",
    );
    accepted("GRPCRoute", &[("/spec/rules", json!([]))]);
    for kind in [HTTP, "GRPCRoute"] {
        accepted(kind, &[("/spec/rules", many(16, |_| json!({})))]);
        refused(
            kind,
            &[("/spec/rules", many(17, |_| json!({})))],
            "spec.rules",
            "at most 16",
        );
        let names = json!([{"name": "a"}, {}, {}, {"name": "a"}]);
        refused(
            kind,
            &[("/spec/rules", names)],
            "spec.rules[3]",
            "same name",
        );
        let matches = |count| json!({"matches": many(count, |_| json!({}))});
        accepted(kind, &[("/spec/rules", json!([matches(64), matches(64)]))]);
        let rules = json!([matches(65)]);
        refused(
            kind,
            &[("/spec/rules", rules)],
            "spec.rules[0].matches",
            "at most 64",
        );
        let rules = json!([matches(64), matches(64), matches(1)]);
        refused(kind, &[("/spec/rules", rules)], "spec.rules", "at most 128");
    }
    for kind in ["TLSRoute", "TCPRoute", "UDPRoute"] {
        let one = json!({"backendRefs": [{"name": "s", "port": 1}]});
        refused(
            kind,
            &[("/spec/rules", json!([]))],
            "spec.rules",
            "at least one",
        );
        refused(
            kind,
            &[("/spec/rules", json!([one, one]))],
            "spec.rules",
            "at most 1",
        );
        let none = json!([{}]);
        refused(
            kind,
            &[("/spec/rules", none)],
            "spec.rules[0].backendRefs",
            "at least one",
        );
    }
}

#[test]
fn invalid_backends_are_rejected() {
    for kind in [HTTP, "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"] {
        let refs = "/spec/rules/0/backendRefs";
        let path = "spec.rules[0].backendRefs";
        let backend = |n: usize| json!({"name": format!("s{n}"), "port": 1});
        accepted(kind, &[(refs, many(16, backend))]);
        refused(kind, &[(refs, many(17, backend))], path, "at most 16");
        for (backend, field, message) in [
            (json!({"name": "s"}), "port", "required for a Service"),
            (json!({"name": "s", "port": 0}), "port", "from 1"),
            (
                json!({"name": "s", "port": 1, "weight": 1_000_001}),
                "weight",
                "0 to 1000000",
            ),
            (
                json!({"name": "s", "port": 1, "namespace": "A"}),
                "namespace",
                "a-z",
            ),
            (
                json!({"name": "s", "port": 1, "group": "gateway.networking.x-k8s.io", "kind": "XBackend"}),
                "port",
                "XBackend",
            ),
        ] {
            refused(
                kind,
                &[(refs, json!([backend]))],
                &format!("{path}[0].{field}"),
                message,
            );
        }
        accepted(
            kind,
            &[(refs, json!([{"name": "s", "group": "a.b", "kind": "C"}]))],
        );
    }
}

#[test]
fn invalid_http_matches_are_rejected() {
    let path = |t: &str, value: &str| json!({"type": t, "value": value});
    rule(
        "matches/0/path",
        path("Exact", "a"),
        "matches[0].path.value",
        "start with /",
    );
    rule(
        "matches/0/path",
        path("PathPrefix", "/a//b"),
        "matches[0].path.value",
        "contain //",
    );
    let long = format!("/{}", "a".repeat(1024));
    rule(
        "matches/0/path",
        path("Exact", &long),
        "matches[0].path.value",
        "at most 1024",
    );
    let regex = path("RegularExpression", "a//b");
    accepted(HTTP, &[("/spec/rules/4/matches/0/path", regex)]);
    for (field, max_value) in [("headers", 4096), ("queryParams", 1024)] {
        let pointer = format!("matches/0/{field}");
        let entry = |name: &str, value: &str| json!({"name": name, "value": value});
        let path = format!("matches[0].{field}");
        let entries = many(17, |n| entry(&format!("n{n}"), "v"));
        rule(&pointer, entries, &path, "at most 16");
        let twice = json!([entry("a", "1"), entry("a", "2")]);
        rule(&pointer, twice, &format!("{path}[1]"), "same name");
        rule(
            &pointer,
            json!([entry("a b", "1")]),
            &format!("{path}[0].name"),
            "letters",
        );
        rule(
            &pointer,
            json!([entry("a", "")]),
            &format!("{path}[0].value"),
            "empty",
        );
        let long = json!([entry("a", &"v".repeat(max_value + 1))]);
        rule(&pointer, long, &format!("{path}[0].value"), "at most");
    }
}

#[test]
fn invalid_timeouts_retries_and_sessions_are_rejected() {
    let times =
        |request: &str, backend: &str| json!({"request": request, "backendRequest": backend});
    rule(
        "timeouts",
        times("1s", "1001ms"),
        "timeouts.backendRequest",
        "longer",
    );
    for good in [
        times("1s", "1s"),
        times("0s", "1h"),
        times("0h0m", "1s"),
        json!({}),
    ] {
        accepted(HTTP, &[("/spec/rules/0/timeouts", good)]);
    }
    rule(
        "retry",
        json!({"codes": [399]}),
        "retry.codes[0]",
        "400 to 599",
    );
    rule(
        "retry",
        json!({"codes": [500, 600]}),
        "retry.codes[1]",
        "400 to 599",
    );
    rule(
        "retry",
        json!({"codes": [500, 500]}),
        "retry.codes[1]",
        "duplicate",
    );
    rule(
        "retry",
        json!({"attempts": -1}),
        "retry.attempts",
        "whole number",
    );
    accepted(
        HTTP,
        &[(
            "/spec/rules/0/retry",
            json!({"codes": many(200, |n| json!(400 + n))}),
        )],
    );

    for (session, field, message) in [
        (json!({}), "cookie", "type Cookie"),
        (
            json!({"type": "Cookie", "cookie": {}, "header": {"name": "a"}}),
            "header",
            "type Header",
        ),
        (json!({"type": "Header"}), "header", "type Header"),
        (
            json!({"type": "Header", "header": {"name": "a b"}}),
            "header.name",
            "letters",
        ),
        (json!({"cookie": {"name": "a b"}}), "cookie.name", "letters"),
        (
            json!({"cookie": {"lifetimeType": "Permanent"}}),
            "absoluteTimeout",
            "permanent",
        ),
    ] {
        let path = format!("sessionPersistence.{field}");
        rule("sessionPersistence", session.clone(), &path, message);
        let pointer = "/spec/rules/0/sessionPersistence";
        let path = format!("spec.rules[0].{path}");
        refused("GRPCRoute", &[(pointer, session)], &path, message);
    }
    accepted(
        HTTP,
        &[("/spec/rules/0/sessionPersistence", json!({"cookie": {}}))],
    );
}

#[test]
fn invalid_grpc_rules_are_rejected() {
    let kind = "GRPCRoute";
    let method = "/spec/rules/0/matches/0/method";
    let path = "spec.rules[0].matches[0].method";
    refused(kind, &[(method, json!({}))], path, "service or method");
    for bad in ["", "a b", "a..b", "1a", "a/b", "a.", "..a"] {
        let service = json!({"service": bad});
        refused(
            kind,
            &[(method, service)],
            &format!("{path}.service"),
            "package.Service",
        );
    }
    for bad in ["", "a.b", "a-b", "1a"] {
        refused(
            kind,
            &[(method, json!({"method": bad}))],
            &format!("{path}.method"),
            "GetFeature",
        );
    }
    for good in [
        json!({"service": ".a.B_1"}),
        json!({"method": "_x"}),
        json!({"type": "RegularExpression", "method": "a|b"}),
    ] {
        accepted(kind, &[(method, good)]);
    }
    for (filter, field, body) in [
        ("RequestRedirect", "requestRedirect", json!({})),
        ("URLRewrite", "urlRewrite", json!({})),
        ("CORS", "cors", json!({})),
    ] {
        let filter = json!([{"type": filter, field: body}]);
        for (pointer, path) in [
            ("filters", "filters"),
            ("backendRefs/0/filters", "backendRefs[0].filters"),
        ] {
            let pointer = format!("/spec/rules/0/{pointer}");
            let path = format!("spec.rules[0].{path}[0].type");
            refused(
                kind,
                &[(&pointer, filter.clone())],
                &path,
                "not supported in a GRPCRoute",
            );
        }
    }
}
