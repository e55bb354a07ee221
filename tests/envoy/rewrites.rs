//! URLRewrite: the path and host that the backend sees.

use std::collections::BTreeSet;

use sesame_testkit::client::Request;

use crate::harness::{Sesame, assert_share, backends, to};

/// Requests each path and checks what the backend received.
async fn check(sesame: &Sesame, host: &str, cases: &[(&str, &str)]) {
    let mut connection = sesame.open().await;
    let mut wrong = Vec::new();
    for (path, expected) in cases {
        let response = connection
            .send(&Request::get("a.example.com", path))
            .await
            .expect("a response");
        let seen = response.json();
        if (&seen["host"], &seen["path"]) != (&host.into(), &(*expected).into()) {
            wrong.push(format!(
                "{path}: {} {} {}, not {host} {expected}",
                response.status, seen["host"], seen["path"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn rule(matches: &str, rewrite: &str) -> String {
    format!(
        "matches: [{matches}], filters: [{{type: URLRewrite, urlRewrite: {{{rewrite}}}}}], {}",
        to("a")
    )
}

fn prefix(from: &str, to: &str) -> String {
    rule(
        &format!("{{path: {{value: {from}}}}}"),
        &format!("path: {{type: ReplacePrefixMatch, replacePrefixMatch: {to:?}}}"),
    )
}

#[tokio::test]
async fn prefixes_and_whole_paths_are_replaced() {
    let (_backends, services) = backends(&["a"]).await;
    let full = "path: {type: ReplaceFullPath, replaceFullPath: /whole}";
    let rules = [
        prefix("/plain", "/xyz"),
        prefix("/slash", "/xyz/"),
        prefix("/trailing/", "/xyz"),
        prefix("/strip", "/"),
        prefix("/empty", ""),
        prefix("/dots.in", "/"),
        prefix("/deep/er", "/a/b"),
        rule("{path: {value: /full}}", full),
        rule("{path: {type: Exact, value: /exact}}", full),
        rule(
            "{path: {type: RegularExpression, value: '/re[0-9]+'}}",
            full,
        ),
        prefix("/", "/base"),
    ];
    let sesame = Sesame::with_rules(&services, &rules).await;
    check(
        &sesame,
        "a.example.com",
        &[
            ("/plain/bar", "/xyz/bar"),
            ("/plain", "/xyz"),
            ("/plain/", "/xyz/"),
            ("/plain?q=/plain", "/xyz?q=/plain"),
            ("/plain/plain", "/xyz/plain"),
            ("/slash/bar", "/xyz/bar"),
            ("/slash", "/xyz"),
            ("/trailing/bar", "/xyz/bar"),
            ("/trailing", "/xyz"),
            ("/trailing/", "/xyz/"),
            ("/strip/three", "/three"),
            ("/strip", "/"),
            ("/strip/", "/"),
            ("/strip?q=1", "/?q=1"),
            ("/strip/a?q=/strip", "/a?q=/strip"),
            ("/empty/three", "/three"),
            ("/empty", "/"),
            ("/empty/", "/"),
            ("/dots.in/x", "/x"),
            ("/dotsxin/x", "/base/dotsxin/x"),
            ("/deep/er/est", "/a/b/est"),
            ("/full", "/whole"),
            ("/full/more?q=1", "/whole?q=1"),
            ("/exact?q=1", "/whole?q=1"),
            ("/re12", "/whole"),
            ("/", "/base/"),
            ("/bar", "/base/bar"),
            ("/bar?q=1", "/base/bar?q=1"),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_host_is_replaced_with_and_without_the_path() {
    let (_backends, services) = backends(&["a"]).await;
    let modifier =
        "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-set, value: new}]}}";
    let rules = [
        rule("{path: {value: /host}}", "hostname: inner.example.org"),
        rule(
            "{path: {value: /both}}",
            "hostname: inner.example.org, path: {type: ReplacePrefixMatch, replacePrefixMatch: /}",
        ),
        rule(
            "{path: {value: /with-header}}",
            "hostname: inner.example.org",
        )
        .replace("filters: [", &format!("filters: [{modifier}, ")),
    ];
    let sesame = Sesame::with_rules(&services, &rules).await;
    check(
        &sesame,
        "inner.example.org",
        &[
            ("/host/x", "/host/x"),
            ("/both/x", "/x"),
            ("/with-header", "/with-header"),
        ],
    )
    .await;
    let response = sesame
        .send(&Request::get("a.example.com", "/with-header"))
        .await;
    assert_eq!(response.json()["headers"]["x-set"][0], "new");
}

/// The selected backend determines path and host. Shares are unaffected.
#[tokio::test]
async fn each_backend_has_its_own_rewrite() {
    let (_backends, services) = backends(&["a", "b", "c"]).await;
    let filter =
        |rewrite: &str| format!("filters: [{{type: URLRewrite, urlRewrite: {{{rewrite}}}}}]");
    let rule = format!(
        "matches: [{{path: {{value: /in}}}}], backendRefs: [{{name: a, port: 80, weight: 5, {}}}, {{name: b, port: 80, weight: \
         3, {}}}, {{name: c, port: 80, weight: 2}}]",
        filter("path: {type: ReplacePrefixMatch, replacePrefixMatch: /for-a}"),
        filter("hostname: b.internal, path: {type: ReplaceFullPath, replaceFullPath: /for-b}"),
    );
    let sesame = Sesame::with_rules(&services, &[&rule]).await;
    let mut connection = sesame.open().await;
    let mut seen = Vec::new();
    for _ in 0..400 {
        let response = connection
            .send(&Request::get("a.example.com", "/in/x"))
            .await
            .expect("a response");
        let json = response.json();
        let text = |field: &str| json[field].as_str().unwrap_or_default().to_owned();
        seen.push((response.backend(), text("host"), text("path")));
    }
    let kinds: BTreeSet<_> = seen
        .iter()
        .map(|(backend, host, path)| (backend.as_str(), host.as_str(), path.as_str()))
        .collect();
    let expected = [
        ("a", "a.example.com", "/for-a/x"),
        ("b", "b.internal", "/for-b"),
        ("c", "a.example.com", "/in/x"),
    ];
    assert_eq!(kinds, BTreeSet::from(expected));
    for (backend, share) in [("a", 0.5), ("b", 0.3), ("c", 0.2)] {
        let count = seen.iter().filter(|(name, ..)| name == backend).count();
        assert_share(backend, count as u32, 400, share);
    }
}
