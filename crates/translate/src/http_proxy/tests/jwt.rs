//! JSON Web Tokens.

use serde_json::json;

use super::super::testing::World;
use super::hosts::secret;

/// Creates a translation with a certificate, and with a Secret `keys` in `namespace`.
fn world(namespace: &str) -> World {
    let mut world = World::new();
    world.put_value(secret("shop"));
    world.put_value(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "keys", "namespace": namespace},
        "stringData": {"jwks": r#"{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}"#, "bad": "{}"},
    }));
    world
}

const LOCAL: &str = "localJWKS: {secretName: keys, key: jwks}";

fn spec(providers: &str, routes: &str) -> String {
    format!(
        "{{virtualhost: {{fqdn: a.com, tls: {{secretName: cert}}, jwtProviders: [{providers}]}}, routes: [{routes}]}}"
    )
}

/// A route with this prefix and policy.
fn route(prefix: &str, policy: &str) -> String {
    format!(
        "{{conditions: [{{prefix: {prefix}}}], services: [{{name: one, port: 80}}], jwtVerificationPolicy: {{{policy}}}}}"
    )
}

#[test]
fn routes_require_tokens_of_the_default_provider_or_of_their_own() {
    let mut world = world("shop");
    let providers = format!("{{name: x, default: true, {LOCAL}}}, {{name: own, {LOCAL}}}");
    let routes = [
        "{services: [{name: one, port: 80}]}".to_owned(),
        "{conditions: [{prefix: /redirect}], requestRedirectPolicy: {path: /x}}".to_owned(),
        "{conditions: [{prefix: /response}], directResponsePolicy: {statusCode: 418}}".to_owned(),
        route("/empty", ""),
        route("/own", "require: own"),
        route("/none", "disabled: true"),
        route("/unknown", "require: z"),
    ];
    world.proxy("a", &spec(&providers, &routes.join(", ")));
    assert_eq!(
        world.tokens(443, "a.com"),
        "/redirect shop/a/x, /response shop/a/x, /unknown none, /empty shop/a/x, /none none, /own shop/a/own, / shop/a/x"
    );
    assert!(
        world.routes(443, "a.com").contains("/unknown -> 503"),
        "{}",
        world.routes(443, "a.com")
    );
    assert_eq!(
        world.status("a"),
        "invalid\nerror JWTVerificationError InvalidJWTVerification: spec.routes[6].jwtVerificationPolicy.require: HTTPProxy \
         shop/a has no provider \"z\"; use the name of one in its jwtProviders\n"
    );
    // Redirects to HTTPS don't require a token.
    assert!(!world.tokens(80, "a.com").contains("/x"));
}

#[test]
fn included_routes_require_tokens_of_the_roots_providers() {
    let mut world = world("shop");
    let providers = format!("{{name: x, default: true, {LOCAL}}}");
    let root = spec(&providers, "").replace("routes: []", "includes: [{name: child}]");
    world.proxy("a", &root);
    let routes = [
        route("/d", ""),
        route("/u", "require: u"),
        route("/x", "require: x"),
    ];
    world.proxy("child", &format!("{{routes: [{}]}}", routes.join(", ")));
    let tokens = world.tokens(443, "a.com");
    assert_eq!(tokens, "/d shop/a/x, /u none, /x shop/a/x");
    assert!(
        world
            .status("child")
            .contains("HTTPProxy shop/a has no provider \"u\"")
    );
    assert_eq!(world.status("a"), "valid\n");
}

#[test]
fn invalid_providers_refuse_all_requests_of_the_host() {
    let mut world = world("shop");
    let remote = |uri: &str| format!("{{name: x, remoteJWKS: {{uri: {uri:?}}}}}");
    for (providers, error) in [
        (
            format!("{{name: x, {LOCAL}}}, {{name: x, {LOCAL}}}"),
            "[1].name: another",
        ),
        (
            format!("{{name: x, default: true, {LOCAL}}}, {{name: own, default: true, {LOCAL}}}"),
            "[1].default: only one",
        ),
        (
            "{name: x, localJWKS: {secretName: gone, key: jwks}}".to_owned(),
            "[0].localJWKS: Secret shop/gone does not exist",
        ),
        (
            "{name: x, localJWKS: {secretName: keys, key: bad}}".to_owned(),
            "[0].localJWKS: Secret shop/keys has no JSON Web Key Set in bad",
        ),
        (
            "{name: x, localJWKS: {secretName: pki/keys, key: jwks}}".to_owned(),
            "[0].localJWKS.secretName: no TLSCertificateDelegation in namespace pki",
        ),
        (remote("ftp://a.com"), "[0].remoteJWKS.uri: its scheme"),
        (remote("https://127.0.0.1/"), "[0].remoteJWKS.uri: its host"),
        (
            "{name: x, remoteJWKS: {uri: \"https://a.com/\", timeout: infinity}}".to_owned(),
            "[0].remoteJWKS.timeout: \"infinity\" is not",
        ),
        (
            remote(&format!("https://a.com/{}", "a".repeat(64 << 10))),
            ": the keys, issuers, audiences and URIs total 65550 bytes; at most 65536 are allowed",
        ),
    ] {
        world.proxy(
            "a",
            &spec(&providers, "{services: [{name: one, port: 80}]}"),
        );
        let status = world.status("a");
        let error = format!(
            "invalid\nerror JWTVerificationError InvalidJWTVerification: spec.virtualhost.jwtProviders{error}"
        );
        assert!(status.starts_with(&error), "{providers}: {status}");
        assert_eq!(world.routes(443, "a.com"), "/ / -> 503\n", "{providers}");
    }
    let valid = spec(
        &format!("{{name: x, {LOCAL}}}"),
        "{services: [{name: one, port: 80}]}",
    );
    world.proxy("a", &valid.replace("tls: {secretName: cert}, ", ""));
    assert!(
        world
            .status("a")
            .contains("jwtProviders: needs TLS terminated by Envoy")
    );
    assert_eq!(world.routes(80, "a.com"), "/ / -> 503\n");
    world.proxy("a", &valid);
    assert_eq!(world.status("a"), "valid\n");
}

#[test]
fn servers_of_keys_are_clusters() {
    let mut world = world("shop");
    let providers = "{name: x, default: true, remoteJWKS: {uri: \"https://a.com/\", dnsLookupFamily: v6}}, \
        {name: own, remoteJWKS: {uri: \"http://b.com:81/\"}}";
    world.proxy("a", &spec(providers, "{services: [{name: one, port: 80}]}"));
    assert_eq!(world.status("a"), "valid\n");
    assert_eq!(
        world.clusters(),
        [
            "host:shop/a.com:443,v6?tls=unverified",
            "host:shop/b.com:81",
            "shop/one:80"
        ]
    );
}
