//! A status with the times at which its conditions last changed.
//!
//! In: a status without times, and the one before. Out: the same with times, and what differs. Pure.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use sesame_api::{
    Condition, ConditionStatus, GatewayClassStatus, GatewayStatus, ListenerSetStatus,
    ListenerStatus, ObjectKey, ObjectStatus, ParentReference, PolicyStatus, RouteStatus, condition,
};

/// Which part of an object a condition is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part<'a> {
    Whole,
    Listener(&'a str),
    Parent(&'a ParentReference),
}

/// A status with times. They are kept apart, in the order of the conditions, so that the status itself stays shared.
#[derive(Clone, Debug)]
pub(crate) struct Stamped {
    status: ObjectStatus,
    times: Box<[Timestamp]>,
}

/// How an owner should take a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// All is well.
    Well,
    /// It will be well soon, or nobody knows yet.
    Waiting,
    /// Something has to be done.
    Wrong,
}

/// A condition that changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusChange {
    /// The object.
    #[serde(serialize_with = "super::super::event::as_text")]
    pub object: ObjectKey,
    /// Its part: `listener NAME` or `parent NAMESPACE/NAME`, if it isn't about the whole object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The condition's type.
    pub condition: String,
    /// The status now.
    pub status: ConditionStatus,
    /// The reason now.
    pub reason: String,
    /// The message now.
    pub message: String,
    /// How to take it.
    pub level: Level,
}

impl Level {
    /// How to take a condition.
    pub(crate) fn of(condition: &Condition) -> Self {
        let bad_when_true = matches!(
            &*condition.type_,
            condition::listener::CONFLICTED
                | condition::listener::OVERLAPPING_TLS_CONFIG
                | condition::route::PARTIALLY_INVALID
        );
        match (&condition.status, bad_when_true) {
            (ConditionStatus::True, false) | (ConditionStatus::False, true) => Self::Well,
            (ConditionStatus::True, true) => Self::Wrong,
            (ConditionStatus::False, false) if condition.reason == "Pending" => Self::Waiting,
            (ConditionStatus::False, false) => Self::Wrong,
            _ => Self::Waiting,
        }
    }
}

/// Every condition with what it is about, in the order in which [`json`] goes.
fn conditions(status: &ObjectStatus) -> Vec<(Part<'_>, &Condition)> {
    match status {
        ObjectStatus::GatewayClass(status) => {
            status.conditions.iter().map(|c| (Part::Whole, c)).collect()
        }
        ObjectStatus::Gateway(status) => with_listeners(&status.conditions, &status.listeners),
        ObjectStatus::ListenerSet(status) => with_listeners(&status.conditions, &status.listeners),
        ObjectStatus::Route(status) => status
            .parents
            .iter()
            .flat_map(|parent| {
                let conditions = parent.conditions.iter();
                conditions.map(|c| (Part::Parent(&parent.parent_ref), c))
            })
            .collect(),
        ObjectStatus::Policy(status) => status
            .ancestors
            .iter()
            .flat_map(|ancestor| {
                let conditions = ancestor.conditions.iter();
                conditions.map(|c| (Part::Parent(&ancestor.ancestor_ref), c))
            })
            .collect(),
    }
}

fn with_listeners<'a>(
    own: &'a [Condition],
    listeners: &'a [ListenerStatus],
) -> Vec<(Part<'a>, &'a Condition)> {
    let listeners = listeners.iter().flat_map(|listener| {
        let conditions = listener.conditions.iter();
        conditions.map(|c| (Part::Listener(&listener.name), c))
    });
    let own = own.iter().map(|c| (Part::Whole, c));
    own.chain(listeners).collect()
}

