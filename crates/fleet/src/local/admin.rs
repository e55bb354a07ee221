//! A client of Envoy's admin interface on a Unix socket.
//!
//! In: a socket and a path. Out: the answer, of bounded size and in bounded time.
//! It must not start, stop or wait for a process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The largest answer read, in bytes. A dump of the configuration of 10,000 routes is a tenth of it.
const LARGEST_ANSWER: usize = 256 << 20;

/// The timeout of each request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The socket refuses connections.
    #[error("cannot reach Envoy's admin interface: {0}")]
    Unreachable(#[from] std::io::Error),
    /// The connection broke, or what came is not HTTP.
    #[error("Envoy's admin interface closed the connection: {0}")]
    Broken(#[from] hyper::Error),
    /// The body broke off or is too large.
    #[error("cannot read the response of Envoy's admin interface: {0}")]
    Unreadable(Box<dyn std::error::Error + Send + Sync>),
    /// The path is not one that a request can have.
    #[error("invalid path: {0}")]
    Path(#[from] http::Error),
    /// No answer in time.
    #[error("Envoy's admin interface does not respond")]
    Silent,
    /// A response with another status than 200.
    #[error("Envoy's admin interface responded with {0}")]
    Refused(StatusCode),
}

/// The admin interface of one Envoy.
#[derive(Clone, Debug)]
pub struct Admin {
    socket: PathBuf,
}

impl Admin {
    /// The interface on this Unix socket. It need not exist yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
        }
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Gets a path with query, such as `/stats?format=json`.
    ///
    /// # Errors
    /// If there is no answer of status 200 within ten seconds.
    pub async fn get(&self, path: &str) -> Result<Bytes, AdminError> {
        self.send(Method::GET, path).await
    }

    /// Posts to a path, such as `/drain_listeners`.
    ///
    /// # Errors
    /// If there is no answer of status 200 within ten seconds.
    pub async fn post(&self, path: &str) -> Result<Bytes, AdminError> {
        self.send(Method::POST, path).await
    }

    /// Gets a path whose response may be large, as a stream.
    ///
    /// # Errors
    /// If no answer of status 200 begins within ten seconds.
    pub async fn stream(&self, path: &str) -> Result<Response<Incoming>, AdminError> {
        let exchange = async {
            let request = request(Method::GET, path)?;
            let stream = UnixStream::connect(&self.socket).await?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            // It ends when the response has been read or dropped. Errors reach the response's body.
            tokio::spawn(async move { connection.await.ok() });
            let response = sender.send_request(request).await?;
            match response.status() {
                StatusCode::OK => Ok(response),
                status => Err(AdminError::Refused(status)),
            }
        };
        timeout(PATIENCE, exchange)
            .await
            .unwrap_or(Err(AdminError::Silent))
    }

    /// Returns once Envoy says that it is ready. Wait for the process's end beside it.
    pub(super) async fn ready(&self) {
        let mut pause = Duration::from_millis(20);
        while self.get("/ready").await.is_err() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Drains: clients get `Connection: close` or GOAWAY. Returns when none is left, or when Envoy doesn't respond any more.
    /// Listeners stay open meanwhile. Use it with a timeout: a client may hold an idle connection for ever.
    pub(super) async fn drain(&self) -> Result<(), AdminError> {
        self.post("/drain_listeners?graceful&skip_exit").await?;
        while self.has_connections().await? {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Whether any client is connected, other than to the admin interface itself.
    async fn has_connections(&self) -> Result<bool, AdminError> {
        let filter = r"/stats?filter=%5Elistener%5C..*%5C.downstream_cx_active$";
        let stats = self.get(filter).await?;
        match connections(&String::from_utf8_lossy(&stats)) {
            Some(number) => Ok(number > 0),
            // There are no listeners, or the bootstrap excludes their statistics: then listeners count as connected.
            None => Ok(!self.get("/listeners").await?.is_empty()),
        }
    }

    async fn send(&self, method: Method, path: &str) -> Result<Bytes, AdminError> {
        timeout(PATIENCE, self.exchange(method, path))
            .await
            .unwrap_or(Err(AdminError::Silent))
    }

    async fn exchange(&self, method: Method, path: &str) -> Result<Bytes, AdminError> {
        let request = request(method, path)?;
        let stream = UnixStream::connect(&self.socket).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Polled together, without a task: dropping this future drops the connection.
        let answer = async {
            let response = sender.send_request(request).await?;
            if response.status() != StatusCode::OK {
                return Err(AdminError::Refused(response.status()));
            }
            let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect();
            Ok(body.await.map_err(AdminError::Unreadable)?.to_bytes())
        };
        tokio::pin!(answer);
        tokio::select! {
            answer = &mut answer => answer,
            ended = connection => {
                ended?;
                answer.await
            }
        }
    }
}

fn request(method: Method, path: &str) -> Result<Request<Empty<Bytes>>, http::Error> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "envoy")
        .body(Empty::new())
}

/// The sum of all gauges but the admin interface's; `None` if there is none.
fn connections(stats: &str) -> Option<u64> {
    stats
        .lines()
        .filter(|line| !line.starts_with("listener.admin."))
        .filter_map(|line| line.rsplit_once(": ")?.1.trim().parse::<u64>().ok())
        .reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_clients_are_summed_and_ours_left_out() {
        let stats = "listener.127.0.0.1_80.downstream_cx_active: 2\n\
            listener.127.0.0.1_80.worker_0.downstream_cx_active: 2\n\
            listener.admin.downstream_cx_active: 1\n\
            listener.admin.main_thread.downstream_cx_active: 1\n";
        assert_eq!(connections(stats), Some(4));
        assert_eq!(
            connections("listener.admin.downstream_cx_active: 1\n"),
            None
        );
        assert_eq!(connections(""), None);
    }

    #[tokio::test]
    async fn a_missing_socket_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let admin = Admin::new(dir.path().join("none"));
        assert!(matches!(
            admin.get("/ready").await,
            Err(AdminError::Unreachable(_))
        ));
    }
}
