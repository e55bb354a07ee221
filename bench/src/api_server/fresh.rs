//! An Envoy that starts together with Sesame: from the start of both until it serves every route.
//!
//! In: a number of apps. Out: how long it took, and the memory of that Envoy before anybody has asked for more than one of them.
//! Before, both have been ended, since two Envoys would share the port.

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

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(5);
/// What isn't served by then has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// What came of it.
pub(crate) struct Fresh {
    /// From the start until every app was served.
    pub(crate) served: Duration,
    /// Mebibytes of the Envoy when it served the first.
    pub(crate) memory: f64,
}

/// Waits until the Envoy at this port serves so many apps. It must not listen before it does: every other answer is wrong.
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
            let answer = probe.ask(&host);
            tally.judge(&host, &answer, &[Shown::By(BLUE)]);
            if answer
                .as_ref()
                .is_ok_and(|answer| Shown::By(BLUE).is(answer))
            {
                break;
            }
            waited = true;
            if begun.elapsed() > PATIENCE {
                bail!("{host} isn't served after {PATIENCE:?}, but {answer:?}");
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
