use serde_json::json;

use super::{accepted, many, refused};

#[test]
fn texts_and_lists_of_http_proxies_are_bounded() {
    let long = "a".repeat(4_097);
    let route = |fields: serde_json::Value| {
        let mut route = json!({"services": [{"name": "a", "port": 80}]});
        for (name, value) in fields.as_object().unwrap() {
            route[name] = value.clone();
        }
        [("/spec/routes", json!([route]))]
    };
    for (condition, field) in [
        (json!({"prefix": format!("/{long}")}), "prefix"),
        (json!({"exact": format!("/{long}")}), "exact"),
        (json!({"regex": long}), "regex"),
        (
            json!({"header": {"name": "x", "notcontains": long}}),
            "header.notcontains",
        ),
        (
            json!({"header": {"name": "x", "regex": long}}),
            "header.regex",
        ),
        (
            json!({"queryParameter": {"name": "x", "suffix": long}}),
            "queryParameter.suffix",
        ),
    ] {
        let path = format!("spec.routes[0].conditions[0].{field}");
        refused(
            "HTTPProxy",
            &route(json!({"conditions": [condition]})),
            &path,
            "4096",
        );
    }
    let set =
        |value: &str| json!({"requestHeadersPolicy": {"set": [{"name": "a", "value": value}]}});
    let path = "spec.routes[0].requestHeadersPolicy.set[0].value";
    refused("HTTPProxy", &route(set(&long)), path, "4096");
    accepted("HTTPProxy", &route(set(&long[1..])));
    let limit = |count| {
        let headers = many(count, |n| json!({"name": format!("x-{n}"), "value": "a"}));
        json!({"rateLimitPolicy": {"local": {"requests": 1, "unit": "second", "responseHeadersToAdd": headers}}})
    };
    let path = "spec.routes[0].rateLimitPolicy.local.responseHeadersToAdd";
    refused("HTTPProxy", &route(limit(11)), path, "10");
    accepted("HTTPProxy", &route(limit(10)));
}
