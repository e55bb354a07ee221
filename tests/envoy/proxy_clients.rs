//! HTTPProxies that verify client certificates: CAs, CRLs, and the header for backends.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_testkit::certs::{Authority, Identity};
use sesame_testkit::client::{Connect, Request};

use crate::backend_tls::authority;
use crate::harness::{
    DefaultFleet, Summary, backends, becomes, certificate, eventually, listening,
};

const XFCC: &str = "x-forwarded-client-cert";
const FORGED: &str = "Hash=0000";

/// A Secret with these entries.
pub(crate) fn secret(name: &str, entries: &[(&str, &str)]) -> String {
    let entries = Value::from_iter(entries.iter().copied());
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": entries,
    });
    format!("{secret}\n---\n")
}

/// An HTTPProxy for a TLS host, which routes to the backend `a`.
fn proxy(name: &str, validation: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {{name: {name}}}\nspec:\n  \
         virtualhost: {{fqdn: {name}.example.com, tls: {{secretName: front{validation}}}}}\n  \
         routes: [{{services: [{{name: a, port: 80}}]}}, \
         {{conditions: [{{prefix: /open}}], permitInsecure: true, services: [{{name: a, port: 80}}]}}]\n---\n"
    )
}

pub(crate) fn validated(name: &str, fields: &str) -> String {
    proxy(name, &format!(", clientValidation: {{{fields}}}"))
}

pub(crate) fn front() -> String {
    let front = Identity::self_signed(&["*.example.com"]).expect("a certificate");
    certificate("front", &front)
}

fn revoking(authority: &Authority, serials: &[u64]) -> String {
    let list = authority.revocations(serials).expect("a list");
    secret("crl", &[("crl.pem", &list)])
}

fn issued(authority: &Authority, serial: u64) -> Identity {
    let names = ["client.test", "other.test", "spiffe://test/client"];
    let identity = authority.issue_numbered(serial, &names);
    identity.expect("a certificate")
}

/// Sends a request on a new connection to a host and summarizes the response.
async fn response(client: Option<&Identity>, host: &str, address: SocketAddr) -> String {
    let host = format!("{host}.example.com");
    let connect = Connect::tls(&host);
    let connect = match client {
        Some(client) => connect.presenting(client),
        None => connect,
    };
    (&connect, &Request::get(&host, "/")).of(address).await
}

/// Sends a request and returns the header that the backend receives.
async fn forwarded(client: Option<&Identity>, host: &str, address: SocketAddr) -> String {
    let host = format!("{host}.example.com");
    let connect = Connect::tls(&host);
    let connect = match client {
        Some(client) => connect.presenting(client),
        None => connect,
    };
    let request = Request::get(&host, "/").header(XFCC, FORGED);
    let response = connect.send(address, &request).await.expect("a response");
    received(&response.json())
}

fn received(echo: &Value) -> String {
    let headers = &echo["headers"][XFCC];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match headers {
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(","),
        other => text(other),
    }
}

