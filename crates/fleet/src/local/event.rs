//! What happens to the Envoys, in order, for whoever shows it.
//!
//! In: events of all fleets. Out: one queue. It must not let a slow reader hold up a process or take memory without
//! bound: beyond a limit, log lines are dropped and counted; other events have room of their own, which only a reader
//! that has given up lets run full.

use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

use super::log::{Level, Line};

/// Log lines that may wait to be read.
const MOST_LINES_WAITING: usize = 4096;

/// Other events that may wait beside them.
const ROOM_FOR_OTHERS: usize = 4096;

/// Something happened to the Envoy of a fleet.
#[derive(Clone, Debug)]
pub enum Event {
    /// A process runs. It may not serve yet.
    Started {
        /// The fleet.
        id: Arc<str>,
        /// Of the process.
        pid: u32,
        /// 1 for the first process since the fleet was asked for or changed, then one more for each restart.
        attempt: u32,
    },
    /// Envoy has its first configuration and serves it (`/ready` of its admin interface).
    Ready {
        /// The fleet.
        id: Arc<str>,
        /// Since the process started.
        after: Duration,
    },
    /// A process ended.
    Exited {
        /// The fleet.
        id: Arc<str>,
        /// How.
        status: ExitStatus,
        /// Since the process started.
        uptime: Duration,
        /// When the next one starts; `None`: it was asked to end.
        restart_in: Option<Duration>,
    },
    /// A process printed a line.
    Log {
        /// The fleet.
        id: Arc<str>,
        /// What it printed.
        line: Line,
    },
    /// A process can't be started.
    Failed {
        /// The fleet.
        id: Arc<str>,
        /// The reason, for people.
        message: String,
        /// When it is tried again.
        retry_in: Duration,
    },
}

impl Event {
    /// The fleet that it is about.
    pub fn id(&self) -> &Arc<str> {
        match self {
            Self::Started { id, .. }
            | Self::Ready { id, .. }
            | Self::Exited { id, .. }
            | Self::Log { id, .. }
            | Self::Failed { id, .. } => id,
        }
    }
}

/// The reading end. Dropping it is fine: events then go nowhere.
#[derive(Debug)]
pub struct Events(mpsc::Receiver<Event>);

impl Events {
    /// The next event; `None` when the supervisor and all its processes are gone.
    ///
    /// Cancel safe: an event is not lost if this is one branch of a `select!`.
    pub async fn recv(&mut self) -> Option<Event> {
        self.0.recv().await
    }
}

/// The writing end.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    sender: mpsc::Sender<Event>,
    /// Events dropped since a log line last found room.
    dropped: Arc<AtomicUsize>,
}

pub(super) fn channel() -> (Sender, Events) {
    let (sender, receiver) = mpsc::channel(MOST_LINES_WAITING + ROOM_FOR_OTHERS);
    let sender = Sender {
        sender,
        dropped: Arc::default(),
    };
    (sender, Events(receiver))
}

impl Sender {
    /// Hands on an event that is no log line.
    pub(super) fn send(&self, event: Event) {
        // Nobody may be listening any more, which is their choice.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.sender.try_send(event) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hands on a log line, or drops it if too many wait.
    pub(super) fn log(&self, id: &Arc<str>, line: Line) {
        // Some at once may pass the limit by one each; only the order of magnitude matters.
        if self.sender.capacity() <= ROOM_FOR_OTHERS {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let notice = Line {
                level: Level::Warning,
                component: String::new(),
                message: format!("{dropped} log lines were dropped, since nobody read them"),
            };
            self.push(id, notice);
        }
        self.push(id, line);
    }

    fn push(&self, id: &Arc<str>, line: Line) {
        self.send(Event::Log {
            id: Arc::clone(id),
            line,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_beyond_the_limit_are_dropped_and_counted_others_are_not() {
        let (sender, mut events) = channel();
        let id: Arc<str> = "fleet".into();
        for number in 0..MOST_LINES_WAITING + 10 {
            sender.log(&id, Line::of_stdout(&number.to_string()));
        }
        sender.send(Event::Ready {
            id: Arc::clone(&id),
            after: Duration::ZERO,
        });
        for number in 0..MOST_LINES_WAITING {
            let Some(Event::Log { line, .. }) = events.recv().await else {
                panic!("line {number} is missing");
            };
            assert_eq!(line.message, number.to_string());
        }
        assert!(matches!(events.recv().await, Some(Event::Ready { .. })));
        sender.log(&id, Line::of_stdout("again"));
        let Some(Event::Log { line, .. }) = events.recv().await else {
            panic!("the count is missing");
        };
        assert!(line.message.starts_with("10 log lines were dropped"));
        let Some(Event::Log { line, .. }) = events.recv().await else {
            panic!("the line behind the count is missing");
        };
        assert_eq!(line.message, "again");
    }
}
