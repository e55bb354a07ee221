//! Translates once, and returns plain data.
//!
//! In: objects. Out: Envoy resources and object statuses, as JSON. Without Envoys or a network: fleets get the
//! addresses of a local run and count as ready.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use sesame_api::{Object, ObjectKey};
use sesame_envoy::{Options, ResourceChange, names, render};
use sesame_model::{FleetId, FleetRequest};
use sesame_translate::problem::Notices;
use sesame_translate::settings::{Mode, Settings};

use crate::core::{Core, Input};
use crate::plan::Planner;

/// The outcome of [`translate`]. The same objects produce the same outcome, in any order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Translation {
    /// Resources of each fleet; fleets without resources are included.
    pub fleets: BTreeMap<FleetId, Resources>,
    /// The status of each object, sorted by kind, namespace and name, without transition times.
    pub statuses: Vec<StatusView>,
    /// The problems that an object's status has no field for.
    pub notices: BTreeMap<ObjectKey, Notices>,
}

/// Resources of a fleet, each list sorted by name: Envoy's messages in protobuf's JSON form with the type as `@type`.
/// Private keys are hidden.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Resources {
    /// Listeners (LDS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Value>,
    /// Scoped routes, for sharded route tables (SRDS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<Value>,
    /// Route tables (RDS), whole or sharded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Value>,
    /// Clusters (CDS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Value>,
    /// Cluster endpoints (EDS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Value>,
    /// Certificates (SDS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Value>,
}

/// The status of an object. Serializes to an object with `apiVersion`, `kind`, `metadata` and `status`.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusView {
    /// The object.
    pub key: ObjectKey,
    /// Its `status`, as in Kubernetes.
    pub status: Value,
}

impl Serialize for StatusView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut metadata = BTreeMap::from([("name", &self.key.name)]);
        if !self.key.namespace.is_empty() {
            metadata.insert("namespace", &self.key.namespace);
        }
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("apiVersion", self.key.kind.api_version())?;
        fields.serialize_entry("kind", self.key.kind.as_str())?;
        fields.serialize_entry("metadata", &metadata)?;
        fields.serialize_entry("status", &self.status)?;
        fields.end()
    }
}

/// Translates objects with the default settings. The last object of a key wins.
///
/// If the GatewayClass `sesame` isn't among them, it is added, without a status in the outcome.
pub fn translate(objects: Vec<Object>, options: Options) -> Translation {
    translate_with(objects, Settings::new(Mode::Local), options)
}

/// Like [`translate`], with other settings for a local run.
pub fn translate_with(objects: Vec<Object>, settings: Settings, options: Options) -> Translation {
    let mut core = Core::local(settings, options);
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
    // There are no Envoys that still use earlier resources.
    let settled = core.settle();
    let changes = before.into_iter().chain(after.resources).chain(settled);
    Translation {
        fleets: fleets(requests.into_keys(), changes),
        statuses: statuses(&core),
        notices: notices(&core),
    }
}

fn notices(core: &Core) -> BTreeMap<ObjectKey, Notices> {
    let rows = core.engine().iter(core.outputs().notices);
    rows.map(|(key, notices)| (key.clone(), Notices::clone(notices)))
        .collect()
}

/// The final resources of each fleet, as JSON.
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
            resources.push(type_url, to_json(&body, &name));
        }
    }
    out
}

/// A resource as JSON. If it can't be converted, it contains the error, and all others are still shown.
fn to_json(body: &[u8], name: &str) -> Value {
    render(body)
        .unwrap_or_else(|error| serde_json::json!({ "name": name, "error": error.to_string() }))
}

impl Resources {
    /// Resources as JSON.
    pub(crate) fn of(resources: &[ResourceChange]) -> Self {
        let mut out = Self::default();
        for resource in resources {
            if let Some(body) = &resource.body {
                out.push(resource.type_url, to_json(body, &resource.name));
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
            // There are no other types.
            _ => return,
        };
        list.push(resource);
    }
}

/// All statuses in order.
fn statuses(core: &Core) -> Vec<StatusView> {
    let (engine, outputs) = (core.engine(), core.outputs());
    let mut out = Vec::new();
    for (key, status) in engine.iter(outputs.statuses) {
        if !core.is_builtin_class(key) {
            out.push(object_status(key.clone(), &**status));
        }
    }
    out
}

fn object_status(key: ObjectKey, status: &impl Serialize) -> StatusView {
    StatusView {
        key,
        status: serde_json::to_value(status).expect("a status is plain data with string keys"),
    }
}

#[cfg(test)]
mod tests;
