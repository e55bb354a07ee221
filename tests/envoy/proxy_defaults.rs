//! Sections of a SesameConfiguration that apply to all HTTPProxies.

use std::net::SocketAddr;

use anyhow::ensure;
use serde_json::json;
use sesame_testkit::auth::Decision;
use sesame_testkit::client::Request;
use sesame_testkit::rates::RateServer;

use crate::auth::auth_server;
use crate::configuration::{FILE, configuration, configured};
use crate::harness::{backends, becomes, check, eventually, service};

#[tokio::test]
async fn headers_of_all_routes_are_changed_unless_a_route_changes_them() {
    let (_backends, services) = backends(&["a"]).await;
    let objects = services
        + r#"
apiVersion: projectsesame.io/v1
kind: HTTPProxy
metadata: {name: web}
spec:
  virtualhost: {fqdn: web.test}
  routes:
  - services: [{name: a, port: 80}]
  - conditions: [{prefix: /own}]
    services: [{name: a, port: 80, requestHeadersPolicy: {set: [{name: x-team, value: own}]}}]
    responseHeadersPolicy: {remove: [x-frame-options]}
  - conditions: [{prefix: /moved}]
    requestRedirectPolicy: {path: /}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  ingressClassName: sesame
  rules:
  - host: ingress.test
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}
"#;
    let policy = "policy: {requestHeaders: {set: [{name: X-Team, value: '%SESAME_NAMESPACE% %REQ(x-user)%'}], remove: [x-debug]}, \
                  responseHeaders: {set: [{name: X-Frame-Options, value: DENY}]}, applyToIngress: true}";
    let (fleet, folder) = configured(policy, &objects).await;
    // What the backend gets as x-team and x-debug, and what the client gets as x-frame-options.
    let seen = async |host: &str, path: &str| {
        let request = Request::get(host, path)
            .header("x-user", "me")
            .header("x-debug", "1");
        let response = fleet.send(&request).await;
        let headers = response.json()["headers"].clone();
        let sent = |name: &str| headers[name][0].as_str().unwrap_or_default().to_owned();
        let frame = response.header("x-frame-options").to_owned();
        [sent("x-team"), sent("x-debug"), frame].join("|")
    };
    assert_eq!(seen("web.test", "/").await, "default me||DENY");
    assert_eq!(seen("web.test", "/own").await, "own||");
    assert_eq!(seen("web.test", "/moved").await, "||DENY");
    assert_eq!(seen("ingress.test", "/").await, "default me||DENY");
    folder.replace(FILE, &configuration(&policy.replace("true", "false")));
    eventually("the Ingress has no changes", async || {
        let found = seen("ingress.test", "/").await;
        ensure!(found == "|1|", "{found}");
        Ok(())
    })
    .await;
    assert_eq!(seen("web.test", "/").await, "default me||DENY");
    folder.replace(FILE, &configuration(""));
    eventually("the HTTPProxy has no changes", async || {
        let found = seen("web.test", "/").await;
        ensure!(found == "|1|", "{found}");
        Ok(())
    })
    .await;
}

/// An ExtensionService for the Service of the same name.
pub(crate) fn extension(name: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1alpha1\nkind: ExtensionService\nmetadata: {{name: {name}}}\nspec:\n  \
         services: [{{name: {name}, port: 80}}]\n  protocol: h2c\n---\n"
    )
}

/// An HTTPProxy for the host `name`.test with these fields and routes.
fn proxy(name: &str, fields: &str, routes: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {{name: {name}}}\nspec:\n  \
         virtualhost: {{fqdn: {name}.test{fields}}}\n  routes:\n{routes}\n---\n"
    )
}

/// A route to the Service `a`, with further fields.
fn route(path: &str, fields: &str) -> String {
    format!("  - {{conditions: [{{prefix: {path}}}], services: [{{name: a, port: 80}}]{fields}}}\n")
}

