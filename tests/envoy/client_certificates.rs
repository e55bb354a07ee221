//! The client certificate that a Gateway presents to its backends: which backends get it, rotation, failing closed.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;
use sesame_testkit::backend::Backend;
use sesame_testkit::certs::{Authority, Clients, Identity};
use sesame_testkit::client::{Connect, Request};

use crate::backend_tls::{HOST, authorities, authority, by, load, policy, trust};
use crate::configuration::{FILE, configuration, configured};
use crate::connections::tls;
use crate::harness::{
    HTTP, Sesame, at, backend, becomes, certificate, eventually, gateway, grpc_route, listening,
    new_ip, route, service, tcp_route, tls_route, to, turns,
};
use crate::listener_sets::listener_set;
use crate::proxy_clients::secret;

/// Starts a TLS backend for s.test with a SPIFFE ID.
pub(crate) async fn mutual(name: &str, authority: &Authority, clients: Clients<'_>) -> Backend {
    let identity = authority.issue(&["s.test", "spiffe://test/s"]);
    let identity = identity.expect("a certificate");
    let config = identity.server_config_for(clients);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let backend = Backend::start_tls(name, any, config.expect("a configuration")).await;
    backend.expect("a backend")
}

/// The Gateway, presenting the client certificate in a Secret.
fn presenting(gateway: &str, secret: &str) -> String {
    let spec = format!("spec:\n  tls: {{backend: {{clientCertificateRef: {{name: {secret}}}}}}}\n");
    gateway.replacen("spec:\n", &spec, 1)
}

fn client(authority: &Authority, name: &str) -> Identity {
    let names = [name, "spiffe://test/gateway"];
    authority.issue(&names).expect("a certificate")
}

/// Sends a request and returns the client certificate that the backend received, as base64.
async fn presented(address: SocketAddr, path: &str) -> anyhow::Result<Value> {
    let response = Connect::plain()
        .send(address, &Request::get(HOST, path))
        .await?;
    ensure!(response.status == 200, "{response:?}");
    Ok(response.json()["tls"]["client"].clone())
}

