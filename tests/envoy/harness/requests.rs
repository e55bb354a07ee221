//! Requests and summaries of their responses.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sesame_testkit::client::{Connect, Connection, Request, Response};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// Maximum wait; long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `check` succeeds and returns its result.
///
/// # Panics
/// After a minute, with the last error.
pub(crate) async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Result<T>) -> T {
    let start = Instant::now();
    loop {
        match check().await {
            Ok(value) => return value,
            Err(error) if start.elapsed() > PATIENCE => {
                panic!("{what}: timeout after {} s: {error:#}", PATIENCE.as_secs())
            }
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// A request with a summary of its response.
pub(crate) trait Summary {
    /// Sends the request. Returns the backend's name if it responded with 200, otherwise the status, or `no response`.
    async fn of(&self, address: SocketAddr) -> String;
}

impl Summary for Request {
    async fn of(&self, address: SocketAddr) -> String {
        summary(Connect::plain().send(address, self).await)
    }
}

/// A request over TLS or HTTP/2.
impl Summary for (&Connect, &Request) {
    async fn of(&self, address: SocketAddr) -> String {
        summary(self.0.send(address, self.1).await)
    }
}

fn summary(response: Result<Response>) -> String {
    match response {
        Ok(response) if response.status == 200 && !response.backend().is_empty() => {
            response.backend()
        }
        Ok(response) => response.status.as_u16().to_string(),
        Err(_) => "no response".to_owned(),
    }
}

/// Sends plain requests, each on a separate connection. A case is a host, a path and the expected summary.
///
/// # Panics
/// If any response is unexpected; lists all unexpected ones.
pub(crate) async fn check(address: SocketAddr, cases: &[(&str, &str, &str)]) {
    let cases = cases
        .iter()
        .map(|(host, path, expected)| (Request::get(host, path), *expected));
    check_requests(address, cases).await;
}

/// [`check`] for arbitrary requests.
pub(crate) async fn check_requests<'a>(
    address: SocketAddr,
    cases: impl IntoIterator<Item = (Request, &'a str)>,
) {
    listening(address).await;
    let mut wrong = Vec::new();
    for (request, expected) in cases {
        let found = request.of(address).await;
        if found != expected {
            wrong.push(format!("{request:?}\n    expected {expected}, got {found}"));
        }
    }
    assert!(wrong.is_empty(), "at {address}:\n{}", wrong.join("\n"));
}

/// Waits until a plain request gets this response.
pub(crate) async fn becomes(address: SocketAddr, host: &str, path: &str, expected: &str) {
    let what = format!("{host}{path} at {address} becomes {expected}");
    eventually(&what, async || {
        let found = Request::get(host, path).of(address).await;
        anyhow::ensure!(found == expected, "got {found}");
        Ok(())
    })
    .await;
}

/// Whether the server's certificate is for this name. DER contains names as plain bytes.
pub(crate) fn has_certificate(connection: &Connection, name: &str) -> bool {
    let certificate = connection
        .certificate()
        .expect("a TLS server sends a certificate");
    let length = u8::try_from(name.len()).expect("a short name");
    // A dNSName in a SubjectAltName: context tag 2, length, text.
    let encoded = [&[0x82, length], name.as_bytes()].concat();
    certificate
        .windows(encoded.len())
        .any(|window| window == encoded)
}

/// Waits until the port is open: Envoy opens it shortly after accepting the listener.
pub(crate) async fn listening(address: SocketAddr) {
    eventually("the gateway listens", async || {
        TcpStream::connect(address)
            .await
            .map(drop)
            .with_context(|| address.to_string())
    })
    .await;
}

/// Asserts that `count` out of `of` requests is within five standard deviations of the expected `share`. A correct
/// gateway fails this once in a million runs.
pub(crate) fn assert_share(what: &str, count: u32, of: u32, share: f64) {
    let expected = f64::from(of) * share;
    let deviation = (expected * (1.0 - share)).sqrt();
    assert!(
        (f64::from(count) - expected).abs() <= 5.0 * deviation,
        "{what}: {count} of {of}, expected {expected:.0} ± {:.0}",
        5.0 * deviation
    );
}

/// Sends `count` requests on one connection and counts each response.
pub(crate) async fn shares(
    address: SocketAddr,
    request: &Request,
    count: u32,
) -> BTreeMap<String, u32> {
    listening(address).await;
    let mut connection = Connect::plain()
        .open(address)
        .await
        .expect("the gateway listens");
    let mut found = BTreeMap::new();
    for _ in 0..count {
        let response = connection.send(request).await;
        *found.entry(summary(response)).or_default() += 1;
    }
    found
}
