//! What happens to the Envoys, in order, for whoever shows it.
//!
//! In: events of all fleets. Out: one queue. It must not let a slow reader hold up a process or take memory without
//! bound: beyond a limit, log lines are dropped and counted; the few other events never are.

use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

use super::log::{Level, Line};

/// Log lines that may wait to be read.
const MOST_LINES_WAITING: usize = 4096;

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
pub struct Events {
    receiver: mpsc::UnboundedReceiver<Event>,
    lines: Arc<Lines>,
}

impl Events {
    /// The next event; `None` when the supervisor and all its processes are gone.
    ///
    /// Cancel safe: an event is not lost if this is one branch of a `select!`.
    pub async fn recv(&mut self) -> Option<Event> {
        let event = self.receiver.recv().await?;
        if let Event::Log { .. } = event {
            self.lines.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        Some(event)
    }
}

/// The writing end.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    sender: mpsc::UnboundedSender<Event>,
    lines: Arc<Lines>,
}

/// Counts of log lines.
#[derive(Debug, Default)]
struct Lines {
    waiting: AtomicUsize,
    /// Since the last line that was not dropped.
    dropped: AtomicUsize,
}

pub(super) fn channel() -> (Sender, Events) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let lines = Arc::new(Lines::default());
    let sender = Sender {
        sender,
        lines: Arc::clone(&lines),
    };
    (sender, Events { receiver, lines })
}

impl Sender {
    /// Hands on an event that is no log line.
    pub(super) fn send(&self, event: Event) {
        // Nobody may be listening any more, which is their choice.
        let _ = self.sender.send(event);
    }

    /// Hands on a log line, or drops it if too many wait.
    pub(super) fn log(&self, id: &Arc<str>, line: Line) {
        // Two at once may pass the limit by one each; only the order of magnitude matters.
        if self.lines.waiting.load(Ordering::Relaxed) >= MOST_LINES_WAITING {
            self.lines.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let dropped = self.lines.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            self.push(
                id,
                Line {
                    level: Level::Warning,
                    component: String::new(),
                    message: format!("{dropped} log lines were dropped, since nobody read them"),
                },
            );
        }
        self.push(id, line);
    }

    fn push(&self, id: &Arc<str>, line: Line) {
        self.lines.waiting.fetch_add(1, Ordering::Relaxed);
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
