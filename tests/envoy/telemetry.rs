//! XTelemetryPolicies: spans, sampling, and requests while the collector fails.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use sesame_testkit::backend::{Backend, Span};
use sesame_testkit::client::{Connect, Connection, Request, Response};

use crate::backend_tls::{self, authorities, by, secure};
use crate::harness::{
    HTTP, Sesame, assert_share, at, backend, backends, created, eventually, gateway, listening,
    new_ip, route, service, to,
};

const HOST: &str = "a.example.com";

/// A client's trace: its ID and its span.
const TRACE: (&str, &str) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");

/// A policy for a Gateway, with these fields of `tracing`.
fn policy(name: &str, gateway: &str, tracing: &str) -> String {
    format!(
        "apiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XTelemetryPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
         targetRefs: [{{group: gateway.networking.k8s.io, kind: Gateway, name: {gateway}}}]\n  \
         tracing: {{{tracing}}}\n---\n"
    )
}

/// The fields of enabled tracing with this collector, and further fields.
fn enabled(collector: &str, more: &str) -> String {
    format!("mode: Enabled, provider: {{backendRef: {{name: {collector}, port: 80}}}}, {more}")
}

/// A traceparent for the client's trace.
fn traceparent(flags: &str) -> String {
    format!("00-{}-{}-{flags}", TRACE.0, TRACE.1)
}

/// The traceparent that the backend received.
fn forwarded(response: &Response) -> Option<String> {
    let json = response.json();
    let header = json["headers"]["traceparent"][0].as_str();
    header.map(str::to_owned)
}

/// Whether the gateway sampled the request.
fn sampled(response: &Response) -> bool {
    forwarded(response).is_some_and(|header| header.ends_with("-01"))
}

/// Waits for a span with this attribute.
async fn span_with(collector: &Backend, name: &str, value: &str) -> Span {
    eventually(&format!("a span with {name} {value}"), async || {
        let spans = collector.spans();
        let mut found = spans.iter();
        let found = found.find(|span| span.attributes.get(name).is_some_and(|at| at == value));
        found.cloned().with_context(|| format!("{spans:?}"))
    })
    .await
}

