//! Route filters.

use serde_json::{Value, json};

use super::routes::{HTTP, rule};
use super::{accepted, many, refused};

#[test]
fn incompatible_filters_are_rejected() {
    let headers = json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {}});
    let redirect = json!({"type": "RequestRedirect", "requestRedirect": {}});
    let rewrite = json!({"type": "URLRewrite", "urlRewrite": {}});
    let mirror = json!({"type": "RequestMirror",
        "requestMirror": {"backendRef": {"name": "s", "port": 1}}});
    for (pointer, path) in [
        ("filters", "filters"),
        ("backendRefs/0/filters", "backendRefs[0].filters"),
    ] {
        rule(pointer, many(17, |_| mirror.clone()), path, "at most 16");
        rule(
            pointer,
            json!([headers, mirror, headers]),
            &format!("{path}[2]"),
            "only one filter",
        );
        rule(
            pointer,
            json!([redirect, rewrite]),
            path,
            "cannot be used together",
        );
        accepted(
            HTTP,
            &[(
                &format!("/spec/rules/0/{pointer}"),
                many(16, |_| mirror.clone()),
            )],
        );
    }
    rule(
        "filters",
        json!([redirect]),
        "backendRefs",
        "RequestRedirect",
    );

    let replace = |filter: &str, field: &str| json!([{"type": filter, field: {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}]);
    for matches in [
        json!([]),
        json!([{}, {}]),
        json!([{"path": {"type": "Exact", "value": "/"}}]),
    ] {
        for (filter, field) in [
            ("RequestRedirect", "requestRedirect"),
            ("URLRewrite", "urlRewrite"),
        ] {
            let on_rule = json!({"matches": matches, "filters": replace(filter, field)});
            let backend = json!([{"name": "s", "port": 1, "filters": replace(filter, field)}]);
            let on_backend = json!({"matches": matches, "backendRefs": backend});
            for broken in [on_rule, on_backend] {
                let path = "spec.rules[0].matches";
                refused(
                    HTTP,
                    &[("/spec/rules/0", broken)],
                    path,
                    "exactly one match",
                );
            }
        }
    }
    let default = json!({"filters": replace("URLRewrite", "urlRewrite")});
    accepted(HTTP, &[("/spec/rules/0", default)]);
}

