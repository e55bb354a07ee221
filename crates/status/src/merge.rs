//! Computes the patch that turns an object's live status into the desired one. Pure.
//!
//! The patch is a JSON merge patch of the differing `status` fields, with its base resource version as a
//! precondition. Server-side apply is not used because:
//!
//! - `status.parents`, `status.ancestors` and `status.addresses` are atomic lists: applying one replaces the whole
//!   list, so the precondition is needed anyway.
//! - In map lists (`conditions`, `listeners`), apply keeps fields that other managers own. If a removed listener had a
//!   condition from another controller, an entry without required fields would remain, and the API server would reject
//!   every later write.
//! - Fields written with an earlier field manager would never be removed.
//! - Apply costs the API server more per write.
//!
//! Ownership is therefore derived from content. An entry is ours if it names our controller. A Gateway, GatewayClass,
//! ListenerSet or HTTPProxy has only one controller, so its conditions are ours if the table of kinds lists their type.
//! Conditions of other types are foreign and are kept byte for byte. When a listener is removed, its entry is removed
//! along with any foreign conditions.

mod json;
mod list;
mod retract;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;
use sesame_api::condition::listener;
use sesame_api::{
    Condition, Kind, ListenerStatus, LiveStatus, ObjectStatus, RouteGroupKind, StatusEntries,
    StatusEntry, StatusField, StatusOwner,
};

use self::json::REMOVED;
use self::list::{ItemOwner, List};

/// Maximum number of conditions in a list.
const MAX_CONDITIONS: usize = 8;
/// Maximum number of listeners in a status.
const MAX_LISTENERS: usize = 64;

/// The desired status of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Desired {
    /// There is no desired status, and this process hasn't written one.
    #[default]
    Unset,
    Status(ObjectStatus),
    /// The desired status was withdrawn; this was its last value.
    Retracted(ObjectStatus),
}

/// The difference between the live and the desired status.
#[derive(Debug)]
pub(crate) enum Diff {
    UpToDate,
    /// The live status observes a later generation than the desired status.
    Stale,
    Patch(Patch),
}

/// A merge patch.
#[derive(Debug)]
pub(crate) struct Patch {
    /// The whole patch.
    pub body: Box<RawValue>,
    /// Number of our entries that exceed a list's limit.
    pub omitted: usize,
}

/// Compares a live status with a desired one. `controller` is our name in status entries.
pub(crate) fn diff(
    controller: &str,
    kind: Kind,
    live: &LiveStatus,
    desired: &Desired,
    now: Timestamp,
) -> Diff {
    let mut merge = Merge {
        controller,
        generation: live.generation,
        // Kubernetes stores whole seconds.
        now: Timestamp::from_second(now.as_second()).unwrap_or(now),
        live: json::fields(live.status.as_deref()),
        changes: Vec::new(),
        omitted: 0,
        stale: false,
    };
    let Some(owner) = kind.info().status else {
        return Diff::UpToDate;
    };
    match (desired, owner) {
        (Desired::Status(status), _) => merge.write(&status.fields(), owner),
        (_, StatusOwner::Entries(shape)) => merge.entries(&shape, &[]),
        (Desired::Retracted(last), StatusOwner::Whole { .. }) => merge.retract(&last.fields()),
        (Desired::Unset, StatusOwner::Whole { .. }) => {}
    }
    merge.finish(&live.resource_version)
}

/// The generation that a status observes; `None` without conditions.
pub(crate) fn generation(status: &ObjectStatus) -> Option<i64> {
    let newest = |conditions: &[Condition]| {
        let generations = conditions.iter().map(|c| c.observed_generation);
        generations.max()
    };
    let fields = status.fields();
    let of_fields = fields.iter().filter_map(|field| match field {
        StatusField::Conditions(conditions) => newest(conditions),
        StatusField::Entries(_, entries) => {
            let entries = entries.iter().filter_map(|e| newest(e.conditions));
            entries.max()
        }
        StatusField::Listeners(_) | StatusField::Value(..) => None,
    });
    of_fields.max()
}

/// Whether a status of this kind has entries that name their controller.
pub(crate) fn has_entries(kind: Kind) -> bool {
    matches!(kind.info().status, Some(StatusOwner::Entries(_)))
}

struct Merge<'a> {
    controller: &'a str,
    generation: i64,
    now: Timestamp,
    live: json::Fields<'a>,
    /// Changed fields of `status` and their new JSON.
    changes: Vec<(&'static str, String)>,
    omitted: usize,
    stale: bool,
}

