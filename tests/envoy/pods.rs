//! XBackends of type EndpointSelector: endpoints from files, TLS, and session persistence.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::ensure;
use sesame_testkit::backend::Backend;
use sesame_testkit::client::Request;

use crate::backend_tls::{authorities, authority, by, secure};
use crate::harness::{
    HTTP, Sesame, at, becomes, eventually, grpc_route, listening, route, shares, to,
};
use crate::traffic_policies::returning;
use crate::xbackends::{external, server_only};

const HOST: &str = "a.example.com";

/// An XBackend for Pods, with further fields of its spec.
fn xbackend(name: &str, port: u16, fields: &str) -> String {
    format!(
        "apiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackend\nmetadata: {{name: {name}}}\nspec: \
         {{type: EndpointSelector, endpointSelector: {{matchLabels: {{app: {name}}}}}, port: {{number: {port}}}, {fields}}}\n\
         ---\n"
    )
}

/// An EndpointSlice with the addresses of Pods.
fn slice(xbackend: &str, pods: &[&Backend]) -> String {
    let addresses: Vec<String> = pods
        .iter()
        .map(|pod| format!("{{addresses: [{}]}}", pod.address().ip()))
        .collect();
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {xbackend}, labels: \
         {{projectsesame.io/xbackend: {xbackend}}}}}\naddressType: IPv4\nendpoints: [{}]\n---\n",
        addresses.join(", ")
    )
}

/// Starts backends on the same port, like the Pods of a Deployment.
async fn pods<const N: usize>(names: [&str; N]) -> [Backend; N] {
    let mut pods = Vec::new();
    let mut address = SocketAddr::from(([127, 0, 0, 2], 0));
    for name in names {
        let pod = Backend::start(name, address).await.expect("a backend");
        let last = 3 + pods.len() as u8;
        address = ([127, 0, 0, last], pod.address().port()).into();
        pods.push(pod);
    }
    pods.try_into()
        .unwrap_or_else(|_| panic!("as many Pods as names"))
}

#[tokio::test]
async fn requests_reach_the_current_pods() {
    let [one, two, three] = pods(["one", "two", "three"]).await;
    let port = one.address().port();
    let ca = authority();
    let server = secure("s", &ca, &["s.test"]).await;
    let encrypted = server_only(&by("ca", "s.test"));
    let objects = [
        xbackend("x", port, ""),
        xbackend("secure", server.address().port(), &encrypted),
        slice("secure", &[&server]),
        authorities("ca", &[&ca]),
        route(
            "r",
            &["web"],
            &[HOST],
            &[external(&at("/secure", "secure")), external(&to("x"))],
        ),
        grpc_route("g", &["web"], &["grpc.test"], &[external(&to("x"))]),
    ];
    let sesame = Sesame::with_gateway(&[HTTP], &objects.concat()).await;
    listening(sesame.at(8080)).await;
    let address = sesame.at(8080);
    becomes(address, HOST, "/", "503").await;
    let call =
        Request::get("grpc.test", "/shop.Users/Get").header("content-type", "application/grpc");
    let unavailable = sesame.send(&call).await;
    assert_eq!(unavailable.header("grpc-status"), "14");
    let found = async |pods: &[&Backend], expected: &[&str]| {
        sesame.folder().replace("pods.yaml", &slice("x", pods));
        eventually("the Pods are served", async || {
            let found = shares(address, &Request::get(HOST, "/"), 30).await;
            let names: Vec<&str> = found.keys().map(String::as_str).collect();
            ensure!(names == expected, "{found:?}");
            Ok(())
        })
        .await;
    };
    found(&[&one, &two], &["one", "two"]).await;
    found(&[&three], &["three"]).await;
    found(&[], &["503"]).await;
    let response = sesame.ask_well(&Request::get(HOST, "/secure")).await;
    assert_eq!(response.json()["tls"]["sni"], "s.test");
}

#[tokio::test]
async fn sessions_of_pods_are_persistent() {
    let [one, two, three] = pods(["one", "two", "three"]).await;
    let session = "sessionPersistence: {cookie: {}}";
    let objects = [
        xbackend("x", one.address().port(), session),
        slice("x", &[&one, &two, &three]),
        route("r", &["web"], &[HOST], &[external(&at("/x", "x"))]),
    ];
    let sesame = Sesame::with_gateway(&[HTTP], &objects.concat()).await;
    listening(sesame.at(8080)).await;
    let mut homes = BTreeSet::new();
    for _ in 0..10 {
        let first = sesame.ask_well(&Request::get(HOST, "/x")).await;
        let cookie = first.header("set-cookie");
        assert!(cookie.starts_with("sesame-xbackend.default.x="), "{cookie}");
        let found = returning(&sesame, "/x", cookie).await;
        assert_eq!(found.keys().collect::<Vec<_>>(), [&first.backend()]);
        homes.insert(first.backend());
    }
    assert!(homes.len() > 1, "{homes:?}");
}
