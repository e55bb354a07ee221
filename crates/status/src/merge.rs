//! What to send so that an object's status says what it should.
//!
//! In: what stands in the cluster, what should stand there, the time. Out: a patch, or that nothing is to do. Pure.
//!
//! The patch is a JSON merge patch of those fields of `status` that differ, with the resource version that it was worked out from as
//! its precondition. Why not server-side apply, which knows for itself whose an entry is?
//!
//! - `status.parents`, `status.ancestors` and `status.addresses` are atomic lists: applying one replaces it whole, and so
//!   needs the precondition anyway.
//! - Where lists are maps (`conditions`, `listeners`), it keeps the leaves that others own. A listener that is gone from the spec
//!   and on which somebody had set a condition would keep an entry without its required fields, and the API server would refuse
//!   every later write.
//! - Whoever took part before under another name (an earlier version, another controller) still owns what it wrote; nothing of
//!   that would ever go.
//! - It costs the API server more for each write.
//!
//! So whose an entry is has to be told from the entry: by its controller's name where it has one, and by the condition's type
//! elsewhere, since a Gateway, a GatewayClass and a ListenerSet have one controller. Their conditions of types that the Gateway API
//! defines are ours ([`ours`]); conditions of any other type are others' and go through as the text that they were. An entry
//! of a listener that isn't in the spec any more goes whole: there is nothing left that a condition could be about.

mod json;
mod list;
mod ours;
mod retract;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::value::RawValue;
use sesame_api::{
    Condition, GatewayClassStatus, GatewayStatus, Kind, ListenerSetStatus, ListenerStatus,
    LiveStatus, ObjectStatus, ParentReference, RouteGroupKind,
};

use self::json::REMOVED;
use self::list::{List, Place};

/// How many conditions a list of them takes.
const CONDITIONS: usize = 8;
/// How many parents the status of a route takes.
const PARENTS: usize = 32;
/// How many ancestors the status of a policy takes.
const ANCESTORS: usize = 16;
/// How many listeners the status of a Gateway or ListenerSet takes.
const LISTENERS: usize = 64;

/// What an object's status should say.
#[derive(Clone, Debug)]
pub(crate) enum Want {
    /// This.
    Says(ObjectStatus),
    /// Nothing of ours. With what we had said, if it was said by this process.
    Nothing(Option<ObjectStatus>),
}

/// What is to do.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Nothing: it says what it should.
    Right,
    /// Nothing yet: it speaks of a later generation of the object than we do.
    Behind,
    /// This patch is to be sent.
    Write(Patch),
}

/// A merge patch.
#[derive(Debug)]
pub(crate) struct Patch {
    /// The whole patch.
    pub body: Box<RawValue>,
    /// How many entries of ours found no room, since others fill the list.
    pub left_out: usize,
}

/// What makes `live` say what it should; `controller` is our name in entries that have one.
pub(crate) fn patch(
    controller: &str,
    kind: Kind,
    live: &LiveStatus,
    want: &Want,
    now: Timestamp,
) -> Verdict {
    let mut merge = Merge {
        controller,
        generation: live.generation,
        // Kubernetes' times have whole seconds.
        now: Timestamp::from_second(now.as_second()).unwrap_or(now),
        live: json::fields(live.status.as_deref()),
        changes: Vec::new(),
        left_out: 0,
        behind: false,
    };
    match want {
        Want::Says(ObjectStatus::GatewayClass(status)) => merge.class(status),
        Want::Says(ObjectStatus::Gateway(status)) => merge.gateway(status),
        Want::Says(ObjectStatus::ListenerSet(status)) => merge.listener_set(status),
        Want::Says(ObjectStatus::Route(status)) => {
            let entries = status.parents.iter();
            let entries = entries.map(|entry| (&entry.parent_ref, &*entry.conditions));
            merge.entries(&ROUTE, &entries.collect::<Vec<_>>());
        }
        Want::Says(ObjectStatus::Policy(status)) => {
            let entries = status.ancestors.iter();
            let entries = entries.map(|entry| (&entry.ancestor_ref, &*entry.conditions));
            merge.entries(&POLICY, &entries.collect::<Vec<_>>());
        }
        Want::Nothing(_) if kind.is_route() => merge.entries(&ROUTE, &[]),
        Want::Nothing(_) if kind == Kind::BackendTLSPolicy => merge.entries(&POLICY, &[]),
        Want::Nothing(Some(said)) => merge.retract(said),
        Want::Nothing(None) => {}
    }
    merge.verdict(&live.resource_version)
}

