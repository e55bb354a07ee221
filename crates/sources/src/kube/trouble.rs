//! What is wrong with what the API server tells, or does not tell.
//!
//! In: problems that begin and end, each with its place. Out: all that are wrong now, for the health check, metrics and logs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use sesame_api::{Kind, ObjectKey};

/// So many objects that can't be decoded are told one by one; of the others only how many there are.
const MAX_UNREADABLE: usize = 100;

/// Something that is wrong now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Where.
    pub place: Place,
    /// What, for programs.
    pub reason: TroubleReason,
    /// What, and what to do, for people.
    pub message: String,
    /// When it was first seen.
    pub since: Timestamp,
}

/// Where something is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The API server as a whole.
    ApiServer,
    /// All objects of a kind, or those in one namespace.
    Kind(Kind, Option<Arc<str>>),
    /// One object.
    Object(ObjectKey),
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TroubleReason {
    /// The API server does not answer. What was read before counts.
    Unreachable,
    /// The kind's CRD is not installed, so there are no such objects. Harmless for kinds that nobody uses.
    NotInstalled,
    /// The kind's CRD serves no version that Sesame reads. What was read before counts.
    OtherVersion,
    /// RBAC does not let us. What was read before counts.
    Forbidden,
    /// The API server answers with an error. What was read before counts.
    Refused,
    /// An object can't be decoded. Its last good version counts.
    Unreadable,
}

impl TroubleReason {
    /// As in metrics and logs.
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

impl fmt::Display for TroubleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiServer => f.write_str("API server"),
            Self::Kind(kind, None) => write!(f, "{kind}"),
            Self::Kind(kind, Some(namespace)) => write!(f, "{kind} in namespace {namespace}"),
            Self::Object(key) => write!(f, "{key}"),
        }
    }
}

/// Who does not reach the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asker {
    /// The list-and-watch of that number.
    Feed(usize),
    /// Whoever fetches this Secret or ConfigMap.
    Fetch(ObjectKey),
    /// Whoever asks which kinds there are.
    Discovery,
}

/// All that is wrong.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    all: BTreeMap<(Place, TroubleReason), (String, Timestamp)>,
    /// The API server is one: its absence is told once.
    unreachable: BTreeSet<Asker>,
    changed: bool,
}

impl Troubles {
    /// This is wrong, since now unless it was before.
    pub(super) fn begin(
        &mut self,
        place: Place,
        reason: TroubleReason,
        message: String,
        now: Timestamp,
    ) {
        let (text, _) = self
            .all
            .entry((place, reason))
            .or_insert_with(|| (String::new(), now));
        if *text != message {
            *text = message;
            self.changed = true;
        }
    }

    /// This is not wrong, or not any more.
    pub(super) fn end(&mut self, place: Place, reason: TroubleReason) {
        self.changed |= self.all.remove(&(place, reason)).is_some();
    }

    /// Somebody does not reach the API server.
    pub(super) fn unreachable(&mut self, asker: Asker, message: &str, now: Timestamp) {
        let first = self.unreachable.is_empty();
        self.unreachable.insert(asker);
        if first {
            let message =
                format!("does not answer; what was read before counts until it does: {message}");
            self.begin(Place::ApiServer, TroubleReason::Unreachable, message, now);
        }
    }

    /// Somebody reached it, or asks no more.
    pub(super) fn reached(&mut self, asker: &Asker) {
        if self.unreachable.remove(asker) && self.unreachable.is_empty() {
            self.end(Place::ApiServer, TroubleReason::Unreachable);
        }
    }

    /// Whether there are objects of these kinds that can't be decoded.
    pub(super) fn any_unreadable(&self, kinds: &[Kind]) -> bool {
        self.all.keys().any(|(place, reason)| {
            let of_them = match place {
                Place::ApiServer => false,
                Place::Kind(kind, _) => kinds.contains(kind),
                Place::Object(key) => kinds.contains(&key.kind),
            };
            of_them && *reason == TroubleReason::Unreadable
        })
    }

    /// Whether what is wrong is not what was told last.
    pub(super) fn changed(&self) -> bool {
        self.changed
    }

    /// All that is wrong, if that is not what was told last.
    pub(super) fn take(&mut self) -> Option<Vec<Trouble>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let mut told = Vec::new();
        let mut more: BTreeMap<Kind, (usize, Timestamp)> = BTreeMap::new();
        let mut unreadable = 0;
        for ((place, reason), (message, since)) in &self.all {
            if let Place::Object(key) = place {
                unreadable += 1;
                if unreadable > MAX_UNREADABLE {
                    let (count, first) = more.entry(key.kind).or_insert((0, *since));
                    *count += 1;
                    *first = (*first).min(*since);
                    continue;
                }
            }
            told.push(Trouble {
                place: place.clone(),
                reason: *reason,
                message: message.clone(),
                since: *since,
            });
        }
        told.extend(more.into_iter().map(|(kind, (count, since))| Trouble {
            place: Place::Kind(kind, None),
            reason: TroubleReason::Unreadable,
            message: format!("{count} more objects can't be decoded; mend those that are named"),
            since,
        }));
        Some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn trouble_is_told_once_and_when_it_ends() {
        let mut troubles = Troubles::default();
        assert_eq!(troubles.take(), None);
        let place = Place::Kind(Kind::Secret, None);
        let begin = |troubles: &mut Troubles, message: &str, second| {
            troubles.begin(
                place.clone(),
                TroubleReason::Forbidden,
                message.to_owned(),
                at(second),
            );
        };
        begin(&mut troubles, "no", 1);
        assert_eq!(troubles.take().unwrap()[0].since, at(1));
        begin(&mut troubles, "no", 2);
        assert_eq!(troubles.take(), None);
        begin(&mut troubles, "not at all", 3);
        let told = troubles.take().unwrap();
        assert_eq!((told[0].since, &*told[0].message), (at(1), "not at all"));
        troubles.end(place.clone(), TroubleReason::Forbidden);
        troubles.end(place.clone(), TroubleReason::Refused);
        assert_eq!(troubles.take(), Some(Vec::new()));
        assert_eq!(troubles.take(), None);
    }

    #[test]
    fn a_server_that_is_away_is_one_trouble() {
        let mut troubles = Troubles::default();
        for feed in 0..3 {
            troubles.unreachable(Asker::Feed(feed), &format!("refused {feed}"), at(1));
        }
        let told = troubles.take().unwrap();
        assert_eq!(told.len(), 1);
        assert!(told[0].message.ends_with("refused 0"));
        for feed in 0..2 {
            troubles.reached(&Asker::Feed(feed));
        }
        assert_eq!(troubles.take(), None);
        troubles.reached(&Asker::Feed(2));
        assert_eq!(troubles.take(), Some(Vec::new()));
    }

    #[test]
    fn very_many_unreadable_objects_are_counted() {
        let mut troubles = Troubles::default();
        for number in 0..150 {
            let key = ObjectKey::new(Kind::Service, "a", format!("s{number:03}"));
            let message = "bad".to_owned();
            troubles.begin(
                Place::Object(key),
                TroubleReason::Unreadable,
                message,
                at(number),
            );
        }
        let told = troubles.take().unwrap();
        assert_eq!(told.len(), MAX_UNREADABLE + 1);
        let last = told.last().unwrap();
        assert_eq!(last.place, Place::Kind(Kind::Service, None));
        assert!(last.message.starts_with("50 more objects"));
        assert_eq!(last.since, at(100));
    }
}