/// In JSON, with these times.
fn json(status: &ObjectStatus, times: &[Timestamp]) -> Value {
    let mut times = times.iter().copied();
    let mut stamp = |conditions: &mut Vec<Condition>| {
        for condition in conditions {
            condition.last_transition_time = times.next();
        }
    };
    let value = match status {
        ObjectStatus::GatewayClass(status) => {
            let mut status = GatewayClassStatus::clone(status);
            stamp(&mut status.conditions);
            serde_json::to_value(status)
        }
        ObjectStatus::Gateway(status) => {
            let mut status = GatewayStatus::clone(status);
            stamp(&mut status.conditions);
            for listener in &mut status.listeners {
                stamp(&mut listener.conditions);
            }
            serde_json::to_value(status)
        }
        ObjectStatus::ListenerSet(status) => {
            let mut status = ListenerSetStatus::clone(status);
            stamp(&mut status.conditions);
            for listener in &mut status.listeners {
                stamp(&mut listener.conditions);
            }
            serde_json::to_value(status)
        }
        ObjectStatus::Route(status) => {
            let mut status = RouteStatus::clone(status);
            for parent in &mut status.parents {
                stamp(&mut parent.conditions);
            }
            serde_json::to_value(status)
        }
        ObjectStatus::Policy(status) => {
            let mut status = PolicyStatus::clone(status);
            for ancestor in &mut status.ancestors {
                stamp(&mut ancestor.conditions);
            }
            serde_json::to_value(status)
        }
    };
    value.expect("statuses are plain data with text as keys")
}

impl Stamped {
    /// With the times of `before` where a condition's status is the same, and `now` elsewhere.
    pub(crate) fn after(before: Option<&Stamped>, status: ObjectStatus, now: Timestamp) -> Self {
        let had = before.map(Stamped::with_times).unwrap_or_default();
        let times = conditions(&status)
            .iter()
            .map(|(part, condition)| {
                let same = had.iter().find(|(other_part, other, _)| {
                    other_part == part
                        && other.type_ == condition.type_
                        && other.status == condition.status
                });
                same.map_or(now, |(_, _, time)| *time)
            })
            .collect();
        Self { status, times }
    }

    fn with_times(&self) -> Vec<(Part<'_>, &Condition, Timestamp)> {
        conditions(&self.status)
            .into_iter()
            .zip(&self.times)
            .map(|((part, condition), time)| (part, condition, *time))
            .collect()
    }

    /// Conditions that are new or have another status or reason than `before`. A new one that is well is no news.
    pub(crate) fn changes_since(
        &self,
        before: Option<&Stamped>,
        object: &ObjectKey,
    ) -> Vec<StatusChange> {
        let had = before
            .map(|before| conditions(&before.status))
            .unwrap_or_default();
        conditions(&self.status)
            .into_iter()
            .filter(|(part, condition)| {
                let before = had.iter().find(|(other_part, other)| {
                    other_part == part && other.type_ == condition.type_
                });
                match before {
                    Some((_, other)) => {
                        other.status != condition.status || other.reason != condition.reason
                    }
                    None => Level::of(condition) != Level::Well,
                }
            })
            .map(|(part, condition)| StatusChange {
                object: object.clone(),
                part: part.text(object),
                condition: condition.type_.clone().into_owned(),
                status: condition.status.clone(),
                reason: condition.reason.clone().into_owned(),
                message: condition.message.clone(),
                level: Level::of(condition),
            })
            .collect()
    }

    /// In JSON, as in Kubernetes.
    pub(crate) fn json(&self) -> Value {
        json(&self.status, &self.times)
    }

    pub(crate) fn status(&self) -> &ObjectStatus {
        &self.status
    }
}

impl Part<'_> {
    /// For people; `None` for the whole object.
    fn text(&self, object: &ObjectKey) -> Option<String> {
        match self {
            Self::Whole => None,
            Self::Listener(name) => Some(format!("listener {name}")),
            Self::Parent(parent) => {
                let namespace = parent.namespace.as_ref().unwrap_or(&object.namespace);
                let section = parent.section_name.as_ref();
                let section = section.map(|name| format!(" {name}")).unwrap_or_default();
                let port = parent.port.map(|port| format!(" :{port}"));
                let port = port.unwrap_or_default();
                Some(format!("parent {namespace}/{}{section}{port}", parent.name))
            }
        }
    }
}

impl fmt::Display for StatusChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.object)?;
        if let Some(part) = &self.part {
            write!(f, ", {part}")?;
        }
        write!(f, ": {} is {}", self.condition, self.status)?;
        if self.level != Level::Well {
            write!(f, " ({}): {}", self.reason, self.message)?;
        }
        Ok(())
    }
}
