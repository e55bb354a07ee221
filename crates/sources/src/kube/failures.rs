//! The current failures of a watch.
//!
//! In: failures that begin and end. Out: all current failures, for health checks, metrics and logs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use sesame_api::{Kind, ObjectKey};

/// Maximum number of objects reported individually. Further objects are counted by kind.
const MAX_OBJECTS: usize = 100;

/// A current failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchFailure {
    /// The part that fails.
    pub subject: Subject,
    /// The machine-readable reason.
    pub reason: FailureReason,
    /// The reason and the fix, human-readable.
    pub message: String,
    /// When it began.
    pub since: Timestamp,
}

/// The part of a watch that fails.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The API server as a whole.
    ApiServer,
    /// All objects of a kind, or those in one namespace.
    Kind(Kind, Option<Arc<str>>),
    /// One object.
    Object(ObjectKey),
}

/// Why a watch, or a part of it, fails. Objects already read keep their last good version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureReason {
    /// The API server doesn't respond.
    Unreachable,
    /// The kind's CRD is not installed, so it has no objects.
    NotInstalled,
    /// The kind's CRD doesn't serve a supported version.
    OtherVersion,
    /// RBAC forbids the request.
    Forbidden,
    /// The API server responds with an error.
    Refused,
    /// The object can't be decoded.
    Unreadable,
}

impl FailureReason {
    /// The name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "Unreachable",
            Self::NotInstalled => "NotInstalled",
            Self::OtherVersion => "OtherVersion",
            Self::Forbidden => "Forbidden",
            Self::Refused => "Refused",
            Self::Unreadable => "Unreadable",
        }
    }
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiServer => f.write_str("API server"),
            Self::Kind(kind, None) => write!(f, "{kind}"),
            Self::Kind(kind, Some(namespace)) => write!(f, "{kind} in namespace {namespace}"),
            Self::Object(key) => write!(f, "{key}"),
        }
    }
}

/// A task that makes requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Requester {
    /// The watcher with this number.
    Watcher(usize),
    /// The GET of this Secret or ConfigMap.
    Fetch(ObjectKey),
    Discovery,
}

/// All current failures.
#[derive(Debug, Default)]
pub(super) struct Failures {
    all: BTreeMap<(Subject, FailureReason), (String, Timestamp)>,
    /// An unreachable API server is one failure, however many requests fail.
    unreachable: BTreeSet<Requester>,
    changed: bool,
}

impl Failures {
    /// Begins a failure, or changes its message.
    pub(super) fn begin(
        &mut self,
        subject: Subject,
        reason: FailureReason,
        message: String,
        now: Timestamp,
    ) {
        let entry = self.all.entry((subject, reason));
        let (before, _) = entry.or_insert_with(|| (String::new(), now));
        if *before != message {
            *before = message;
            self.changed = true;
        }
    }

    /// Ends the subject's failures for these reasons, if any.
    pub(super) fn end(&mut self, subject: &Subject, reasons: &[FailureReason]) {
        for reason in reasons {
            self.changed |= self.all.remove(&(subject.clone(), *reason)).is_some();
        }
    }

    /// Records that a request got no response.
    pub(super) fn unreachable(&mut self, requester: Requester, message: &str, now: Timestamp) {
        if self.unreachable.is_empty() {
            let message =
                format!("no response ({message}); Sesame keeps serving the last known state");
            let reason = FailureReason::Unreachable;
            self.begin(Subject::ApiServer, reason, message, now);
        }
        self.unreachable.insert(requester);
    }

    /// Records that a request got a response or won't be retried.
    pub(super) fn reached(&mut self, requester: &Requester) {
        if self.unreachable.remove(requester) && self.unreachable.is_empty() {
            self.end(&Subject::ApiServer, &[FailureReason::Unreachable]);
        }
    }

