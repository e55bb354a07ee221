//! A status with the transition times of its conditions.
//!
//! In: a status without times, and the previous one. Out: the status with times, and its changes. Pure.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use sesame_api::{
    Condition, ConditionStatus, ObjectKey, ObjectStatus, ParentReference, StatusField, condition,
};

/// The part of an object that a condition is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part<'a> {
    Whole,
    Listener(&'a str),
    Parent(&'a ParentReference),
}

/// A status with times. The times are stored separately, in the order of the conditions, so that the status stays
/// shared.
#[derive(Clone, Debug)]
pub(crate) struct TimedStatus {
    status: ObjectStatus,
    times: Box<[Timestamp]>,
}

/// Severity of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// No problem.
    Ok,
    /// Pending or unknown.
    Waiting,
    /// The user has to fix something.
    Error,
}

/// A changed condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusChange {
    /// The object.
    #[serde(serialize_with = "super::super::event::as_text")]
    pub object: ObjectKey,
    /// Its part: `listener NAME` or `parent NAMESPACE/NAME`; absent if the condition is about the whole object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The condition's type.
    pub condition: String,
    /// The new status.
    pub status: ConditionStatus,
    /// The new reason.
    pub reason: String,
    /// The new message.
    pub message: String,
    /// The severity.
    pub severity: Severity,
}

/// Reasons of conditions that become true without a change to an object.
const IN_PROGRESS: [&str; 3] = ["AwaitingSesame", "Pending", "Upgrading"];

impl Severity {
    /// The severity of a condition.
    pub(crate) fn of(condition: &Condition) -> Self {
        let negative_polarity = matches!(
            &*condition.type_,
            condition::listener::CONFLICTED
                | condition::listener::OVERLAPPING_TLS_CONFIG
                | condition::route::PARTIALLY_INVALID
        );
        match (&condition.status, negative_polarity) {
            (ConditionStatus::True, false) | (ConditionStatus::False, true) => Self::Ok,
            (ConditionStatus::True, true) => Self::Error,
            (ConditionStatus::False, false) if IN_PROGRESS.contains(&&*condition.reason) => {
                Self::Waiting
            }
            (ConditionStatus::False, false) => Self::Error,
            _ => Self::Waiting,
        }
    }
}

/// The errors in a condition if it has any, otherwise its message.
fn message(condition: &Condition) -> String {
    let errors: Vec<&str> = condition.errors.iter().map(|e| &*e.message).collect();
    match errors.is_empty() {
        true => condition.message.to_string(),
        false => errors.join("; "),
    }
}

/// Every condition with its part, in the order of [`json`].
fn conditions(status: &ObjectStatus) -> Vec<(Part<'_>, &Condition)> {
    let mut all = Vec::new();
    for field in status.fields() {
        match field {
            StatusField::Conditions(conditions) => {
                all.extend(conditions.iter().map(|c| (Part::Whole, c)));
            }
            StatusField::Listeners(listeners) => {
                for listener in listeners {
                    let conditions = listener.conditions.iter();
                    all.extend(conditions.map(|c| (Part::Listener(&listener.name), c)));
                }
            }
            StatusField::Entries(_, entries) => {
                for entry in entries {
                    let conditions = entry.conditions.iter();
                    all.extend(conditions.map(|c| (Part::Parent(entry.reference), c)));
                }
            }
            StatusField::Value(..) => {}
        }
    }
    all
}

/// The status in JSON, with these times.
fn json(status: &ObjectStatus, times: &[Timestamp]) -> Value {
    let mut times = times.iter();
    let mut set_times = |value: &mut Value| {
        let conditions = value.get_mut("conditions").and_then(Value::as_array_mut);
        for (condition, time) in conditions.into_iter().flatten().zip(&mut times) {
            condition["lastTransitionTime"] = json!(time);
        }
    };
    let mut value = serde_json::to_value(status).expect("a status always serializes");
    for field in status.fields() {
        let list = match field {
            StatusField::Conditions(_) => {
                set_times(&mut value);
                continue;
            }
            StatusField::Listeners(_) => "listeners",
            StatusField::Entries(list, _) => list,
            StatusField::Value(..) => continue,
        };
        let items = value.get_mut(list).and_then(Value::as_array_mut);
        items.into_iter().flatten().for_each(&mut set_times);
    }
    value
}

impl TimedStatus {
    /// Conditions whose status hasn't changed since `before` keep their time; the others get `now`.
    pub(crate) fn after(
        before: Option<&TimedStatus>,
        status: ObjectStatus,
        now: Timestamp,
    ) -> Self {
        let previous = before.map(TimedStatus::with_times).unwrap_or_default();
        let times = conditions(&status)
            .iter()
            .map(|(part, condition)| {
                let same = previous.iter().find(|(other_part, other, _)| {
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

    /// Conditions that are new, or whose status, reason or errors differ from `before`. A new condition without a problem
    /// isn't included.
    pub(crate) fn changes_since(
        &self,
        before: Option<&TimedStatus>,
        object: &ObjectKey,
    ) -> Vec<StatusChange> {
        let previous = before
            .map(|before| conditions(&before.status))
            .unwrap_or_default();
        conditions(&self.status)
            .into_iter()
            .filter(|(part, condition)| {
                let before = previous.iter().find(|(other_part, other)| {
                    other_part == part && other.type_ == condition.type_
                });
                match before {
                    Some((_, other)) => {
                        other.status != condition.status
                            || other.reason != condition.reason
                            || other.errors != condition.errors
                    }
                    None => Severity::of(condition) != Severity::Ok,
                }
            })
            .map(|(part, condition)| StatusChange {
                object: object.clone(),
                part: part.text(object),
                condition: condition.type_.clone().into_owned(),
                status: condition.status.clone(),
                reason: condition.reason.clone().into_owned(),
                message: message(condition),
                severity: Severity::of(condition),
            })
            .collect()
    }

    /// The status in JSON, as in Kubernetes.
    pub(crate) fn json(&self) -> Value {
        json(&self.status, &self.times)
    }

    pub(crate) fn status(&self) -> &ObjectStatus {
        &self.status
    }
}

impl Part<'_> {
    /// The part as text; `None` for the whole object.
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
        if self.severity != Severity::Ok {
            write!(f, " ({}): {}", self.reason, self.message)?;
        }
        Ok(())
    }
}
