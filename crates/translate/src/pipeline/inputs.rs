//! Where objects go in: the tables that are filled from outside, and what is kept of each object.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_api::{
    Gateway, GatewayClass, HTTPRoute, Kind, NamespacedName, Object, ObjectKey, ReferenceGrant,
};
use sesame_engine::{Batch, Builder, Engine, Index, Table};
use sesame_model::{CertificateKey, ClusterKey, FleetId};

use crate::fleet::{FleetState, Rejected, RejectedKind};
use crate::gateway_api::gateway;
use crate::gateway_api::http_route::backends::referenced;
use crate::gateway_api::parameters::ConfigData;
use crate::shared::certificates::{CHAIN, PRIVATE_KEY, SecretData};
use crate::shared::namespaces::Labels;
use crate::shared::parameters::KEY;
use crate::shared::services::{self, Service, Slice};

/// Tables that are filled from outside.
#[derive(Clone, Copy)]
pub struct Inputs {
    pub(crate) gateway_classes: Table<Arc<str>, GatewayClass>,
    pub(crate) gateways: Table<NamespacedName, Gateway>,
    pub(crate) http_routes: Table<NamespacedName, HTTPRoute>,
    pub(crate) reference_grants: Table<NamespacedName, ReferenceGrant>,
    pub(crate) services: Table<NamespacedName, Service>,
    pub(crate) slices: Table<NamespacedName, Slice>,
    pub(crate) secrets: Table<NamespacedName, SecretData>,
    pub(crate) config_maps: Table<NamespacedName, ConfigData>,
    pub(crate) namespaces: Table<Arc<str>, Labels>,
    pub(crate) fleets: Table<FleetId, FleetState>,
    pub(crate) rejections: Table<Rejected, String>,
    pub(crate) api_version: Table<(), String>,
    pub(crate) grants_by_namespace: Index<NamespacedName, ReferenceGrant, Arc<str>>,
    pub(crate) slices_by_service: Index<NamespacedName, Slice, NamespacedName>,
    pub(crate) routes_by_backend: Index<NamespacedName, HTTPRoute, ClusterKey>,
    pub(crate) gateways_by_secret: Index<NamespacedName, Gateway, CertificateKey>,
    pub(crate) rejected_backends_by_fleet: Index<Rejected, String, FleetId>,
    pub(crate) rejected_routes_by_table: Index<Rejected, String, (FleetId, Arc<str>)>,
}

impl Inputs {
    pub(super) fn declare(b: &mut Builder) -> Self {
        let reference_grants = b.input("reference_grants");
        let slices = b.input("endpoint_slices");
        let http_routes = b.input("http_routes");
        let gateways = b.input("gateways");
        let rejections = b.input("rejections");
        Self {
            gateway_classes: b.input("gateway_classes"),
            gateways,
            http_routes,
            reference_grants,
            services: b.input("services"),
            slices,
            secrets: b.input("secrets"),
            config_maps: b.input("config_maps"),
            api_version: b.input("api_version"),
            namespaces: b.input("namespaces"),
            fleets: b.input("fleets"),
            rejections,
            grants_by_namespace: b.index(
                reference_grants,
                "reference_grants by namespace",
                |name: &NamespacedName, _| vec![Arc::clone(&name.namespace)],
            ),
            slices_by_service: b.index(slices, "endpoint_slices by service", |_, slice| {
                services::owner(slice)
            }),
            routes_by_backend: b.index(http_routes, "http_routes by backend", |_, route| {
                referenced(route)
            }),
            rejected_backends_by_fleet: b.index(
                rejections,
                "rejected backends by fleet",
                |rejected: &Rejected, _| match rejected.what {
                    RejectedKind::Cluster | RejectedKind::Endpoints => vec![rejected.fleet.clone()],
                    RejectedKind::Listener | RejectedKind::Routes | RejectedKind::Secret => {
                        Vec::new()
                    }
                },
            ),
            rejected_routes_by_table: b.index(
                rejections,
                "rejected routes by table",
                |rejected: &Rejected, _| {
                    let table = rejected.table();
                    let table = table.map(|table| (rejected.fleet.clone(), table.into()));
                    table.into_iter().collect()
                },
            ),
            gateways_by_secret: b.index(gateways, "gateways by secret", |_, gateway| {
                gateway::referenced_secrets(gateway)
            }),
        }
    }

    /// The API server's id of an object that gets a status, if it is there; empty outside a cluster.
    pub fn uid(&self, engine: &Engine, key: &ObjectKey) -> Option<String> {
        let name = key.namespaced_name();
        match key.kind {
            Kind::GatewayClass => {
                let class = engine.get(self.gateway_classes, &key.name)?;
                Some(class.meta.uid.clone())
            }
            Kind::Gateway => Some(engine.get(self.gateways, &name)?.meta.uid.clone()),
            Kind::HTTPRoute => Some(engine.get(self.http_routes, &name)?.meta.uid.clone()),
            _ => None,
        }
    }