    /// Whether an object of these kinds can't be decoded.
    pub(super) fn any_unreadable(&self, kinds: &[Kind]) -> bool {
        self.all.keys().any(|(subject, reason)| {
            let kind = match subject {
                Subject::ApiServer => return false,
                Subject::Kind(kind, _) => kind,
                Subject::Object(key) => &key.kind,
            };
            *reason == FailureReason::Unreadable && kinds.contains(kind)
        })
    }

    /// Whether [`Failures::take`] returns something.
    pub(super) fn changed(&self) -> bool {
        self.changed
    }

    /// All failures, if they changed since the last call.
    pub(super) fn take(&mut self) -> Option<Vec<WatchFailure>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let mut taken = Vec::new();
        let mut more: BTreeMap<Kind, (usize, Timestamp)> = BTreeMap::new();
        let mut objects = 0;
        for ((subject, reason), (message, since)) in &self.all {
            if let Subject::Object(key) = subject {
                objects += 1;
                if objects > MAX_OBJECTS {
                    let (count, first) = more.entry(key.kind).or_insert((0, *since));
                    *count += 1;
                    *first = (*first).min(*since);
                    continue;
                }
            }
            taken.push(WatchFailure {
                subject: subject.clone(),
                reason: *reason,
                message: message.clone(),
                since: *since,
            });
        }
        taken.extend(more.into_iter().map(|(kind, (count, since))| WatchFailure {
            subject: Subject::Kind(kind, None),
            reason: FailureReason::Unreadable,
            message: format!(
                "further objects that cannot be decoded: {count}; fix the reported ones first"
            ),
            since,
        }));
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_failure_is_reported_when_it_begins_changes_and_ends() {
        let mut failures = Failures::default();
        assert_eq!(failures.take(), None);
        let subject = Subject::Kind(Kind::Secret, None);
        let begin = |failures: &mut Failures, message: &str, second| {
            let reason = FailureReason::Forbidden;
            failures.begin(subject.clone(), reason, message.to_owned(), at(second));
        };
        begin(&mut failures, "no", 1);
        assert_eq!(failures.take().unwrap()[0].since, at(1));
        begin(&mut failures, "no", 2);
        assert_eq!(failures.take(), None);
        begin(&mut failures, "not at all", 3);
        let taken = failures.take().unwrap();
        assert_eq!((taken[0].since, &*taken[0].message), (at(1), "not at all"));
        let reasons = [FailureReason::Forbidden, FailureReason::Refused];
        failures.end(&subject, &reasons);
        assert_eq!(failures.take(), Some(Vec::new()));
        assert_eq!(failures.take(), None);
    }

    #[test]
    fn an_unreachable_server_is_one_failure() {
        let mut failures = Failures::default();
        for watcher in 0..3 {
            let requester = Requester::Watcher(watcher);
            failures.unreachable(requester, &format!("refused {watcher}"), at(1));
        }
        let taken = failures.take().unwrap();
        assert_eq!(taken.len(), 1);
        assert!(taken[0].message.contains("(refused 0)"));
        for watcher in 0..2 {
            failures.reached(&Requester::Watcher(watcher));
        }
        assert_eq!(failures.take(), None);
        failures.reached(&Requester::Watcher(2));
        assert_eq!(failures.take(), Some(Vec::new()));
    }

    #[test]
    fn many_unreadable_objects_are_counted() {
        let mut failures = Failures::default();
        for number in 0..150 {
            let key = ObjectKey::new(Kind::Service, "a", format!("s{number:03}"));
            let subject = Subject::Object(key);
            let reason = FailureReason::Unreadable;
            failures.begin(subject, reason, "bad".to_owned(), at(number));
        }
        let taken = failures.take().unwrap();
        assert_eq!(taken.len(), MAX_OBJECTS + 1);
        let last = taken.last().unwrap();
        assert_eq!(last.subject, Subject::Kind(Kind::Service, None));
        assert!(last.message.contains("cannot be decoded: 50;"));
        assert_eq!(last.since, at(100));
    }
}
