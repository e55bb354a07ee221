//! Settings of listeners: safe defaults, and the section `listeners` of a Gateway's SesameConfiguration.

use std::net::SocketAddr;

use anyhow::ensure;
use serde_json::Value;
use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{
    Folder, HTTP, Https, Sesame, at, backends, certificate, eventually, gateway, https, listening,
    new_ip, route,
};

/// The file with the configuration.
const FILE: &str = "tuned.yaml";

fn configuration(listeners: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1alpha1\nkind: SesameConfiguration\nmetadata: {{name: tuned}}\nspec: {{listeners: \
         {{{listeners}}}}}\n"
    )
}

/// Starts Sesame with a Gateway that has these listeners and settings, and a route from /public to the backend `a`.
async fn tuned(listeners: &[String], settings: &str, objects: &str) -> Sesame {
    let ip = new_ip();
    let class = "  gatewayClassName: sesame\n";
    let parameters = "  infrastructure: {parametersRef: {group: projectsesame.io, kind: SesameConfiguration, name: tuned}}\n";
    let gateway = gateway("web", ip, listeners).replace(class, &format!("{class}{parameters}"));
    let route = route("a", &["web"], &["a.example.com"], &[at("/public", "a")]);
    let folder = Folder::new(&[
        ("all.yaml", gateway + &route + objects),
        (FILE, configuration(settings)),
    ]);
    let sesame = Sesame::start(ip, folder, &["--log-level", "info"]).await;
    sesame.programmed().await;
    sesame
}

/// [`tuned`] with a plain listener.
pub(crate) async fn plain(settings: &str, objects: &str) -> Sesame {
    let sesame = tuned(&[HTTP.to_owned()], settings, objects).await;
    listening(sesame.at(8080)).await;
    sesame
}

pub(crate) fn get(path: &str) -> Request {
    Request::get("a.example.com", path)
}

