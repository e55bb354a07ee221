//! Drains an Envoy.
//!
//! While load balancers remove the pod, requests are served as before. After that delay Envoy sends `Connection: close` or
//! GOAWAY with each response; its listeners stay open. The drain is over when no client is connected, when the connected
//! clients are idle, or on timeout.

use std::fmt;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::Settings;
use super::activity::{Activity, PAGE, Verdict, Watch};
use crate::local::admin::{Admin, AdminError};

/// The interval between two reads of the statistics.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a drain is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Gone,
    Idle,
    Timeout,
    EnvoyIsGone,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "no client is left",
            Self::Idle => "the remaining clients are idle",
            Self::Timeout => "timeout; the remaining clients are disconnected",
            Self::EnvoyIsGone => "Envoy does not respond",
        })
    }
}

/// Drains an Envoy.
pub(super) async fn drain(admin: &Admin, settings: &Settings) -> Over {
    let mut watch = Watch::default();
    let begun = Instant::now();
    // Tracked from the start: clients that are idle during the delay need no extra time.
    while begun.elapsed() < settings.delay {
        if look(admin, &mut watch).await.is_err() {
            return Over::EnvoyIsGone;
        }
        let left = settings.delay.saturating_sub(begun.elapsed());
        sleep(left.min(PAUSE)).await;
    }
    if admin
        .post("/drain_listeners?graceful&skip_exit")
        .await
        .is_err()
    {
        return Over::EnvoyIsGone;
    }
    let asked = Instant::now();
    loop {
        match look(admin, &mut watch).await {
            Err(_) => return Over::EnvoyIsGone,
            Ok(Verdict::Gone) => return Over::Gone,
            Ok(Verdict::Idle) => return Over::Idle,
            Ok(Verdict::Busy) if asked.elapsed() >= settings.timeout => return Over::Timeout,
            Ok(Verdict::Busy) => sleep(PAUSE).await,
        }
    }
}

async fn look(admin: &Admin, watch: &mut Watch) -> Result<Verdict, AdminError> {
    let stats = admin.get(PAGE).await?;
    let activity = Activity::parse(&String::from_utf8_lossy(&stats));
    Ok(watch.note(activity, Instant::now()))
}
