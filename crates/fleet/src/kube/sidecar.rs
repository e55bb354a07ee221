//! The sidecar of each Envoy: serves Envoy's probes, and drains Envoy before the pod stops.
//!
//! In: requests from the kubelet, and Envoy's admin interface. Out: responses. Must not depend on the API server or on
//! Envoy's configuration.
//!
//! Read-only endpoints, on a TCP port that is open to the network:
//!
//! - `GET /live`, the liveness probe: 200 while Envoy's admin interface responds, else 503.
//! - `GET /ready`, the readiness probe: 200 while Envoy's worker threads serve and it isn't draining, else 503.
//! - `GET /drained`, the `preStop` hook of Envoy's container: responds when the drain is over, so that Envoy gets
//!   SIGTERM only after that. 409 if no drain starts soon.
//! - `GET /metrics`: Envoy's statistics in Prometheus format.
//!
//! `POST /drain` starts a drain ([`start_drain`]). It is served only on a Unix socket inside the pod, so that clients
//! outside the pod can't start a drain. The `preStop` hook of the sidecar's container sends this request; the kubelet
//! runs the hooks of all containers concurrently.
//!
//! The drain state is kept in this process, not in Envoy, so it is lost when the sidecar restarts.

mod activity;
mod drain;
mod readiness;
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

/// The folder shared with Envoy.
pub const FOLDER: &str = layout::RUN_DIR;

/// A sidecar's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidecarConfig {
    /// Envoy's admin interface: a Unix socket.
    pub admin_socket: PathBuf,
    /// The Unix socket of Envoy's readiness listener.
    pub readiness_socket: PathBuf,
    /// The control socket to create: a Unix socket.
    pub control_socket: PathBuf,
    /// The delay before the drain, during which load balancers remove the pod.
    pub delay: Duration,
    /// The timeout of the drain after that delay.
    pub timeout: Duration,
}

impl Default for SidecarConfig {
    /// The same values as in the pod template.
    fn default() -> Self {
        Self {
            admin_socket: layout::ADMIN_SOCKET.into(),
            readiness_socket: layout::READINESS_SOCKET.into(),
            control_socket: layout::SIDECAR_SOCKET.into(),
            delay: layout::DRAIN_DELAY,
            timeout: layout::DRAIN_TIMEOUT,
        }
    }
}

/// The progress of a drain.
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
    config: SidecarConfig,
    stage: watch::Sender<Stage>,
}

impl Shared {
    /// Starts a drain, unless one has already started.
    fn start_drain(self: &Arc<Self>) {
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
                let end = drain::drain(&shared.admin, &shared.config).await;
                tracing::info!("drain ended: {end}");
                shared.stage.send_replace(Stage::Drained);
            });
        }
    }
}

/// Listens on a port on all of the pod's addresses.
///
/// # Errors
/// The port is in use.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    let bind = |ip: IpAddr| sesame_http::listen(SocketAddr::new(ip, port));
    // IPv6 may be unavailable in the pod.
    bind(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| bind(Ipv4Addr::UNSPECIFIED.into()))
}

/// Serves until dropped.
///
/// # Errors
/// The Unix socket can't be created.
pub async fn serve(listener: TcpListener, config: SidecarConfig) -> io::Result<()> {
    // A previous process may have left its socket behind.
    match std::fs::remove_file(&config.control_socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let control = UnixListener::bind(&config.control_socket)?;
    let shared = Arc::new(Shared {
        admin: Admin::new(&config.admin_socket),
        stage: watch::Sender::new(Stage::Serving),
        config,
    });
    tokio::join!(
        server::network(listener, Arc::clone(&shared)),
        server::control(control, shared),
    );
    Ok(())
}

/// Starts a drain through a sidecar's control socket. Doesn't wait for it to finish.
///
/// # Errors
/// The sidecar doesn't respond.
pub async fn start_drain(control_socket: &Path) -> Result<(), AdminError> {
    Admin::new(control_socket).post("/drain").await.map(drop)
}
