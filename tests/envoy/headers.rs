//! Filters that change request and response headers, on rules and on backends.

use serde_json::Value;
use sesame_testkit::client::{Request, Response};

use crate::harness::{Sesame, assert_share, at, backends};

/// All values of a header, joined by commas; `-` if absent.
fn joined(values: &Value) -> String {
    let Some(values) = values.as_array() else {
        return "-".to_owned();
    };
    let values: Vec<_> = values.iter().filter_map(Value::as_str).collect();
    values.join(",").replace(", ", ",")
}

const CHANGES: &str = "set: [{name: X-Set, value: new}, {name: x-percent, value: '100%REQ(host)%'}], add: [{name: X-Add, \
                       value: more}], remove: [X-Remove, x-remove-too]";

/// Headers after these changes: name, value if it was absent before, value if it was present.
const CHANGED: [(&str, &str, &str); 6] = [
    ("x-set", "new", "new"),
    ("x-percent", "100%REQ(host)%", "100%REQ(host)%"),
    ("x-add", "more", "some,more"),
    ("x-remove", "-", "-"),
    ("x-remove-too", "-", "-"),
    ("x-keep", "-", "kept"),
];

#[tokio::test]
async fn request_headers_are_changed() {
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
            .ask_well(&Request::get("a.example.com", path))
            .await
            .json();
        let full = Request::get("a.example.com", path)
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
async fn response_headers_are_changed() {
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
        let bare = sesame.ask_well(&Request::get("a.example.com", path)).await;
        let full = Request::get("a.example.com", path)
            .header("x-echo-set-header", "x-set: old")
            .header("x-echo-set-header", "X-Add: some")
            .header("x-echo-set-header", "x-remove: 1")
            .header("x-echo-set-header", "x-remove-too: 1")
            .header("x-echo-set-header", "x-keep: kept");
        let full = sesame.ask_well(&full).await;
        let of = |response: &Response, header: &str| {
            let values: Vec<_> = response.headers.get_all(header).iter().collect();
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

/// A backend's own filter takes precedence over the rule's, and applies to that backend only.
#[tokio::test]
async fn each_backend_has_its_own_header_changes() {
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
        let response = connection
            .send(&Request::get("a.example.com", "/"))
            .await
            .expect("a response");
        let name = response.backend();
        a += u32::from(name == "a");
        let seen = response.json();
        assert_eq!(joined(&seen["headers"]["x-backend"]), name, "{seen}");
        assert_eq!(joined(&seen["headers"]["x-rule"]), "rule", "{seen}");
        assert_eq!(response.header("x-from"), name);
    }
    assert_share("a", a, 100, 0.5);
}

/// A body that looks like a request stays a body: no filter can make a backend parse it as the next request.
#[tokio::test]
async fn filters_do_not_change_how_a_request_is_framed() {
    const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a.example.com\r\n\r\n";
    let (backends, services) = backends(&["a"]).await;
    let changes = [
        ("/set", "set: [{name: Content-Length, value: '0'}]"),
        ("/add", "add: [{name: content-length, value: '0'}]"),
        ("/remove", "remove: [Content-Length]"),
        (
            "/transfer",
            "set: [{name: Transfer-Encoding, value: identity}]",
        ),
        (
            "/connection",
            "set: [{name: Connection, value: content-length}]",
        ),
    ];
    let filter = |changes: &str| {
        format!("filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{{changes}}}}}]")
    };
    let mut rules = vec![at("/plain", "a")];
    for (path, changes) in changes {
        rules.push(format!("{}, {}", filter(changes), at(path, "a")));
        rules.push(format!(
            "matches: [{{path: {{value: /backend{path}}}}}], backendRefs: [{{name: a, port: 80, {}}}]",
            filter(changes)
        ));
    }
    let sesame = Sesame::with_rules(&services, &rules).await;
    let post = |path: &str| {
        Request::get("a.example.com", path)
            .method("POST")
            .body(SMUGGLED)
    };
    for (path, _) in changes {
        for path in [path.to_owned(), format!("/backend{path}")] {
            let response = sesame.send(&post(&path)).await;
            assert_eq!(response.status, 500, "{path}: {response:?}");
        }
    }
    assert_eq!(
        sesame.ask_well(&post("/plain")).await.json()["body"],
        SMUGGLED
    );
    let seen: Vec<String> = backends[0]
        .requests()
        .into_iter()
        .map(|seen| seen.path)
        .collect();
    assert_eq!(seen, ["/plain"]);
}
