//! A translation, and builders of objects for it.

use std::sync::Arc;

use serde_json::{Value, json};
use sesame_api::{
    Condition, GatewayClassStatus, GatewayStatus, Kind, NamespacedName, Object, ObjectKey,
    ObjectStatus, RouteStatus,
};
use sesame_engine::{Batch, Builder, Commit, Engine};
use sesame_model::{FleetId, FleetRequest, FleetState};
use sesame_translate::pipeline::{self, Pipeline};
use sesame_translate::settings::{Mode, Settings};

pub(crate) struct Rig {
    pub(crate) engine: Engine,
    pub(crate) pipeline: Pipeline,
}

impl Rig {
    pub(crate) fn new(mode: Mode) -> Self {
        Self::with(Settings::new(mode))
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let mut builder = Builder::new();
        let pipeline = pipeline::stages(&mut builder);
        let mut rig = Self {
            engine: builder.build(),
            pipeline,
        };
        rig.change(|inputs, batch| inputs.set_settings(batch, settings));
        rig
    }

    /// Applies objects in one commit.
    pub(crate) fn put(&mut self, objects: impl IntoIterator<Item = Value>) -> Commit {
        let mut batch = Batch::new();
        for object in objects {
            let object = Object::decode(object).expect("a valid object");
            let object = object.expect("a served kind");
            self.pipeline.inputs.upsert(&mut batch, object);
        }
        self.engine.commit(batch)
    }

    /// Applies an object that an API server has admitted.
    pub(crate) fn put_admitted(&mut self, object: Value) -> Commit {
        let mut batch = Batch::new();
        let object = Object::decode_admitted(object).expect("a readable object");
        let object = object.expect("a served kind");
        self.pipeline.inputs.upsert(&mut batch, object);
        self.engine.commit(batch)
    }

    pub(crate) fn remove(&mut self, kind: Kind, namespace: &str, name: &str) -> Commit {
        let mut batch = Batch::new();
        let key = ObjectKey::new(kind, namespace, name);
        self.pipeline.inputs.remove(&mut batch, &key);
        self.engine.commit(batch)
    }

    /// Sets the state of a Gateway's fleet.
    pub(crate) fn fleet(&mut self, fleet: &FleetId, state: Option<FleetState>) -> Commit {
        let mut batch = Batch::new();
        let inputs = self.pipeline.inputs;
        inputs.set_fleet(&mut batch, fleet.clone(), state);
        self.engine.commit(batch)
    }

    pub(crate) fn change(
        &mut self,
        change: impl FnOnce(&sesame_translate::inputs::Inputs, &mut Batch),
    ) -> Commit {
        let mut batch = Batch::new();
        change(&self.pipeline.inputs, &mut batch);
        self.engine.commit(batch)
    }

    pub(crate) fn class(&self, name: &str) -> Option<Arc<GatewayClassStatus>> {
        let key = ObjectKey::new(Kind::GatewayClass, "", name);
        match &*self.engine.get(self.pipeline.outputs.statuses, &key)? {
            ObjectStatus::GatewayClass(status) => Some(Arc::clone(status)),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn gateway(&self, name: &str) -> Arc<GatewayStatus> {
        match self.status(Kind::Gateway, name) {
            ObjectStatus::Gateway(status) => status,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn route(&self, name: &str) -> Arc<RouteStatus> {
        match self.status(Kind::HTTPRoute, name) {
            ObjectStatus::Route(status) => status,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn status(&self, kind: Kind, name: &str) -> ObjectStatus {
        let key = named(name).of_kind(kind);
        let status = self.engine.get(self.pipeline.outputs.statuses, &key);
        ObjectStatus::clone(&status.expect("a status"))
    }

    pub(crate) fn request(&self, fleet: &FleetId) -> Option<Arc<FleetRequest>> {
        self.engine.get(self.pipeline.outputs.fleets, fleet)
    }

    /// The addresses that each port binds, as text.
    pub(crate) fn binds(&self) -> Vec<String> {
        let listeners = self.engine.iter(self.pipeline.outputs.listeners);
        let mut binds: Vec<String> = listeners
            .map(|(key, listener)| format!("{} {} {:?}", key.fleet, key.port, listener.bind))
            .collect();
        binds.sort();
        binds
    }
}

/// A name in namespace `ns`.
pub(crate) fn named(name: &str) -> NamespacedName {
    NamespacedName::new("ns", name)
}

pub(crate) fn fleet(name: &str) -> FleetId {
    FleetId::of_gateway("ns", name)
}

/// A condition as text, such as `not Accepted/Invalid: message`.
pub(crate) fn said(conditions: &[Condition], type_: &str) -> String {
    let condition = conditions.iter().find(|c| &*c.type_ == type_);
    let condition = condition.expect("a condition of this type");
    let Condition {
        reason, message, ..
    } = condition;
    match condition.is_true() {
        true => format!("{type_}/{reason}"),
        false => format!("not {type_}/{reason}: {message}"),
    }
}

/// A GatewayClass with Sesame's controller name, created at the given minute.
pub(crate) fn class(name: &str, minute: u32) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": name, "generation": 1, "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z")},
        "spec": {"controllerName": "projectsesame.io/gateway-controller"},
    })
}

/// A Gateway in namespace `ns` with a listener on port 80, created at the given minute.
pub(crate) fn gateway(name: &str, class: &str, minute: u32) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {
            "name": name, "namespace": "ns", "generation": 1, "uid": format!("uid-{name}"),
            "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
        },
        "spec": {"gatewayClassName": class, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
    })
}

/// A route with these Gateways as parents.
pub(crate) fn route(name: &str, gateways: &[&str]) -> Value {
    let parents: Vec<Value> = gateways
        .iter()
        .map(|name| json!({ "name": name }))
        .collect();
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": "ns", "generation": 1},
        "spec": {"parentRefs": parents, "rules": [{"filters": [
            {"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}},
        ]}]},
    })
}

/// A ConfigMap in namespace `ns` with settings for Envoys.
pub(crate) fn config_map(name: &str, envoy: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"},
        "data": {"configuration.yaml": format!("envoy: {{{envoy}}}")},
    })
}

/// Sets the field at a JSON pointer.
pub(crate) fn set(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    object.pointer_mut(parent).expect("a parent in the object")[field] = value;
    object
}
