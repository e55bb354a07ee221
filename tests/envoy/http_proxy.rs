//! HTTPProxies: conditions, inclusions, and all policies that a route may have.

use std::net::{IpAddr, SocketAddr, TcpListener};

use anyhow::Context;

use crate::backends::websocket;
use crate::harness::{Folder, Sesame, backends, check, eventually, listening, new_ip};

/// An offset at which the port for HTTP is free.
fn free_offset() -> u16 {
    loop {
        let any = TcpListener::bind((IpAddr::from([127, 0, 0, 1]), 0)).expect("a free port");
        let port = any.local_addr().expect("an address").port();
        if port > 80 {
            return port - 80;
        }
    }
}

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
    let offset = free_offset();
    let folder = Folder::new(&[("all.yaml", format!("{services}\n---{PROXIES}"))]);
    let arguments = ["--port-offset", &offset.to_string()];
    let sesame = Sesame::start(new_ip(), folder, &arguments).await;
    let ip: IpAddr = eventually("the HTTPProxy has an address", async || {
        let status = sesame.status("HTTPProxy", "web").await?;
        let ip = status["loadBalancer"]["ingress"][0]["ip"].as_str();
        Ok(ip.with_context(|| status.to_string())?.parse()?)
    })
    .await;
    let http = SocketAddr::new(ip, 80 + offset);
    listening(http).await;
    check(
        http,
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
    websocket(http, "web.example.com").await;
}
