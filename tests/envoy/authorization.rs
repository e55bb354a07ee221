//! External authorization for HTTPProxies: requests to the services, route overrides, and failures.
//!
//! An echo backend serves as an HTTP authorization service: it permits a request by responding with 200.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_testkit::auth::{AuthServer, Decision};
use sesame_testkit::backend::Backend;
use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Request};

use crate::auth::pair;
use crate::backend_tls::{authorities, authority};
use crate::harness::{
    DefaultFleet, Summary, backends, becomes, certificate, check, listening, service,
};

/// An ExtensionService for the Service of the same name, with further fields.
fn extension(name: &str, fields: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1alpha1\nkind: ExtensionService\nmetadata: {{name: {name}}}\nspec:\n  \
         services: [{{name: {name}, port: 80, weight: 1}}, {{name: unused, port: 80}}]\n{fields}\n---\n"
    )
}

/// An HTTPProxy for the host `name`.test with these authorization fields and routes.
fn proxy(name: &str, authorization: &str, routes: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {{name: {name}}}\nspec:\n  virtualhost:\n    \
         fqdn: {name}.test\n    authorization: {{{authorization}}}\n  routes:\n{routes}\n---\n"
    )
}

/// The same HTTPProxy with TLS.
fn with_tls(proxy: &str) -> String {
    let tls = "    tls: {secretName: front}\n    authorization:";
    proxy.replace("    authorization:", tls)
}

/// A route to the Service `a`, with further fields.
fn route(path: &str, fields: &str) -> String {
    format!("  - {{conditions: [{{prefix: {path}}}], services: [{{name: a, port: 80}}]{fields}}}\n")
}

/// Starts a gRPC authorization service that denies paths containing `denied`. Also returns its Service `grpc`.
async fn grpc() -> (AuthServer, String) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = AuthServer::start(any, |request| match request.path.contains("denied") {
        true => Decision {
            denied: Some(401),
            body: "denied".to_owned(),
            ..Decision::default()
        },
        false => Decision {
            set: vec![pair("x-user", "bob")],
            ..Decision::default()
        },
    });
    let server = server.await.expect("a server");
    let text = service("grpc", &[server.address()]);
    (server, text)
}

fn unreachable(name: &str) -> String {
    service(name, &[SocketAddr::from(([127, 0, 0, 1], 1))])
}

const UNUSED: &str =
    "apiVersion: v1\nkind: Service\nmetadata: {name: unused}\nspec: {ports: [{port: 80}]}\n---\n";

