//! HTTP requests from a network namespace.
//!
//! In: a network namespace and requests. Out: responses.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::HeaderMap;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST};
use hyper_util::rt::TokioIo;
use nix::sched::{CloneFlags, setns};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Time limit for a request.
const PATIENCE: Duration = Duration::from_secs(20);

/// Size limit for a body, in bytes.
const LONGEST_BODY: usize = 1 << 16;

/// A `GET` request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The address to connect to.
    pub(super) address: SocketAddr,
    /// The Host header.
    pub(super) host: String,
    /// The path.
    pub(super) path: String,
}

/// A response.
#[derive(Clone, Debug)]
pub(super) struct Response {
    /// The status.
    pub(super) status: u16,
    /// The headers.
    pub(super) headers: HeaderMap,
    /// The body.
    pub(super) body: String,
}

impl Response {
    /// The first value of a header; empty if absent.
    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

/// A keep-alive connection.
pub(super) struct Connection(http1::SendRequest<Empty<Bytes>>);

impl Connection {
    /// Connects.
    pub(super) async fn open(address: SocketAddr) -> Result<Self> {
        let open = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            anyhow::Ok(Self(sender))
        };
        let opened = timeout(PATIENCE, open).await;
        opened.context("timeout")?.context("no connection")
    }

    /// Whether the peer has closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Sends a request. Also returns the connection, unless the response closes it.
    pub(super) async fn send(mut self, request: &Request) -> Result<(Response, Option<Self>)> {
        let request = hyper::Request::get(&request.path).header(HOST, &request.host);
        let request = request.body(Empty::new())?;
        let exchange = async {
            let response = self.0.send_request(request).await?;
            let (head, body) = response.into_parts();
            let body = match Limited::new(body, LONGEST_BODY).collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) => bail!("incomplete body: {error}"),
            };
            Ok(Response {
                status: head.status.as_u16(),
                headers: head.headers,
                body: String::from_utf8_lossy(&body).into_owned(),
            })
        };
        let response = timeout(PATIENCE, exchange).await;
        let response = response.context("timeout")?.context("no response")?;
        let last = response
            .header(CONNECTION.as_str())
            .eq_ignore_ascii_case("close");
        Ok((response, (!last).then_some(self)))
    }
}

/// A network namespace.
#[derive(Clone, Debug)]
pub(super) struct Network(PathBuf);

impl Network {
    /// The namespace that a file in `/proc` refers to.
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Sends a request over a new connection.
    pub(super) fn send(&self, request: &Request) -> Result<Response> {
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let runtime = enter(&self.0)?;
                runtime.block_on(async {
                    let connection = Connection::open(request.address).await?;
                    connection.send(request).await.map(|(response, _)| response)
                })
            });
            asking
                .join()
                .unwrap_or_else(|_| bail!("the request thread panicked"))
        })
    }

    /// Runs a function on a thread in this namespace.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce(Runtime) -> T + Send + 'static,
    ) -> thread::JoinHandle<Result<T>> {
        let path = self.0.clone();
        thread::spawn(move || Ok(work(enter(&path)?)))
    }
}

/// Moves this thread into a network namespace, permanently.
fn enter(path: &Path) -> Result<Runtime> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    setns(file, CloneFlags::CLONE_NEWNET).context("cannot enter the cluster's network")?;
    // Single-threaded: other threads would be in the original namespace.
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.context("cannot make requests")
}
