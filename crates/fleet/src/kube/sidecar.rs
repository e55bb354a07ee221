//! The process beside each Envoy of a pod: it says when Envoy is ready, and sees it off without losing a request.
//!
//! In: Envoy's admin interface, and the kubelet's calls. Out: answers to them. It must not know the API server, nor what
//! Envoy serves.
//!
//! On a TCP port, open to whoever reaches the pod, and harmless to it:
//!
//! - `GET /ready`: 200 while Envoy has its listeners and nothing is being drained, else 503. The readiness probe.
//! - `GET /drained`: answered when a drain is over. Envoy's `preStop`: Envoy is told to end only after that. If no drain
//!   begins soon, 409.
//! - `GET /metrics`: Envoy's statistics in the form of Prometheus.
//!
//! On a Unix socket inside the pod: `POST /drain` begins a drain. The kubelet has it called by `preStop` of this process's
//! own container (a program run there, [`begin`]), which it does for all containers of a pod at the same time. So
//! strangers can't drain an Envoy.
//!
//! That an Envoy is being drained is kept here and not in Envoy: a sidecar that is started anew, or an Envoy, is not left
//! unready for ever.

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

/// How a sidecar does its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Envoy's admin interface: a Unix socket.
    pub admin_socket: PathBuf,
    /// Where orders are taken: a Unix socket to be made.
    pub control_socket: PathBuf,
    /// How long a drain goes on as if nothing were, so that everybody learns not to send here.
    pub delay: Duration,
    /// How long clients are waited for after that, at most.
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

/// How far a drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    Draining,
    Drained,
}

/// What all answers are made from.
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
    // What one before us has left.
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

/// Tells the sidecar behind a socket to begin a drain. Returns at once.
///
/// # Errors
/// If it doesn't answer.
pub async fn begin(control_socket: &Path) -> Result<(), AdminError> {
    Admin::new(control_socket).post("/drain").await.map(drop)
}
