//! The sidecar's HTTP server.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::{Shared, Stage};

/// Concurrent connections per interface; further connections wait.
const MAX_CONNECTIONS: usize = 256;

/// The timeout for the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long `/drained` waits for a drain to start. The kubelet runs both hooks at the same time, but the one that
/// starts the drain must first start a process.
const DRAIN_START_TIMEOUT: Duration = Duration::from_secs(15);

/// The delay after a failed accept, usually because too many files are open.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

type HttpResponse = Response<BoxBody<Bytes, hyper::Error>>;

/// The interface on which a request arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interface {
    /// The TCP port.
    Network,
    /// The Unix socket.
    Control,
}

/// Serves requests on the TCP port.
pub(super) async fn network(listener: TcpListener, shared: Arc<Shared>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        accept(accepted, Interface::Network, &shared, &permits).await;
    }
}

/// Serves requests on the control socket.
pub(super) async fn control(listener: UnixListener, shared: Arc<Shared>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        accept(accepted, Interface::Control, &shared, &permits).await;
    }
}

/// Serves a connection on a separate task, once a permit is free.
async fn accept<S>(
    accepted: io::Result<S>,
    interface: Interface,
    shared: &Arc<Shared>,
    permits: &Arc<Semaphore>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // The semaphore is never closed.
    let (Ok(stream), Ok(permit)) = (accepted, Arc::clone(permits).acquire_owned().await) else {
        return sleep(ACCEPT_RETRY_DELAY).await;
    };
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let service = service_fn(move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok::<_, Infallible>(respond(interface, &request, &shared).await) }
        });
        // A broken connection is not an error.
        let _ = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service)
            .await;
        drop(permit);
    });
}

async fn respond(
    interface: Interface,
    request: &Request<Incoming>,
    shared: &Arc<Shared>,
) -> HttpResponse {
    match (interface, request.method(), request.uri().path()) {
        (Interface::Network, &Method::GET, "/ready") => ready(shared).await,
        (Interface::Network, &Method::GET, "/drained") => drained(shared).await,
        (Interface::Network, &Method::GET, "/metrics") => metrics(shared).await,
        (Interface::Control, &Method::POST, "/drain") => {
            shared.start_drain();
            plain(StatusCode::OK, "draining")
        }
        _ => plain(StatusCode::NOT_FOUND, "not found"),
    }
}

async fn ready(shared: &Shared) -> HttpResponse {
    let stage = *shared.stage.borrow();
    if stage != Stage::Serving {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "draining");
    }
    // Envoy responds with 503 until it has its first listeners.
    match shared.admin.get("/ready").await {
        Ok(_) => plain(StatusCode::OK, "ready"),
        Err(error) => plain(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

async fn drained(shared: &Shared) -> HttpResponse {
    let mut stage = shared.stage.subscribe();
    let started = stage.wait_for(|stage| *stage != Stage::Serving);
    if timeout(DRAIN_START_TIMEOUT, started).await.is_err() {
        return plain(StatusCode::CONFLICT, "no drain has started");
    }
    // Fails only if the sender is dropped, and with it the drain.
    let _ = stage.wait_for(|stage| *stage == Stage::Drained).await;
    plain(StatusCode::OK, "drained")
}

async fn metrics(shared: &Shared) -> HttpResponse {
    match shared.admin.stream("/stats/prometheus?usedonly").await {
        Ok(response) => response.map(BodyExt::boxed),
        Err(error) => plain(StatusCode::BAD_GATEWAY, &error.to_string()),
    }
}

fn plain(status: StatusCode, text: &str) -> HttpResponse {
    let body = Full::new(Bytes::from(format!("{text}\n")));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response
}
