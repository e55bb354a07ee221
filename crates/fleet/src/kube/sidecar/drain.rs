//! Seeing an Envoy off.
//!
//! While it is told everywhere that this pod is about to go, requests still come, and are served as ever. After that delay
//! Envoy asks clients to go (`Connection: close`, GOAWAY) with each answer, its listeners staying open for whoever hasn't
//! heard. It is over when no client is there, when those that are there have been quiet for a while, or when the time is up.

use std::fmt;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::Settings;
use super::activity::{Activity, PAGE, Verdict, Watch};
use crate::local::admin::{Admin, AdminError};

/// Between two looks at the statistics.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a drain is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Gone,
    Idle,
    TimeIsUp,
    EnvoyIsGone,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "no client is left",
            Self::Idle => "the clients that are left ask for nothing",
            Self::TimeIsUp => "the time is up, and clients are cut off",
            Self::EnvoyIsGone => "Envoy doesn't answer any more",
        })
    }
}

/// Drains an Envoy.
pub(super) async fn drain(admin: &Admin, settings: &Settings) -> Over {
    let mut watch = Watch::default();
    let begun = Instant::now();
    // Looked at from the first moment: whoever is quiet all the while needs no time of its own afterwards.
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
            Ok(Verdict::Busy) if asked.elapsed() >= settings.timeout => return Over::TimeIsUp,
            Ok(Verdict::Busy) => sleep(PAUSE).await,
        }
    }
}

async fn look(admin: &Admin, watch: &mut Watch) -> Result<Verdict, AdminError> {
    let stats = admin.get(PAGE).await?;
    let activity = Activity::parse(&String::from_utf8_lossy(&stats));
    Ok(watch.note(activity, Instant::now()))
}