#[test]
fn invalid_filter_bodies_are_rejected() {
    let filter = |filter: &str, field: &str, body: Value, path: &str, message: &str| {
        let value = json!([{"type": filter, field: body}]);
        let path = format!("spec.rules[0].filters[0].{field}{path}");
        let rule = json!({"filters": value});
        refused(HTTP, &[("/spec/rules/0", rule)], &path, message);
    };
    for (kind, field) in [
        ("RequestHeaderModifier", "requestHeaderModifier"),
        ("ResponseHeaderModifier", "responseHeaderModifier"),
    ] {
        let header = |name: &str, value: &str| json!({"name": name, "value": value});
        for list in ["set", "add"] {
            let no = |entries: Value, path: &str, message: &str| {
                filter(
                    kind,
                    field,
                    json!({list: entries}),
                    &format!(".{list}{path}"),
                    message,
                );
            };
            no(
                many(17, |n| header(&format!("n{n}"), "v")),
                "",
                "at most 16",
            );
            no(
                json!([header("a", "1"), header("a", "2")]),
                "[1]",
                "same name",
            );
            no(json!([header(":path", "1")]), "[0].name", "letters");
            no(json!([header("a", "")]), "[0].value", "empty");
        }
        filter(
            kind,
            field,
            json!({"remove": ["a", "a"]}),
            ".remove[1]",
            "duplicate",
        );
        let names = many(17, |n| json!(n.to_string()));
        filter(
            kind,
            field,
            json!({"remove": names}),
            ".remove",
            "at most 16",
        );
    }

    let mirror = |extra: Value, path: &str, message: &str| {
        let mut body = json!({"backendRef": {"name": "s", "port": 1}});
        body.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        filter("RequestMirror", "requestMirror", body, path, message);
    };
    mirror(json!({"percent": 101}), ".percent", "0 to 100");
    mirror(
        json!({"percent": 1, "fraction": {"numerator": 1}}),
        "",
        "only one",
    );
    mirror(
        json!({"fraction": {"numerator": 101}}),
        ".fraction.numerator",
        "not be greater",
    );
    let zero = json!({"fraction": {"numerator": 0, "denominator": 0}});
    mirror(zero, ".fraction.denominator", "at least 1");
    let large = json!({"fraction": {"numerator": 0, "denominator": 1u32 << 31}});
    mirror(
        large,
        ".fraction.denominator",
        "not be greater than 2147483647",
    );
    mirror(
        json!({"backendRef": {"name": "s"}}),
        ".backendRef.port",
        "required",
    );

    let redirect = |body: Value, path: &str, message: &str| {
        filter("RequestRedirect", "requestRedirect", body, path, message);
    };
    redirect(json!({"statusCode": 304}), ".statusCode", "308");
    redirect(json!({"port": 0}), ".port", "from 1");
    redirect(json!({"hostname": "*.a"}), ".hostname", "hostname");
    let long = json!({"path": {"type": "ReplaceFullPath", "replaceFullPath": "a".repeat(1025)}});
    redirect(long.clone(), ".path.replaceFullPath", "at most 1024");
    filter(
        "URLRewrite",
        "urlRewrite",
        long,
        ".path.replaceFullPath",
        "at most 1024",
    );
    filter(
        "URLRewrite",
        "urlRewrite",
        json!({"hostname": ""}),
        ".hostname",
        "hostname",
    );

    let cors = |body: Value, path: &str, message: &str| {
        filter("CORS", "cors", body, path, message);
    };
    cors(
        json!({"allowOrigins": ["*", "https://a"]}),
        ".allowOrigins",
        "the only entry",
    );
    cors(
        json!({"allowOrigins": ["https://a/"]}),
        ".allowOrigins[0]",
        "origin",
    );
    cors(
        json!({"allowOrigins": ["*", "*"]}),
        ".allowOrigins[1]",
        "duplicate",
    );
    cors(
        json!({"allowMethods": ["GET", "*"]}),
        ".allowMethods",
        "the only entry",
    );
    cors(
        json!({"allowMethods": many(10, |n| json!(n.to_string()))}),
        ".allowMethods",
        "at most 9",
    );
    cors(
        json!({"allowHeaders": ["*", "a"]}),
        ".allowHeaders",
        "the only entry",
    );
    cors(
        json!({"allowHeaders": ["a b"]}),
        ".allowHeaders[0]",
        "letters",
    );
    cors(
        json!({"exposeHeaders": [""]}),
        ".exposeHeaders[0]",
        "letters",
    );
    cors(json!({"maxAge": 0}), ".maxAge", "at least 1");

    let auth = |extra: Value, path: &str, message: &str| {
        let mut body = json!({"protocol": "HTTP", "backendRef": {"name": "s", "port": 1}});
        body.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        filter("ExternalAuth", "externalAuth", body, path, message);
    };
    auth(json!({}), ".http", "required with protocol HTTP");
    auth(
        json!({"http": {}, "grpc": {}}),
        ".grpc",
        "required with protocol GRPC",
    );
    auth(
        json!({"protocol": "GRPC"}),
        ".grpc",
        "required with protocol GRPC",
    );
    auth(
        json!({"http": {"path": "/a b"}}),
        ".http.path",
        "expected a path",
    );
    let names = many(65, |n| json!(n.to_string()));
    auth(
        json!({"http": {"allowedHeaders": names}}),
        ".http.allowedHeaders",
        "at most 64",
    );
    auth(
        json!({"backendRef": {"name": "s"}, "http": {}}),
        ".backendRef.port",
        "required",
    );
}
