//! Translation once, as data.
//!
//! In: objects. Out: what their Envoys would get and what their owners would be told, in JSON. No Envoy, no network:
//! fleets are taken to have the addresses that a local run would give them, and to be well.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use sesame_api::{GATEWAY_GROUP, Kind, Object, ObjectKey};
use sesame_envoy::{Options, ResourceChange, names, render};
use sesame_model::FleetId;
use sesame_translate::fleet::FleetRequest;
use sesame_translate::pipeline;

use crate::core::{Core, Input};
use crate::plan::Planner;

/// The outcome of [`translate`]. The same objects give the same one, in whatever order they come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Translation {
    /// What the Envoys of each fleet get; a fleet without anything is here too.
    pub fleets: BTreeMap<FleetId, Resources>,
    /// What owners of objects are told, sorted by kind, namespace and name. Times of transition are not in it.
    pub statuses: Vec<StatusView>,
    /// How many objects there were of the Gateway API's kinds that Sesame doesn't serve yet.
    pub unserved: BTreeMap<Kind, usize>,
}

/// Resources of a fleet, each list sorted by name: Envoy's messages in protobuf's JSON form with the type as `@type`.
/// Private keys are hidden.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Resources {
    /// Listeners (LDS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Value>,
    /// Which shards route tables have (SRDS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<Value>,
    /// Route tables (RDS), whole or in shards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Value>,
    /// Clusters (CDS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Value>,
    /// Endpoints of clusters (EDS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Value>,
    /// Certificates (SDS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Value>,
}

/// What the owner of an object is told. Serializes to `kind`, `namespace` (if it has one), `name` and `status`.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusView {
    /// The object.
    pub key: ObjectKey,
    /// Its `status`, as in Kubernetes.
    pub status: Value,
}

impl Serialize for StatusView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("kind", self.key.kind.as_str())?;
        if !self.key.namespace.is_empty() {
            fields.serialize_entry("namespace", &self.key.namespace)?;
        }
        fields.serialize_entry("name", &self.key.name)?;
        fields.serialize_entry("status", &self.status)?;
        fields.end()
    }
}

/// Translates objects. Of objects with the same key the last counts.
///
/// The GatewayClass `sesame` is there without being among them; its status is left out then.
pub fn translate(objects: Vec<Object>, options: Options) -> Translation {
    let mut core = Core::new(options);
    let unserved = unserved(&objects);
    let before = core.apply(objects.into_iter().map(Input::Upsert)).resources;
    let requests: BTreeMap<FleetId, FleetRequest> = core
        .engine()
        .iter(core.outputs().fleets)
        .map(|(fleet, request)| (fleet.clone(), FleetRequest::clone(request)))
        .collect();
    let states = Planner::new(options.port_offset).plan(&requests, |_| Ok(()), |_, _| false);
    let after = core.apply(states.into_iter().map(|(fleet, mut state)| {
        state.ready = true;
        Input::Fleet(fleet, Some(state))
    }));
    // Nobody is connected to anything that was before.
    let settled = core.settle();
    let changes = before.into_iter().chain(after.resources).chain(settled);
    Translation {
        fleets: fleets(requests.into_keys(), changes),
        statuses: statuses(&core),
        unserved,
    }
}

fn unserved(objects: &[Object]) -> BTreeMap<Kind, usize> {
    let mut counts = BTreeMap::new();
    for kind in objects.iter().map(Object::kind) {
        if kind.group() == GATEWAY_GROUP && !pipeline::Inputs::takes(kind) {
            *counts.entry(kind).or_default() += 1;
        }
    }
    counts
}

/// What is left when all changes are done, shown.
fn fleets(
    fleets: impl Iterator<Item = FleetId>,
    changes: impl Iterator<Item = ResourceChange>,
) -> BTreeMap<FleetId, Resources> {
    let mut out: BTreeMap<FleetId, Resources> =
        fleets.map(|fleet| (fleet, Resources::default())).collect();
    let mut last = BTreeMap::new();
    for change in changes {
        let key = (change.fleet, change.type_url, change.name);
        last.insert(key, change.body);
    }
    for ((fleet, type_url, name), body) in last {
        if let Some(body) = body {
            let resources = out.entry(fleet).or_default();
            resources.push(type_url, shown(&body, &name));
        }
    }
    out
}

/// A resource for people; one that can't be shown says so itself, so that the others are.
fn shown(body: &[u8], name: &str) -> Value {
    render(body)
        .unwrap_or_else(|error| serde_json::json!({ "name": name, "not_shown": error.to_string() }))
}

impl Resources {
    /// Shows resources.
    pub(crate) fn of(resources: &[ResourceChange]) -> Self {
        let mut out = Self::default();
        for resource in resources {
            if let Some(body) = &resource.body {
                out.push(resource.type_url, shown(body, &resource.name));
            }
        }
        out
    }

    fn push(&mut self, type_url: &str, resource: Value) {
        let list = match type_url {
            names::LISTENER => &mut self.listeners,
            names::SCOPE => &mut self.scopes,
            names::ROUTES => &mut self.routes,
            names::CLUSTER => &mut self.clusters,
            names::ENDPOINTS => &mut self.endpoints,
            names::SECRET => &mut self.secrets,
            // There is no other type.
            _ => return,
        };
        list.push(resource);
    }
}

/// All statuses in order.
fn statuses(core: &Core) -> Vec<StatusView> {
    let (engine, outputs) = (core.engine(), core.outputs());
    let mut out = Vec::new();
    for (name, status) in engine.iter(outputs.class_status) {
        if !core.is_unwritten_class(name) {
            let key = ObjectKey::new(Kind::GatewayClass, "", name.clone());
            out.push(object_status(key, &**status));
        }
    }
    for (name, status) in engine.iter(outputs.gateway_status) {
        out.push(object_status(name.of_kind(Kind::Gateway), &**status));
    }
    for (name, status) in engine.iter(outputs.http_route_status) {
        out.push(object_status(name.of_kind(Kind::HTTPRoute), &**status));
    }
    out
}

fn object_status(key: ObjectKey, status: &impl Serialize) -> StatusView {
    StatusView {
        key,
        status: serde_json::to_value(status).expect("statuses are plain data with text as keys"),
    }
}

#[cfg(test)]
mod tests;
