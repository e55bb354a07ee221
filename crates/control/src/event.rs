//! What happens while Sesame runs, for terminals, tests and whoever else looks on.
//!
//! In: happenings. Out: the same as plain data that serializes to one JSON object each, told apart by `type`. Lists are
//! cut to a length that a person may read; what was left out is counted. It must not know who looks.

use std::fmt::Display;

use serde::{Serialize, Serializer};
use sesame_api::ObjectKey;
use sesame_sources::files::Problem;
use tokio::sync::broadcast;

use crate::board::StatusChange;

/// How many of a list an event holds at most.
pub(crate) const LONGEST_LIST: usize = 20;

/// Something that happened. Milliseconds have fractions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub enum Event {
    /// Everything was read, and every Envoy serves it or has been told why not. Once.
    Ready {
        /// How many Envoys serve.
        gateways: usize,
        /// Since the start, in milliseconds.
        after_ms: f64,
    },
    /// Objects changed and were translated.
    Change {
        /// The number of the state that came of it.
        revision: u64,
        /// The objects, sorted.
        objects: Vec<ObjectChange>,
        /// How many further objects.
        more: usize,
        /// How many resources of Envoys are new, changed or gone.
        resources: usize,
        /// How long the translation took, in milliseconds.
        took_ms: f64,
    },
    /// Envoy has a state: requests are answered by it.
    Served {
        /// The number of the state.
        revision: u64,
        /// The Gateway whose Envoy has it.
        gateway: String,
        /// Since the change was noticed, in milliseconds.
        after_ms: f64,
    },
    /// Something is wrong with a file, and wasn't before.
    Problem(ProblemView),
    /// What was wrong with a file is not any more.
    ProblemSolved(ProblemView),
    /// Conditions of objects changed; the worst first.
    Status {
        /// The number of the state.
        revision: u64,
        /// Which, at most some.
        changes: Vec<StatusChange>,
        /// How many further ones.
        more: usize,
    },
    /// A process runs. It may not serve yet.
    EnvoyStarted {
        /// The Gateway that it is for.
        gateway: String,
        /// The process.
        pid: u32,
        /// 1, then one more for each restart.
        attempt: u32,
    },
    /// A process ended.
    EnvoyExited {
        /// The Gateway that it was for.
        gateway: String,
        /// How, in words.
        status: String,
        /// How long it ran, in milliseconds.
        uptime_ms: f64,
        /// When the next one starts, in milliseconds; absent: it was asked to end.
        #[serde(skip_serializing_if = "Option::is_none")]
        restart_in_ms: Option<f64>,
    },
    /// A process can't be started.
    EnvoyFailed {
        /// The Gateway that it is for.
        gateway: String,
        /// Why.
        message: String,
        /// When it is tried again, in milliseconds.
        retry_in_ms: f64,
    },
    /// An Envoy refused a resource, and keeps the one before. All others are served.
    Rejected {
        /// The Gateway whose Envoy it is.
        gateway: String,
        /// The kind of resource: `listener`, `route` …
        resource: String,
        /// Its name.
        name: String,
        /// What Envoy said.
        message: String,
    },
    /// A resource that was refused has been mended or removed.
    Recovered {
        /// The Gateway whose Envoy it is.
        gateway: String,
        /// The kind of resource.
        resource: String,
        /// Its name.
        name: String,
    },
    /// Something that the user should know.
    Note {
        /// A sentence.
        message: String,
    },
}

/// Tells whoever looks on. Nobody needs to.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    events: broadcast::Sender<Event>,
    worth: fn(&Event) -> bool,
}

impl Teller {
    /// One that tells what is worth it, and keeps so many events for who is slow.
    pub(crate) fn new(
        kept: usize,
        worth: fn(&Event) -> bool,
    ) -> (Self, broadcast::Receiver<Event>) {
        let (events, receiver) = broadcast::channel(kept);
        (Self { events, worth }, receiver)
    }

    /// Tells of something that happened.
    pub(crate) fn tell(&self, event: Event) {
        if (self.worth)(&event) {
            let _ = self.events.send(event);
        }
    }
}

/// What happened to an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectChange {
    /// Which.
    #[serde(serialize_with = "as_text")]
    pub object: ObjectKey,
    /// What.
    pub change: ChangeKind,
}

/// What may happen to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It differs.
    Changed,
    /// It is gone.
    Removed,
}

/// A problem with a file, field by field.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProblemView {
    /// The file or folder.
    pub file: String,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The object, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// All of it as one line.
    pub text: String,
}

impl From<&Problem> for ProblemView {
    fn from(problem: &Problem) -> Self {
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

/// Serializes as what it prints.
pub(crate) fn as_text<S: Serializer>(
    value: &impl Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// The first few of a list, and how many are left.
pub(crate) fn cut<T>(mut list: Vec<T>) -> (Vec<T>, usize) {
    let more = list.len().saturating_sub(LONGEST_LIST);
    list.truncate(LONGEST_LIST);
    (list, more)
}

/// A duration as events have it.
pub(crate) fn millis(duration: std::time::Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
