//! Computes the patch that makes an object's live status the desired one. Pure.
//!
//! The patch is a JSON merge patch of the `status` fields that differ, with the resource version it is based on as its
//! precondition. Not server-side apply, because:
//!
//! - `status.parents`, `status.ancestors` and `status.addresses` are atomic lists: applying one replaces it whole, so it needs the
//!   precondition anyway.
//! - In map lists (`conditions`, `listeners`) apply keeps fields that others own. A removed listener with a condition of another
//!   controller would leave an entry without its required fields, and the API server would reject every later write.
//! - Fields written under an earlier field manager would never be removed.
//! - It costs the API server more per write.
//!
//! So ownership follows from the content: from the controller name of an entry, or else from the condition type, since a Gateway,
//! GatewayClass or ListenerSet has one controller. Their conditions of the types in the table of kinds are ours; conditions of
//! other types are foreign and stay byte for byte. The entry of a removed listener is removed whole, with foreign conditions.

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
use self::list::{List, Owner};

/// The maximum number of conditions in a list.
const MAX_CONDITIONS: usize = 8;
/// The maximum number of listeners in a status.
const MAX_LISTENERS: usize = 64;

/// The desired status of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Desired {
    /// None of ours, and this process has written none.
    #[default]
    Unset,
    Status(ObjectStatus),
    /// None of ours any more; this was the last one.
    Retracted(ObjectStatus),
}

/// The difference between the live and the desired status.
#[derive(Debug)]
pub(crate) enum Diff {
    UpToDate,
    /// The live status is about a later generation than the desired one.
    Stale,
    Patch(Patch),
}

/// A merge patch.
#[derive(Debug)]
pub(crate) struct Patch {
    /// The whole patch.
    pub body: Box<RawValue>,
    /// How many of our entries have no room in a list.
    pub left_out: usize,
}

/// Compares a live with a desired status. `controller` is our name in status entries.
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
        left_out: 0,
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

