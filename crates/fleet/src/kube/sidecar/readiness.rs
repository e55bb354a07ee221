//! Whether Envoy serves clients.
//!
//! In: the Unix socket of Envoy's readiness listener. Out: whether a worker thread responds.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The timeout for a response. Until Envoy has its listeners, connections wait.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Succeeds if a worker thread responds.
///
/// # Errors
/// Envoy isn't running, or no worker thread responds within ten seconds.
pub(super) async fn is_serving(socket: &Path) -> io::Result<()> {
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.read_u8().await
    };
    match timeout(TIMEOUT, exchange).await {
        Ok(response) => response.map(drop),
        Err(_) => Err(io::Error::other("Envoy's worker threads aren't responding")),
    }
}
