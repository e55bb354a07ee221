//! The sidecar of each Envoy pod: answers the readiness probe and drains Envoy before the pod ends.
//!
//! In: Envoy's admin interface, and the kubelet's calls. Out: answers to them. Must not depend on the API server or
//! Envoy's configuration.
//!
//! On a TCP port, open to the network, read-only:
//!
//! - `GET /ready`: 200 while Envoy has its listeners and nothing is being drained, else 503. The readiness probe.
//! - `GET /drained`: answered when a drain is over. Envoy's `preStop`: Envoy gets SIGTERM only after that. If no drain
//!   begins soon, 409.
//! - `GET /metrics`: Envoy's statistics in the form of Prometheus.
//!
//! On a Unix socket inside the pod: `POST /drain` begins a drain. The sidecar container's `preStop` runs a program that calls
//! it ([`begin`]); the kubelet runs the `preStop` of all containers at the same time. So nothing outside the pod can drain
//! Envoy.
//!
//! The state of a drain is in this process and not in Envoy, so that it doesn't outlast a restart.

mod activity;
mod drain;
mod server;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

pub use crate::local::admin::AdminError;

use super::layout;
use crate::local::admin::Admin;

/// The folder that it shares with Envoy.
pub const FOLDER: &str = layout::RUN;

/// Settings of a sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Envoy's admin interface: a Unix socket.
    pub admin_socket: PathBuf,
    /// The control socket to create: a Unix socket.
    pub control_socket: PathBuf,
    /// How long Envoy serves as before, until load balancers have removed the pod.
    pub delay: Duration,
    /// The longest wait for clients after that.
    pub timeout: Duration,
}

impl Default for Settings {
    /// As the pod's template has it.
    fn default() -> Self {
        Self {
            admin_socket: layout::ADMIN_SOCKET.into(),
            control_socket: layout::SIDECAR_SOCKET.into(),
            delay: layout::DRAIN_DELAY,
            timeout: layout::DRAIN_TIMEOUT,
        }
    }
}

/// The state of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    Draining,
    Drained,
}

/// Shared by all requests.
#[derive(Debug)]
struct Shared {
    admin: Admin,
    settings: Settings,
    stage: watch::Sender<Stage>,
}

impl Shared {
    /// Begins a drain, once.
    fn begin(self: &Arc<Self>) {
        let first = self.stage.send_if_modified(|stage| {
            let first = *stage == Stage::Serving;
            if first {
                *stage = Stage::Draining;
            }
            first
        });
        if first {
            let shared = Arc::clone(self);
            tokio::spawn(async move {
                let why = drain::drain(&shared.admin, &shared.settings).await;
                tracing::info!("drained: {why}");
                shared.stage.send_replace(Stage::Drained);
            });
        }
    }
}

/// Listens on a port of all addresses of the pod.
///
/// # Errors
/// If the port is taken.
pub async fn listen(port: u16) -> io::Result<TcpListener> {
    let everywhere = |ip: IpAddr| TcpListener::bind(SocketAddr::new(ip, port));
    match everywhere(Ipv6Addr::UNSPECIFIED.into()).await {
        Ok(listener) => Ok(listener),
        // A pod without IPv6.
        Err(_) => everywhere(Ipv4Addr::UNSPECIFIED.into()).await,
    }
}

/// Answers until dropped.
///
/// # Errors
/// If the Unix socket can't be made.
pub async fn serve(listener: TcpListener, settings: Settings) -> io::Result<()> {
    // Left by a predecessor.
    match std::fs::remove_file(&settings.control_socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let control = UnixListener::bind(&settings.control_socket)?;
    let shared = Arc::new(Shared {
        admin: Admin::new(&settings.admin_socket),
        stage: watch::Sender::new(Stage::Serving),
        settings,
    });
    tokio::join!(
        server::network(listener, Arc::clone(&shared)),
        server::control(control, shared),
    );
    Ok(())
}

/// Begins a drain, through the control socket of a sidecar. Returns at once.
///
/// # Errors
/// If it doesn't answer.
pub async fn begin(control_socket: &Path) -> Result<(), AdminError> {
    Admin::new(control_socket).post("/drain").await.map(drop)
}
