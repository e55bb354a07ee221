//! HTTPProxies that require JSON Web Tokens, with keys in a Secret and on a server.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sesame_testkit::backend::Backend;
use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Request};
use sesame_testkit::jwt::Issuer;

use crate::backend_tls::{authority, secure};
use crate::harness::{DefaultFleet, Names, Summary, backends, certificate, eventually, listening};
use crate::proxy_clients::secret;

const HOST: &str = "web.example.com";

/// A token that expires in this many seconds.
fn token(issuer: &Issuer, name: &str, audience: &str, seconds: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("a time after 1970").as_secs();
    let expiry = i64::try_from(now).expect("a time") + seconds;
    let claims = json!({"iss": name, "aud": audience, "exp": expiry});
    issuer.token(&claims).expect("a token")
}

fn request(path: &str, token: &str) -> Request {
    let request = Request::get(HOST, path);
    match token {
        "" => request,
        token => request.header("authorization", &format!("Bearer {token}")),
    }
}

/// The objects for a host with these providers and routes.
fn host(providers: &[String], routes: &[&str]) -> String {
    let front = Identity::self_signed(&["*.example.com"]).expect("a certificate");
    let (providers, routes) = (providers.join(", "), routes.join(", "));
    certificate("front", &front)
        + &format!(
            "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {{name: web}}\nspec:\n  \
             virtualhost: {{fqdn: {HOST}, tls: {{secretName: front}}, jwtProviders: [{providers}]}}\n  \
             routes: [{routes}]\n---\n"
        )
}

const TO_A: &str = "services: [{name: a, port: 80}]";

