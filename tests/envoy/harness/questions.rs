//! Requests, and the shortest form of their answers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sesame_testkit::client::{Answer, Ask, Connect};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// Nothing that is waited for may take longer. Two busy cores make everything slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `check` says that all is well, and returns what it returns.
///
/// # Panics
/// If that takes longer than half a minute, with what is wrong.
pub(crate) async fn eventually<T>(what: &str, check: impl AsyncFnMut() -> Result<T>) -> T {
    eventually_within(PATIENCE, what, check).await
}

/// The same within another time.
pub(crate) async fn eventually_within<T>(
    patience: Duration,
    what: &str,
    mut check: impl AsyncFnMut() -> Result<T>,
) -> T {
    let start = Instant::now();
    loop {
        match check().await {
            Ok(value) => return value,
            Err(error) if start.elapsed() > patience => {
                panic!("{what}: not within {} s: {error:#}", patience.as_secs())
            }
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// What to ask, and in which words the answer is told.
pub(crate) trait Question {
    /// The name of the backend that answered with 200, else the status, else `no answer`.
    async fn of(&self, address: SocketAddr) -> String;
}

impl Question for Ask {
    async fn of(&self, address: SocketAddr) -> String {
        shortest(Connect::plain().ask(address, self).await)
    }
}

/// A request over TLS or HTTP/2.
impl Question for (&Connect, &Ask) {
    async fn of(&self, address: SocketAddr) -> String {
        shortest(self.0.ask(address, self.1).await)
    }
}

fn shortest(answer: Result<Answer>) -> String {
    match answer {
        Ok(answer) if answer.status == 200 && !answer.backend().is_empty() => answer.backend(),
        Ok(answer) => answer.status.as_u16().to_string(),
        Err(_) => "no answer".to_owned(),
    }
}

/// Asks plainly, each question on a connection of its own: host, path and the shortest form of the answer.
///
/// # Panics
/// With all answers that are not as expected.
pub(crate) async fn check(address: SocketAddr, cases: &[(&str, &str, &str)]) {
    let cases = cases
        .iter()
        .map(|(host, path, expected)| (Ask::get(host, path), *expected));
    check_asks(address, cases).await;
}

/// The same with any questions.
pub(crate) async fn check_asks<'a>(
    address: SocketAddr,
    cases: impl IntoIterator<Item = (Ask, &'a str)>,
) {
    listening(address).await;
    let mut wrong = Vec::new();
    for (ask, expected) in cases {
        let found = ask.of(address).await;
        if found != expected {
            wrong.push(format!("{ask:?}\n    expected {expected}, found {found}"));
        }
    }
    assert!(wrong.is_empty(), "at {address}:\n{}", wrong.join("\n"));
}

/// Waits until a plain question gets this answer.
pub(crate) async fn becomes(address: SocketAddr, host: &str, path: &str, expected: &str) {
    let what = format!("{host}{path} at {address} becomes {expected}");
    eventually(&what, async || {
        let found = Ask::get(host, path).of(address).await;
        anyhow::ensure!(found == expected, "it is {found}");
        Ok(())
    })
    .await;
}

/// Waits until somebody listens: Envoy opens a port a moment after it took the listener.
pub(crate) async fn listening(address: SocketAddr) {
    eventually("the gateway listens", async || {
        TcpStream::connect(address)
            .await
            .map(drop)
            .with_context(|| address.to_string())
    })
    .await;
}

/// Asserts that of `of` chances of probability `share`, `count` is within five standard deviations of what is to be
/// expected: a sound gateway fails that once in a million runs.
pub(crate) fn assert_share(what: &str, count: u32, of: u32, share: f64) {
    let expected = f64::from(of) * share;
    let deviation = (expected * (1.0 - share)).sqrt();
    assert!(
        (f64::from(count) - expected).abs() <= 5.0 * deviation,
        "{what}: {count} of {of}, where {expected:.0} ± {:.0} are to be expected",
        5.0 * deviation
    );
}

/// How often each answer comes to `count` questions on one connection.
pub(crate) async fn shares(address: SocketAddr, ask: &Ask, count: u32) -> BTreeMap<String, u32> {
    listening(address).await;
    let mut connection = Connect::plain()
        .open(address)
        .await
        .expect("the gateway listens");
    let mut found = BTreeMap::new();
    for _ in 0..count {
        let answer = connection.ask(ask).await;
        *found.entry(shortest(answer)).or_default() += 1;
    }
    found
}
