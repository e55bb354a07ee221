//! Drains an Envoy.
//!
//! While load balancers remove the pod, requests are served as before. After that delay Envoy sends `Connection: close`
//! or GOAWAY with each response; its listeners stay open. The drain is over when all clients have disconnected or are
//! idle, or on timeout.

use std::fmt;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::SidecarConfig;
use super::activity::{Activity, ActivityTracker, ClientState, STATS_PATH};
use crate::local::admin::{Admin, AdminError};

/// The interval at which the statistics are read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Why a drain is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainEnd {
    Gone,
    Idle,
    Timeout,
    EnvoyGone,
}

impl fmt::Display for DrainEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "all clients have disconnected",
            Self::Idle => "the remaining clients are idle",
            Self::Timeout => "timed out; disconnecting the remaining clients",
            Self::EnvoyGone => "Envoy has exited",
        })
    }
}

/// Drains an Envoy.
pub(super) async fn drain(admin: &Admin, config: &SidecarConfig) -> DrainEnd {
    let mut tracker = ActivityTracker::default();
    let started = Instant::now();
    // Activity is tracked from the start, so clients that are idle during the delay don't prolong the drain.
    while started.elapsed() < config.delay {
        if poll(admin, &mut tracker).await.is_err() {
            return DrainEnd::EnvoyGone;
        }
        let left = config.delay.saturating_sub(started.elapsed());
        sleep(left.min(POLL_INTERVAL)).await;
    }
    match admin.post("/drain_listeners?graceful&skip_exit").await {
        // A busy Envoy handles the request later.
        Ok(_) | Err(AdminError::Timeout) => {}
        Err(_) => return DrainEnd::EnvoyGone,
    }
    let drain_started = Instant::now();
    loop {
        match poll(admin, &mut tracker).await {
            Err(_) => return DrainEnd::EnvoyGone,
            Ok(ClientState::Gone) => return DrainEnd::Gone,
            Ok(ClientState::Idle) => return DrainEnd::Idle,
            Ok(ClientState::Busy) if drain_started.elapsed() >= config.timeout => {
                return DrainEnd::Timeout;
            }
            Ok(ClientState::Busy) => sleep(POLL_INTERVAL).await,
        }
    }
}

async fn poll(admin: &Admin, tracker: &mut ActivityTracker) -> Result<ClientState, AdminError> {
    let stats = match admin.get(STATS_PATH).await {
        // Envoy's main thread is busy, while its worker threads serve clients.
        Err(AdminError::Timeout) => return Ok(ClientState::Busy),
        stats => stats?,
    };
    let activity = Activity::parse(&String::from_utf8_lossy(&stats));
    Ok(tracker.record(activity, Instant::now()))
}