#[tokio::test]
async fn requests_need_the_token_that_their_route_requires() {
    let (_backends, services) = backends(&["a"]).await;
    let (one, two) = (Issuer::new().expect("a key"), Issuer::new().expect("a key"));
    let local = |name: &str, fields: &str| {
        format!(
            "{{name: {name}, issuer: {name}, localJWKS: {{secretName: keys, key: {name}}}, {fields}}}"
        )
    };
    let providers = [
        local("one", "default: true, audiences: [web, api]"),
        local("two", "forwardJWT: true"),
    ];
    let route =
        |prefix: &str, fields: &str| format!("{{conditions: [{{prefix: {prefix}}}], {fields}}}");
    let routes = [
        format!("{{{TO_A}, permitInsecure: true}}"),
        route(
            "/two",
            &format!("{TO_A}, jwtVerificationPolicy: {{require: two}}"),
        ),
        route(
            "/public",
            &format!("{TO_A}, jwtVerificationPolicy: {{disabled: true}}"),
        ),
        route("/redirect", "requestRedirectPolicy: {path: /x}"),
        route("/response", "directResponsePolicy: {statusCode: 418}"),
        route(
            "/unknown",
            &format!("{TO_A}, jwtVerificationPolicy: {{require: three}}"),
        ),
    ];
    let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
    let entries = [("one", &*one.jwks()), ("two", &*two.jwks())];
    let objects = services + &secret("keys", &entries) + &host(&providers, &routes);
    let started = DefaultFleet::serving("HTTPProxy", &objects).await;
    listening(started.https).await;
    let connect = Connect::tls(HOST);
    eventually("the certificate is there", async || {
        let found = (&connect, &request("/public", "")).of(started.https).await;
        anyhow::ensure!(found == "a", "{found}");
        Ok(())
    })
    .await;
    let valid = token(&one, "one", "web", 60);
    let cases = [
        ("valid", valid.clone(), "/", "a"),
        (
            "of the second audience",
            token(&one, "one", "api", 60),
            "/",
            "a",
        ),
        ("missing", String::new(), "/", "401"),
        ("junk", "junk".to_owned(), "/", "401"),
        ("expired", token(&one, "one", "web", -600), "/", "401"),
        ("for others", token(&one, "one", "other", 60), "/", "403"),
        (
            "of another issuer",
            token(&one, "two", "web", 60),
            "/",
            "401",
        ),
        (
            "with another key",
            token(&two, "one", "web", 60),
            "/",
            "401",
        ),
        ("of another provider", valid.clone(), "/two", "401"),
        (
            "of the right provider",
            token(&two, "two", "x", 60),
            "/two",
            "a",
        ),
        ("missing", String::new(), "/two", "401"),
        ("missing", String::new(), "/redirect", "401"),
        ("valid", valid.clone(), "/redirect", "302"),
        ("missing", String::new(), "/response", "401"),
        ("valid", valid.clone(), "/response", "418"),
        ("valid", valid.clone(), "/unknown", "503"),
    ];
    let mut wrong = Vec::new();
    for (name, token, path, expected) in &cases {
        let found = (&connect, &request(path, token)).of(started.https).await;
        if found != *expected {
            wrong.push(format!("{path}, {name}: expected {expected}, got {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Requests without TLS also need a token.
    assert_eq!(request("/", "").of(started.http).await, "401");
    assert_eq!(request("/", &valid).of(started.http).await, "a");
    for (path, token, forwarded) in [
        ("/", valid, false),
        ("/two", token(&two, "two", "x", 60), true),
    ] {
        let response = connect.send(started.https, &request(path, &token)).await;
        let echo = response.expect("a response").json();
        let authorization = &echo["headers"]["authorization"];
        assert_eq!(
            *authorization != Value::Null,
            forwarded,
            "{path}: {authorization}"
        );
    }
}

#[tokio::test]
async fn keys_are_fetched_from_servers_that_can_be_verified() {
    let (_backends, services) = backends(&["a"]).await;
    let names = Names::new(&["keys.test", "plain.test"]).await;
    let issuer = Issuer::new().expect("a key");
    let (right, wrong) = (authority(), authority());
    let server = secure("keys", &right, &["keys.test"]).await;
    let plain = Backend::start("plain", ([127, 0, 0, 1], 0).into()).await;
    let plain = plain.expect("a server");
    for server in [&server, &plain] {
        server.document("/jwks.json", issuer.jwks());
    }
    for (path, bytes) in [("/long.json", 1 << 20), ("/overlong.json", (1 << 20) + 1)] {
        let keys = issuer.jwks();
        plain.document(path, format!("{keys}{}", " ".repeat(bytes - keys.len())));
    }
    let remote = |name: &str, uri: String, fields: &str| {
        format!("{{name: {name}, remoteJWKS: {{uri: {uri:?}, timeout: 5s, {fields}}}}}")
    };
    let tls = format!("https://keys.test:{}/jwks.json", server.address().port());
    let by = |secret: &str| format!("validation: {{caSecret: {secret}, subjectName: keys.test}}");
    let plain_uri = format!("http://plain.test:{}", plain.address().port());
    let providers = [
        remote(
            "plain",
            format!("{plain_uri}/jwks.json"),
            "dnsLookupFamily: v4",
        ),
        remote("missing", format!("{plain_uri}/other.json"), ""),
        remote("long", format!("{plain_uri}/long.json"), ""),
        remote("overlong", format!("{plain_uri}/overlong.json"), ""),
        remote("unverified", tls.clone(), ""),
        remote("verified", tls.clone(), &by("right")),
        remote("untrusted", tls, &by("wrong")),
    ];
    let cases = [
        ("plain", "a"),
        ("long", "a"),
        ("unverified", "a"),
        ("verified", "a"),
        ("missing", "401"),
        ("overlong", "401"),
        ("untrusted", "401"),
    ];
    let routes = cases.map(|(name, _)| {
        format!("{{conditions: [{{prefix: /{name}}}], {TO_A}, jwtVerificationPolicy: {{require: {name}}}}}")
    });
    let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
    let objects = services
        + &secret("right", &[("ca.crt", &right.pem())])
        + &secret("wrong", &[("ca.crt", &wrong.pem())])
        + &host(&providers, &routes);
    let started = DefaultFleet::resolving(&names, "HTTPProxy", &objects).await;
    listening(started.https).await;
    let token = token(&issuer, "any", "any", 60);
    let connect = Connect::tls(HOST);
    for (name, expected) in cases {
        eventually(&format!("/{name} responds {expected}"), async || {
            let request = request(&format!("/{name}"), &token);
            let found = (&connect, &request).of(started.https).await;
            anyhow::ensure!(found == expected, "{name}: {found}");
            Ok(())
        })
        .await;
    }
    let fetches = plain.requests();
    let of_keys = fetches
        .iter()
        .filter(|request| request.path == "/jwks.json");
    // Keys are cached.
    assert_eq!(of_keys.count(), 1);
}