/// The generation that a status is about; nothing if it has no conditions.
pub(crate) fn generation(status: &ObjectStatus) -> Option<i64> {
    fn newest<'a>(conditions: impl Iterator<Item = &'a Condition>) -> Option<i64> {
        conditions.filter_map(|c| c.observed_generation).max()
    }
    match status {
        ObjectStatus::GatewayClass(status) => newest(status.conditions.iter()),
        ObjectStatus::Gateway(status) => newest(status.conditions.iter()),
        ObjectStatus::ListenerSet(status) => newest(status.conditions.iter()),
        ObjectStatus::Route(status) => newest(status.parents.iter().flat_map(|p| &p.conditions)),
        ObjectStatus::Policy(status) => newest(status.ancestors.iter().flat_map(|a| &a.conditions)),
    }
}

/// Whether a status of this kind holds entries of several controllers, each with its name.
pub(crate) fn has_entries(kind: Kind) -> bool {
    kind.is_route() || kind == Kind::BackendTLSPolicy
}

/// How a kind names its entries.
struct Entries {
    list: &'static str,
    reference: &'static str,
    limit: usize,
    ours: &'static [&'static str],
}

const ROUTE: Entries = Entries {
    list: "parents",
    reference: "parentRef",
    limit: PARENTS,
    ours: ours::ROUTE,
};

const POLICY: Entries = Entries {
    list: "ancestors",
    reference: "ancestorRef",
    limit: ANCESTORS,
    ours: ours::POLICY,
};

struct Merge<'a> {
    controller: &'a str,
    generation: i64,
    now: Timestamp,
    live: json::Fields<'a>,
    /// Fields of `status` and their new text.
    changes: Vec<(&'static str, String)>,
    left_out: usize,
    behind: bool,
}

impl<'a> Merge<'a> {
    fn class(&mut self, status: &GatewayClassStatus) {
        self.own_conditions(&status.conditions, ours::GATEWAY_CLASS);
        self.own_list("supportedFeatures", &status.supported_features);
    }

    fn gateway(&mut self, status: &GatewayStatus) {
        self.own_list("addresses", &status.addresses);
        self.own_conditions(&status.conditions, ours::GATEWAY);
        self.listeners(&status.listeners);
        const SETS: &str = "attachedListenerSets";
        let live = self.live.get(SETS).copied();
        match status.attached_listener_sets {
            None if live.is_some() => self.changes.push((SETS, REMOVED.to_owned())),
            Some(count) if json::typed(live) != Some(count) => {
                self.changes.push((SETS, count.to_string()));
            }
            _ => {}
        }
    }

    fn listener_set(&mut self, status: &ListenerSetStatus) {
        self.own_conditions(&status.conditions, ours::LISTENER_SET);
        self.listeners(&status.listeners);
    }