    /// Whether objects of a kind matter: others are left out.
    pub fn takes(kind: Kind) -> bool {
        match kind {
            Kind::GatewayClass
            | Kind::Gateway
            | Kind::HTTPRoute
            | Kind::ReferenceGrant
            | Kind::Namespace
            | Kind::Service
            | Kind::EndpointSlice
            | Kind::Secret
            | Kind::ConfigMap => true,
            Kind::ListenerSet
            | Kind::GRPCRoute
            | Kind::TLSRoute
            | Kind::TCPRoute
            | Kind::UDPRoute
            | Kind::BackendTLSPolicy => false,
        }
    }

    /// Puts an object in, or in the place of the one before. Kinds that nothing reads are left out: see
    /// [`takes`](Self::takes).
    pub fn upsert(&self, batch: &mut Batch, object: Object) {
        let name = object.key().namespaced_name();
        match object {
            Object::GatewayClass(mut class) => {
                class.status = Default::default();
                class.meta.resource_version.clear();
                batch.upsert(self.gateway_classes, name.name, *class);
            }
            Object::Gateway(mut gateway) => {
                gateway.status = Default::default();
                gateway.meta.resource_version.clear();
                batch.upsert(self.gateways, name, *gateway);
            }
            Object::HTTPRoute(mut route) => {
                route.status = Default::default();
                route.meta.resource_version.clear();
                batch.upsert(self.http_routes, name, *route);
            }
            Object::ReferenceGrant(mut grant) => {
                grant.meta.resource_version.clear();
                batch.upsert(self.reference_grants, name, *grant);
            }
            Object::Namespace(namespace) => {
                batch.upsert(
                    self.namespaces,
                    name.name,
                    namespace.metadata.labels.unwrap_or_default(),
                );
            }
            Object::Service(service) => batch.upsert(self.services, name, Service::read(&service)),
            Object::EndpointSlice(slice) => match Slice::read(&slice) {
                Some(slice) => batch.upsert(self.slices, name, slice),
                None => batch.remove(self.slices, name),
            },
            Object::Secret(secret) => batch.upsert(self.secrets, name, secret_data(*secret)),
            Object::ConfigMap(map) => batch.upsert(self.config_maps, name, config_data(*map)),
            Object::ListenerSet(_)
            | Object::GRPCRoute(_)
            | Object::TLSRoute(_)
            | Object::TCPRoute(_)
            | Object::UDPRoute(_)
            | Object::BackendTLSPolicy(_) => {}
        }
    }

    /// Takes an object out.
    pub fn remove(&self, batch: &mut Batch, key: &ObjectKey) {
        let name = key.namespaced_name();
        match key.kind {
            Kind::GatewayClass => batch.remove(self.gateway_classes, name.name),
            Kind::Gateway => batch.remove(self.gateways, name),
            Kind::HTTPRoute => batch.remove(self.http_routes, name),
            Kind::ReferenceGrant => batch.remove(self.reference_grants, name),
            Kind::Namespace => batch.remove(self.namespaces, name.name),
            Kind::Service => batch.remove(self.services, name),
            Kind::EndpointSlice => batch.remove(self.slices, name),
            Kind::Secret => batch.remove(self.secrets, name),
            Kind::ConfigMap => batch.remove(self.config_maps, name),
            Kind::ListenerSet
            | Kind::GRPCRoute
            | Kind::TLSRoute
            | Kind::TCPRoute
            | Kind::UDPRoute
            | Kind::BackendTLSPolicy => {}
        }
    }

    /// Says how a fleet is; `None`: it is gone.
    pub fn set_fleet(&self, batch: &mut Batch, fleet: FleetId, state: Option<FleetState>) {
        match state {
            Some(state) => batch.upsert(self.fleets, fleet, state),
            None => batch.remove(self.fleets, fleet),
        }
    }

    /// Says which version of the Gateway API the cluster has, as the annotation `gateway.networking.k8s.io/bundle-version` of
    /// its CRDs says it; `None`: there is no cluster, or no annotation.
    pub fn set_api_version(&self, batch: &mut Batch, version: Option<String>) {
        match version {
            Some(version) => batch.upsert(self.api_version, (), version),
            None => batch.remove(self.api_version, ()),
        }
    }

    /// Says what an Envoy answered to a resource; `None`: it is content.
    pub fn set_rejection(&self, batch: &mut Batch, rejected: Rejected, message: Option<String>) {
        match message {
            Some(message) => batch.upsert(self.rejections, rejected, message),
            None => batch.remove(self.rejections, rejected),
        }
    }
}

fn config_data(map: sesame_api::ConfigMap) -> ConfigData {
    let mut data = map.data.unwrap_or_default();
    ConfigData {
        parameters: data.remove(KEY).map(Into::into),
    }
}

fn secret_data(secret: sesame_api::Secret) -> SecretData {
    let mut data: BTreeMap<String, Arc<[u8]>> = BTreeMap::new();
    for (name, bytes) in secret.data.unwrap_or_default() {
        if name == CHAIN || name == PRIVATE_KEY {
            data.insert(name, bytes.0.into());
        }
    }
    SecretData {
        type_: secret.type_.unwrap_or_default().into(),
        data,
    }
}
