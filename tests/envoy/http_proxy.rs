//! HTTPProxies: conditions, inclusions, and all policies that a route may have.

use crate::backends::websocket;
use crate::harness::{DefaultFleet, HTTP, Sesame, at, backends, check, listening, route};

const PROXIES: &str = r#"
apiVersion: projectsesame.io/v1
kind: HTTPProxy
metadata: {name: web}
spec:
  virtualhost:
    fqdn: web.example.com
    corsPolicy: {allowOrigin: ["https://a.com", "https://.*"], allowMethods: [GET], maxAge: 10m}
    ipAllowPolicy: [{source: Peer, cidr: 127.0.0.0/8}]
  includes:
  - {name: child, conditions: [{prefix: /child}]}
  - {name: missing, conditions: [{prefix: /missing}]}
  routes:
  - services: [{name: a, port: 80}]
  - conditions: [{prefix: /text}]
    services: [{name: b, port: 80}]
    timeoutPolicy: {response: 10s, idle: 20s, idleConnection: 30s}
    retryPolicy: {count: 2, perTryTimeout: 1s, retryOn: [5xx, retriable-status-codes], retriableStatusCodes: [503]}
    loadBalancerPolicy: {strategy: Cookie}
    internalRedirectPolicy: {allowCrossSchemeRedirect: SafeOnly, denyRepeatedRouteRedirect: true}
  - conditions: [{prefix: /headers}]
    services: [{name: b, port: 80, protocol: h2c}, {name: a, port: 80, mirror: true, weight: 50}]
    requestHeadersPolicy:
      set:
      - {name: Host, value: "%REQ(x-host)%"}
      - {name: x-a, value: "%DOWNSTREAM_REMOTE_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% %DOWNSTREAM_LOCAL_PORT% 5%"}
      - {name: x-b, value: "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%"}
      - {name: x-c, value: "%DOWNSTREAM_LOCAL_SUBJECT% %DOWNSTREAM_LOCAL_URI_SAN% %DOWNSTREAM_PEER_CERT% %DOWNSTREAM_PEER_CERT_V_END%"}
      - {name: x-d, value: "%DOWNSTREAM_PEER_CERT_V_START% %DOWNSTREAM_PEER_FINGERPRINT_1% %DOWNSTREAM_PEER_FINGERPRINT_256%"}
      - {name: x-e, value: "%DOWNSTREAM_PEER_ISSUER% %DOWNSTREAM_PEER_SERIAL% %DOWNSTREAM_PEER_SUBJECT% %DOWNSTREAM_PEER_URI_SAN%"}
      - {name: x-f, value: "%DOWNSTREAM_TLS_CIPHER% %DOWNSTREAM_TLS_SESSION_ID% %DOWNSTREAM_TLS_VERSION% %HOSTNAME% %PROTOCOL%"}
    responseHeadersPolicy:
      set: [{name: x-g, value: "%RESPONSE_CODE% %RESPONSE_CODE_DETAILS% %RESPONSE_FLAGS% %UPSTREAM_REMOTE_ADDRESS% %REQ(x)%"}]
  - conditions: [{prefix: /limited}]
    directResponsePolicy: {statusCode: 418}
    rateLimitPolicy: {local: {requests: 1, unit: hour}}
  - conditions: [{prefix: /denied}]
    directResponsePolicy: {statusCode: 418}
    ipDenyPolicy: [{source: Remote, cidr: "127.0.0.0/8"}]
  - conditions: [{exact: /q}, {queryParameter: {name: q, suffix: z}}, {header: {name: x, notexact: "1", treatMissingAsEmpty: true}}]
    directResponsePolicy: {statusCode: 410}
---
apiVersion: projectsesame.io/v1
kind: HTTPProxy
metadata: {name: child}
spec:
  routes:
  - conditions: [{prefix: /v1}]
    services: [{name: b, port: 80, slowStartPolicy: {window: 10s}}]
    loadBalancerPolicy: {strategy: RoundRobin}
    pathRewritePolicy: {replacePrefix: [{replacement: /}]}
  - conditions: [{regex: "/v[2-9]"}]
    services: [{name: b, port: 80}]
"#;

#[tokio::test]
async fn routes_select_backends_with_their_policies() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let objects = format!("{services}\n---{PROXIES}");
    let started = DefaultFleet::serving("HTTPProxy", &objects).await;
    check(
        started.http,
        &[
            ("web.example.com", "/", "a"),
            ("web.example.com", "/texture", "b"),
            ("web.example.com", "/limited", "418"),
            ("web.example.com", "/limited", "429"),
            ("web.example.com", "/denied", "403"),
            ("web.example.com", "/q?q=xyz", "410"),
            ("web.example.com", "/q?q=xy", "a"),
            ("web.example.com", "/missing/x", "502"),
            ("web.example.com", "/child/v1/x", "b"),
            ("web.example.com", "/child/v3", "b"),
            ("web.example.com", "/child", "a"),
            ("other.example.com", "/", "404"),
        ],
    )
    .await;
    websocket(started.http, "web.example.com").await;
}

#[tokio::test]
async fn a_gateway_that_names_their_kinds_serves_httpproxies_and_ingresses() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let kinds = "allowedRoutes: {kinds: [{kind: HTTPRoute}, {group: projectsesame.io, kind: HTTPProxy}, \
                 {group: networking.k8s.io, kind: Ingress}]}";
    let listeners = [
        format!("{HTTP}, hostname: '*.example.com', {kinds}"),
        "name: closed, protocol: HTTP, port: 8081".to_owned(),
    ];
    let objects = services
        + "
apiVersion: projectsesame.io/v1
kind: HTTPProxy
metadata: {name: web}
spec:
  virtualhost: {fqdn: web.example.com}
  routes: [{services: [{name: a, port: 80}]}]
---
apiVersion: projectsesame.io/v1
kind: HTTPProxy
metadata: {name: elsewhere, namespace: other}
spec:
  virtualhost: {fqdn: elsewhere.example.com}
  routes: [{directResponsePolicy: {statusCode: 204}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  rules:
  - host: web.example.com
    http: {paths: [{path: /b, pathType: Prefix, backend: {service: {name: b, port: {number: 80}}}}]}
---
" + &route(
        "web",
        &["web, sectionName: http"],
        &["web.example.com"],
        &[&at("/b/route", "a")],
    );
    let sesame = Sesame::with_gateway(&listeners, &objects).await;
    listening(sesame.at(8080)).await;
    check(
        sesame.at(8080),
        &[
            ("web.example.com", "/", "a"),
            ("web.example.com", "/b", "b"),
            ("web.example.com", "/b/route", "a"),
            ("elsewhere.example.com", "/", "404"),
        ],
    )
    .await;
    check(sesame.at(8081), &[("web.example.com", "/", "404")]).await;
}