    /// A list that is ours alone.
    fn own_list<T>(&mut self, name: &'static str, wanted: &Vec<T>)
    where
        T: serde::Serialize + serde::de::DeserializeOwned + PartialEq,
    {
        let live = self.live.get(name).copied();
        let same = match live {
            None => wanted.is_empty(),
            Some(_) => json::typed::<Vec<T>>(live).as_ref() == Some(wanted),
        };
        if same {
            return;
        }
        let text = if wanted.is_empty() {
            REMOVED.to_owned()
        } else {
            json::text(wanted)
        };
        self.changes.push((name, text));
    }

    /// The conditions of the object itself.
    fn own_conditions(&mut self, wanted: &[Condition], ours: &[&str]) {
        let live = self.live.get("conditions").copied();
        let list = self.conditions(live, wanted, ours);
        self.change("conditions", &list);
    }

    fn change(&mut self, name: &'static str, list: &List<'_>) {
        self.left_out += list.left_out;
        if let Some(text) = list.text_if_changed() {
            self.changes.push((name, text));
        }
    }

    /// A list of conditions, others' types untouched.
    fn conditions<'l>(
        &mut self,
        live: Option<&'l RawValue>,
        wanted: &[Condition],
        ours: &[&str],
    ) -> List<'l> {
        let place = |raw: &RawValue| {
            let type_ = json::typed::<ConditionType>(Some(raw)).map(|head| head.type_);
            let Some(type_) = type_ else {
                return Place::Foreign;
            };
            match wanted.iter().position(|condition| condition.type_ == type_) {
                Some(index) => Place::Wanted(index),
                None if ours.contains(&&*type_) => Place::Unwanted,
                None => Place::Foreign,
            }
        };
        list::merged(
            json::items(live),
            wanted.len(),
            CONDITIONS,
            place,
            |raw, index| self.condition(json::typed(raw), &wanted[index]),
        )
    }

    /// A condition with its time, unless the one that is there says the same.
    fn condition(&mut self, live: Option<Condition>, wanted: &Condition) -> Option<String> {
        let time = live.as_ref().and_then(|live| live.last_transition_time);
        if let Some(live) = &live {
            // What claims a generation that there hasn't been says nothing.
            let judged = live.observed_generation.filter(|g| *g <= self.generation);
            self.behind |= judged
                .zip(wanted.observed_generation)
                .is_some_and(|(live, ours)| live > ours);
            if same(live, wanted) && time.is_some() {
                return None;
            }
        }
        // The times of conditions that a definition puts in as a default are the epoch: nobody's.
        let kept = live
            .filter(|live| live.status == wanted.status)
            .and(time)
            .filter(|time| *time != Timestamp::UNIX_EPOCH);
        Some(json::text(&Condition {
            last_transition_time: Some(kept.unwrap_or(self.now)),
            ..wanted.clone()
        }))
    }

    /// The entries of listeners: one for each that is wanted, others' conditions in them untouched.
    fn listeners(&mut self, wanted: &[ListenerStatus]) {
        let live = json::items(self.live.get("listeners").copied());
        let place = |raw: &RawValue| {
            let name = json::typed::<ListenerName>(Some(raw)).map(|head| head.name);
            let index = wanted
                .iter()
                .position(|l| Some(&*l.name) == name.as_deref());
            index.map_or(Place::Unwanted, Place::Wanted)
        };
        let list = list::merged(live, wanted.len(), LISTENERS, place, |raw, index| {
            self.listener(raw, &wanted[index])
        });
        self.change("listeners", &list);
    }

    fn listener(&mut self, live: Option<&RawValue>, wanted: &ListenerStatus) -> Option<String> {
        let fields = json::fields(live);
        let field = |name: &str| fields.get(name).copied();
        let conditions = self.conditions(field("conditions"), &wanted.conditions, ours::LISTENER);
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
        Some(replaced(&fields, &new))
    }

    /// The entries of a list in which each names its controller.
    fn entries(&mut self, shape: &Entries, wanted: &[(&ParentReference, &[Condition])]) {
        let live = json::items(self.live.get(shape.list).copied());
        let controller = self.controller;
        let place = |raw: &RawValue| {
            let fields = json::fields(Some(raw));
            let whose = json::typed::<String>(fields.get("controllerName").copied());
            if whose.as_deref() != Some(controller) {
                return Place::Foreign;
            }
            let reference = json::typed(fields.get(shape.reference).copied());
            let index = wanted
                .iter()
                .position(|(r, _)| Some(*r) == reference.as_ref());
            index.map_or(Place::Unwanted, Place::Wanted)
        };
        let list = list::merged(live, wanted.len(), shape.limit, place, |raw, index| {
            let (reference, conditions) = wanted[index];
            self.entry(shape, raw, reference, conditions)
        });
        self.change(shape.list, &list);
    }

    fn entry(
        &mut self,
        shape: &Entries,
        live: Option<&RawValue>,
        reference: &ParentReference,
        conditions: &[Condition],
    ) -> Option<String> {
        let fields = json::fields(live);
        let there = fields.get("conditions").copied();
        let conditions = self.conditions(there, conditions, shape.ours);
        self.left_out += conditions.left_out;
        if live.is_some() && !conditions.changed {
            return None;
        }
        let new = [
            (shape.reference, json::text(reference)),
            ("controllerName", json::text(self.controller)),
            ("conditions", json::list(&conditions.items)),
        ];
        Some(replaced(&fields, &new))
    }

    fn verdict(self, resource_version: &str) -> Verdict {
        if self.behind {
            return Verdict::Behind;
        }
        if self.changes.is_empty() {
            return Verdict::Right;
        }
        let changes = self.changes.iter();
        let status = json::object(changes.map(|(name, text)| (*name, text.as_str())));
        let version = json::text(resource_version);
        let metadata = json::object([("resourceVersion", version.as_str())]);
        let body = json::object([("metadata", metadata.as_str()), ("status", status.as_str())]);
        Verdict::Write(Patch {
            body: RawValue::from_string(body).expect("it is made of JSON and nothing else"),
            left_out: self.left_out,
        })
    }
}

/// Only a condition's type.
#[derive(serde::Deserialize)]
struct ConditionType {
    #[serde(rename = "type")]
    type_: String,
}

/// Only a listener's name.
#[derive(serde::Deserialize)]
struct ListenerName {
    name: String,
}

/// An object with some fields replaced.
fn replaced(fields: &json::Fields<'_>, new: &[(&'static str, String)]) -> String {
    let old = fields.iter().map(|(name, raw)| (name.as_str(), raw.get()));
    let old = old.filter(|(name, _)| new.iter().all(|(new, _)| new != name));
    json::object(
        new.iter()
            .map(|(name, text)| (*name, text.as_str()))
            .chain(old),
    )
}

/// Whether two conditions say the same, whenever that began.
fn same(a: &Condition, b: &Condition) -> bool {
    a.type_ == b.type_
        && a.status == b.status
        && a.observed_generation == b.observed_generation
        && a.reason == b.reason
        && a.message == b.message
}