#[tokio::test]
async fn clients_need_valid_certificates_that_are_not_revoked() {
    let (_backends, services) = backends(&["a"]).await;
    let (root, other) = (authority(), authority());
    let middle = root.intermediate("Middle").expect("a CA");
    let list = revoking(&root, &[2]);
    let objects = front()
        + &secret("ca", &[("ca.crt", &root.pem())])
        + &secret("broken", &[("ca.crt", "junk"), ("crl.pem", "junk")])
        + &list
        + &proxy("web", "")
        + &validated("required", "caSecret: ca")
        + &validated("optional", "caSecret: ca, optionalClientCertificate: true")
        + &validated("skipped", "caSecret: ca, skipClientCertValidation: true")
        + &validated("any", "skipClientCertValidation: true")
        + &validated("revocable", "caSecret: ca, crlSecret: crl")
        + &validated(
            "leaf",
            "caSecret: ca, crlSecret: crl, crlOnlyVerifyLeafCert: true",
        )
        + &validated("bad-ca", "caSecret: broken")
        + &validated("bad-crl", "caSecret: ca, crlSecret: broken")
        + &services;
    let started = DefaultFleet::serving("HTTPProxy", &objects).await;
    listening(started.https).await;
    let valid = issued(&root, 1);
    let revoked = issued(&root, 2);
    let foreign = issued(&other, 1);
    let indirect = issued(&middle, 1);
    let clients = [
        Some(&valid),
        Some(&revoked),
        Some(&foreign),
        Some(&indirect),
        None,
    ];
    let no = "no response";
    for (host, expected) in [
        ("web", ["a", "a", "a", "a", "a"]),
        ("required", ["a", "a", no, "a", no]),
        ("optional", ["a", "a", no, "a", "a"]),
        ("skipped", ["a", "a", "a", "a", no]),
        ("any", ["a"; 5]),
        // The intermediate CA has no CRL.
        ("revocable", ["a", no, no, no, no]),
        ("leaf", ["a", no, no, no, no]),
        ("bad-ca", [no; 5]),
        ("bad-crl", [no; 5]),
    ] {
        for (client, expected) in clients.iter().zip(expected) {
            eventually(&format!("{host} responds {expected}"), async || {
                let found = response(*client, host, started.https).await;
                let name = client.map(|client| client.leaf());
                anyhow::ensure!(found == expected, "{host}: {found} for {name:?}");
                Ok(())
            })
            .await;
        }
    }
    becomes(started.http, "required.example.com", "/", "301").await;
    // A new CRL doesn't close connections.
    let leaf = Connect::tls("leaf.example.com").presenting(&valid);
    let mut open = leaf.open(started.https).await.expect("a handshake");
    let request = Request::get("leaf.example.com", "/");
    let rotated = objects.replace(&list, &revoking(&root, &[1]));
    started.sesame.folder().write("all.yaml", &rotated);
    eventually("the CRL is replaced", async || {
        let found = response(Some(&revoked), "leaf", started.https).await;
        anyhow::ensure!(found == "a", "{found}");
        Ok(())
    })
    .await;
    assert_eq!(response(Some(&valid), "leaf", started.https).await, no);
    let kept = open
        .send(&request)
        .await
        .expect("the connection stays open");
    assert_eq!(kept.backend(), "a");
}

#[tokio::test]
async fn backends_get_the_chosen_parts_of_certificates() {
    let (_backends, services) = backends(&["a"]).await;
    let root = authority();
    let parts = "forwardClientCertificate";
    let objects = front()
        + &secret("ca", &[("ca.crt", &root.pem())])
        + &proxy("web", "")
        + &validated("none", "caSecret: ca")
        + &validated("hash", &format!("caSecret: ca, {parts}: {{}}"))
        + &validated(
            "some",
            &format!(
                "caSecret: ca, {parts}: {{subject: true, uri: true}}, optionalClientCertificate: true"
            ),
        )
        + &validated(
            "all",
            &format!(
                "caSecret: ca, {parts}: {{subject: true, cert: true, chain: true, dns: true, uri: true}}"
            ),
        )
        + &services;
    let started = DefaultFleet::serving("HTTPProxy", &objects).await;
    listening(started.https).await;
    let client = issued(&root, 1);
    eventually("all hosts are served", async || {
        let found = response(Some(&client), "some", started.https).await;
        anyhow::ensure!(found == "a", "{found}");
        Ok(())
    })
    .await;
    assert_eq!(forwarded(Some(&client), "web", started.https).await, "");
    assert_eq!(forwarded(Some(&client), "none", started.https).await, "");
    assert_eq!(forwarded(None, "some", started.https).await, "");
    let hash = forwarded(Some(&client), "hash", started.https).await;
    assert!(
        hash.starts_with("Hash=") && !hash.contains(';') && hash != FORGED,
        "{hash}"
    );
    let some = forwarded(Some(&client), "some", started.https).await;
    assert_eq!(
        some,
        format!("{hash};Subject=\"CN=Sesame test certificate\";URI=spiffe://test/client")
    );
    let all = forwarded(Some(&client), "all", started.https).await;
    let keys = all.split(';').filter_map(|part| part.split_once('='));
    let keys: Vec<&str> = keys.map(|(key, _)| key).collect();
    let expected = ["Hash", "Cert", "Chain", "Subject", "URI", "DNS", "DNS"];
    assert_eq!(keys, expected, "{all}");
    // Without TLS, clients don't present a certificate.
    let request = Request::get("all.example.com", "/open").header(XFCC, FORGED);
    let response = started.send(&request).await;
    assert_eq!(
        (response.backend(), received(&response.json())),
        ("a".to_owned(), String::new())
    );
}
