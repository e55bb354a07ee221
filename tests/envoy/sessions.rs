//! Session persistence by cookie and by header: a client keeps its endpoint.

use std::collections::BTreeSet;

use sesame_testkit::client::Request;

use crate::harness::{Sesame, backends, service, shares};

/// Starts Sesame with these rules for a Service with three endpoints.
async fn serving(rules: &[&str]) -> (Vec<sesame_testkit::backend::Backend>, Sesame) {
    let (backends, _) = backends(&["one", "two", "three"]).await;
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address()).collect();
    let rules: Vec<_> = rules
        .iter()
        .map(|rule| format!("{rule}, backendRefs: [{{name: a, port: 80}}]"))
        .collect();
    let sesame = Sesame::with_rules(&service("a", &addresses), &rules).await;
    (backends, sesame)
}

/// Sends several requests with the first response's session, and returns the backends that responded.
async fn returning(sesame: &Sesame, path: &str, header: &str, value: &str) -> BTreeSet<String> {
    let request = Request::get("a.example.com", path).header(header, value);
    shares(sesame.at(8080), &request, 20)
        .await
        .into_keys()
        .collect()
}

#[tokio::test]
async fn a_cookie_keeps_a_client_on_its_endpoint() {
    let (_backends, sesame) = serving(&[
        "matches: [{path: {value: /named}}], sessionPersistence: {type: Cookie, cookie: {name: mine}}",
        "matches: [{path: {value: /unnamed}}], sessionPersistence: {cookie: {}}",
        "matches: [{path: {value: /permanent}}], sessionPersistence: {absoluteTimeout: 1h, cookie: {name: lasting, lifetimeType: Permanent}}",
        "matches: [{path: {value: /none}}]",
    ])
    .await;
    let mut homes = BTreeSet::new();
    for path in ["/named", "/unnamed", "/permanent"] {
        for _ in 0..6 {
            let first = sesame.ask_well(&Request::get("a.example.com", path)).await;
            let home = first.backend();
            let cookie = first.header("set-cookie").to_owned();
            let (pair, attributes) = cookie.split_once(';').unwrap_or((&cookie, ""));
            let attributes = attributes.to_ascii_lowercase();
            assert!(pair.contains('='), "{path}: {cookie:?}");
            assert!(path != "/named" || pair.starts_with("mine="), "{cookie}");
            assert!(
                path != "/permanent" || pair.starts_with("lasting="),
                "{cookie}"
            );
            assert_eq!(
                attributes.contains("max-age=3600"),
                path == "/permanent",
                "{cookie}"
            );
            assert_eq!(
                attributes.contains("max-age") || attributes.contains("expires"),
                path == "/permanent",
                "{cookie}"
            );
            let found = returning(&sesame, path, "cookie", pair).await;
            assert_eq!(found, BTreeSet::from([home.clone()]), "{path} with {pair}");
            homes.insert(home);
        }
    }
    // New clients are spread across endpoints; otherwise the cookie would prove nothing.
    assert!(homes.len() > 1, "{homes:?}");
    let none = sesame
        .ask_well(&Request::get("a.example.com", "/none"))
        .await;
    assert_eq!(none.header("set-cookie"), "");
    let nonsense = returning(&sesame, "/named", "cookie", "mine=nonsense").await;
    assert!(
        !nonsense.is_empty() && !nonsense.contains("503"),
        "{nonsense:?}"
    );
}

#[tokio::test]
async fn a_header_keeps_a_client_on_its_endpoint() {
    let (_backends, sesame) =
        serving(&["sessionPersistence: {type: Header, header: {name: x-session}}"]).await;
    let mut homes = BTreeSet::new();
    for _ in 0..12 {
        let first = sesame.ask_well(&Request::get("a.example.com", "/")).await;
        let session = first.header("x-session").to_owned();
        assert!(!session.is_empty(), "{first:?}");
        let found = returning(&sesame, "/", "x-session", &session).await;
        assert_eq!(found, BTreeSet::from([first.backend()]));
        homes.insert(first.backend());
    }
    assert!(homes.len() > 1, "{homes:?}");
}

#[tokio::test]
async fn a_session_whose_endpoint_is_removed_moves_to_another() {
    let (mut backends, sesame) = serving(&["sessionPersistence: {cookie: {name: mine}}"]).await;
    let first = sesame.ask_well(&Request::get("a.example.com", "/")).await;
    let cookie = first
        .header("set-cookie")
        .split(';')
        .next()
        .unwrap_or_default()
        .to_owned();
    let home = first.backend();
    let left: Vec<_> = backends
        .iter()
        .filter(|backend| backend.name() != home)
        .map(|backend| backend.address())
        .collect();
    let text = std::fs::read_to_string(sesame.folder().file("all.yaml")).expect("a file");
    let (before, after) = text.split_once("apiVersion: v1\n").expect("a Service");
    let (_, after) = after
        .rsplit_once("---\napiVersion: gateway")
        .expect("a route");
    sesame.folder().replace(
        "all.yaml",
        &format!("{before}{}apiVersion: gateway{after}", service("a", &left)),
    );
    crate::harness::eventually("another endpoint responds", async || {
        let response = sesame
            .ask_well(&Request::get("a.example.com", "/").header("cookie", &cookie))
            .await;
        anyhow::ensure!(response.backend() != home, "it is {home}");
        Ok(())
    })
    .await;
    backends.retain(|backend| backend.name() != home);
    let found = returning(&sesame, "/", "cookie", &cookie).await;
    assert!(
        !found.contains(&home) && !found.contains("503"),
        "{found:?}"
    );
}