#[tokio::test]
async fn a_grpc_service_decides_and_gets_the_context_of_the_route() {
    let (_backends, services) = backends(&["a"]).await;
    let (server, service) = grpc().await;
    let routes = [
        route("/", ""),
        route("/open", ", authPolicy: {disabled: true}"),
        route(
            "/more",
            ", authPolicy: {context: {tier: route, \"a b\": \"100%\"}}",
        ),
        "  - {conditions: [{prefix: /redirect}], requestRedirectPolicy: {path: /new}}\n".to_owned(),
        "  - {conditions: [{prefix: /direct}], directResponsePolicy: {statusCode: 418}}\n"
            .to_owned(),
    ]
    .concat();
    let grpc = "extensionRef: {name: grpc}, responseTimeout: infinity";
    let body = "withRequestBody: {maxRequestBytes: 4, allowPartialMessage: true}";
    let bytes = body.replace("true", "true, packAsBytes: true");
    let objects = services
        + &service
        + UNUSED
        + &extension("grpc", "  protocol: h2c")
        + &proxy(
            "web",
            &format!("{grpc}, {body}, authPolicy: {{context: {{tier: host, team: shop}}}}"),
            &routes,
        )
        + &proxy(
            "bytes",
            &format!("{grpc}, {bytes}, failOpen: true, authPolicy: {{context: {{k: v}}}}"),
            &route("/", ""),
        )
        + &proxy(
            "mixed",
            &format!("{grpc}, authPolicy: {{disabled: true}}"),
            &(route("/", "") + &route("/on", ", authPolicy: {}")),
        );
    let proxies = DefaultFleet::serving("HTTPProxy", &objects).await;
    check(
        proxies.http,
        &[
            ("web.test", "/more/denied", "401"),
            ("web.test", "/redirect/denied", "401"),
            ("web.test", "/direct/denied", "401"),
            ("web.test", "/open/denied", "a"),
            ("web.test", "/redirect", "302"),
            ("web.test", "/direct", "418"),
            ("mixed.test", "/denied", "a"),
            ("mixed.test", "/on/denied", "401"),
            ("bytes.test", "/denied", "401"),
        ],
    )
    .await;
    let before = server.checked().len();
    let request = |host: &str, path: &str| {
        Request::get(host, path)
            .method("POST")
            .header("x-user", "forged")
            .body("123456")
    };
    for (host, path) in [
        ("web.test", "/more"),
        ("web.test", "/"),
        ("bytes.test", "/"),
        ("mixed.test", "/on"),
    ] {
        let response = proxies.send(&request(host, path)).await;
        assert_eq!(response.backend(), "a", "{host}{path}");
        assert_eq!(response.json()["body"], "123456");
        assert_eq!(response.json()["headers"]["x-user"], json!(["bob"]));
    }
    let contexts = server.contexts().split_off(before);
    assert_eq!(
        contexts.into_iter().map(|of| json!(of)).collect::<Vec<_>>(),
        [
            json!({"tier": "route", "team": "shop", "a b": "100%"}),
            json!({"tier": "host", "team": "shop"}),
            json!({"k": "v"}),
            json!({}),
        ]
    );
    let checked = server.checked().split_off(before);
    let starts: Vec<_> = checked
        .iter()
        .map(|request| (request.body.clone(), request.raw_body.clone()))
        .collect();
    let text = ("1234".to_owned(), Vec::new());
    assert_eq!(
        starts,
        [
            text.clone(),
            text,
            (String::new(), b"1234".to_vec()),
            (String::new(), Vec::new())
        ]
    );
}

#[tokio::test]
async fn requests_with_tls_are_authorized() {
    let (_backends, services) = backends(&["a"]).await;
    let (server, service) = grpc().await;
    let identity = Identity::self_signed(&["web.test"]).expect("a certificate");
    let routes = route("/", "")
        + &route("/open", ", authPolicy: {disabled: true}")
        + &route("/insecure", ", permitInsecure: true");
    let objects = services
        + &service
        + UNUSED
        + &certificate("front", &identity)
        + &extension("grpc", "  protocol: h2c")
        + &with_tls(&proxy("web", "extensionRef: {name: grpc}", &routes));
    let proxies = DefaultFleet::serving("HTTPProxy", &objects).await;
    listening(proxies.https).await;
    for connect in [Connect::tls("web.test"), Connect::tls("web.test").h2()] {
        for (path, expected) in [("/", "a"), ("/denied", "401"), ("/open/denied", "a")] {
            let request = Request::get("web.test", path);
            let found = (&connect, &request).of(proxies.https).await;
            assert_eq!(found, expected, "{path} by {connect:?}");
        }
    }
    let before = server.checked().len();
    assert_eq!(before, 4);
    check(
        proxies.http,
        &[
            // Redirects to HTTPS need no authorization.
            ("web.test", "/denied", "301"),
            ("web.test", "/insecure", "a"),
            ("web.test", "/insecure/denied", "401"),
        ],
    )
    .await;
    assert_eq!(server.checked().len(), before + 2);
}

