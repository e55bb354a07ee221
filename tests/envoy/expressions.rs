//! Regular expressions that would take too much time together aren't served; everything else is.

use std::fmt::Write as _;

use sesame_testkit::client::Request;

use crate::harness::{HTTP, Sesame, created, route};

/// The size of a request's path, below Envoy's limit for its headers.
const PATH: usize = 55_000;

/// A route with a rule for each of these expressions, a rule for two matches, and a rule without expressions.
fn with(name: &str, day: &str, patterns: impl IntoIterator<Item = String>) -> String {
    let to = |host: &str| {
        format!("filters: [{{type: RequestRedirect, requestRedirect: {{hostname: {host}.test}}}}]")
    };
    let regex =
        |pattern: &str| format!("{{path: {{type: RegularExpression, value: \"{pattern}\"}}}}");
    let mut rules = Vec::new();
    for pattern in patterns {
        let mut matches = regex(&pattern);
        if rules.is_empty() {
            let _ = write!(matches, ", {{path: {{value: /{name}/first}}}}");
        }
        rules.push(format!("matches: [{matches}], {}", to(name)));
    }
    rules.push(format!(
        "matches: [{{path: {{value: /{name}/plain}}}}], {}",
        to(name)
    ));
    created(&route(name, &["web"], &["web.test"], &rules), day)
}

#[tokio::test]
async fn a_rule_with_costly_expressions_is_refused_and_all_others_are_served() {
    let old = with(
        "old",
        "2026-01-01",
        (0..10).map(|number| format!("/old-[a-z]*{number}")),
    );
    // Longer expressions would precede those of the older route.
    let huge = with(
        "huge",
        "2026-01-02",
        ["/(.*a){100}and-more-of-it".to_owned()],
    );
    let many = |part: usize| {
        let patterns = (0..12).map(move |number| format!("/.*[a-z]-long-{part}-{number}"));
        with(
            &format!("many-{part}"),
            &format!("2026-01-{:02}", 3 + part),
            patterns,
        )
    };
    let many: String = (0..6).map(many).collect();
    let sesame = Sesame::with_gateway(&[HTTP], &(old + &huge + &many)).await;
    let location = async |path: &str| {
        let response = sesame.send(&Request::get("web.test", path)).await;
        format!(
            "{} {}",
            response.status.as_u16(),
            response.header("location")
        )
    };
    assert_eq!(location("/old-x3").await, "302 http://old.test:8080/old-x3");
    assert_eq!(
        location("/huge/plain").await,
        "302 http://huge.test:8080/huge/plain"
    );
    // The other match of the refused rule.
    assert_eq!(location("/huge/first").await, "500 ");
    assert_eq!(
        location("/x-long-0-3").await,
        "302 http://many-0.test:8080/x-long-0-3"
    );
    // The newest route's expressions don't fit.
    assert_eq!(location("/x-long-5-3").await, "404 ");
    assert_eq!(location("/many-5/first").await, "500 ");
    assert_eq!(
        location("/many-5/plain").await,
        "302 http://many-5.test:8080/many-5/plain"
    );

    let partially = async |name: &str| sesame.of_route(name, "PartiallyInvalid").await;
    assert!(partially("old").await.is_err());
    let huge = partially("huge").await.expect("a condition").message;
    assert!(
        huge.starts_with(
            "Dropped Rule: spec.rules[0].matches[0]: the regular expression /(.*a){100}"
        ),
        "{huge}"
    );
    let newest = partially("many-5").await.expect("a condition").message;
    assert!(
        newest.contains("host web.test") && newest.contains("the limit is 3 ms"),
        "{newest}"
    );

    // Hostile paths get a response.
    for text in ["a", "ab", "a-long-"] {
        let path = format!("/{}", text.repeat(PATH / text.len()));
        assert_eq!(location(&path).await, "404 ");
    }
}
