//! CORS: preflight requests, which the gateway answers, and headers that it adds to the backend's answers.

use sesame_testkit::client::{Answer, Ask, Connect};

use crate::harness::{Sesame, at, backends};

fn rule(path: &str, cors: &str) -> String {
    format!(
        "filters: [{{type: CORS, cors: {{{cors}}}}}], {}",
        at(path, "a")
    )
}

/// Sends a preflight request.
async fn preflight(
    sesame: &Sesame,
    path: &str,
    origin: &str,
    method: &str,
    headers: &str,
) -> Answer {
    let mut ask = Ask::get("a.example.com", path)
        .method("OPTIONS")
        .header("origin", origin)
        .header("access-control-request-method", method);
    if !headers.is_empty() {
        ask = ask.header("access-control-request-headers", headers);
    }
    Connect::plain()
        .ask(sesame.at(8080), &ask)
        .await
        .expect("an answer")
}

/// Sends a simple request.
async fn simple(sesame: &Sesame, path: &str, origin: &str) -> Answer {
    let ask = Ask::get("a.example.com", path).header("origin", origin);
    let answer = sesame.ask(&ask).await;
    assert_eq!(
        (answer.status.as_u16(), answer.backend().as_str()),
        (200, "a"),
        "{path} from {origin}"
    );
    answer
}

/// The names in a list header, in lower case and sorted.
fn names(answer: &Answer, header: &str) -> Vec<String> {
    let list = answer.header(&format!("access-control-{header}"));
    let mut names: Vec<_> = list
        .split(',')
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty())
        .collect();
    names.sort();
    names
}

/// The allowed origin and credentials.
fn permission(answer: &Answer) -> (&str, &str) {
    (
        answer.header("access-control-allow-origin"),
        answer.header("access-control-allow-credentials"),
    )
}

#[tokio::test]
async fn listed_origins_are_allowed_and_others_are_not() {
    let (_backends, services) = backends(&["a"]).await;
    let rules = [rule(
        "/",
        "allowOrigins: ['https://www.foo.com', 'https://*.bar.com', 'http://port.com:8080'], allowMethods: [GET, PUT], \
         allowHeaders: [x-one, X-Two], exposeHeaders: [x-three, x-four], maxAge: 3600",
    )];
    let sesame = Sesame::with_rules(&services, &rules).await;
    for origin in [
        "https://www.foo.com",
        "https://www.bar.com",
        "https://a.b.bar.com",
        "http://port.com:8080",
    ] {
        let answer = preflight(&sesame, "/x", origin, "PUT", "x-one").await;
        assert!(
            matches!(answer.status.as_u16(), 200 | 204),
            "{origin}: {answer:?}"
        );
        assert_eq!(
            answer.backend(),
            "",
            "{origin}: the backend got the preflight request"
        );
        assert_eq!(permission(&answer), (origin, ""));
        assert_eq!(names(&answer, "allow-methods"), ["get", "put"], "{origin}");
        assert_eq!(
            names(&answer, "allow-headers"),
            ["x-one", "x-two"],
            "{origin}"
        );
        assert_eq!(
            names(&answer, "expose-headers"),
            ["x-four", "x-three"],
            "{origin}"
        );
        assert_eq!(answer.header("access-control-max-age"), "3600", "{origin}");
        let answer = simple(&sesame, "/x", origin).await;
        assert_eq!(permission(&answer), (origin, ""));
        assert_eq!(
            names(&answer, "expose-headers"),
            ["x-four", "x-three"],
            "{origin}"
        );
    }
    for origin in [
        "http://www.foo.com",
        "https://foo.com",
        "https://www.foo.com:8443",
        "https://bar.com",
        "https://xbar.com",
        "https://x.bar.com.evil.com",
        "https://evil.com/x.bar.com",
        "http://port.com",
        "null",
    ] {
        let answer = preflight(&sesame, "/x", origin, "PUT", "x-one").await;
        assert!(
            matches!(answer.status.as_u16(), 200 | 204 | 403),
            "{origin}: {answer:?}"
        );
        assert_eq!(permission(&answer), ("", ""), "{origin}");
        let answer = simple(&sesame, "/x", origin).await;
        assert_eq!(permission(&answer), ("", ""), "{origin}");
    }
}

#[tokio::test]
async fn wildcards_allow_what_is_requested() {
    let (_backends, services) = backends(&["a"]).await;
    let all = "allowOrigins: ['*'], allowMethods: ['*'], allowHeaders: ['*']";
    let rules = [
        rule("/free", &format!("{all}, exposeHeaders: ['*']")),
        rule(
            "/credentials",
            &format!("{all}, allowCredentials: true, exposeHeaders: [x-one]"),
        ),
        rule(
            "/no-credentials",
            &format!("{all}, allowCredentials: false"),
        ),
    ];
    let sesame = Sesame::with_rules(&services, &rules).await;
    let origin = "https://anywhere.example.net:8443";
    for (path, credentials) in [
        ("/free", ""),
        ("/credentials", "true"),
        ("/no-credentials", ""),
    ] {
        let answer = preflight(&sesame, path, origin, "DELETE", "x-one, x-two").await;
        assert!(
            matches!(answer.status.as_u16(), 200 | 204),
            "{path}: {answer:?}"
        );
        let (allowed, with) = permission(&answer);
        // With credentials, a wildcard has no meaning in the answer.
        assert!(
            allowed == origin || (allowed == "*" && credentials.is_empty()),
            "{path}: {allowed}"
        );
        assert_eq!(with, credentials, "{path}");
        let (methods, headers) = (
            names(&answer, "allow-methods"),
            names(&answer, "allow-headers"),
        );
        assert!(
            methods == ["delete"] || (methods == ["*"] && credentials.is_empty()),
            "{path}: {methods:?}"
        );
        assert!(
            headers == ["x-one", "x-two"] || (headers == ["*"] && credentials.is_empty()),
            "{path}: {headers:?}"
        );
        let answer = simple(&sesame, path, origin).await;
        let (allowed, with) = permission(&answer);
        assert!(
            allowed == origin || (allowed == "*" && credentials.is_empty()),
            "{path}: {allowed}"
        );
        assert_eq!(with, credentials, "{path}");
    }
}

/// A rule that matches one method must match its preflight requests too.
#[tokio::test]
async fn rules_for_one_method_answer_the_preflights_for_it() {
    let (_backends, services) = backends(&["a"]).await;
    let one = "allowOrigins: ['https://foo.com'], allowMethods: [PUT], maxAge: 7";
    let rules = [format!(
        "filters: [{{type: CORS, cors: {{{one}}}}}], matches: [{{method: PUT}}], backendRefs: [{{name: a, port: 80}}]"
    )];
    let sesame = Sesame::with_rules(&services, &rules).await;
    let answer = preflight(&sesame, "/", "https://foo.com", "PUT", "").await;
    assert!(matches!(answer.status.as_u16(), 200 | 204), "{answer:?}");
    assert_eq!(permission(&answer), ("https://foo.com", ""));
    assert_eq!(answer.header("access-control-max-age"), "7");
    let answer = preflight(&sesame, "/", "https://foo.com", "DELETE", "").await;
    assert_eq!(
        (answer.status.as_u16(), permission(&answer)),
        (404, ("", ""))
    );
}
