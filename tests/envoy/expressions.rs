//! Conditions that would take too much time together aren't served; everything else is.

use std::fmt::Write as _;

use sesame_testkit::client::{Request, send};

use crate::harness::{DefaultFleet, HTTP, Sesame, becomes, created, route};

/// The size of a request's path or header, below Envoy's limit for all of its headers.
const LONG: usize = 55_000;

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
        let path = format!("/{}", text.repeat(LONG / text.len()));
        assert_eq!(location(&path).await, "404 ");
    }
}

/// Envoy searches a header for the same number of texts on each of several paths.
#[tokio::test]
async fn a_route_with_one_text_too_many_answers_with_an_error() {
    let mut routes = "  - directResponsePolicy: {statusCode: 200}\n".to_owned();
    for path in ["/a", "/b"] {
        for number in 0..20 {
            let _ = write!(
                routes,
                "  - conditions: [{{prefix: {path}}}, {{header: {{name: x-a, contains: b{number}.}}}}]\n    \
                   directResponsePolicy: {{statusCode: 203}}\n"
            );
        }
    }
    let objects = format!(
        "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {{name: web}}\nspec:\n  \
           virtualhost: {{fqdn: web.test}}\n  routes:\n{routes}"
    );
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    becomes(fleet.http, "web.test", "/", "200").await;
    let status = async |path: &str, text: &str| {
        let request = Request::get("web.test", path).header("x-a", text);
        let response = send(fleet.http, &request).await.expect("a response");
        response.status.as_u16()
    };
    for path in ["/a", "/b/c"] {
        assert_eq!(status(path, "is b8.").await, 203);
        // It isn't served as /.
        assert_eq!(status(path, "is b19.").await, 503);
        assert_eq!(status(path, &"b".repeat(LONG)).await, 503);
    }
    assert_eq!(status("/", "is b19.").await, 200);
}

/// The redirects of a host that stands for all hosts compare the port of a request, each with an expression.
#[tokio::test]
async fn the_port_of_a_redirected_host_takes_no_time() {
    let to_https =
        "filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]".to_owned();
    let rules = [to_https];
    let objects =
        route("any", &["web"], &[], &rules) + &route("wide", &["web"], &["*.wide.test"], &rules);
    let sesame = Sesame::with_gateway(&[HTTP], &objects).await;
    let location = async |host: &str| {
        let response = sesame.send(&Request::get(host, "/a")).await;
        format!(
            "{} {}",
            response.status.as_u16(),
            response.header("location")
        )
    };
    for host in ["x.test", "X.wide.test"] {
        assert_eq!(location(host).await, format!("302 https://{host}/a"));
        assert_eq!(
            location(&format!("{host}:8080")).await,
            format!("302 https://{host}:443/a")
        );
    }
    assert_eq!(location(&"x".repeat(LONG)).await, "400 ");
    assert_eq!(
        location(&format!("x.test:{}", "8".repeat(LONG))).await,
        "400 "
    );
}
