//! An HTTP server that tells what it was asked: the backend of tests, benches and the demo.
//!
//! In: connections, plain (HTTP/1.1 or HTTP/2 with prior knowledge) or TLS. Out: answers in JSON, and a record of the
//! requests. It must not know Envoy or Sesame: it sees what any backend sees.
//!
//! Every answer is of status 200 and says which backend answered and what it was asked (see [`Received`]), but:
//!
//! | asked for | answered |
//! |---|---|
//! | `/status/404` | the same with that status, 200 to 599 |
//! | `?delay=500ms`, `?delay=2s` | the same after a while, one minute at most; together with any path |
//! | `/flaky?key=a&failures=2&code=503` | 503 twice for this key, then 200 for ever; `code=reset`: the connection breaks off instead |
//! | `/ws` with an upgrade to WebSocket | each message, text or binary, comes back |
//! | `?set-header=name:value` or a request header `x-echo-set-header: name:value`, any number | the same with these headers |

mod answer;
mod plan;
mod received;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use self::answer::{Connection, answer};
use self::received::Records;
pub use self::received::{Received, Tls};

/// Connections at the same time; further ones are closed at once.
const MOST_CONNECTIONS: usize = 16_384;

/// A TLS client that says nothing is closed after this time.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A server that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Backend {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Dropping it ends the server.
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

/// What all connections of a backend share.
#[derive(Debug)]
struct Shared {
    name: String,
    records: Records,
    flaky: plan::Flaky,
    /// WebSockets outlive the HTTP connections that they were.
    websockets: Mutex<JoinSet<()>>,
}

impl Shared {
    /// A panic under the lock leaves the set whole.
    fn websockets(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.websockets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend {
    /// A plain server called `name` on this address; port 0 is any free one. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// If the address can't be listened on.
    pub async fn start(name: &str, address: SocketAddr) -> io::Result<Self> {
        Self::serve(name, address, None).await
    }

    /// The same with TLS on each connection; [`crate::certs::Identity::server_config`] makes a `config`.
    ///
    /// # Errors
    /// If the address can't be listened on.
    pub async fn start_tls(
        name: &str,
        address: SocketAddr,
        config: Arc<ServerConfig>,
    ) -> io::Result<Self> {
        Self::serve(name, address, Some(config.into())).await
    }

    async fn serve(name: &str, address: SocketAddr, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            records: Records::default(),
            flaky: plan::Flaky::default(),
            websockets: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(run(listener, tls, Arc::clone(&shared), stopped));
        Ok(Self {
            address,
            shared,
            stop,
            server,
        })
    }

    /// What it calls itself in its answers.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The latest requests, oldest first: 1,000 at most.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.records.latest()
    }

    /// How many requests have come since the start.
    pub fn count(&self) -> u64 {
        self.shared.records.count()
    }

    /// Waits until `enough` says so of the latest requests, and returns them.
    ///
    /// # Errors
    /// With the requests that did come, if that takes longer than `patience`.
    pub async fn wait_for(
        &self,
        patience: Duration,
        enough: impl Fn(&[Received]) -> bool,
    ) -> Result<Vec<Received>, Vec<Received>> {
        let waiting = self.shared.records.wait_for(enough);
        timeout(patience, waiting)
            .await
            .map_err(|_| self.requests())
    }

    /// Ends it: no listener and no connection is left when this returns. Answers under way break off.
    pub async fn stop(self) {
        let Self { stop, server, .. } = self;
        drop(stop);
        // Fails only if the server panicked, and then it is gone too.
        let _ = server.await;
    }
}

async fn run(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() < MOST_CONNECTIONS => {
                    connections.spawn(connection(stream, tls.clone(), Arc::clone(&shared)));
                }
                Ok(_) => {}
                // Out of file descriptors, most likely: others must end first.
                Err(_) => sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    connections.shutdown().await;
    let mut websockets = std::mem::take(&mut *shared.websockets());
    websockets.shutdown().await;
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    // Small answers go out at once. An error shows in the reading and writing that follows.
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = tls else {
        return requests(stream, None, shared).await;
    };
    // A client that can't shake hands has seen why by the alert.
    if let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await {
        let (_, session) = stream.get_ref();
        let tls = Tls {
            sni: session.server_name().map(str::to_owned),
            alpn: session
                .alpn_protocol()
                .map(|name| String::from_utf8_lossy(name).into_owned()),
        };
        requests(stream, Some(tls), shared).await;
    }
}

async fn requests<S>(stream: S, tls: Option<Tls>, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = Arc::new(Connection { tls, shared });
    let service = service_fn(|request| answer(request, Arc::clone(&connection)));
    // Clients that break off and answers that are meant to break off end here alike.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .await;
}

#[cfg(test)]
mod tests;