/// The response's status, and the path that the backend got, if any.
fn seen(response: &Response) -> (u16, String) {
    let status = response.status.as_u16();
    let path = match status {
        200 => response.json()["path"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        _ => String::new(),
    };
    (status, path)
}

#[tokio::test]
async fn escaped_slashes_do_not_lead_out_of_a_route() {
    let (backends, services) = backends(&["a"]).await;
    let sesame = plain("", &services).await;
    for path in [
        "/public/..%2fadmin",
        "/public/..%2Fadmin",
        "/public/..%5cadmin",
        "/public/..%5Cadmin",
        "/public/x%2f..%2f..%2fadmin",
        "/public%2f..%2fadmin",
    ] {
        let response = sesame.send(&get(path)).await;
        assert_eq!(response.status, 307, "{path}: {response:?}");
        let location = response.header("location");
        let (_, unescaped) = location
            .split_once("a.example.com")
            .unwrap_or(("", location));
        let response = sesame.send(&get(unescaped)).await;
        assert_eq!(response.status, 404, "{path} to {unescaped}: {response:?}");
    }
    assert_eq!(backends[0].count(), 0);
    for (path, expected) in [
        ("//public//x", (200, "/public/x")),
        ("/public/%20%41", (200, "/public/%20A")),
        ("/public/../admin", (404, "")),
    ] {
        let (status, path_seen) = seen(&sesame.send(&get(path)).await);
        assert_eq!((status, &*path_seen), expected, "{path}");
    }
    let underscore = get("/public").header("x_user", "root");
    assert_eq!(sesame.send(&underscore).await.status, 400);
}

#[tokio::test]
async fn slashes_and_underscores_follow_a_changed_configuration() {
    let (_backends, services) = backends(&["a"]).await;
    let sesame = plain("paths: {escapedSlashes: KeepUnchanged}", &services).await;
    for (settings, escaped, slashes, underscore) in [
        (
            "paths: {escapedSlashes: KeepUnchanged, mergeSlashes: false}, headersWithUnderscores: Allow",
            (200, "/public/a%2Fb"),
            (404, ""),
            (200, true),
        ),
        (
            "paths: {escapedSlashes: Reject}, headersWithUnderscores: Drop",
            (400, ""),
            (200, "/public/a"),
            (200, false),
        ),
        (
            "paths: {escapedSlashes: UnescapeAndForward}, headersWithUnderscores: Reject",
            (200, "/public/a/b"),
            (200, "/public/a"),
            (400, false),
        ),
    ] {
        sesame.folder().replace(FILE, &configuration(settings));
        eventually(settings, async || {
            for (path, (status, expected)) in [("/public/a%2Fb", escaped), ("//public//a", slashes)]
            {
                let found = seen(&sesame.send(&get(path)).await);
                ensure!(found == (status, expected.to_owned()), "{path}: {found:?}");
            }
            let response = sesame.send(&get("/public").header("x_user", "root")).await;
            let status = response.status.as_u16();
            let kept = status == 200 && response.json()["headers"]["x_user"].is_array();
            ensure!((status, kept) == underscore, "{response:?}");
            Ok(())
        })
        .await;
    }
}

/// Sends bytes and a request. Returns what arrives until the connection is closed.
async fn raw(address: SocketAddr, before: &[u8]) -> String {
    let request = b"GET /public HTTP/1.1\r\nhost: a.example.com\r\nconnection: close\r\n\r\n";
    let mut connection = TcpStream::connect(address).await.expect("a connection");
    let sent = connection.write_all(&[before, request].concat()).await;
    let mut out = Vec::new();
    // A rejected connection may be reset.
    if sent.is_ok() {
        let _ = connection.read_to_end(&mut out).await;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[tokio::test]
async fn the_proxy_protocol_sets_the_client_address() {
    const V1: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.1 1000 80\r\n";
    const V2: &[u8] =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x08\xc0\0\x02\x01\x03\xe8\0\x50";
    let (_backends, services) = backends(&["a"]).await;
    let sesame = plain("proxyProtocol: Required", &services).await;
    let address = sesame.at(8080);
    for (header, client) in [(V1, "192.0.2.7"), (V2, "192.0.2.8")] {
        let response = raw(address, header).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert!(response.contains(client), "{response}");
    }
    assert_eq!(raw(address, b"").await, "");
    let optional = configuration("proxyProtocol: Optional");
    sesame.folder().replace(FILE, &optional);
    eventually("connections without a header are accepted", async || {
        let response = raw(address, b"").await;
        ensure!(response.starts_with("HTTP/1.1 200"), "{response}");
        Ok(())
    })
    .await;
    assert!(raw(address, V1).await.contains("192.0.2.7"));
}

#[tokio::test]
async fn only_responses_of_the_level_are_logged() {
    let (_backends, services) = backends(&["a"]).await;
    let sesame = plain("accessLog: {level: Errors, format: JSON}", &services).await;
    sesame.ask_well(&get("/public/found")).await;
    assert_eq!(sesame.send(&get("/missing")).await.status, 404);
    let entry = eventually("an entry in the log", async || {
        let log = sesame.log();
        let entry = log.lines().find(|line| line.contains("/missing"));
        let json = entry.and_then(|line| line.get(line.find('{')?..));
        let json =
            json.and_then(|json| serde_json::Deserializer::from_str(json).into_iter().next());
        json.unwrap_or(Ok(Value::Null))
            .map_err(Into::into)
            .and_then(|json: Value| {
                ensure!(json.is_object(), "{log}");
                Ok(json)
            })
    })
    .await;
    assert_eq!(entry["response_code"], 404, "{entry}");
    assert_eq!(entry["method"], "GET", "{entry}");
    assert!(!sesame.log().contains("/public/found"), "{}", sesame.log());
}

#[tokio::test]
async fn trusted_hops_select_the_client_address() {
    let (_backends, services) = backends(&["a"]).await;
    let text = "accessLog: {level: All, text: \"%REQ(:PATH)% from %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% 100%%\"}";
    let sesame = plain(&format!("{text}, trustedHops: 1"), &services).await;
    let request = get("/public/hops").header("x-forwarded-for", "198.51.100.1, 203.0.113.9");
    sesame.ask_well(&request).await;
    eventually("an entry in the log", async || {
        let log = sesame.log();
        ensure!(log.contains("/public/hops from 203.0.113.9 100%"), "{log}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn old_tls_versions_are_refused() {
    let identity = Identity::self_signed(&["a.example.com"]).expect("a certificate");
    let (_backends, services) = backends(&["a"]).await;
    let listener = https(Https {
        name: "https",
        port: 8443,
        hostname: "",
        certificates: &["front"],
    });
    let objects = services + &certificate("front", &identity);
    let settings = "tls: {minimumProtocolVersion: \"1.3\"}";
    let sesame = tuned(&[listener], settings, &objects).await;
    let address = sesame.at(8443);
    listening(address).await;
    let connect = Connect::tls("a.example.com");
    let response = connect.send(address, &get("/public")).await;
    assert_eq!(response.expect("a response").status, 200);
    let old = connect.only_tls12();
    assert!(old.open(address).await.is_err());
    sesame.folder().replace(FILE, &configuration(""));
    eventually("TLS 1.2 is accepted", async || {
        let response = old.send(address, &get("/public")).await?;
        ensure!(response.status == 200, "{response:?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn headers_above_the_limits_are_refused() {
    let (_backends, services) = backends(&["a"]).await;
    let limits =
        "limits: {requestHeadersKiB: 4, requestHeaderCount: 20, connectionBufferBytes: 4096}";
    let sesame = plain(limits, &services).await;
    sesame.ask_well(&get("/public")).await;
    let large = get("/public").header("x-large", &"a".repeat(5_000));
    assert_eq!(sesame.send(&large).await.status, 431);
    let many = (0..30).fold(get("/public"), |request, number| {
        request.header(&format!("x-{number}"), "a")
    });
    assert_eq!(sesame.send(&many).await.status, 431);
    // Bodies may be larger than buffers.
    let body = get("/public").method("POST").body("a".repeat(1_000_000));
    let response = sesame.ask_well(&body).await;
    assert_eq!(response.json()["body_length"], 1_000_000);
}

#[tokio::test]
async fn the_client_chooses_the_compression() {
    let (_backends, services) = backends(&["a"]).await;
    let sesame = plain("compression: [Brotli, Gzip, Zstd]", &services).await;
    for (accepted, used) in [
        ("gzip", "gzip"),
        ("br", "br"),
        ("zstd", "zstd"),
        ("gzip;q=0.5, br", "br"),
        ("identity", ""),
        ("deflate", ""),
    ] {
        let request = get("/public").header("accept-encoding", accepted);
        let response = sesame.ask_well(&request).await;
        assert_eq!(response.header("content-encoding"), used, "{accepted}");
    }
    let plain = sesame.ask_well(&get("/public")).await;
    assert_eq!(plain.header("content-encoding"), "");
}

/// The field of the CRD's section `listeners` at a JSON pointer.
fn schema(pointer: &str) -> Value {
    let definitions = sesame_api::crd::definitions();
    let kind = "SesameConfiguration";
    let definition = definitions
        .iter()
        .find(|definition| definition["spec"]["names"]["kind"] == kind);
    let definition = definition.expect("the CRD");
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let path = format!("/properties/spec/properties/listeners/properties{pointer}");
    schema.pointer(&path).expect("the field").clone()
}

#[tokio::test]
async fn envoy_accepts_every_operator_and_cipher_suite() {
    let identity = Identity::self_signed(&["a.example.com"]).expect("a certificate");
    let (_backends, services) = backends(&["a"]).await;
    let listener = https(Https {
        name: "https",
        port: 8443,
        hostname: "",
        certificates: &["front"],
    });
    let pattern = schema("/accessLog/properties/text/pattern");
    let pattern = pattern.as_str().expect("a pattern");
    let start = pattern.find("%(").expect("operators") + 2;
    let end = pattern[start..].find(')').expect("their end") + start;
    let operators = format!("%{}%", pattern[start..end].replace('|', "% %"));
    assert!(operators.contains("%RESPONSE_CODE%") && operators.contains("%START_TIME%"));
    let more = "%REQ(x-a?:PATH):10% %RESP(x-a)% %TRAILER(x-a)% %START_TIME(%Y-%m-%dT%H:%M:%S.%3f %F %T %s %z %Z %e %f)%";
    let suites = schema("/tls/properties/cipherSuites/items/enum");
    let settings = format!(
        "tls: {{cipherSuites: {suites}}}, accessLog: {{level: All, text: \"{operators} {more} end\"}}"
    );
    let objects = services + &certificate("front", &identity);
    let sesame = tuned(&[listener], &settings, &objects).await;
    let address = sesame.at(8443);
    listening(address).await;
    let connect = Connect::tls("a.example.com").only_tls12();
    let response = connect.send(address, &get("/public")).await;
    assert_eq!(response.expect("a response").status, 200);
    eventually("an entry in the log", async || {
        let log = sesame.log();
        ensure!(log.contains(" end"), "{log}");
        Ok(())
    })
    .await;
}