/// Sends requests until the collector receives a span.
async fn traced(sesame: &Sesame, collector: &Backend) {
    eventually("requests are traced", async || {
        sesame.ask_well(&Request::get(HOST, "/")).await;
        ensure!(!collector.spans().is_empty(), "no spans");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn spans_have_names_attributes_and_parents() {
    let (backends, objects) = backends(&["s", "otel"]).await;
    let settings = "serviceName: shop, spanName: ingress shop, attributes: [\
        {name: literal, sourceType: Literal, literalValue: 50% %REQ(x)%}, \
        {name: request, sourceType: Header, headerName: X-Test}, \
        {name: response, sourceType: Header, headerName: x-color}, \
        {name: missing, sourceType: Header, headerName: x-missing}, \
        {name: odd, sourceType: Header, headerName: \"a%b\"}, \
        {name: method, sourceType: Attribute, attributeKey: http.request.method}, \
        {name: status, sourceType: Attribute, attributeKey: http.response.status_code}, \
        {name: path, sourceType: Attribute, attributeKey: url.path}, \
        {name: url, sourceType: Attribute, attributeKey: url.full}, \
        {name: scheme, sourceType: Attribute, attributeKey: url.scheme}, \
        {name: agent, sourceType: Attribute, attributeKey: user_agent.original}, \
        {name: one, sourceType: Attribute, attributeKey: http.request.header.x-test}, \
        {name: two, sourceType: Attribute, attributeKey: http.response.header.x-color}, \
        {name: sent, sourceType: Attribute, attributeKey: http.request.body.size}, \
        {name: client, sourceType: Attribute, attributeKey: client.address}, \
        {name: peer, sourceType: Attribute, attributeKey: network.peer.address}, \
        {name: local, sourceType: Attribute, attributeKey: network.local.address}, \
        {name: port, sourceType: Attribute, attributeKey: network.local.port}]";
    let tracing = enabled("otel", settings).replace(
        "port: 80}",
        "port: 80}, headers: [{name: authorization, value: Bearer abc}]",
    );
    let objects = objects + &policy("p", "web", &tracing);
    let sesame = Sesame::with_rules(&objects, &[at("/", "s")]).await;
    let request = Request::get(HOST, "/a?set-header=x-color:red")
        .method("POST")
        .header("x-test", "hello")
        .header("a%b", "odd")
        .header("user-agent", "test")
        .header("x-request-id", "not-a-uuid")
        .header("traceparent", &traceparent("01"))
        .body("12345");
    let response = sesame.ask_well(&request).await;
    let span = span_with(&backends[1], "request", "hello").await;

    let expected = format!("00-{}-{}-01", TRACE.0, span.id);
    assert_eq!(forwarded(&response).as_deref(), Some(&*expected));
    assert_eq!((&*span.trace, &*span.parent), TRACE);
    assert_eq!((&*span.service, &*span.name), ("shop", "ingress shop"));
    let ip = sesame.ip.to_string();
    let expected = [
        ("literal", "50% %REQ(x)%"),
        ("response", "red"),
        ("odd", "odd"),
        ("method", "POST"),
        ("status", "200"),
        ("path", "/a"),
        ("url", "http://a.example.com/a?set-header=x-color:red"),
        ("scheme", "http"),
        ("agent", "test"),
        ("one", "hello"),
        ("two", "red"),
        ("sent", "5"),
        ("client", "127.0.0.1"),
        ("peer", "127.0.0.1"),
        ("local", &ip),
        ("port", "8080"),
    ];
    for (name, value) in expected {
        let found = span.attributes.get(name).map(String::as_str);
        assert_eq!(found, Some(value), "{name}: {span:?}");
    }
    let missing = span.attributes.get("missing").map(String::as_str);
    assert!(matches!(missing, None | Some("")), "{span:?}");

    let export = &backends[1].requests()[0];
    assert_eq!(export.header("authorization"), Some("Bearer abc"));
    assert_eq!((&*export.host, export.protocol), ("otel.default", "HTTP/2"));
}

#[tokio::test]
async fn requests_are_sampled_by_rate_and_parent() {
    let third = "samplingRate: {numerator: 1, denominator: 3}";
    let respected = |rest: &str| format!("parentBasedSampling: {{mode: Enabled{rest}}}");
    let half = ", samplingRate: {numerator: 50}";
    // The sampled shares of new traces, of traces with a sampled parent, and of traces with an unsampled one.
    let cases = [
        ("default", String::new(), [1.0, 1.0, 1.0]),
        ("rate", third.to_owned(), [1.0 / 3.0; 3]),
        ("none", "samplingRate: {numerator: 0}".to_owned(), [0.0; 3]),
        (
            "respected",
            format!("{third}, {}", respected("")),
            [1.0 / 3.0, 1.0, 0.0],
        ),
        (
            "share",
            format!("{third}, {}", respected(half)),
            [1.0 / 3.0, 0.5, 0.0],
        ),
        ("both", respected(half), [0.5, 0.5, 0.0]),
    ];
    let (_backends, mut objects) = backends(&["s", "otel"]).await;
    let gateways: Vec<_> = cases.iter().map(|case| (case.0, new_ip())).collect();
    for ((name, settings, _), (_, ip)) in cases.iter().zip(&gateways) {
        objects += &gateway(name, *ip, &[HTTP]);
        objects += &policy(name, name, &enabled("otel", settings));
    }
    let names: Vec<&str> = gateways.iter().map(|(name, _)| *name).collect();
    objects += &route("r", &names, &[HOST], &[to("s")]);
    let sesame = Sesame::with_gateway(&[HTTP], &objects).await;
    for ((name, _, shares), (_, ip)) in cases.iter().zip(&gateways) {
        let address = SocketAddr::new(*ip, 8080);
        listening(address).await;
        let mut connection = Connect::plain().open(address).await.expect("a connection");
        for (flags, share) in ["", "01", "00"].iter().zip(shares) {
            let count = sampled_of(&mut connection, flags).await.expect("responses");
            assert_share(&format!("{name}, {flags:?}"), count, REQUESTS, *share);
        }
    }
    drop(sesame);
}

const REQUESTS: u32 = 400;

/// Sends requests, each with its own trace and these flags, if any. Returns the number of sampled requests.
async fn sampled_of(connection: &mut Connection, flags: &str) -> Result<u32> {
    let mut count = 0;
    for number in 0..REQUESTS {
        let mut request = Request::get(HOST, "/");
        if !flags.is_empty() {
            // Envoy samples by trace ID; the multiplier spreads the IDs.
            let id = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            request = request.header("traceparent", &format!("00-{id:032x}-{}-{flags}", TRACE.1));
        }
        let response = connection.send(&request).await?;
        ensure!(response.status == 200, "{response:?}");
        count += u32::from(sampled(&response));
    }
    Ok(count)
}

#[tokio::test]
async fn a_failing_collector_does_not_affect_requests() {
    let (slow, objects) = backends(&["s", "otel"]).await;
    let down = service("down", &["127.0.0.1:1".parse().expect("an address")]);
    let names = ["missing", "down", "otel", "unpermitted"];
    let gateways = names.map(|name| (name, new_ip()));
    let mut objects = objects + &down + &route("r", &names, &[HOST], &[to("s")]);
    for (name, ip) in gateways {
        let more = if name == "unpermitted" {
            ", namespace: x"
        } else {
            ""
        };
        // The collector `otel` never responds.
        let tracing = enabled(name, "").replace(
            "port: 80}",
            &format!("port: 80{more}}}, headers: [{{name: x-echo-delay, value: 60s}}]"),
        );
        objects += &gateway(name, ip, &[HTTP]);
        objects += &policy(name, name, &tracing);
    }
    let sesame = Sesame::with_gateway(&[HTTP], &objects).await;
    for (name, ip) in gateways {
        let address = SocketAddr::new(ip, 8080);
        listening(address).await;
        let mut connection = Connect::plain().open(address).await.expect("a connection");
        let mut count = 0;
        for _ in 0..5 {
            count += sampled_of(&mut connection, "").await.expect("responses");
        }
        assert_eq!(count, 5 * REQUESTS, "{name}");
    }
    // With five spans in each export, there would be 400.
    let exports = slow[1].count();
    assert!((1..=128).contains(&exports), "{exports} exports at once");
    drop(sesame);
}

#[tokio::test]
async fn policies_change_without_a_failed_request() {
    let (backends, objects) = backends(&["s", "otel", "second"]).await;
    let objects = objects + &route("r", &["web", "other"], &[HOST], &[to("s")]);
    let ip = new_ip();
    let objects = objects + &gateway("other", ip, &[HTTP]);
    let sesame = Sesame::with_gateway(&[HTTP], &objects).await;
    listening(sesame.at(8080)).await;
    let request = Request::get(HOST, "/");
    assert_eq!(forwarded(&sesame.ask_well(&request).await), None);

    let first = created(&policy("first", "web", &enabled("otel", "")), "2026-01-01");
    let second = created(
        &policy("second", "web", &enabled("second", "")),
        "2026-01-02",
    );
    sesame.folder().write("first.yaml", &first);
    traced(&sesame, &backends[1]).await;
    let service = backends[1].spans()[0].service.clone();
    assert_eq!(service, "web.default");
    sesame.folder().write("second.yaml", &second);
    eventually("the second policy conflicts", async || {
        let status = sesame.status("XTelemetryPolicy", "second").await?;
        let found = &status["ancestors"][0]["conditions"][0]["reason"];
        ensure!(found == "Conflicted", "{status}");
        Ok(())
    })
    .await;
    assert!(backends[2].spans().is_empty());
    sesame.folder().remove("first.yaml");
    traced(&sesame, &backends[2]).await;
    let disabled = created(&policy("second", "web", "mode: Disabled"), "2026-01-02");
    sesame.folder().write("second.yaml", &disabled);
    eventually("requests aren't traced", async || {
        let response = sesame.ask_well(&request).await;
        ensure!(forwarded(&response).is_none(), "{response:?}");
        Ok(())
    })
    .await;
    // The other Gateway never had a policy.
    let other = SocketAddr::new(ip, 8080);
    let response = Connect::plain().send(other, &request).await;
    assert_eq!(forwarded(&response.expect("a response")), None);
}

#[tokio::test]
async fn spans_are_encrypted_for_a_collector_with_a_tls_policy() {
    let authority = backend_tls::authority();
    let collector = secure("otel", &authority, &["otel.test"]).await;
    let (_backend, objects) = backend("s").await;
    let objects = objects
        + &service("otel", &[collector.address()])
        + &authorities("ca", &[&authority])
        + &backend_tls::policy("otel", &by("ca", "otel.test"))
        + &policy("p", "web", &enabled("otel", ""));
    let sesame = Sesame::with_rules(&objects, &[at("/", "s")]).await;
    traced(&sesame, &collector).await;
    let export = &collector.requests()[0];
    let tls = export.tls.as_ref().expect("TLS");
    assert_eq!(tls.sni.as_deref(), Some("otel.test"));
}