/// The generation that a status is about; `None` without conditions.
pub(crate) fn generation(status: &ObjectStatus) -> Option<i64> {
    let newest = |conditions: &[Condition]| {
        let generations = conditions.iter().filter_map(|c| c.observed_generation);
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
    left_out: usize,
    stale: bool,
}

impl<'a> Merge<'a> {
    fn write(&mut self, fields: &[StatusField<'_>], owner: StatusOwner) {
        for field in fields {
            match (field, owner) {
                (StatusField::Conditions(wanted), StatusOwner::Whole { conditions }) => {
                    self.own_conditions(wanted, conditions);
                }
                (StatusField::Listeners(wanted), _) => self.listeners(wanted),
                (StatusField::Entries(_, wanted), StatusOwner::Entries(shape)) => {
                    self.entries(&shape, wanted);
                }
                (StatusField::Value(name, wanted), _) => self.own_value(name, wanted.as_ref()),
                // The table of kinds says otherwise.
                (StatusField::Conditions(_), StatusOwner::Entries(_))
                | (StatusField::Entries(..), StatusOwner::Whole { .. }) => {}
            }
        }
    }

    /// A field that is ours alone.
    fn own_value(&mut self, name: &'static str, wanted: Option<&Value>) {
        let live: Option<Value> = json::typed(self.live.get(name).copied());
        // An empty list equals an absent one.
        let live = live.filter(|live| live.as_array().is_none_or(|list| !list.is_empty()));
        if live.as_ref() != wanted {
            let text = wanted.map_or_else(|| REMOVED.to_owned(), json::text);
            self.changes.push((name, text));
        }
    }

    /// The conditions of the object itself.
    fn own_conditions(&mut self, wanted: &[Condition], ours: &[&str]) {
        let live = self.live.get("conditions").copied();
        let list = self.conditions(live, wanted, ours);
        self.set_list("conditions", &list);
    }

    fn set_list(&mut self, name: &'static str, list: &List<'_>) {
        self.left_out += list.left_out;
        if let Some(text) = list.text_if_changed() {
            self.changes.push((name, text));
        }
    }

    /// Merges a list of conditions. Foreign ones stay.
    fn conditions<'l>(
        &mut self,
        live: Option<&'l RawValue>,
        wanted: &[Condition],
        ours: &[&str],
    ) -> List<'l> {
        let owner = |raw: &RawValue| {
            let type_ = json::typed::<ConditionType>(Some(raw)).map(|head| head.type_);
            let Some(type_) = type_ else {
                return Owner::Foreign;
            };
            match wanted.iter().position(|condition| condition.type_ == type_) {
                Some(index) => Owner::Us(index),
                None if ours.contains(&&*type_) => Owner::Stale,
                None => Owner::Foreign,
            }
        };
        list::merge(
            json::items(live),
            wanted.len(),
            MAX_CONDITIONS,
            owner,
            |raw, index| self.condition(json::typed(raw), &wanted[index]),
        )
    }

    /// A condition with its transition time; `None` if the live one is equal.
    fn condition(&mut self, live: Option<Condition>, wanted: &Condition) -> Option<String> {
        let time = live.as_ref().and_then(|live| live.last_transition_time);
        if let Some(live) = &live {
            // A generation that doesn't exist yet is ignored.
            let observed = live.observed_generation.filter(|g| *g <= self.generation);
            self.stale |= observed
                .zip(wanted.observed_generation)
                .is_some_and(|(live, ours)| live > ours);
            if same(live, wanted) && time.is_some() {
                return None;
            }
        }
        // Default conditions of a CRD have the epoch as their time.
        let kept = live
            .filter(|live| live.status == wanted.status)
            .and(time)
            .filter(|time| *time != Timestamp::UNIX_EPOCH);
        Some(json::text(&Condition {
            last_transition_time: Some(kept.unwrap_or(self.now)),
            ..wanted.clone()
        }))
    }

    /// Merges the entries of listeners. Foreign conditions in them stay.
    fn listeners(&mut self, wanted: &[ListenerStatus]) {
        let live = json::items(self.live.get("listeners").copied());
        let owner = |raw: &RawValue| {
            let name = json::typed::<ListenerName>(Some(raw)).map(|head| head.name);
            let index = wanted
                .iter()
                .position(|l| Some(&*l.name) == name.as_deref());
            index.map_or(Owner::Stale, Owner::Us)
        };
        let list = list::merge(live, wanted.len(), MAX_LISTENERS, owner, |raw, index| {
            self.listener(raw, &wanted[index])
        });
        self.set_list("listeners", &list);
    }

    fn listener(&mut self, live: Option<&RawValue>, wanted: &ListenerStatus) -> Option<String> {
        let fields = json::fields(live);
        let field = |name: &str| fields.get(name).copied();
        let conditions = self.conditions(field("conditions"), &wanted.conditions, &listener::ALL);
        self.left_out += conditions.left_out;
        let kinds: Vec<RouteGroupKind> = json::typed(field("supportedKinds")).unwrap_or_default();
        let routes = json::typed(field("attachedRoutes"));
        if live.is_some()
            && !conditions.changed
            && wanted.supported_kinds == kinds
            && routes == Some(wanted.attached_routes)
        {
            return None;
        }
        let new = [
            ("name", json::text(&*wanted.name)),
            ("supportedKinds", json::text(&wanted.supported_kinds)),
            ("attachedRoutes", wanted.attached_routes.to_string()),
            ("conditions", json::list(&conditions.items)),
        ];
        Some(with_fields(&fields, &new))
    }

    /// Merges a list of entries that name their controller.
    fn entries(&mut self, shape: &StatusEntries, wanted: &[StatusEntry<'_>]) {
        let live = json::items(self.live.get(shape.list).copied());
        let controller = self.controller;
        let owner = |raw: &RawValue| {
            let fields = json::fields(Some(raw));
            let named = json::typed::<String>(fields.get("controllerName").copied());
            if named.as_deref() != Some(controller) {
                return Owner::Foreign;
            }
            let reference = json::typed(fields.get(shape.reference).copied());
            let index = wanted
                .iter()
                .position(|wanted| Some(wanted.reference) == reference.as_ref());
            index.map_or(Owner::Stale, Owner::Us)
        };
        let list = list::merge(live, wanted.len(), shape.limit, owner, |raw, index| {
            self.entry(shape, raw, &wanted[index])
        });
        self.set_list(shape.list, &list);
    }

    fn entry(
        &mut self,
        shape: &StatusEntries,
        live: Option<&RawValue>,
        wanted: &StatusEntry<'_>,
    ) -> Option<String> {
        let fields = json::fields(live);
        let live_conditions = fields.get("conditions").copied();
        let conditions = self.conditions(live_conditions, wanted.conditions, shape.conditions);
        self.left_out += conditions.left_out;
        if live.is_some() && !conditions.changed {
            return None;
        }
        let new = [
            (shape.reference, json::text(wanted.reference)),
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
            left_out: self.left_out,
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
fn same(a: &Condition, b: &Condition) -> bool {
    a.type_ == b.type_
        && a.status == b.status
        && a.observed_generation == b.observed_generation
        && a.reason == b.reason
        && a.message == b.message
}
