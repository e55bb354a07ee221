//! HTTPProxies of Contour's group, whose CRD doesn't bound lists.

use serde_json::{Value, json};
use sesame_api::Object;

use super::{NAME, list, object};

fn refused_field(spec: Value) -> String {
    let proxy = object("projectcontour.io/v1", "HTTPProxy", NAME, spec);
    match Object::decode_admitted(proxy) {
        Err(error) => error.path_text(),
        Ok(_) => "none".to_owned(),
    }
}

/// Checks that lists with more entries than those of Sesame's group are refused.
pub(crate) fn lists_are_bounded() {
    let empty = |_| json!({});
    let prefix = |_| json!({"prefix": "/a"});
    let cookies = list(500, |_| json!({"name": "c", "secure": true}));
    let service = |_| json!({"name": "s", "port": 80});
    let with_cookies = |_| json!({"name": "s", "port": 80, "cookieRewritePolicies": cookies});
    let cases = [
        ("spec.routes", json!({"routes": list(50_000, empty)})),
        (
            "spec.routes[0].conditions",
            json!({"routes": [{"conditions": list(5_000, prefix)}]}),
        ),
        (
            "spec.includes",
            json!({"includes": list(5_000, |_| json!({"name": "child"}))}),
        ),
        (
            "spec.routes[0].services",
            json!({"routes": [{"services": list(2_000, service)}]}),
        ),
        (
            "spec.routes",
            json!({"routes": list(129, |_| json!({"services": list(32, service)}))}),
        ),
        (
            "spec.routes[0].services[0].cookieRewritePolicies",
            json!({"routes": [{"services": list(10, with_cookies)}]}),
        ),
        (
            "spec",
            json!({"routes": [{"conditions": [{"prefix": format!("/{}", "a".repeat(400_000))}]}]}),
        ),
    ];
    for (field, spec) in cases {
        assert_eq!(refused_field(spec), field);
    }
}
