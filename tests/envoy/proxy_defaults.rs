//! Sections of a SesameConfiguration that apply to all HTTPProxies.

use std::net::SocketAddr;

use anyhow::ensure;
use sesame_testkit::client::Request;

use crate::configuration::{FILE, configuration, configured};
use crate::harness::{backends, eventually};

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
