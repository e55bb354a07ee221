//! An HTTP echo server: the backend in tests, benches and the demo.
//!
//! Accepts plain connections (HTTP/1.1, or HTTP/2 with prior knowledge) and TLS. Records requests.
//!
//! Every response has status 200 and contains the backend's name and the request as JSON (see [`Received`]), except:
//!
//! | request | response |
//! |---|---|
//! | `/status/404` | the same with this status (200 to 599) |
//! | `?delay=500ms`, `?delay=2s` or header `x-echo-delay: 2s` | the same after a delay of at most one minute; works with any path |
//! | `?pause=2s` | the same, but the body ends after a pause of at most one minute; works with any path |
//! | `/flaky?key=a&failures=2&code=503` | 503 twice for this key, then 200; `code=reset` resets the connection |
//! | `/ws` with an upgrade to WebSocket | echoes each message, text or binary |
//! | a path of [`Backend::document`] | that document |
//! | an export of spans over OTLP/gRPC | success; the spans are recorded |
//! | `?set-header=name:value` or header `x-echo-set-header: name:value`, repeatable | the same with these headers |

mod otlp;
mod plan;
mod received;
mod response;
mod websocket;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::body::Bytes;
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

pub use self::otlp::Span;
use self::received::Records;
pub use self::received::{Received, Tls};
use self::response::{Connection, handle};

/// Maximum number of concurrent connections; others are closed immediately.
const MAX_CONNECTIONS: usize = 16_384;

/// Maximum number of recorded spans; later ones are dropped.
const MAX_SPANS: usize = 10_000;

/// The timeout for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A server that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Backend {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Stops the server on drop.
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

/// The state shared by all connections.
#[derive(Debug)]
struct Shared {
    name: String,
    records: Records,
    flaky: plan::Flaky,
    /// The responses of [`Backend::document`], by path.
    documents: Mutex<BTreeMap<String, Bytes>>,
    /// The spans since startup; at most [`MAX_SPANS`].
    spans: Mutex<Vec<Span>>,
    /// WebSockets outlive their HTTP connections.
    websockets: Mutex<JoinSet<()>>,
}

impl Shared {
    fn document(&self, path: &str) -> Option<Bytes> {
        let documents = self.documents.lock();
        let documents = documents.unwrap_or_else(PoisonError::into_inner);
        documents.get(path).cloned()
    }

    fn record(&self, spans: Vec<Span>) {
        let mut all = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_SPANS - all.len();
        all.extend(spans.into_iter().take(room));
    }

    /// Ignores poisoning: a panic leaves the set consistent.
    fn websockets(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.websockets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend {
    /// Starts a plain server called `name` on this address; port 0 picks a free port. Must be called within a Tokio
    /// runtime.
    ///
    /// # Errors
    /// If the address can't be bound.
    pub async fn start(name: &str, address: SocketAddr) -> io::Result<Self> {
        Self::serve(name, address, None).await
    }

    /// Starts a TLS server. Get `config` from [`crate::certs::Identity::server_config`].
    ///
    /// # Errors
    /// If the address can't be bound.
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
            documents: Mutex::default(),
            spans: Mutex::default(),
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

    /// Responds to requests for a path with this body from now on.
    pub fn document(&self, path: &str, body: impl Into<Bytes>) {
        let documents = self.shared.documents.lock();
        let mut documents = documents.unwrap_or_else(PoisonError::into_inner);
        documents.insert(path.to_owned(), body.into());
    }

    /// The name in its responses.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The latest requests, oldest first; at most 1,000.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.records.latest()
    }

    /// The number of requests since startup.
    pub fn count(&self) -> u64 {
        self.shared.records.count()
    }

    /// The exported spans.
    pub fn spans(&self) -> Vec<Span> {
        let spans = self.shared.spans.lock();
        spans.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the latest requests satisfy `enough`, and returns them.
    ///
    /// # Errors
    /// Returns an error on timeout; the error contains the requests.
    pub async fn wait_for(
        &self,
        timeout: Duration,
        enough: impl Fn(&[Received]) -> bool,
    ) -> Result<Vec<Received>, Vec<Received>> {
        let waiting = self.shared.records.wait_for(enough);
        tokio::time::timeout(timeout, waiting)
            .await
            .map_err(|_| self.requests())
    }

    /// Stops the server: closes the listener and all connections.
    pub async fn stop(self) {
        let Self { stop, server, .. } = self;
        drop(stop);
        // Fails only if the server panicked.
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
                Ok((stream, _)) if connections.len() < MAX_CONNECTIONS => {
                    connections.spawn(connection(stream, tls.clone(), Arc::clone(&shared)));
                }
                Ok(_) => {}
                // Most likely the process is out of file descriptors.
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
    // Don't delay small responses. An error would surface later.
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = tls else {
        return requests(stream, None, shared).await;
    };
    // If the handshake fails, the client gets an alert.
    if let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await {
        let (_, session) = stream.get_ref();
        let tls = Tls {
            sni: session.server_name().map(str::to_owned),
            alpn: session
                .alpn_protocol()
                .map(|name| String::from_utf8_lossy(name).into_owned()),
            client: session
                .peer_certificates()
                .and_then(|chain| chain.first())
                .map(|leaf| BASE64.encode(leaf)),
        };
        requests(stream, Some(tls), shared).await;
    }
}

async fn requests<S>(stream: S, tls: Option<Tls>, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = Arc::new(Connection { tls, shared });
    let service = service_fn(|request| handle(request, Arc::clone(&connection)));
    // An aborted request or response is not an error.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .await;
}

#[cfg(test)]
mod tests;
