//! A fresh Envoy that starts together with Sesame: time until it serves every route, and its memory before requests
//! arrive.
//!
//! The previous Sesame and Envoy have exited, since two Envoys would share the port.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sesame_testkit::many;

use super::prober::Tally;
use super::site::{BLUE, Shown};
use crate::machine;
use crate::objects;
use crate::probe::Probe;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(5);
/// Time limit for serving all apps.
const PATIENCE: Duration = Duration::from_secs(120);

/// The result.
pub(crate) struct Fresh {
    /// Time from the start until every app was served.
    pub(crate) served: Duration,
    /// Memory of the Envoy in MiB when it served the first app.
    pub(crate) memory: f64,
}

/// Waits until the Envoy on this port serves all apps. Until then it must not listen, so every other response is wrong.
pub(crate) fn until_it_serves(
    port: u16,
    apps: usize,
    envoy: u32,
    begun: Instant,
    tally: &mut Tally,
) -> Result<Fresh> {
    let address = SocketAddr::from((objects::ADDRESS, port));
    let mut probe = loop {
        match Probe::connect(address) {
            Ok(probe) => break probe,
            Err(error) if begun.elapsed() > PATIENCE => return Err(error),
            Err(_) => thread::sleep(PAUSE),
        }
    };
    let (mut served, mut memory) = (None, 0.0);
    for app in 0..apps {
        let host = many::host(app);
        let mut waited = served.is_none();
        loop {
            let response = probe.send(&host);
            tally.judge(&host, &response, &[Shown::By(BLUE)]);
            if response
                .as_ref()
                .is_ok_and(|response| Shown::By(BLUE).is(response))
            {
                break;
            }
            waited = true;
            if begun.elapsed() > PATIENCE {
                bail!("{host} is not served after {PATIENCE:?}; the response is {response:?}");
            }
            thread::sleep(PAUSE);
        }
        if waited {
            served = Some(begun.elapsed());
        }
        if app == 0 {
            memory = machine::memory(Some(envoy))?.now;
        }
    }
    Ok(Fresh {
        served: served.unwrap_or_default(),
        memory,
    })
}
