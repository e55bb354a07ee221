//! A supervisor's event channel.
//!
//! In: events from all fleets. Out: one bounded queue, in order. A slow receiver doesn't block a process: beyond a
//! limit, log lines are dropped and counted. Other events have a reserve, which fills up only if the receiver stalls.

use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sesame_model::FleetId;
use tokio::sync::mpsc;

use super::log::{Level, Line};

/// Capacity for log lines.
const LOG_CAPACITY: usize = 4096;

/// Further capacity, for other events only.
const EVENT_RESERVE: usize = 4096;

/// An event from a fleet's Envoy.
#[derive(Clone, Debug)]
pub enum ProcessEvent {
    /// A process has started, but may not be serving yet.
    Started {
        /// The fleet.
        fleet: FleetId,
        /// The process ID.
        pid: u32,
        /// 1 for the first process since the fleet was added or changed, incremented by each restart.
        attempt: u32,
    },
    /// Envoy has its first configuration and serves it (`/ready` on its admin interface).
    Ready {
        /// The fleet.
        fleet: FleetId,
        /// The time since the process started.
        after: Duration,
    },
    /// A process that was ready hangs. It is killed; `Exited` follows.
    Hung {
        /// The fleet.
        fleet: FleetId,
        /// How long its admin interface hasn't responded.
        unresponsive: Duration,
    },
    /// A process exited.
    Exited {
        /// The fleet.
        fleet: FleetId,
        /// The exit status.
        status: ExitStatus,
        /// The time since the process started.
        uptime: Duration,
        /// The delay before the next process starts; `None` if Sesame stopped this one.
        restart_in: Option<Duration>,
    },
    /// A process printed a line.
    Log {
        /// The fleet.
        fleet: FleetId,
        /// The line.
        line: Line,
    },
    /// A process can't be started.
    Failed {
        /// The fleet.
        fleet: FleetId,
        /// The reason.
        message: String,
        /// The delay before the next attempt.
        retry_in: Duration,
    },
}

impl ProcessEvent {
    /// The event's fleet.
    pub fn fleet(&self) -> &FleetId {
        match self {
            Self::Started { fleet, .. }
            | Self::Ready { fleet, .. }
            | Self::Hung { fleet, .. }
            | Self::Exited { fleet, .. }
            | Self::Log { fleet, .. }
            | Self::Failed { fleet, .. } => fleet,
        }
    }
}

/// The receiver. If it is dropped, later events are discarded.
#[derive(Debug)]
pub struct ProcessEvents(mpsc::Receiver<ProcessEvent>);

impl ProcessEvents {
    /// The next event; `None` when the supervisor and all its processes are gone.
    ///
    /// Cancel safe: no event is lost if this is a branch of a `select!`.
    pub async fn recv(&mut self) -> Option<ProcessEvent> {
        self.0.recv().await
    }
}

/// The sender.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    sender: mpsc::Sender<ProcessEvent>,
    /// Events dropped since the last queued log line.
    dropped: Arc<AtomicUsize>,
}

pub(super) fn channel() -> (Sender, ProcessEvents) {
    let (sender, receiver) = mpsc::channel(LOG_CAPACITY + EVENT_RESERVE);
    let sender = Sender {
        sender,
        dropped: Arc::default(),
    };
    (sender, ProcessEvents(receiver))
}

impl Sender {
    /// Queues an event other than a log line.
    pub(super) fn send(&self, event: ProcessEvent) {
        // A dropped receiver is not an error.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.sender.try_send(event) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Queues a log line, or drops it if the queue is full.
    pub(super) fn log(&self, fleet: &FleetId, line: Line) {
        // Each concurrent sender may exceed the limit by one line, which is harmless.
        if self.sender.capacity() <= EVENT_RESERVE {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let notice = Line {
                level: Level::Warning,
                component: String::new(),
                message: format!("{dropped} log lines were dropped: the receiver is too slow"),
            };
            self.send_line(fleet, notice);
        }
        self.send_line(fleet, line);
    }

    fn send_line(&self, fleet: &FleetId, line: Line) {
        self.send(ProcessEvent::Log {
            fleet: fleet.clone(),
            line,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_log_lines_beyond_the_limit_are_dropped() {
        let (sender, mut events) = channel();
        let fleet = FleetId::Default;
        for number in 0..LOG_CAPACITY + 10 {
            sender.log(&fleet, Line::from_stdout(&number.to_string()));
        }
        sender.send(ProcessEvent::Ready {
            fleet: fleet.clone(),
            after: Duration::ZERO,
        });
        for number in 0..LOG_CAPACITY {
            let Some(ProcessEvent::Log { line, .. }) = events.recv().await else {
                panic!("line {number} is missing");
            };
            assert_eq!(line.message, number.to_string());
        }
        assert!(matches!(
            events.recv().await,
            Some(ProcessEvent::Ready { .. })
        ));
        sender.log(&fleet, Line::from_stdout("again"));
        let Some(ProcessEvent::Log { line, .. }) = events.recv().await else {
            panic!("the count is missing");
        };
        assert!(line.message.starts_with("10 log lines were dropped"));
        let Some(ProcessEvent::Log { line, .. }) = events.recv().await else {
            panic!("the line after the count is missing");
        };
        assert_eq!(line.message, "again");
    }
}