#[tokio::test]
async fn bodies_above_the_maximum_are_refused_without_a_check() {
    let (backends, services) = backends(&["a"]).await;
    let (server, service) = grpc().await;
    let whole = "extensionRef: {name: grpc}, withRequestBody: {maxRequestBytes: 4}";
    let partial = whole.replace("4}", "4, allowPartialMessage: true}");
    let objects = services
        + &service
        + UNUSED
        + &extension("grpc", "  protocol: h2c")
        + &proxy("web", whole, &route("/", ""))
        + &proxy("partial", &partial, &route("/", ""));
    let proxies = DefaultFleet::serving("HTTPProxy", &objects).await;
    for (host, body, expected) in [
        ("web.test", "1234", 200),
        ("web.test", "12345", 413),
        ("partial.test", "12345", 200),
    ] {
        let request = Request::get(host, "/").method("POST").body(body);
        let response = proxies.send(&request).await;
        assert_eq!(response.status, expected, "{host} {body}");
    }
    let checked = server.checked();
    let bodies: Vec<_> = checked.iter().map(|request| &*request.body).collect();
    assert_eq!(bodies, ["1234", "1234"]);
    assert_eq!(backends[0].count(), 2);
}

#[tokio::test]
async fn requests_pass_a_slow_service_only_if_the_host_says_so() {
    let (backends, services) = backends(&["a", "slow"]).await;
    let settings = "extensionRef: {name: slow}, serviceType: http, responseTimeout: 2s, \
                    httpSettings: {allowedAuthorizationHeaders: [{exact: x-echo-delay}]}";
    // Without the timeout, the service would deny the request.
    let routes = route(
        "/status/403",
        ", pathRewritePolicy: {replacePrefix: [{replacement: /}]}, requestHeadersPolicy: {remove: [x-echo-delay]}",
    );
    let objects = services
        + UNUSED
        + &extension("slow", "  protocol: http/1.1")
        + &proxy("web", &format!("{settings}, failOpen: true"), &routes)
        + &proxy("closed", settings, &routes);
    let proxies = DefaultFleet::serving("HTTPProxy", &objects).await;
    let before_timeout = Request::get("web.test", "/status/403");
    assert_eq!(before_timeout.of(proxies.http).await, "403");
    // Less than the default timeout.
    for (host, expected) in [("web.test", "a"), ("closed.test", "503")] {
        let request = Request::get(host, "/status/403").header("x-echo-delay", "4s");
        assert_eq!(request.of(proxies.http).await, expected, "{host}");
    }
    assert_eq!((backends[0].count(), backends[1].count()), (1, 3));
}

#[tokio::test]
async fn an_http_service_gets_the_listed_headers() {
    let (backends, services) = backends(&["a", "http"]).await;
    let settings = "httpSettings: {pathPrefix: /check/, allowedAuthorizationHeaders: [{prefix: X-Seen-}, {exact: \
         x-echo-set-header}], allowedUpstreamHeaders: [{suffix: -id}, {exact: x-user, ignoreCase: true}]}";
    let http =
        format!("extensionRef: {{name: http, namespace: default}}, serviceType: http, {settings}");
    let objects = services
        + UNUSED
        + &extension("http", "  protocol: http/1.1")
        + &proxy("web", &http, &route("/", ""));
    let proxies = DefaultFleet::serving("HTTPProxy", &objects).await;
    let request = Request::get("web.test", "/path?query")
        .header("x-seen-a", "1")
        .header("x-unseen", "2")
        .header("x-user", "forged")
        .header("x-echo-set-header", "team-id: shop")
        .header("x-echo-set-header", "x-other: no");
    let response = proxies.send(&request).await;
    assert_eq!(response.backend(), "a");
    let got = &response.json()["headers"];
    assert_eq!(got["team-id"], json!(["shop"]));
    for name in ["x-other", "x-user"] {
        assert_eq!(got[name], Value::Null, "{name}");
    }
    let checked = backends[1].requests().pop().expect("a check");
    assert_eq!(
        (&*checked.path, &*checked.host),
        ("/check/path?query", "web.test")
    );
    assert_eq!(checked.header("x-seen-a"), Some("1"));
    assert_eq!(checked.header("x-unseen"), None);
    // The service fails if its response is longer than Envoy reads.
    backends[1].document("/check/long", vec![b'x'; (1 << 20) + 1]);
    check(proxies.http, &[("web.test", "/long", "503")]).await;
}

