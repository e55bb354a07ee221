//! RequestRedirect: the Location header, especially its port.

use std::net::SocketAddr;

use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Request};

use crate::harness::{
    Folder, HTTP, Https, Sesame, certificate, gateway, https, listening, new_ip, route,
};

fn rule(path: &str, redirect: &str) -> String {
    format!(
        "matches: [{{path: {{value: {path}}}}}], filters: [{{type: RequestRedirect, requestRedirect: {{{redirect}}}}}]"
    )
}

/// Requests each path and checks status and Location.
async fn check(connect: &Connect, address: SocketAddr, host: &str, cases: &[(&str, u16, &str)]) {
    listening(address).await;
    let mut wrong = Vec::new();
    for (path, status, location) in cases {
        let response = connect
            .send(address, &Request::get(host, path))
            .await
            .expect("a response");
        let found = (response.status.as_u16(), response.header("location"));
        if found != (*status, *location) {
            wrong.push(format!(
                "{host}{path}: got {found:?}, expected {status} {location}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn redirects_can_set_host_path_and_status() {
    let rules = [
        rule("/host", "hostname: b.example.org"),
        rule(
            "/host-and-status",
            "hostname: b.example.org, statusCode: 301",
        ),
        rule("/301", "statusCode: 301"),
        rule("/302", "statusCode: 302"),
        rule("/303", "statusCode: 303"),
        rule("/307", "statusCode: 307"),
        rule("/308", "statusCode: 308"),
        rule(
            "/full",
            "path: {type: ReplaceFullPath, replaceFullPath: /whole}",
        ),
        rule(
            "/prefix",
            "path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}",
        ),
        rule(
            "/strip",
            "path: {type: ReplacePrefixMatch, replacePrefixMatch: /}",
        ),
        rule(
            "/all",
            "scheme: https, hostname: b.example.org, port: 444, path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}, statusCode: 301",
        ),
    ];
    let sesame = Sesame::with_rules("", &rules).await;
    check(
        &Connect::plain(),
        sesame.at(8080),
        "a.example.com:8080",
        &[
            ("/host/x?q=1", 302, "http://b.example.org:8080/host/x?q=1"),
            (
                "/host-and-status",
                301,
                "http://b.example.org:8080/host-and-status",
            ),
            ("/301?q", 301, "http://a.example.com:8080/301?q"),
            ("/302", 302, "http://a.example.com:8080/302"),
            ("/303", 303, "http://a.example.com:8080/303"),
            ("/307", 307, "http://a.example.com:8080/307"),
            ("/308", 308, "http://a.example.com:8080/308"),
            ("/full/x?q=1", 302, "http://a.example.com:8080/whole?q=1"),
            ("/prefix/x?q=1", 302, "http://a.example.com:8080/new/x?q=1"),
            ("/prefix", 302, "http://a.example.com:8080/new"),
            ("/prefix/", 302, "http://a.example.com:8080/new/"),
            ("/strip/x", 302, "http://a.example.com:8080/x"),
            ("/strip", 302, "http://a.example.com:8080/"),
            ("/strip/", 302, "http://a.example.com:8080/"),
            ("/all/x", 301, "https://b.example.org:444/new/x"),
        ],
    )
    .await;
    let post = Request::get("a.example.com", "/303")
        .method("POST")
        .body("x");
    let response = sesame.send(&post).await;
    assert_eq!(response.status, 303);
}

/// The port defaults to that of the redirect's scheme, if set, or else to the listener's. Default ports are omitted if
/// the hostname is known.
#[tokio::test]
async fn ports_follow_the_scheme_or_the_listener() {
    let rules = [
        rule("/nothing", "hostname: b.example.org"),
        rule("/https", "scheme: https"),
        rule("/http", "scheme: http"),
        rule("/port-80", "port: 80"),
        rule("/port-9", "port: 9"),
        rule("/https-and-9", "scheme: https, port: 9"),
        rule("/https-and-443", "scheme: https, port: 443"),
        rule("/http-and-80", "scheme: http, port: 80"),
        rule("/http-and-8080", "scheme: http, port: 8080"),
    ];
    let secure = https(Https {
        name: "https",
        port: 8443,
        hostname: "",
        certificates: &["a"],
    });
    let listeners = [HTTP, &secure];
    let identity = Identity::self_signed(&["a.example.com"]).expect("a certificate");
    let objects = certificate("a", &identity) + &route("a", &["web"], &["a.example.com"], &rules);
    let sesame = Sesame::with_gateway(&listeners, &objects).await;
    for host in ["a.example.com", "a.example.com:8080", "a.example.com:7"] {
        check(
            &Connect::plain(),
            sesame.at(8080),
            host,
            &[
                ("/nothing", 302, "http://b.example.org:8080/nothing"),
                ("/https", 302, "https://a.example.com/https"),
                ("/http", 302, "http://a.example.com/http"),
                ("/port-80", 302, "http://a.example.com/port-80"),
                ("/port-9", 302, "http://a.example.com:9/port-9"),
                ("/https-and-9", 302, "https://a.example.com:9/https-and-9"),
                ("/https-and-443", 302, "https://a.example.com/https-and-443"),
                ("/http-and-80", 302, "http://a.example.com/http-and-80"),
                (
                    "/http-and-8080",
                    302,
                    "http://a.example.com:8080/http-and-8080",
                ),
            ],
        )
        .await;
    }
    check(
        &Connect::tls("a.example.com"),
        sesame.at(8443),
        "a.example.com:8443",
        &[
            ("/nothing", 302, "https://b.example.org:8443/nothing"),
            ("/https", 302, "https://a.example.com/https"),
            ("/http", 302, "http://a.example.com/http"),
            ("/port-80", 302, "https://a.example.com:80/port-80"),
            ("/https-and-443", 302, "https://a.example.com/https-and-443"),
        ],
    )
    .await;
}

/// On a wildcard route, Envoy keeps the request's host without its port.
#[tokio::test]
async fn a_wildcard_route_keeps_the_requests_host_and_drops_its_port() {
    let rules = [
        rule("/https", "scheme: https"),
        rule("/nothing", "statusCode: 301"),
    ];
    let objects =
        route("wild", &["web"], &["*.example.com"], &rules) + &route("any", &["web"], &[], &rules);
    let sesame = Sesame::with_gateway(&[HTTP], &objects).await;
    for host in ["x.example.com", "other.org"] {
        check(
            &Connect::plain(),
            sesame.at(8080),
            host,
            &[
                ("/https", 302, &format!("https://{host}/https")),
                ("/nothing", 301, &format!("http://{host}:8080/nothing")),
            ],
        )
        .await;
        let with_port = format!("{host}:8080");
        // The scheme's default port may be explicit.
        check(
            &Connect::plain(),
            sesame.at(8080),
            &with_port,
            &[
                ("/https", 302, &format!("https://{host}:443/https")),
                ("/nothing", 301, &format!("http://{host}:8080/nothing")),
            ],
        )
        .await;
    }
}

/// Redirects to a port of the Gateway use the offset; those to another server's port don't.
#[tokio::test]
async fn port_offset_applies_to_redirects_to_gateway_ports() {
    let rules = [
        rule("/https", "scheme: https"),
        rule("/nothing", "statusCode: 301"),
        rule("/port", "port: 81"),
        rule("/other", "port: 82"),
    ];
    let ip = new_ip();
    let listeners = [
        "name: http, protocol: HTTP, port: 80",
        "name: next, protocol: HTTP, port: 81",
        "name: https, protocol: HTTP, port: 443",
    ];
    let text = gateway("web", ip, &listeners) + &route("a", &["web"], &["a.example.com"], &rules);
    let sesame = Sesame::start(
        ip,
        Folder::new(&[("all.yaml", text)]),
        &["--port-offset", "9000"],
    )
    .await;
    sesame.programmed().await;
    check(
        &Connect::plain(),
        sesame.at(9080),
        "a.example.com:9080",
        &[
            ("/https", 302, "https://a.example.com:9443/https"),
            ("/nothing", 301, "http://a.example.com:9080/nothing"),
            ("/port", 302, "http://a.example.com:9081/port"),
            ("/other", 302, "http://a.example.com:82/other"),
        ],
    )
    .await;
}
