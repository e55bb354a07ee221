//! A connection with an authenticated client, which ends when the client's certificate expires.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::resource::FleetId;

/// Maximum interval between reads of the wall clock, which may be adjusted.
const CLOCK_CHECK: Duration = Duration::from_secs(3600);

/// The authenticated client, stored in each request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// The fleet that its certificate names.
    pub fleet: FleetId,
    /// When its certificate expires.
    pub expires: SystemTime,
}

/// A connection. It ends when the client's certificate expires.
///
/// Certificates are not revoked, so a connection that outlived its certificate would trust a leaked key forever. Envoy
/// receives a renewed certificate days earlier; when disconnected, it reconnects immediately and is sent only the
/// changes. The whole connection ends, not just the stream, since a new stream on it would use the same certificate.
#[derive(Debug)]
pub struct Connection {
    stream: TlsStream<TcpStream>,
    peer: Peer,
    timer: Pin<Box<Sleep>>,
    /// Counts the fleet's open connections.
    marker: Option<Arc<()>>,
}

impl Connection {
    pub(super) fn new(stream: TlsStream<TcpStream>, peer: Peer) -> Connection {
        let timer = Box::pin(tokio::time::sleep(next_check(&peer)));
        Connection {
            stream,
            peer,
            timer,
            marker: None,
        }
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Holds a marker while the connection is open.
    pub(super) fn hold(&mut self, marker: Arc<()>) {
        self.marker = Some(marker);
    }

    /// Completes when the certificate has expired.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let next = next_check(&self.peer);
            if next.is_zero() {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(Instant::now() + next);
        }
    }
}

/// The time until the next expiry check; zero if the certificate has expired.
fn next_check(peer: &Peer) -> Duration {
    let left = peer.expires.duration_since(SystemTime::now());
    left.unwrap_or_default().min(CLOCK_CHECK)
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // An open connection always has a pending read, so expiry is detected here.
        if self.poll_expired(cx).is_ready() {
            tracing::info!(
                peer = %self.peer.address, fleet = %self.peer.fleet,
                "closing an xDS connection: the client's certificate has expired"
            );
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the client's certificate has expired",
            )));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