#[tokio::test]
async fn requests_pass_a_failed_service_only_if_the_host_says_so() {
    let (_backends, services) = backends(&["a"]).await;
    let context = "authPolicy: {context: {k: v}}";
    let down = "extensionRef: {name: down}";
    let one = |name: &str, fields: &str| proxy(name, fields, &route("/", ""));
    let objects = services
        + UNUSED
        + &unreachable("down")
        + &extension("down", "  protocol: h2c")
        + &one("web", down)
        + &one("context", &format!("{down}, {context}"))
        + &one("open", &format!("{down}, failOpen: true"))
        + &one("openctx", &format!("{down}, {context}, failOpen: true"))
        + &one(
            "openhttp",
            &format!("{down}, serviceType: http, failOpen: true"),
        )
        + &proxy(
            "missing",
            "extensionRef: {name: missing}, failOpen: true",
            &(route("/", "") + &route("/open", ", authPolicy: {disabled: true}")),
        );
    let proxies = DefaultFleet::serving("HTTPProxy", &objects).await;
    check(
        proxies.http,
        &[
            ("web.test", "/", "503"),
            ("context.test", "/", "503"),
            ("open.test", "/", "a"),
            ("openctx.test", "/", "a"),
            ("openhttp.test", "/", "a"),
            ("missing.test", "/", "503"),
            ("missing.test", "/open", "a"),
        ],
    )
    .await;
    // The service appears.
    let (_server, grpc) = grpc().await;
    let text = grpc.replace("grpc", "missing") + &extension("missing", "  protocol: h2c");
    proxies.sesame.folder().write("more.yaml", &text);
    becomes(proxies.http, "missing.test", "/", "a").await;
    check(proxies.http, &[("missing.test", "/denied", "401")]).await;
}

#[tokio::test]
async fn the_certificate_of_an_extension_service_is_verified() {
    let ca = authority();
    let identity = ca.issue(&["s.test"]).expect("a certificate");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = identity.server_config().expect("a configuration");
    let secured = Backend::start_tls("secured", any, config)
        .await
        .expect("a backend");
    let (_backends, services) = backends(&["a"]).await;
    let secret = |name: &str, of| {
        let config_map = authorities(name, &[of]);
        config_map
            .replace("kind: ConfigMap", "kind: Secret")
            .replace("\ndata:", "\nstringData:")
    };
    let validation = |ca: &str, name: &str| {
        format!("  protocol: http/1.1\n  validation: {{caSecret: {ca}, subjectName: {name}}}")
    };
    let http = |name: &str| {
        let reference = format!("extensionRef: {{name: {name}}}, serviceType: http");
        proxy(name, &reference, &route("/", ""))
    };
    let at_secured = |name: &str| service(name, &[secured.address()]);
    let objects = services
        + UNUSED
        + &secret("ca", &ca)
        + &secret("other", &authority())
        + &at_secured("web")
        + &at_secured("named")
        + &at_secured("distrusted")
        + &at_secured("plain")
        + &extension("web", &validation("ca", "s.test"))
        + &extension("named", &validation("ca", "other.test"))
        + &extension("distrusted", &validation("other", "s.test"))
        + &extension("plain", "  protocol: http/1.1")
        + &["web", "named", "distrusted", "plain"].map(http).concat();
    let proxies = DefaultFleet::serving("HTTPProxy", &objects).await;
    check(
        proxies.http,
        &[
            ("web.test", "/", "a"),
            ("named.test", "/", "503"),
            ("distrusted.test", "/", "503"),
            // The service requires TLS, so it responds with an error.
            ("plain.test", "/", "503"),
        ],
    )
    .await;
}
