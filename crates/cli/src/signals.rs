//! Signals that end a long-running command.

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// # Errors
    /// If a handler can't be registered.
    pub(crate) fn new() -> Result<Self> {
        let register = |kind| signal(kind).context("cannot register a signal handler");
        Ok(Self {
            interrupt: register(SignalKind::interrupt())?,
            terminate: register(SignalKind::terminate())?,
            hangup: register(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
