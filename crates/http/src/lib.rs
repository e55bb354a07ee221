//! An HTTP/1 server for probes and small pages. Assume that any client on the network can reach it.
//!
//! In: connections, and a service that responds to requests. Out: responses. It limits connections, headers and time.
//! It must not depend on what the responses contain.
//!
//! Each connection serves one request. At the connection limit, a new connection displaces the oldest connection
//! without a complete request, or the oldest of all if more than half have a complete request. A probe takes
//! milliseconds, so slow clients displace only each other.

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_stream::{Stream, StreamExt};

/// The usual value for [`Limits::connections`].
pub const MAX_CONNECTIONS: usize = 256;
/// The deadline for a request's headers.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a request's headers, in bytes. Requests with larger headers get a 431 response.
pub const MAX_HEADERS: usize = 16 << 10;

/// The accept backlog; the system's limit is usually the same. Beyond it, the client's system retries after a second.
const BACKLOG: u32 = 4096;
/// The pause after a failed accept, such as when the process is out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The limits that differ between servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of open connections.
    pub connections: usize,
    /// The time from the start of a connection to the end of the response.
    pub duration: Duration,
}

/// Listens on an address. Must be called within a Tokio runtime.
///
/// # Errors
/// If the address is in use, or isn't local.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Lets a restarted process bind the address immediately.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves connections until `incoming` ends. Dropping the future closes all connections.
///
/// Errors from `incoming` are retried. The service need not read a request's body: a connection is closed after its
/// response, with the rest of the request unread.
pub async fn serve<C, S, B>(incoming: impl Stream<Item = io::Result<C>>, limits: Limits, service: S)
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADERS)
        .keep_alive(false);
    let mut connections = Connections::new(limits.connections);
    let mut incoming = pin!(incoming);
    while let Some(accepted) = incoming.next().await {
        let Ok(stream) = accepted else {
            sleep(ACCEPT_RETRY).await;
            continue;
        };
        let has_request = Arc::new(AtomicBool::new(false));
        let service = service_fn({
            let (service, has_request) = (service.clone(), Arc::clone(&has_request));
            move |request| {
                has_request.store(true, Ordering::Relaxed);
                service.call(request)
            }
        });
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let connection = async move {
            // A broken or slow connection is not an error.
            let _ = timeout(limits.duration, connection).await;
        };
        connections.spawn(connection, has_request);
    }
}

/// The open connections, each with its own task.
struct Connections {
    max: usize,
    tasks: JoinSet<()>,
    /// Oldest first. Contains finished connections until the limit is reached.
    by_age: VecDeque<Connection>,
}

struct Connection {
    task: AbortHandle,
    /// Whether a complete request has arrived.
    has_request: Arc<AtomicBool>,
}

impl Connections {
    fn new(max: usize) -> Self {
        Self {
            max,
            tasks: JoinSet::new(),
            by_age: VecDeque::new(),
        }
    }

    fn spawn(
        &mut self,
        connection: impl Future<Output = ()> + Send + 'static,
        has_request: Arc<AtomicBool>,
    ) {
        // Removes finished tasks.
        while self.tasks.try_join_next().is_some() {}
        if self.by_age.len() >= self.max {
            self.by_age
                .retain(|connection| !connection.task.is_finished());
        }
        if self.by_age.len() >= self.max {
            self.close_one();
        }
        let task = self.tasks.spawn(connection);
        self.by_age.push_back(Connection { task, has_request });
    }

    fn close_one(&mut self) {
        let is_idle = |connection: &Connection| !connection.has_request.load(Ordering::Relaxed);
        let idle = self.by_age.iter().filter(|open| is_idle(open)).count();
        // Idle connections keep at least half of the slots, so that each has time to send its request.
        let oldest = match idle < self.max / 2 {
            true => 0,
            false => self.by_age.iter().position(is_idle).unwrap_or(0),
        };
        if let Some(connection) = self.by_age.remove(oldest) {
            connection.task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
