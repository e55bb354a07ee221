//! The trait that every kind's type implements, and methods common to all objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::check::Check;
use crate::decode::{DecodeError, typed};
use crate::key::ObjectKey;
use crate::kind::{Kind, Object};
use crate::listener_set::ListenerSet;
use crate::meta::Meta;
use crate::named::Named;
use crate::route::RouteView;

/// An object of one kind.
pub(crate) trait Resource {
    /// The metadata.
    fn metadata(&self) -> Metadata<'_>;

    /// Sets `metadata.generation`.
    fn set_generation(&mut self, generation: i64);

    /// Adds the Secrets and ConfigMaps that the object refers to.
    fn references(&self, _named: &mut Named) {}

    /// Validates what an API server would: bounds, patterns and cross-field rules. Metadata is already checked.
    fn check(&self) -> Check {
        Ok(())
    }

    /// The fields common to all routes, if the object is a route.
    fn as_route(&self) -> Option<RouteView<'_>> {
        None
    }

    /// Decodes a value.
    fn from_value(value: Value) -> Result<Box<Self>, DecodeError>
    where
        Self: DeserializeOwned,
    {
        typed(value)
    }

    /// Serializes the object with `apiVersion` and `kind`.
    fn write<S: Serializer>(&self, kind: Kind, serializer: S) -> Result<S::Ok, S::Error>
    where
        Self: Serialize + Sized,
    {
        let typed = Typed {
            api_version: kind.api_version(),
            kind: kind.as_str(),
            object: self,
        };
        typed.serialize(serializer)
    }
}

/// Implements [`Resource`] for a type with the field `meta: Meta`; the given methods override the defaults.
macro_rules! resource {
    ($type:ident { $($method:item)* }) => {
        impl $crate::object::Resource for $type {
            fn metadata(&self) -> $crate::object::Metadata<'_> {
                $crate::object::Metadata::Own(&self.meta)
            }

            fn set_generation(&mut self, generation: i64) {
                self.meta.generation = generation;
            }

            $($method)*
        }
    };
}

pub(crate) use resource;

/// The metadata of an object.
pub(crate) enum Metadata<'a> {
    /// The metadata of a type defined in this crate.
    Own(&'a Meta),
    /// The metadata of a k8s-openapi type.
    Core(&'a ObjectMeta),
}

#[derive(Serialize)]
struct Typed<'a, T> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    object: &'a T,
}

impl Object {
    /// The key. Cheap for Gateway API kinds; two small allocations for built-in kinds.
    pub fn key(&self) -> ObjectKey {
        let text = |field: &Option<String>| Arc::from(field.as_deref().unwrap_or_default());
        let (namespace, name) = match self.resource().metadata() {
            Metadata::Own(meta) => (meta.namespace.clone(), meta.name.clone()),
            Metadata::Core(meta) => (text(&meta.namespace), text(&meta.name)),
        };
        ObjectKey {
            kind: self.kind(),
            namespace,
            name,
        }
    }

    /// `metadata.generation`; 0 for kinds without one.
    pub fn generation(&self) -> i64 {
        match self.resource().metadata() {
            Metadata::Own(meta) => meta.generation,
            Metadata::Core(meta) => meta.generation.unwrap_or(0),
        }
    }

    /// Sets `metadata.generation`, for sources that maintain it themselves.
    pub fn set_generation(&mut self, generation: i64) {
        self.resource_mut().set_generation(generation);
    }

    /// The fields common to all routes, if the object is a route.
    pub fn as_route(&self) -> Option<RouteView<'_>> {
        self.resource().as_route()
    }

    /// The ListenerSet, of either kind, if the object is one.
    pub fn as_listener_set(&self) -> Option<&ListenerSet> {
        match self {
            Object::ListenerSet(set) => Some(set),
            Object::XListenerSet(set) => Some(&set.0),
            _ => None,
        }
    }

    /// The labels.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        match self.resource().metadata() {
            Metadata::Own(meta) => &meta.labels,
            Metadata::Core(meta) => meta.labels.as_ref().unwrap_or(&NONE),
        }
    }
}
