//! A sidecar's answers over HTTP.

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

/// Connections of each kind at the same time; further ones wait.
const CONNECTIONS: usize = 256;

/// A connection on which no whole request comes is closed after this time.
const SLOW_REQUEST: Duration = Duration::from_secs(5);

/// How long a question whether a drain is over waits for one to begin. Both calls of the kubelet's begin at the same time,
/// but one of them starts a program.
const BEGINNING: Duration = Duration::from_secs(15);

/// The pause after an accept that failed: too many files are open.
const BREATH: Duration = Duration::from_millis(100);

type Answer = Response<BoxBody<Bytes, hyper::Error>>;

/// The side that a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// The network.
    Network,
    /// The pod itself.
    Control,
}

/// Serves the network.
pub(super) async fn network(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        take(accepted, Door::Network, &shared, &places).await;
    }
}

/// Serves the control socket.
pub(super) async fn control(listener: UnixListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        take(accepted, Door::Control, &shared, &places).await;
    }
}

/// Serves a connection on a task of its own, once a permit is free.
async fn take<S>(accepted: io::Result<S>, door: Door, shared: &Arc<Shared>, places: &Arc<Semaphore>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // The semaphore is never closed.
    let (Ok(stream), Ok(place)) = (accepted, Arc::clone(places).acquire_owned().await) else {
        return sleep(BREATH).await;
    };
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let service = service_fn(move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok::<_, Infallible>(answer(door, &request, &shared).await) }
        });
        // A broken connection is not an error.
        let _ = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(SLOW_REQUEST)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service)
            .await;
        drop(place);
    });
}

async fn answer(door: Door, request: &Request<Incoming>, shared: &Arc<Shared>) -> Answer {
    match (door, request.method(), request.uri().path()) {
        (Door::Network, &Method::GET, "/ready") => ready(shared).await,
        (Door::Network, &Method::GET, "/drained") => drained(shared).await,
        (Door::Network, &Method::GET, "/metrics") => metrics(shared).await,
        (Door::Control, &Method::POST, "/drain") => {
            shared.begin();
            plain(StatusCode::OK, "draining")
        }
        _ => plain(StatusCode::NOT_FOUND, "not here"),
    }
}

async fn ready(shared: &Shared) -> Answer {
    let stage = *shared.stage.borrow();
    if stage != Stage::Serving {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "draining");
    }
    // Before Envoy has its first listeners it answers 503 here.
    match shared.admin.get("/ready").await {
        Ok(_) => plain(StatusCode::OK, "ready"),
        Err(error) => plain(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

async fn drained(shared: &Shared) -> Answer {
    let mut stage = shared.stage.subscribe();
    let begun = stage.wait_for(|stage| *stage != Stage::Serving);
    if timeout(BEGINNING, begun).await.is_err() {
        return plain(StatusCode::CONFLICT, "no drain has begun");
    }
    // Fails only if the sender is gone, and with it the drain.
    let _ = stage.wait_for(|stage| *stage == Stage::Drained).await;
    plain(StatusCode::OK, "drained")
}

async fn metrics(shared: &Shared) -> Answer {
    match shared.admin.stream("/stats/prometheus?usedonly").await {
        Ok(response) => response.map(BodyExt::boxed),
        Err(error) => plain(StatusCode::BAD_GATEWAY, &error.to_string()),
    }
}

fn plain(status: StatusCode, text: &str) -> Answer {
    let body = Full::new(Bytes::from(format!("{text}\n")));
    let mut answer = Response::new(body.map_err(|never| match never {}).boxed());
    *answer.status_mut() = status;
    answer
}
