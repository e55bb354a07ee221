//! One type over every kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Serialize, Serializer};

use crate::backend_tls_policy::BackendTLSPolicy;
use crate::gateway::Gateway;
use crate::gateway_class::GatewayClass;
use crate::grpc_route::GRPCRoute;
use crate::http_route::HTTPRoute;
use crate::key::ObjectKey;
use crate::kind::Kind;
use crate::l4_route::{TCPRoute, TLSRoute, UDPRoute};
use crate::listener_set::ListenerSet;
use crate::meta::Meta;
use crate::reference_grant::ReferenceGrant;

/// An object of any kind that we read. Made by [`Object::decode`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant holds the kind of its name")]
pub enum Object {
    GatewayClass(Box<GatewayClass>),
    Gateway(Box<Gateway>),
    ListenerSet(Box<ListenerSet>),
    HTTPRoute(Box<HTTPRoute>),
    GRPCRoute(Box<GRPCRoute>),
    TLSRoute(Box<TLSRoute>),
    TCPRoute(Box<TCPRoute>),
    UDPRoute(Box<UDPRoute>),
    ReferenceGrant(Box<ReferenceGrant>),
    BackendTLSPolicy(Box<BackendTLSPolicy>),
    Namespace(Box<Namespace>),
    Service(Box<Service>),
    EndpointSlice(Box<EndpointSlice>),
    Secret(Box<Secret>),
    ConfigMap(Box<ConfigMap>),
}

/// Runs one expression for our kinds and another for Kubernetes' own.
macro_rules! on_object {
    ($object:expr, ours($o:ident) => $ours:expr, core($c:ident) => $core:expr) => {
        match $object {
            Object::GatewayClass($o) => $ours,
            Object::Gateway($o) => $ours,
            Object::ListenerSet($o) => $ours,
            Object::HTTPRoute($o) => $ours,
            Object::GRPCRoute($o) => $ours,
            Object::TLSRoute($o) => $ours,
            Object::TCPRoute($o) => $ours,
            Object::UDPRoute($o) => $ours,
            Object::ReferenceGrant($o) => $ours,
            Object::BackendTLSPolicy($o) => $ours,
            Object::Namespace($c) => $core,
            Object::Service($c) => $core,
            Object::EndpointSlice($c) => $core,
            Object::Secret($c) => $core,
            Object::ConfigMap($c) => $core,
        }
    };
}

impl Object {
    /// The kind.
    pub fn kind(&self) -> Kind {
        match self {
            Object::GatewayClass(_) => Kind::GatewayClass,
            Object::Gateway(_) => Kind::Gateway,
            Object::ListenerSet(_) => Kind::ListenerSet,
            Object::HTTPRoute(_) => Kind::HTTPRoute,
            Object::GRPCRoute(_) => Kind::GRPCRoute,
            Object::TLSRoute(_) => Kind::TLSRoute,
            Object::TCPRoute(_) => Kind::TCPRoute,
            Object::UDPRoute(_) => Kind::UDPRoute,
            Object::ReferenceGrant(_) => Kind::ReferenceGrant,
            Object::BackendTLSPolicy(_) => Kind::BackendTLSPolicy,
            Object::Namespace(_) => Kind::Namespace,
            Object::Service(_) => Kind::Service,
            Object::EndpointSlice(_) => Kind::EndpointSlice,
            Object::Secret(_) => Kind::Secret,
            Object::ConfigMap(_) => Kind::ConfigMap,
        }
    }

    /// The id. Cheap for Gateway API kinds; two small allocations for Kubernetes' own.
    pub fn key(&self) -> ObjectKey {
        let kind = self.kind();
        on_object!(self,
            ours(object) => our_key(kind, &object.meta),
            core(object) => core_key(kind, &object.metadata))
    }

    /// The generation; 0 where nobody counts.
    pub fn generation(&self) -> i64 {
        on_object!(self,
            ours(object) => object.meta.generation,
            core(object) => object.metadata.generation.unwrap_or(0))
    }

    /// Sets the generation, for sources that count it themselves.
    pub fn set_generation(&mut self, generation: i64) {
        on_object!(self,
            ours(object) => object.meta.generation = generation,
            core(object) => object.metadata.generation = Some(generation))
    }

    /// The labels.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        on_object!(self,
            ours(object) => &object.meta.labels,
            core(object) => object.metadata.labels.as_ref().unwrap_or(&NONE))
    }
}

fn our_key(kind: Kind, meta: &Meta) -> ObjectKey {
    ObjectKey {
        kind,
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
    }
}

fn core_key(kind: Kind, meta: &ObjectMeta) -> ObjectKey {
    let text = |field: &Option<String>| Arc::from(field.as_deref().unwrap_or_default());
    ObjectKey {
        kind,
        namespace: text(&meta.namespace),
        name: text(&meta.name),
    }
}

/// The object as it would stand in a file, with `apiVersion` and `kind`.
impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kind = self.kind();
        on_object!(self,
            ours(object) => Typed {
                api_version: kind.api_version(),
                kind: kind.as_str(),
                object: &**object,
            }.serialize(serializer),
            core(object) => object.serialize(serializer))
    }
}

#[derive(Serialize)]
struct Typed<'a, T> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    object: &'a T,
}
