//! Events of a run, for terminals, tests and other receivers.
//!
//! Plain data: each event serializes to one JSON object, tagged by `type`. Long lists are truncated and carry the
//! number of omitted items. Events must not depend on the receivers.

use std::fmt::Display;

use serde::{Serialize, Serializer};
use sesame_api::ObjectKey;
use sesame_sources::files::FileError;
use tokio::sync::broadcast;

use crate::status_store::{NoticeView, StatusChange};

/// Length limit of the lists in an event.
pub(crate) const MAX_LIST_LEN: usize = 20;

/// An event. Milliseconds may be fractional.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub enum RunEvent {
    /// All objects have been read, and every Envoy serves or its failure has been reported. Sent once.
    Ready {
        /// Number of Gateways whose Envoy serves.
        gateways: usize,
        /// Whether the Envoy of the default fleet serves.
        default_fleet: bool,
        /// Time since the start, in milliseconds.
        after_ms: f64,
    },
    /// Objects changed and were translated.
    Change {
        /// The revision.
        revision: u64,
        /// The objects, sorted.
        objects: Vec<ObjectChange>,
        /// Number of omitted objects.
        more: usize,
        /// Number of resources that were added, changed or removed.
        resources: usize,
        /// Duration of the translation, in milliseconds.
        took_ms: f64,
    },
    /// An Envoy has acknowledged a revision and serves it.
    Served {
        /// The revision.
        revision: u64,
        /// The Gateway of the Envoy, or `default` for the default fleet.
        gateway: String,
        /// Time since the change was detected, in milliseconds.
        after_ms: f64,
    },
    /// A new problem with a file.
    Problem(ProblemView),
    /// A problem with a file was fixed.
    ProblemSolved(ProblemView),
    /// Conditions of objects changed; the worst first.
    Status {
        /// The revision.
        revision: u64,
        /// The changes, truncated.
        changes: Vec<StatusChange>,
        /// Number of omitted changes.
        more: usize,
    },
    /// Notices, the problems that no status has a field for, were added or solved.
    Notices {
        /// The revision.
        revision: u64,
        /// New notices, errors first, truncated.
        new: Vec<NoticeView>,
        /// Solved notices, truncated.
        solved: Vec<NoticeView>,
        /// Number of omitted notices.
        more: usize,
    },
    /// The problem with a fleet that has no Gateway changed. No status reports it.
    FleetProblem {
        /// The fleet.
        gateway: String,
        /// The problem; absent once it is solved.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// An Envoy process was started. It may not serve yet.
    EnvoyStarted {
        /// Its Gateway, or `default` for the default fleet.
        gateway: String,
        /// Its process ID.
        pid: u32,
        /// 1 for the first start, plus one for each restart.
        attempt: u32,
    },
    /// An Envoy process that was serving no longer responds. It is killed and restarted.
    EnvoyHung {
        /// Its Gateway, or `default` for the default fleet.
        gateway: String,
        /// Time since its last response, in milliseconds.
        unresponsive_ms: f64,
    },
    /// An Envoy process ended.
    EnvoyExited {
        /// Its Gateway, or `default` for the default fleet.
        gateway: String,
        /// How it ended.
        status: String,
        /// How long it ran, in milliseconds.
        uptime_ms: f64,
        /// Delay until the next start, in milliseconds; absent if it was stopped.
        #[serde(skip_serializing_if = "Option::is_none")]
        restart_in_ms: Option<f64>,
    },
    /// An Envoy process can't be started.
    EnvoyFailed {
        /// Its Gateway, or `default` for the default fleet.
        gateway: String,
        /// The reason.
        message: String,
        /// Delay until the next attempt, in milliseconds.
        retry_in_ms: f64,
    },
    /// An Envoy rejected a resource and keeps its last good version. All other resources are served.
    Rejected {
        /// The Gateway of the Envoy, or `default` for the default fleet.
        gateway: String,
        /// The kind of resource: `listener`, `route` …
        resource: String,
        /// Its name.
        name: String,
        /// Envoy's message.
        message: String,
    },
    /// A rejected resource was accepted or removed.
    Recovered {
        /// The Gateway of the Envoy, or `default` for the default fleet.
        gateway: String,
        /// The kind of resource.
        resource: String,
        /// Its name.
        name: String,
    },
    /// A note for the user.
    Note {
        /// The text, a sentence.
        message: String,
    },
}

/// Sends events. Receivers are optional.
#[derive(Clone, Debug)]
pub(crate) struct EventSender {
    events: broadcast::Sender<RunEvent>,
    filter: fn(&RunEvent) -> bool,
}

impl EventSender {
    /// A sender of the events that pass `filter`, with a queue of `capacity` events for slow receivers.
    pub(crate) fn new(
        capacity: usize,
        filter: fn(&RunEvent) -> bool,
    ) -> (Self, broadcast::Receiver<RunEvent>) {
        let (events, receiver) = broadcast::channel(capacity);
        (Self { events, filter }, receiver)
    }

    pub(crate) fn send(&self, event: RunEvent) {
        if (self.filter)(&event) {
            let _ = self.events.send(event);
        }
    }
}

/// A changed object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectChange {
    /// The object.
    #[serde(serialize_with = "as_text")]
    pub object: ObjectKey,
    /// The change.
    pub change: ChangeKind,
}

/// How an object changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It was added.
    Added,
    /// It was changed.
    Changed,
    /// It was removed.
    Removed,
}

/// A problem with a file, as separate fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProblemView {
    /// The file or folder.
    pub file: String,
    /// The line, starting at 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column, starting at 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The object, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The problem.
    pub message: String,
    /// How to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// All fields as one line.
    pub text: String,
}

impl From<&FileError> for ProblemView {
    fn from(problem: &FileError) -> Self {
        Self {
            file: problem.file.display().to_string(),
            line: problem.line,
            column: problem.column,
            object: problem.object.as_ref().map(ToString::to_string),
            message: problem.message.clone(),
            hint: problem.hint.clone(),
            text: problem.to_string(),
        }
    }
}

/// Serializes a value as its `Display` text.
pub(crate) fn as_text<S: Serializer>(
    value: &impl Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// The first items of a list, and the number of omitted ones.
pub(crate) fn truncate<T>(mut list: Vec<T>) -> (Vec<T>, usize) {
    let more = list.len().saturating_sub(MAX_LIST_LEN);
    list.truncate(MAX_LIST_LEN);
    (list, more)
}

/// A duration in milliseconds, as used in events.
pub(crate) fn millis(duration: std::time::Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
