//! The sidecar's HTTP server.
//!
//! A flood of requests closes the oldest connections, including one on which `/drained` waits, which ends that pod's
//! drain early. Otherwise, a flood would starve the probes, and all pods would become unready and be restarted.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use sesame_http::{Limits, MAX_CONNECTIONS};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};

use super::{Shared, Stage, readiness};

/// How long `/drained` waits for a drain to start. The kubelet runs both hooks at the same time, but the one that
/// starts the drain must first start a process.
const DRAIN_START_TIMEOUT: Duration = Duration::from_secs(15);

/// The time that a request may take on top of its drain: the wait for the drain to start, and requests to Envoy.
const DRAIN_MARGIN: Duration = Duration::from_secs(60);

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
    serve(
        TcpListenerStream::new(listener),
        Interface::Network,
        &shared,
    )
    .await;
}

/// Serves requests on the control socket.
pub(super) async fn control(listener: UnixListener, shared: Arc<Shared>) {
    serve(
        UnixListenerStream::new(listener),
        Interface::Control,
        &shared,
    )
    .await;
}

async fn serve<S>(
    incoming: impl Stream<Item = io::Result<S>>,
    interface: Interface,
    shared: &Arc<Shared>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = Limits {
        connections: MAX_CONNECTIONS,
        duration: shared.config.delay + shared.config.timeout + DRAIN_MARGIN,
    };
    let shared = Arc::clone(shared);
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(respond(interface, &request, &shared).await) }
    });
    sesame_http::serve(incoming, limits, service).await;
}

async fn respond(
    interface: Interface,
    request: &Request<Incoming>,
    shared: &Arc<Shared>,
) -> HttpResponse {
    match (interface, request.method(), request.uri().path()) {
        (Interface::Network, &Method::GET, "/live") => live(shared).await,
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

async fn live(shared: &Shared) -> HttpResponse {
    match shared.admin.responds().await {
        Ok(()) => plain(StatusCode::OK, "alive"),
        Err(error) => plain(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

async fn ready(shared: &Shared) -> HttpResponse {
    let stage = *shared.stage.borrow();
    if stage != Stage::Serving {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "draining");
    }
    match readiness::is_serving(&shared.config.readiness_socket).await {
        Ok(()) => plain(StatusCode::OK, "ready"),
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