impl<'a> Merge<'a> {
    fn write(&mut self, fields: &[StatusField<'_>], owner: StatusOwner) {
        for field in fields {
            match (field, owner) {
                (StatusField::Conditions(desired), StatusOwner::Whole { conditions }) => {
                    self.own_conditions(desired, conditions);
                }
                (StatusField::Listeners(desired), _) => self.listeners(desired),
                (StatusField::Entries(_, desired), StatusOwner::Entries(shape)) => {
                    self.entries(&shape, desired);
                }
                (StatusField::Value(name, desired), _) => self.own_value(name, desired.as_ref()),
                // Excluded by the table of kinds.
                (StatusField::Conditions(_), StatusOwner::Entries(_))
                | (StatusField::Entries(..), StatusOwner::Whole { .. }) => {}
            }
        }
    }

    /// Writes a field that only we own.
    fn own_value(&mut self, name: &'static str, desired: Option<&Value>) {
        let live: Option<Value> = json::typed(self.live.get(name).copied());
        // An empty list equals an absent one.
        let live = live.filter(|live| live.as_array().is_none_or(|list| !list.is_empty()));
        if live.as_ref() != desired {
            let text = desired.map_or_else(
                || REMOVED.to_owned(),
                |desired| json::text(&json::merge_patch(live.as_ref(), desired)),
            );
            self.changes.push((name, text));
        }
    }

    /// Merges the object's own conditions.
    fn own_conditions(&mut self, desired: &[Condition], ours: &[&str]) {
        let live = self.live.get("conditions").copied();
        let list = self.conditions(live, desired, ours);
        self.set_list("conditions", &list);
    }

    fn set_list(&mut self, name: &'static str, list: &List<'_>) {
        self.omitted += list.omitted;
        if let Some(text) = list.text_if_changed() {
            self.changes.push((name, text));
        }
    }

    /// Merges a list of conditions. Foreign ones are kept.
    fn conditions<'l>(
        &mut self,
        live: Option<&'l RawValue>,
        desired: &[Condition],
        ours: &[&str],
    ) -> List<'l> {
        let owner = |raw: &RawValue| {
            let type_ = json::typed::<ConditionType>(Some(raw)).map(|head| head.type_);
            let Some(type_) = type_ else {
                return ItemOwner::Foreign;
            };
            match desired
                .iter()
                .position(|condition| condition.type_ == type_)
            {
                Some(index) => ItemOwner::Ours(index),
                None if ours.contains(&&*type_) => ItemOwner::Stale,
                None => ItemOwner::Foreign,
            }
        };
        list::merge(
            json::items(live),
            desired.len(),
            MAX_CONDITIONS,
            owner,
            |raw, index| self.condition(json::typed(raw), &desired[index]),
        )
    }

    /// A condition with its transition time; `None` if it equals the live one.
    fn condition(&mut self, live: Option<Condition>, desired: &Condition) -> Option<String> {
        let time = live.as_ref().and_then(|live| live.last_transition_time);
        if let Some(live) = &live {
            // Ignore a generation that doesn't exist yet.
            let observed = live.observed_generation;
            self.stale |= observed <= self.generation && observed > desired.observed_generation;
            if same_content(live, desired) && time.is_some() {
                return None;
            }
        }
        // A CRD's default conditions have the Unix epoch as their time.
        let kept = live
            .filter(|live| live.status == desired.status)
            .and(time)
            .filter(|time| *time != Timestamp::UNIX_EPOCH);
        Some(json::text(&Condition {
            last_transition_time: Some(kept.unwrap_or(self.now)),
            ..desired.clone()
        }))
    }

    /// Merges listener entries. Their foreign conditions are kept.
    fn listeners(&mut self, desired: &[ListenerStatus]) {
        let live = json::items(self.live.get("listeners").copied());
        let owner = |raw: &RawValue| {
            let name = json::typed::<ListenerName>(Some(raw)).map(|head| head.name);
            let index = desired
                .iter()
                .position(|l| Some(&*l.name) == name.as_deref());
            index.map_or(ItemOwner::Stale, ItemOwner::Ours)
        };
        let list = list::merge(live, desired.len(), MAX_LISTENERS, owner, |raw, index| {
            self.listener(raw, &desired[index])
        });
        self.set_list("listeners", &list);
    }

    fn listener(&mut self, live: Option<&RawValue>, desired: &ListenerStatus) -> Option<String> {
        let fields = json::fields(live);
        let field = |name: &str| fields.get(name).copied();
        let conditions = self.conditions(field("conditions"), &desired.conditions, &listener::ALL);
        self.omitted += conditions.omitted;
        let kinds: Vec<RouteGroupKind> = json::typed(field("supportedKinds")).unwrap_or_default();
        let routes = json::typed(field("attachedRoutes"));
        if live.is_some()
            && !conditions.changed
            && desired.supported_kinds == kinds
            && routes == Some(desired.attached_routes)
            && (desired.port.is_none() || desired.port == json::typed(field("port")))
        {
            return None;
        }
        let mut new = vec![
            ("name", json::text(&*desired.name)),
            ("supportedKinds", json::text(&desired.supported_kinds)),
            ("attachedRoutes", desired.attached_routes.to_string()),
            ("conditions", json::list(&conditions.items)),
        ];
        new.extend(desired.port.map(|port| ("port", port.to_string())));
        Some(with_fields(&fields, &new))
    }

    /// Merges a list of entries that name their controller.
    fn entries(&mut self, shape: &StatusEntries, desired: &[StatusEntry<'_>]) {
        let live = json::items(self.live.get(shape.list).copied());
        let controller = self.controller;
        let owner = |raw: &RawValue| {
            let fields = json::fields(Some(raw));
            let named = json::typed::<String>(fields.get("controllerName").copied());
            if named.as_deref() != Some(controller) {
                return ItemOwner::Foreign;
            }
            let reference = json::typed(fields.get(shape.reference).copied());
            let index = desired
                .iter()
                .position(|desired| Some(desired.reference) == reference.as_ref());
            index.map_or(ItemOwner::Stale, ItemOwner::Ours)
        };
        let list = list::merge(live, desired.len(), shape.limit, owner, |raw, index| {
            self.entry(shape, raw, &desired[index])
        });
        self.set_list(shape.list, &list);
    }

    fn entry(
        &mut self,
        shape: &StatusEntries,
        live: Option<&RawValue>,
        desired: &StatusEntry<'_>,
    ) -> Option<String> {
        let fields = json::fields(live);
        let live_conditions = fields.get("conditions").copied();
        let conditions = self.conditions(live_conditions, desired.conditions, shape.conditions);
        self.omitted += conditions.omitted;
        if live.is_some() && !conditions.changed {
            return None;
        }
        let new = [
            (shape.reference, json::text(desired.reference)),
            ("controllerName", json::text(self.controller)),
            ("conditions", json::list(&conditions.items)),
        ];
        Some(with_fields(&fields, &new))
    }

    fn finish(self, resource_version: &str) -> Diff {
        if self.stale {
            return Diff::Stale;
        }
        if self.changes.is_empty() {
            return Diff::UpToDate;
        }
        let changes = self.changes.iter();
        let status = json::object(changes.map(|(name, text)| (*name, text.as_str())));
        let version = json::text(resource_version);
        let metadata = json::object([("resourceVersion", version.as_str())]);
        let body = json::object([("metadata", metadata.as_str()), ("status", status.as_str())]);
        Diff::Patch(Patch {
            body: RawValue::from_string(body).expect("concatenated valid JSON"),
            omitted: self.omitted,
        })
    }
}

#[derive(serde::Deserialize)]
struct ConditionType {
    #[serde(rename = "type")]
    type_: String,
}

#[derive(serde::Deserialize)]
struct ListenerName {
    name: String,
}

/// An object with some fields replaced.
fn with_fields(fields: &json::Fields<'_>, new: &[(&'static str, String)]) -> String {
    let old = fields.iter().map(|(name, raw)| (name.as_str(), raw.get()));
    let old = old.filter(|(name, _)| new.iter().all(|(new, _)| new != name));
    json::object(
        new.iter()
            .map(|(name, text)| (*name, text.as_str()))
            .chain(old),
    )
}

/// Whether two conditions are equal except for their transition time.
fn same_content(a: &Condition, b: &Condition) -> bool {
    a.type_ == b.type_
        && a.status == b.status
        && a.observed_generation == b.observed_generation
        && a.reason == b.reason
        && a.message == b.message
        && a.errors == b.errors
        && a.warnings == b.warnings
}
