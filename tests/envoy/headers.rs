//! Filters that change headers of requests and answers, on rules and on backends.

use serde_json::Value;
use sesame_testkit::client::{Answer, Ask};

use crate::harness::{Sesame, assert_share, at, backends};

/// All values of a header, joined as the HTTP specification allows it; `-` if it isn't there.
fn joined(values: &Value) -> String {
    let Some(values) = values.as_array() else {
        return "-".to_owned();
    };
    let values: Vec<_> = values.iter().filter_map(Value::as_str).collect();
    values.join(",").replace(", ", ",")
}

const CHANGES: &str = "set: [{name: X-Set, value: new}, {name: x-percent, value: '100%REQ(host)%'}], add: [{name: X-Add, \
                       value: more}], remove: [X-Remove, x-remove-too]";

/// What becomes of headers by these changes: of those that weren't there, and of those that were.
const CHANGED: [(&str, &str, &str); 6] = [
    ("x-set", "new", "new"),
    ("x-percent", "100%REQ(host)%", "100%REQ(host)%"),
    ("x-add", "more", "some,more"),
    ("x-remove", "-", "-"),
    ("x-remove-too", "-", "-"),
    ("x-keep", "-", "kept"),
];

#[tokio::test]
async fn request_headers() {
    let (_backends, services) = backends(&["a"]).await;
    let filter =
        format!("filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{{CHANGES}}}}}]");
    let rules = [
        format!("{filter}, {}", at("/rule", "a")),
        format!(
            "matches: [{{path: {{value: /backend}}}}], backendRefs: [{{name: a, port: 80, {filter}}}]"
        ),
    ];
    let sesame = Sesame::with_rules(&services, &rules).await;
    for path in ["/rule", "/backend"] {
        let bare = sesame
            .ask_well(&Ask::get("a.example.com", path))
            .await
            .json();
        let full = Ask::get("a.example.com", path)
            .header("x-set", "old")
            .header("x-add", "some")
            .header("X-REMOVE", "1")
            .header("x-remove-too", "1")
            .header("x-keep", "kept");
        let full = sesame.ask_well(&full).await.json();
        for (header, without, with) in CHANGED {
            assert_eq!(
                joined(&bare["headers"][header]),
                without,
                "{path}: {header}: {bare}"
            );
            assert_eq!(
                joined(&full["headers"][header]),
                with,
                "{path}: {header}: {full}"
            );
        }
        assert_eq!(bare["host"], "a.example.com", "{path}");
    }
}

#[tokio::test]
async fn response_headers() {
    let (_backends, services) = backends(&["a"]).await;
    let filter = format!("{{type: ResponseHeaderModifier, responseHeaderModifier: {{{CHANGES}}}}}");
    let request = "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-request, value: changed}]}}";
    let rules = [
        format!("filters: [{request}, {filter}], {}", at("/rule", "a")),
        format!(
            "matches: [{{path: {{value: /backend}}}}], backendRefs: [{{name: a, port: 80, filters: [{filter}, {request}]}}]"
        ),
    ];
    let sesame = Sesame::with_rules(&services, &rules).await;
    for path in ["/rule", "/backend"] {
        let bare = sesame.ask_well(&Ask::get("a.example.com", path)).await;
        let full = Ask::get("a.example.com", path)
            .header("x-echo-set-header", "x-set: old")
            .header("x-echo-set-header", "X-Add: some")
            .header("x-echo-set-header", "x-remove: 1")
            .header("x-echo-set-header", "x-remove-too: 1")
            .header("x-echo-set-header", "x-keep: kept");
        let full = sesame.ask_well(&full).await;
        let of = |answer: &Answer, header: &str| {
            let values: Vec<_> = answer.headers.get_all(header).iter().collect();
            if values.is_empty() {
                return "-".to_owned();
            }
            let values: Vec<_> = values
                .iter()
                .map(|value| value.to_str().expect("text"))
                .collect();
            values.join(",")
        };
        for (header, without, with) in CHANGED {
            assert_eq!(of(&bare, header), without, "{path}: {header}");
            assert_eq!(of(&full, header), with, "{path}: {header}");
        }
        assert_eq!(
            joined(&full.json()["headers"]["x-request"]),
            "changed",
            "{path}"
        );
    }
}

/// What a backend's own filter sets wins over what the rule's sets, and reaches that backend alone.
#[tokio::test]
async fn each_backend_has_its_own_changes() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let own = |name: &str| {
        format!(
            "{{name: {name}, port: 80, weight: 10, filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{set: \
             [{{name: x-backend, value: {name}}}]}}}}, {{type: ResponseHeaderModifier, responseHeaderModifier: {{set: \
             [{{name: x-from, value: {name}}}]}}}}]}}"
        )
    };
    let rule = format!(
        "filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: x-backend, value: rule}}, {{name: \
         x-rule, value: rule}}]}}}}], backendRefs: [{}, {}]",
        own("a"),
        own("b")
    );
    let sesame = Sesame::with_rules(&services, &[&rule]).await;
    let mut connection = sesame.open().await;
    let mut a = 0;
    for _ in 0..100 {
        let answer = connection
            .ask(&Ask::get("a.example.com", "/"))
            .await
            .expect("an answer");
        let name = answer.backend();
        a += u32::from(name == "a");
        let seen = answer.json();
        assert_eq!(joined(&seen["headers"]["x-backend"]), name, "{seen}");
        assert_eq!(joined(&seen["headers"]["x-rule"]), "rule", "{seen}");
        assert_eq!(answer.header("x-from"), name);
    }
    assert_share("a", a, 100, 0.5);
}