/// Waits until the backend gets this certificate, over new connections.
async fn presents(address: SocketAddr, expected: Option<&Identity>) {
    let expected = expected.map(Identity::leaf);
    eventually("the certificate is presented", async || {
        // The backend closes the connection, so Envoy opens another.
        let found = presented(address, "/?set-header=connection:close").await?;
        ensure!(found == Value::from(expected.clone()), "{found}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn each_gateway_presents_its_own_certificate_to_backends_with_a_policy() {
    let (ca, clients) = (authority(), authority());
    let requires = mutual("requires", &ca, Clients::Required(&clients.pem())).await;
    let requests = mutual("requests", &ca, Clients::Optional(&clients.pem())).await;
    let [first, second] = ["first.test", "second.test"].map(|name| client(&clients, name));
    let foreign = client(&ca, "foreign.test");
    let by_names = |names: &str| {
        format!(
            "{}, hostname: s.test, subjectAltNames: [{names}]",
            trust("ca")
        )
    };
    let uri = "{type: URI, uri: \"spiffe://test/s\"}";
    let dns = "{type: Hostname, hostname: s.test}";
    let other = "{type: URI, uri: \"spiffe://test/other\"}";
    let https = |text: String| text.replace("port: 80}", "port: 80, appProtocol: https}");
    let mut objects = authorities("ca", &[&ca])
        + &certificate("first", &first)
        + &certificate("second", &second)
        + &certificate("foreign", &foreign)
        + &https(service("no-policy", &[requests.address()]));
    let mut rules = vec![at("/no-policy", "no-policy")];
    for (name, backend, validation) in [
        ("requires", &requires, by("ca", "s.test")),
        ("requests", &requests, by("ca", "s.test")),
        ("by-uri", &requires, by_names(uri)),
        ("by-dns", &requires, by_names(dns)),
        (
            "by-both",
            &requires,
            by_names(&format!("{other}, {dns}, {uri}")),
        ),
        ("other-uri", &requires, by_names(other)),
    ] {
        objects += &service(name, &[backend.address()]);
        objects += &policy(name, &validation);
        rules.push(at(&format!("/{name}"), name));
    }
    let names = ["first", "second", "foreign", "none"];
    let ips: Vec<IpAddr> = names.iter().map(|_| new_ip()).collect();
    for (name, ip) in names.iter().zip(&ips) {
        let gateway = gateway(name, *ip, &[HTTP]);
        objects += &match *name {
            "none" => gateway,
            secret => presenting(&gateway, secret),
        };
    }
    let sesame =
        Sesame::serving(|_| vec![("all.yaml", objects + &route("a", &names, &[HOST], &rules))])
            .await;
    // Responses from backends that require a certificate, and from those that only request one: both reject a
    // certificate from another CA.
    let expected = [
        ("requires", "requests", Some(&first)),
        ("requires", "requests", Some(&second)),
        ("503", "503", None),
        ("503", "requests", None),
    ];
    for (ip, (required, requested, own)) in ips.iter().zip(expected) {
        let address = SocketAddr::new(*ip, 8080);
        listening(address).await;
        for path in ["/requires", "/by-uri", "/by-dns", "/by-both"] {
            becomes(address, HOST, path, required).await;
        }
        becomes(address, HOST, "/requests", requested).await;
        if requested != "503" {
            let found = presented(address, "/requests").await.expect("a response");
            assert_eq!(found, Value::from(own.map(Identity::leaf)));
        }
        becomes(address, HOST, "/other-uri", "503").await;
        becomes(address, HOST, "/no-policy", "requests").await;
        let found = presented(address, "/no-policy").await;
        assert_eq!(found.expect("a response"), Value::Null);
    }
    for name in ["first", "second", "foreign"] {
        let resolved = sesame.of_gateway(name, "ResolvedRefs").await;
        let resolved = resolved.expect("a condition");
        assert_eq!(
            (&*resolved.status, &*resolved.reason),
            ("True", "ResolvedRefs")
        );
    }
}

#[tokio::test]
async fn all_kinds_of_routes_and_listeners_present_the_certificate() {
    let (ca, clients) = (authority(), authority());
    let secured = mutual("s", &ca, Clients::Optional(&clients.pem())).await;
    let own = client(&clients, "gateway.test");
    let front = Identity::self_signed(&["*.example.com"]).expect("a certificate");
    let listeners = [
        HTTP.to_owned(),
        tls("end", "end.example.com", &["front"]),
        tls("pass", "pass.example.com", &[]),
        "name: tcp, protocol: TCP, port: 9000".to_owned(),
    ];
    let (plain, plain_text) = backend("plain").await;
    let mirrored = format!(
        "matches: [{{path: {{value: /mirrored}}}}], filters: [{{type: RequestMirror, requestMirror: {{backendRef: \
         {{name: s, port: 80}}}}}}], {}",
        to("plain")
    );
    let objects = certificate("front", &front)
        + &certificate("own", &own)
        + &plain_text
        + &authorities("ca", &[&ca])
        + &service("s", &[secured.address()])
        + &policy("s", &by("ca", "s.test"))
        + &listener_set("set", &["name: http, protocol: HTTP, port: 8081"])
        + &route("set", &["set, kind: ListenerSet"], &[HOST], &[to("s")])
        + &route(
            "mirror",
            &["web, sectionName: http"],
            &["m.example.com"],
            &[mirrored],
        )
        + &grpc_route(
            "grpc",
            &["web, sectionName: http"],
            &["g.example.com"],
            &[to("s")],
        )
        + &tls_route("both", &["web"], &["*.example.com"], &[to("s")])
        + &tcp_route("tcp", &["web, sectionName: tcp"], &[to("s")]);
    let sesame = Sesame::serving(|ip| {
        let gateway = presenting(&gateway("web", ip, &listeners), "own");
        let open = "spec:\n  allowedListeners: {namespaces: {from: Same}}\n";
        let gateway = gateway.replacen("spec:\n", open, 1);
        vec![("all.yaml", gateway + &objects)]
    })
    .await;
    let leaf = Value::from(own.leaf());
    presents(sesame.at(8081), Some(&own)).await;
    for port in [9000, 8443, 8080] {
        listening(sesame.at(port)).await;
    }
    assert_eq!(presented(sesame.at(9000), "/").await.unwrap(), leaf);
    for (host, expected) in [
        ("end.example.com", &leaf),
        ("pass.example.com", &Value::Null),
    ] {
        let connection = Connect::tls(host).open(sesame.at(8443)).await;
        let mut connection = connection.expect("a handshake");
        let response = connection.send(&Request::get(host, "/")).await;
        let response = response.expect("a response");
        assert_eq!(response.json()["tls"]["client"], *expected, "{host}");
    }
    let call = Request::get("g.example.com", "/shop.Users/Get")
        .method("POST")
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let response = Connect::plain().h2().send(sesame.at(8080), &call).await;
    let response = response.expect("a response");
    assert_eq!(response.json()["tls"]["client"], leaf, "{response:?}");
    becomes(sesame.at(8080), "m.example.com", "/mirrored", "plain").await;
    let copies = secured.wait_for(Duration::from_secs(30), |all| {
        all.iter().any(|request| request.path == "/mirrored")
    });
    let copies = copies.await.expect("a copy");
    let copy = copies.iter().find(|request| request.path == "/mirrored");
    let tls = copy.and_then(|copy| copy.tls.as_ref()).expect("TLS");
    assert_eq!(tls.client, Some(own.leaf()));
    assert!(plain.requests().iter().all(|request| request.tls.is_none()));
}

/// Starts Sesame with the Gateway `web`, a route to a backend with a policy, and the Secret `own`.
async fn with_secret(ca: &Authority, backend: &Backend, own: &Identity) -> Sesame {
    let objects = authorities("ca", &[ca])
        + &service("s", &[backend.address()])
        + &policy("s", &by("ca", "s.test"))
        + &route("a", &["web"], &[HOST], &[to("s")]);
    let sesame = Sesame::serving(|ip| {
        vec![
            ("all.yaml", objects),
            (
                "gateway.yaml",
                presenting(&gateway("web", ip, &[HTTP]), "own"),
            ),
            ("own.yaml", certificate("own", own)),
        ]
    })
    .await;
    listening(sesame.at(8080)).await;
    sesame
}

#[tokio::test]
async fn the_certificate_is_rotated_without_a_failed_request() {
    let [ca, first, second] = [(); 3].map(|()| authority());
    let trusted = first.pem() + &second.pem();
    let backend = mutual("s", &ca, Clients::Required(&trusted)).await;
    let [old, new] = [&first, &second].map(|authority| client(authority, "gateway.test"));
    let sesame = with_secret(&ca, &backend, &old).await;
    let address = sesame.at(8080);
    presents(address, Some(&old)).await;
    let changes = async {
        for _ in 0..5 {
            for identity in [&new, &old] {
                let from = sesame.events();
                sesame
                    .folder()
                    .replace("own.yaml", &certificate("own", identity));
                let change = sesame.changed("Secret/default/own", from).await;
                // The secret changes; the cluster doesn't.
                assert_eq!(change["resources"], 1, "{change}");
                presents(address, Some(identity)).await;
            }
        }
    };
    load(address, sesame.open().await, changes).await;
}

#[tokio::test]
async fn the_reference_changes_without_a_failed_request() {
    let (ca, clients) = (authority(), authority());
    let backend = mutual("s", &ca, Clients::Optional(&clients.pem())).await;
    let [own, other] = ["own.test", "other.test"].map(|name| client(&clients, name));
    let sesame = with_secret(&ca, &backend, &own).await;
    let folder = sesame.folder();
    folder.replace("other.yaml", &certificate("other", &other));
    let address = sesame.at(8080);
    presents(address, Some(&own)).await;
    let changes = async {
        let gateway = gateway("web", sesame.ip, &[HTTP]);
        for _ in 0..5 {
            for (gateway, identity) in [
                (presenting(&gateway, "other"), Some(&other)),
                (gateway.clone(), None),
                (presenting(&gateway, "own"), Some(&own)),
            ] {
                folder.replace("gateway.yaml", &gateway);
                presents(address, identity).await;
            }
        }
    };
    load(address, sesame.open().await, changes).await;
}

#[tokio::test]
async fn without_a_valid_certificate_no_connection_is_opened_to_backends_with_a_policy() {
    let (ca, clients) = (authority(), authority());
    let secured = mutual("s", &ca, Clients::Optional(&clients.pem())).await;
    let (_plain, plain_text) = backend("plain").await;
    let own = client(&clients, "gateway.test");
    let objects = plain_text
        + &authorities("ca", &[&ca])
        + &service("s", &[secured.address()])
        + &policy("s", &by("ca", "s.test"))
        + &route(
            "a",
            &["web, sectionName: http"],
            &[HOST],
            &[at("/s", "s"), at("/plain", "plain")],
        )
        + &tcp_route("tcp", &["web, sectionName: tcp"], &[to("s")]);
    let listeners = [HTTP, "name: tcp, protocol: TCP, port: 9000"];
    let sesame = Sesame::serving(|ip| {
        let gateway = presenting(&gateway("web", ip, &listeners), "own");
        vec![("all.yaml", gateway + &objects)]
    })
    .await;
    let address = sesame.at(8080);
    listening(address).await;
    let reports = async |type_: &str, status: &str, reason: &str| {
        let get = async || sesame.of_gateway("web", type_).await;
        turns("the Gateway", status, reason, get).await;
    };
    for _ in 0..3 {
        becomes(address, HOST, "/s", "500").await;
        becomes(address, HOST, "/plain", "plain").await;
        becomes(sesame.at(9000), "any", "/", "no response").await;
        reports("ResolvedRefs", "False", "InvalidClientCertificateRef").await;
        reports("Accepted", "True", "Accepted").await;
        let before = secured.count();
        sesame
            .folder()
            .replace("own.yaml", &certificate("own", &own));
        becomes(address, HOST, "/s", "s").await;
        let requests = secured.requests();
        let served = requests.len() - usize::try_from(before).expect("a small number");
        let latest = requests.iter().rev().take(served);
        let presented =
            latest.map(|request| request.tls.as_ref().and_then(|tls| tls.client.clone()));
        assert!(presented.clone().all(|client| client == Some(own.leaf())));
        reports("ResolvedRefs", "True", "ResolvedRefs").await;
        sesame.folder().remove("own.yaml");
    }
    for request in secured.requests() {
        let tls = request.tls.expect("TLS");
        assert_eq!(tls.client, Some(own.leaf()));
    }
}

#[tokio::test]
async fn the_certificate_of_the_configuration_is_presented_to_all_backends_with_tls() {
    let (ca, clients) = (authority(), authority());
    let secured = mutual("s", &ca, Clients::Required(&clients.pem())).await;
    let (_plain, plain) = backend("plain").await;
    let own = client(&clients, "sesame.test");
    let https = service("https", &[secured.address()])
        .replace("port: 80}", "port: 80, appProtocol: https}");
    let objects = plain
        + &service("s", &[secured.address()])
        + &https
        + &certificate("own", &own)
        + &secret("ca", &[("ca.crt", &ca.pem())])
        + "
apiVersion: projectsesame.io/v1
kind: HTTPProxy
metadata: {name: web}
spec:
  virtualhost: {fqdn: a.example.com}
  routes:
  - services: [{name: plain, port: 80}]
  - conditions: [{prefix: /unverified}]
    services: [{name: s, port: 80, protocol: tls}]
  - conditions: [{prefix: /verified}]
    services: [{name: s, port: 80, protocol: tls, validation: {caSecret: ca, subjectName: s.test}}]
  - conditions: [{prefix: /service}]
    services: [{name: https, port: 80}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  ingressClassName: sesame
  rules:
  - host: a.example.com
    http: {paths: [{path: /ingress, pathType: Prefix, backend: {service: {name: https, port: {number: 80}}}}]}
---
";
    let section = "clientCertificate: {namespace: default, name: own}";
    let (fleet, folder) = configured(section, &objects).await;
    let paths = ["/unverified", "/verified", "/service", "/ingress"];
    for with_certificate in [true, false, true] {
        let spec = if with_certificate { section } else { "" };
        folder.replace(FILE, &configuration(spec));
        let backend = if with_certificate { "s" } else { "503" };
        for path in paths {
            becomes(fleet.http, HOST, path, backend).await;
        }
        becomes(fleet.http, HOST, "/", "plain").await;
    }
    folder.replace(FILE, &configuration(&section.replace("own", "missing")));
    for path in paths {
        becomes(fleet.http, HOST, path, "503").await;
    }
    becomes(fleet.http, HOST, "/", "plain").await;
    let status = fleet.sesame.status("HTTPProxy", "web").await;
    let status = status.expect("a status").to_string();
    assert!(
        status.contains("Secret default/missing does not exist"),
        "{status}"
    );
    for request in secured.requests() {
        let tls = request.tls.expect("TLS");
        assert_eq!(tls.client, Some(own.leaf()));
    }
}
