//! Requests from inside of a cluster's network.
//!
//! In: the network's namespace, what to ask for. Out: answers. It must not know Kubernetes.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST};
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use nix::sched::{CloneFlags, setns};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// An exchange that takes longer has failed. Nothing that is asked here takes more than a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest body, in bytes.
const LONGEST_BODY: usize = 1 << 16;

/// What to ask for: `GET` of a path.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// Where to connect.
    pub(super) address: SocketAddr,
    /// The Host header.
    pub(super) host: String,
    /// The path.
    pub(super) path: String,
}

/// What came back.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// The status.
    pub(super) status: u16,
    /// The headers.
    pub(super) headers: HeaderMap,
    /// The whole body.
    pub(super) body: String,
}

impl Answer {
    /// The first value of a header; empty if there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

/// A connection that may be asked more than once.
pub(super) struct Connection(http1::SendRequest<Empty<Bytes>>);

impl Connection {
    /// Opens one.
    pub(super) async fn open(address: SocketAddr) -> Result<Self> {
        let open = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            anyhow::Ok(Self(sender))
        };
        let opened = timeout(PATIENCE, open).await;
        opened
            .context("it takes too long")?
            .context("no connection")
    }

    /// Whether the other side has closed it.
    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// One exchange. The second value is the connection again, unless the answer says that it was the last.
    pub(super) async fn ask(mut self, ask: &Ask) -> Result<(Answer, Option<Self>)> {
        let request = Request::get(&ask.path).header(HOST, &ask.host);
        let request = request.body(Empty::new())?;
        let exchange = async {
            let response = self.0.send_request(request).await?;
            let (head, body) = response.into_parts();
            let body = match Limited::new(body, LONGEST_BODY).collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) => bail!("the body broke off: {error}"),
            };
            Ok(Answer {
                status: head.status.as_u16(),
                headers: head.headers,
                body: String::from_utf8_lossy(&body).into_owned(),
            })
        };
        let answer = timeout(PATIENCE, exchange).await;
        let answer = answer.context("it takes too long")?.context("no answer")?;
        let last = answer
            .header(CONNECTION.as_str())
            .eq_ignore_ascii_case("close");
        Ok((answer, (!last).then_some(self)))
    }
}

/// A network's namespace.
#[derive(Clone, Debug)]
pub(super) struct Network(PathBuf);

impl Network {
    /// The one that a file of `/proc` stands for.
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// One request on a connection of its own.
    pub(super) fn ask(&self, ask: &Ask) -> Result<Answer> {
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let runtime = enter(&self.0)?;
                runtime.block_on(async {
                    let connection = Connection::open(ask.address).await?;
                    connection.ask(ask).await.map(|(answer, _)| answer)
                })
            });
            asking
                .join()
                .unwrap_or_else(|_| bail!("the request broke off"))
        })
    }

    /// A thread that does something in this network.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce(Runtime) -> T + Send + 'static,
    ) -> thread::JoinHandle<Result<T>> {
        let path = self.0.clone();
        thread::spawn(move || Ok(work(enter(&path)?)))
    }
}

/// Puts this thread into a network for the rest of its life.
fn enter(path: &Path) -> Result<Runtime> {
    let file = File::open(path).with_context(|| format!("can't open {}", path.display()))?;
    setns(file, CloneFlags::CLONE_NEWNET).context("can't enter the cluster's network")?;
    // Its one thread is this one: others would be in the network that we come from.
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.context("can't make requests")
}
