//! A client for Envoy's admin interface on a Unix socket.
//!
//! In: a socket and a path. Out: a response, limited in size and time. Must not start, stop or wait for a process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The maximum response body, in bytes. A config dump with 10,000 routes takes a tenth of that.
const MAX_RESPONSE: usize = 256 << 20;

/// The timeout of each request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval between requests to an Envoy that responds.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The number of consecutive unanswered requests after which Envoy counts as hung.
const HANG_REQUESTS: u32 = 3;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The socket doesn't accept connections.
    #[error("cannot reach Envoy's admin interface: {0}")]
    Unreachable(#[from] std::io::Error),
    /// The connection was closed, or the response isn't HTTP.
    #[error("the connection to Envoy's admin interface failed: {0}")]
    Closed(#[from] hyper::Error),
    /// The body is incomplete or too large.
    #[error("cannot read the response from Envoy's admin interface: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The path isn't valid in a request.
    #[error("invalid path: {0}")]
    Path(#[from] http::Error),
    /// The request timed out.
    #[error("Envoy's admin interface is not responding")]
    Timeout,
    /// The status of the response isn't 200.
    #[error("Envoy's admin interface responded with {0}")]
    Status(StatusCode),
}

/// The admin interface of one Envoy.
#[derive(Clone, Debug)]
pub struct Admin {
    socket: PathBuf,
}

impl Admin {
    /// The admin interface on this Unix socket, which need not exist yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
        }
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Gets a path with a query, such as `/stats?format=json`.
    ///
    /// # Errors
    /// No response with status 200 arrives within ten seconds.
    pub async fn get(&self, path: &str) -> Result<Bytes, AdminError> {
        self.send(Method::GET, path).await
    }

    /// Posts to a path, such as `/drain_listeners`.
    ///
    /// # Errors
    /// No response with status 200 arrives within ten seconds.
    pub async fn post(&self, path: &str) -> Result<Bytes, AdminError> {
        self.send(Method::POST, path).await
    }

    /// Gets a path whose response may be large, as a stream.
    ///
    /// # Errors
    /// No response with status 200 starts within ten seconds.
    pub async fn stream(&self, path: &str) -> Result<Response<Incoming>, AdminError> {
        let exchange = async {
            let request = request(Method::GET, path)?;
            let stream = UnixStream::connect(&self.socket).await?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            // Ends when the response has been read or dropped. Errors surface in the response's body.
            tokio::spawn(async move { connection.await.ok() });
            let response = sender.send_request(request).await?;
            match response.status() {
                StatusCode::OK => Ok(response),
                status => Err(AdminError::Status(status)),
            }
        };
        timeout(REQUEST_TIMEOUT, exchange)
            .await
            .unwrap_or(Err(AdminError::Timeout))
    }

    /// Whether Envoy's main thread responds, with any status. It responds even under overload and before Envoy is
    /// ready.
    ///
    /// # Errors
    /// Envoy doesn't respond within ten seconds.
    pub(crate) async fn responds(&self) -> Result<(), AdminError> {
        match self.get("/ready").await {
            Ok(_) | Err(AdminError::Status(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns once several consecutive requests have gone unanswered, for `limit` in total. A single request may time
    /// out after this process, or the machine, was suspended. A closed or missing socket doesn't count: only a hung
    /// process accepts connections but doesn't respond.
    pub(super) async fn hung(&self, limit: Duration) {
        let mut unanswered = 0;
        while unanswered < HANG_REQUESTS {
            match timeout(limit / HANG_REQUESTS, self.responds()).await {
                Err(_) | Ok(Err(AdminError::Timeout)) => unanswered += 1,
                Ok(_) => {
                    unanswered = 0;
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
        }
    }

    /// Returns once Envoy is ready. Never returns if the process exits first.
    pub(super) async fn ready(&self) {
        let mut delay = Duration::from_millis(20);
        while self.get("/ready").await.is_err() {
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(Duration::from_secs(1));
        }
    }

    /// Drains: clients get `Connection: close` or GOAWAY, while listeners stay open. Returns when all clients have
    /// disconnected or Envoy no longer responds. Use a timeout: a client may keep an idle connection open forever.
    pub(super) async fn drain(&self) -> Result<(), AdminError> {
        self.post("/drain_listeners?graceful&skip_exit").await?;
        while self.has_connections().await? {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Whether any client is connected to a listener other than the admin interface.
    async fn has_connections(&self) -> Result<bool, AdminError> {
        let filter = r"/stats?filter=%5Elistener%5C..*%5C.downstream_cx_active$";
        let stats = self.get(filter).await?;
        match count_connections(&String::from_utf8_lossy(&stats)) {
            Some(number) => Ok(number > 0),
            // If these statistics are missing, assume connections as long as there are listeners.
            None => Ok(!self.get("/listeners").await?.is_empty()),
        }
    }

    async fn send(&self, method: Method, path: &str) -> Result<Bytes, AdminError> {
        timeout(REQUEST_TIMEOUT, self.exchange(method, path))
            .await
            .unwrap_or(Err(AdminError::Timeout))
    }

    async fn exchange(&self, method: Method, path: &str) -> Result<Bytes, AdminError> {
        let request = request(method, path)?;
        let stream = UnixStream::connect(&self.socket).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // The connection is polled here rather than in a task, so that dropping this future closes it.
        let response = async {
            let response = sender.send_request(request).await?;
            if response.status() != StatusCode::OK {
                return Err(AdminError::Status(response.status()));
            }
            let body = Limited::new(response.into_body(), MAX_RESPONSE).collect();
            Ok(body.await.map_err(AdminError::Body)?.to_bytes())
        };
        tokio::pin!(response);
        tokio::select! {
            response = &mut response => response,
            result = connection => {
                result?;
                response.await
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

/// The sum of all gauges except the admin interface's; `None` if there are none.
fn count_connections(stats: &str) -> Option<u64> {
    stats
        .lines()
        .filter(|line| !line.starts_with("listener.admin."))
        .filter_map(|line| line.rsplit_once(": ")?.1.trim().parse::<u64>().ok())
        .reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn client_connections_are_summed() {
        let stats = "listener.127.0.0.1_80.downstream_cx_active: 2\n\
            listener.127.0.0.1_80.worker_0.downstream_cx_active: 2\n\
            listener.admin.downstream_cx_active: 1\n\
            listener.admin.main_thread.downstream_cx_active: 1\n";
        assert_eq!(count_connections(stats), Some(4));
        assert_eq!(
            count_connections("listener.admin.downstream_cx_active: 1\n"),
            None
        );
        assert_eq!(count_connections(""), None);
    }

    /// The clock is paused: it advances to the next timer while all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn only_several_unanswered_requests_in_a_row_mean_a_hang() {
        let dir = tempfile::tempdir().unwrap();
        let admin = Admin::new(dir.path().join("admin.sock"));
        let listener = UnixListener::bind(admin.socket()).unwrap();
        let answers = [true, false, false, true, false, false, false];
        let server = async {
            let mut ignored = Vec::new();
            for answers in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
                match answers {
                    // Not ready, but it responds.
                    true => stream
                        .write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
                        .await
                        .unwrap(),
                    false => ignored.push(stream),
                }
            }
            pending::<Infallible>().await
        };
        let begin = Instant::now();
        let limit = Duration::from_secs(30);
        tokio::select! {
            () = admin.hung(limit) => {}
            never = server => match never {},
        }
        let expected = limit / 3 * 5 + POLL_INTERVAL * 2;
        let elapsed = begin.elapsed();
        assert!(
            (expected..expected + Duration::from_secs(1)).contains(&elapsed),
            "{elapsed:?}"
        );
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
