//! A connection whose other end has proved which fleet it is of.
//!
//! In: a finished handshake. Out: bytes, and [`Peer`] for whoever asks. It must not know what the bytes mean.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::resource::FleetId;

/// How long we sleep at most before we look at the wall clock again, which may have been set.
const LOOK: Duration = Duration::from_secs(3600);

/// Who is at the other end, as its certificate has it. In the extensions of each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// The fleet that its certificate names.
    pub fleet: FleetId,
    /// When its certificate ends to be valid, and the connection with it.
    pub expires: SystemTime,
}

/// A connection. It ends when the certificate with which it was opened does.
///
/// Certificates are never revoked here: they end. A connection that outlived its certificate would be
/// a trust without end for whoever once held a key. Nobody who behaves is harmed: an Envoy has had its next
/// certificate for days by then, and is back with it after a moment, sent only what changed in between. It
/// is the connection that ends and not a stream of it, since on the same connection the next stream would
/// be the old certificate's again.
#[derive(Debug)]
pub struct Connection {
    stream: TlsStream<TcpStream>,
    peer: Peer,
    alarm: Pin<Box<Sleep>>,
}

impl Connection {
    pub(super) fn new(stream: TlsStream<TcpStream>, peer: Peer) -> Connection {
        let alarm = Box::pin(tokio::time::sleep(nap(&peer, SystemTime::now())));
        Connection {
            stream,
            peer,
            alarm,
        }
    }

    /// Completes when the certificate has expired.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.alarm.as_mut().poll(cx));
            let nap = nap(&self.peer, SystemTime::now());
            if nap.is_zero() {
                return Poll::Ready(());
            }
            self.alarm.as_mut().reset(Instant::now() + nap);
        }
    }
}

/// How long to sleep before it is time to look whether the certificate has expired; zero: it has.
fn nap(peer: &Peer, now: SystemTime) -> Duration {
    let left = peer.expires.duration_since(now).unwrap_or_default();
    left.min(LOOK)
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
        // Somebody reads for as long as the connection is open, so this is the place to notice.
        if self.poll_expired(cx).is_ready() {
            tracing::info!(
                peer = %self.peer.address, fleet = %self.peer.fleet,
                "a discovery client's certificate has expired: it has to come again with the next one"
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
