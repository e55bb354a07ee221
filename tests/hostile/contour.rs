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
    let service = |port| json!({"name": "s", "port": port + 1, "cookieRewritePolicies": cookies});
    let few = |_| json!({"name": "s", "port": 80, "cookieRewritePolicies": cookies});
    let cases = [
        ("spec.routes", json!({"routes": list(100_000, empty)})),
        (
            "spec.routes[0].conditions",
            json!({"routes": [{"conditions": list(24_000, prefix)}]}),
        ),
        (
            "spec.includes",
            json!({"includes": list(60_000, |_| json!({"name": "child"}))}),
        ),
        (
            "spec.routes[0].services",
            json!({"routes": [{"services": list(2_000, service)}]}),
        ),
        (
            "spec.routes[0].services[0].cookieRewritePolicies",
            json!({"routes": [{"services": list(10, few)}]}),
        ),
    ];
    for (field, spec) in cases {
        assert_eq!(refused_field(spec), field);
    }
}
