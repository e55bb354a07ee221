//! A client that repeats a request until it gets the expected answer.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sesame_testkit::client::{Connect, Connection, Request};

use super::object::Answer;

/// How long an Envoy may take to apply a configuration that it has accepted.
const APPLIED: Duration = Duration::from_secs(5);

/// A client that keeps its last connection.
pub(super) struct Client {
    /// Whether to use TLS, with the host as the server name.
    pub(super) tls: bool,
    address: SocketAddr,
    /// The connection, and the host that it was opened for, which matters only with TLS.
    kept: Option<(String, Connection)>,
}

impl Client {
    pub(super) fn new(tls: bool, address: SocketAddr) -> Self {
        Self {
            tls,
            address,
            kept: None,
        }
    }

    /// Closes the connection, since changes don't affect forwarded connections.
    pub(super) fn forget(&mut self) {
        self.kept = None;
    }

    /// Repeats the request until the answer is the expected one.
    pub(super) async fn expect(
        &mut self,
        host: &str,
        path: &str,
        expected: Answer,
    ) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let found = self.ask(host, path).await;
            if found.as_ref().is_ok_and(|found| *found == expected) {
                return Ok(());
            }
            // The listener may have changed.
            self.kept = None;
            if began.elapsed() > APPLIED {
                let scheme = if self.tls { "https" } else { "http" };
                return Err(format!(
                    "{scheme}://{host}{path}: expected {expected:?}, got {found:?}"
                ));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn ask(&mut self, host: &str, path: &str) -> Result<Answer> {
        let kept = self.kept.take();
        let kept = kept.filter(|(of, _)| !self.tls || of == host);
        let mut connection = match (kept, self.tls) {
            (Some((_, connection)), _) => connection,
            (None, false) => Connect::plain().open(self.address).await?,
            (None, true) => match Connect::tls(host).open(self.address).await {
                Ok(connection) => connection,
                Err(_) => return Ok(Answer::Closed),
            },
        };
        let response = connection.send(&Request::get(host, path)).await?;
        self.kept = Some((host.to_owned(), connection));
        match response.status.as_u16() {
            404 => Ok(Answer::Nothing),
            301 if response.header("location") == format!("https://{host}{path}") => {
                Ok(Answer::Redirect)
            }
            200 => {
                let backend = response.backend();
                let number = backend.parse();
                let number = number.with_context(|| format!("backend {backend:?}"))?;
                Ok(Answer::Backend(number))
            }
            status => bail!("status {status} {:?}", response.headers),
        }
    }
}