#[tokio::test]
async fn all_hosts_are_authorized_unless_they_have_a_policy_of_their_own() {
    let (_backends, services) = backends(&["a"]).await;
    let (server, all) = auth_server("all", |path| Decision {
        denied: path.contains("denied").then_some(401),
        ..Decision::default()
    })
    .await;
    let (_other, other) = auth_server("other", |_| Decision::default()).await;
    let plain = route("/", "");
    let objects = services
        + &all
        + &other
        + &extension("all")
        + &extension("other")
        + &proxy(
            "web",
            ", authorization: {authPolicy: {context: {host: web}}}",
            &(plain.clone() + &route("/open", ", authPolicy: {disabled: true}")),
        )
        + &proxy(
            "without",
            ", authorization: {authPolicy: {disabled: true}}",
            &(plain.clone() + &route("/on", ", authPolicy: {}")),
        )
        + &proxy(
            "own",
            ", authorization: {extensionRef: {name: other}}",
            &plain,
        )
        + &proxy("none", "", &plain);
    let auth = "globalAuth: {extensionService: {namespace: default, name: all}, \
                authPolicy: {context: {tier: all, host: any}}}";
    let (fleet, folder) = configured(auth, &objects).await;
    check(
        fleet.http,
        &[
            ("web.test", "/denied", "401"),
            ("web.test", "/open/denied", "a"),
            ("without.test", "/denied", "a"),
            ("without.test", "/on/denied", "401"),
            ("own.test", "/denied", "a"),
            ("none.test", "/denied", "401"),
        ],
    )
    .await;
    let before = server.contexts().len();
    check(
        fleet.http,
        &[("web.test", "/", "a"), ("none.test", "/", "a")],
    )
    .await;
    let contexts = server.contexts().split_off(before);
    assert_eq!(
        contexts.into_iter().map(|of| json!(of)).collect::<Vec<_>>(),
        [
            json!({"tier": "all", "host": "web"}),
            json!({"tier": "all", "host": "any"}),
        ]
    );
    folder.replace(
        FILE,
        &configuration(&auth.replace("name: all", "name: gone")),
    );
    becomes(fleet.http, "none.test", "/", "503").await;
    check(
        fleet.http,
        &[
            ("without.test", "/denied", "a"),
            ("own.test", "/denied", "a"),
        ],
    )
    .await;
    folder.replace(FILE, &configuration(""));
    becomes(fleet.http, "none.test", "/denied", "a").await;
}

#[tokio::test]
async fn hosts_without_limits_have_the_default_ones() {
    let (_backends, services) = backends(&["a"]).await;
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let limits = RateServer::start(any, 2).await.expect("a server");
    let fixed =
        |value: &str| format!("descriptors: [{{entries: [{{genericKey: {{value: {value}}}}}]}}]");
    let own = format!(", rateLimitPolicy: {{global: {{{}}}}}", fixed("own"));
    let plain = route("/", "");
    let objects = services
        + &service("limits", &[limits.address()])
        + &extension("limits")
        + &proxy(
            "web",
            "",
            &(plain.clone() + &route("/open", ", rateLimitPolicy: {global: {disabled: true}}")),
        )
        + &proxy("own", &own, &plain)
        + &proxy(
            "without",
            ", rateLimitPolicy: {global: {disabled: true}}",
            &plain,
        );
    let section = format!(
        "rateLimitService: {{extensionService: {{namespace: default, name: limits}}, \
         defaultGlobalRateLimitPolicy: {{{}}}}}",
        fixed("all")
    );
    let (fleet, folder) = configured(&section, &objects).await;
    let twice = [("web.test", "/", "a"), ("web.test", "/", "a")];
    check(fleet.http, &twice).await;
    check(
        fleet.http,
        &[
            ("web.test", "/", "429"),
            ("web.test", "/open", "a"),
            ("without.test", "/", "a"),
            ("own.test", "/", "a"),
        ],
    )
    .await;
    let counts = limits.counts();
    let count = |key: &str| counts.get(key).copied().unwrap_or_default();
    assert_eq!(count("sesame generic_key=all"), 3, "{counts:?}");
    assert_eq!(count("sesame generic_key=own"), 1, "{counts:?}");
    folder.replace(FILE, &configuration(""));
    becomes(fleet.http, "web.test", "/", "a").await;
}
