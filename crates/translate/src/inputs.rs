//! The input tables, and the fields of each object that they store.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_api::{
    BackendTLSPolicy, ExtensionService, GRPCRoute, Gateway, GatewayClass, HTTPProxy, HTTPRoute,
    Ingress, IngressClass, Kind, ListenerSet, NamespacedName, Object, ObjectKey, ReferenceGrant,
    Release, SesameConfiguration, TCPRoute, TLSCertificateDelegation, TLSRoute, UDPRoute, XBackend,
    XBackendTrafficPolicy, XListenerSet, XTelemetryPolicy,
};
use sesame_engine::{Batch, Builder, Engine, Index, Reader, Table};
use sesame_model::{FleetId, FleetState, ListenerSettings, UpgradeProgress, VirtualHostKey};

use crate::configuration::KEY;
use crate::configuration::references::ConfigData;
use crate::fleet::Rejected;
use crate::gateway_api::assigned_ports;
use crate::settings::Settings;
use crate::shared::authorities::AUTHORITIES;
use crate::shared::certificates::SecretData;
use crate::shared::delegation::{self, Delegations};
use crate::shared::namespaces::Labels;
use crate::shared::services::{self, Service, Slice};

/// The input tables.
#[derive(Clone, Copy)]
pub struct Inputs {
    pub(crate) gateway_classes: Table<ObjectKey, GatewayClass>,
    pub(crate) gateways: Table<ObjectKey, Gateway>,
    /// ListenerSets and XListenerSets.
    pub(crate) listener_sets: Table<ObjectKey, ListenerSet>,
    pub(crate) http_routes: Table<ObjectKey, HTTPRoute>,
    pub(crate) grpc_routes: Table<ObjectKey, GRPCRoute>,
    pub(crate) tls_routes: Table<ObjectKey, TLSRoute>,
    pub(crate) tcp_routes: Table<ObjectKey, TCPRoute>,
    pub(crate) udp_routes: Table<ObjectKey, UDPRoute>,
    pub(crate) backend_tls_policies: Table<ObjectKey, BackendTLSPolicy>,
    pub(crate) xbackends: Table<ObjectKey, XBackend>,
    pub(crate) backend_traffic_policies: Table<ObjectKey, XBackendTrafficPolicy>,
    pub(crate) telemetry_policies: Table<ObjectKey, XTelemetryPolicy>,
    pub(crate) http_proxies: Table<ObjectKey, HTTPProxy>,
    pub(crate) tls_certificate_delegations: Table<ObjectKey, TLSCertificateDelegation>,
    pub(crate) extension_services: Table<ObjectKey, ExtensionService>,
    pub(crate) configurations: Table<ObjectKey, SesameConfiguration>,
    pub(crate) ingresses: Table<ObjectKey, Ingress>,
    pub(crate) ingress_classes: Table<Arc<str>, IngressClass>,
    pub(crate) reference_grants: Table<NamespacedName, ReferenceGrant>,
    pub(crate) services: Table<NamespacedName, Service>,
    pub(crate) slices: Table<NamespacedName, Slice>,
    pub(crate) secrets: Table<NamespacedName, SecretData>,
    pub(crate) config_maps: Table<NamespacedName, ConfigData>,
    pub(crate) namespaces: Table<Arc<str>, Labels>,
    pub(crate) fleets: Table<FleetId, FleetState>,
    pub(crate) upgrades: Table<(), UpgradeProgress>,
    pub(crate) rejections: Table<Rejected, String>,
    /// Hosts that Envoys rejected, with Envoy's message.
    pub(crate) rejected_hosts: Table<VirtualHostKey, String>,
    /// Why the Services of XBackends can't be written.
    pub(crate) pod_service_failures: Table<ObjectKey, String>,
    /// The last valid settings of fleets' listeners.
    pub(crate) valid_listener_settings: Table<FleetId, ListenerSettings>,
    pub(crate) cluster_trust_bundles: Table<Arc<str>, Arc<str>>,
    pub(crate) release: Table<(), Release>,
    /// The date, in days since 1970.
    pub(crate) today: Table<(), i64>,
    /// The kinds that the API server doesn't serve.
    pub(crate) absent: Table<(), BTreeSet<Kind>>,
    pub(crate) settings: Table<(), Settings>,
    pub(crate) grants_by_namespace: Index<NamespacedName, ReferenceGrant, Arc<str>>,
    pub(crate) slices_by_service: Index<NamespacedName, Slice, NamespacedName>,
    pub(crate) delegations_by_namespace: Delegations,
    pub(crate) rejected_routes_by_table: Index<Rejected, String, (FleetId, Arc<str>)>,
}

impl Inputs {
    pub(crate) fn declare(b: &mut Builder) -> Self {
        let reference_grants = b.input("reference_grants");
        let tls_certificate_delegations = b.input("tls_certificate_delegations");
        let slices = b.input("endpoint_slices");
        let rejections = b.input("rejections");
        Self {
            gateway_classes: b.input("gateway_classes"),
            gateways: b.input("gateways"),
            listener_sets: b.input("listener_sets"),
            http_routes: b.input("http_routes"),
            grpc_routes: b.input("grpc_routes"),
            tls_routes: b.input("tls_routes"),
            tcp_routes: b.input("tcp_routes"),
            udp_routes: b.input("udp_routes"),
            backend_tls_policies: b.input("backend_tls_policies"),
            xbackends: b.input("xbackends"),
            backend_traffic_policies: b.input("backend_traffic_policies"),
            telemetry_policies: b.input("telemetry_policies"),
            http_proxies: b.input("http_proxies"),
            tls_certificate_delegations,
            extension_services: b.input("extension_services"),
            configurations: b.input("configurations"),
            ingresses: b.input("ingresses"),
            ingress_classes: b.input("ingress_classes"),
            reference_grants,
            services: b.input("services"),
            slices,
            secrets: b.input("secrets"),
            config_maps: b.input("config_maps"),
            cluster_trust_bundles: b.input("cluster_trust_bundles"),
            release: b.input("release"),
            today: b.input("today"),
            absent: b.input("absent kinds"),
            settings: b.input("settings"),
            namespaces: b.input("namespaces"),
            fleets: b.input("fleets"),
            upgrades: b.input("upgrades of fleets"),
            rejections,
            rejected_hosts: b.input("rejected hosts by envoy"),
            pod_service_failures: b.input("pod service failures"),
            valid_listener_settings: b.input("valid listener settings"),
            grants_by_namespace: b.index(
                reference_grants,
                "reference_grants by namespace",
                |name: &NamespacedName, _| vec![Arc::clone(&name.namespace)],
            ),
            slices_by_service: b.index(slices, "endpoint_slices by service", |_, slice| {
                services::owner(slice)
            }),
            delegations_by_namespace: delegation::by_namespace(b, tls_certificate_delegations),
            rejected_routes_by_table: b.index(
                rejections,
                "rejected routes by table",
                |rejected: &Rejected, _| {
                    let table = rejected.table();
                    let table = table.map(|table| (rejected.fleet.clone(), table.into()));
                    table.into_iter().collect()
                },
            ),
        }
    }

    /// Sets the state of a fleet; `None` if it doesn't exist.
    pub fn set_fleet(&self, batch: &mut Batch, fleet: FleetId, state: Option<FleetState>) {
        match state {
            Some(state) => batch.upsert(self.fleets, fleet, state),
            None => batch.remove(self.fleets, fleet),
        }
    }

    /// Sets the progress in upgrading fleets; `None` if it is unknown.
    pub fn set_upgrades(&self, batch: &mut Batch, progress: Option<UpgradeProgress>) {
        match progress {
            Some(progress) => batch.upsert(self.upgrades, (), progress),
            None => batch.remove(self.upgrades, ()),
        }
    }

    /// Sets the settings. Until they are set, nothing is translated.
    pub fn set_settings(&self, batch: &mut Batch, settings: Settings) {
        batch.upsert(self.settings, (), settings);
    }

    /// Sets the cluster's Gateway API release; `None` without a cluster, or if it is unknown.
    pub fn set_release(&self, batch: &mut Batch, release: Option<Release>) {
        match release {
            Some(release) => batch.upsert(self.release, (), release),
            None => batch.remove(self.release, ()),
        }
    }

    /// Sets the kinds that the API server doesn't serve; none by default.
    pub fn set_absent(&self, batch: &mut Batch, kinds: BTreeSet<Kind>) {
        batch.upsert(self.absent, (), kinds);
    }

    /// Whether the API server doesn't serve a kind.
    pub(crate) fn is_absent(&self, reader: &mut Reader<'_>, kind: Kind) -> bool {
        let absent = reader.get(self.absent, &());
        absent.is_some_and(|kinds| kinds.contains(&kind))
    }

    /// Sets why the Service of an XBackend can't be written; `None` once it can.
    pub fn set_pod_service_failure(
        &self,
        batch: &mut Batch,
        xbackend: ObjectKey,
        message: Option<String>,
    ) {
        match message {
            Some(message) => batch.upsert(self.pod_service_failures, xbackend, message),
            None => batch.remove(self.pod_service_failures, xbackend),
        }
    }

    /// Sets the last valid settings of a fleet's listeners, which apply while its configuration is invalid; `None` once
    /// there is no fleet. They are rows of [`Outputs::listener_settings`](crate::pipeline::Outputs::listener_settings).
    pub fn set_valid_listener_settings(
        &self,
        batch: &mut Batch,
        fleet: FleetId,
        settings: Option<Arc<ListenerSettings>>,
    ) {
        match settings {
            Some(settings) => batch.upsert_arc(self.valid_listener_settings, fleet, settings),
            None => batch.remove(self.valid_listener_settings, fleet),
        }
    }

    /// Sets the date, in days since 1970.
    pub fn set_today(&self, batch: &mut Batch, today: i64) {
        batch.upsert(self.today, (), today);
    }

    /// Sets Envoy's message about a host that it rejected; `None` once the host has changed.
    pub fn set_rejected_host(
        &self,
        batch: &mut Batch,
        host: VirtualHostKey,
        message: Option<String>,
    ) {
        match message {
            Some(message) => batch.upsert(self.rejected_hosts, host, message),
            None => batch.remove(self.rejected_hosts, host),
        }
    }

    /// Sets an Envoy's NACK of a resource; `None` once the resource is accepted.
    pub fn set_rejection(&self, batch: &mut Batch, rejected: Rejected, message: Option<String>) {
        match message {
            Some(message) => batch.upsert(self.rejections, rejected, message),
            None => batch.remove(self.rejections, rejected),
        }
    }
}

/// An object with an input table.
trait InputObject {
    type Row;

    /// The row to store, if any.
    fn row(self) -> Option<Self::Row>;

    /// The UID assigned by the API server, if the row stores it.
    fn uid(_row: &Self::Row) -> Option<&str> {
        None
    }
}

/// A key of an input table.
trait InputKey {
    fn of(key: &ObjectKey) -> Self;
}

impl InputKey for ObjectKey {
    fn of(key: &ObjectKey) -> Self {
        key.clone()
    }
}

impl InputKey for NamespacedName {
    fn of(key: &ObjectKey) -> Self {
        key.namespaced_name()
    }
}

/// Cluster-scoped objects.
impl InputKey for Arc<str> {
    fn of(key: &ObjectKey) -> Self {
        key.name.clone()
    }
}

/// The tables of all kinds.
macro_rules! input_tables {
    ($($kind:ident => $table:ident,)+) => {
        impl Inputs {
            /// Adds or replaces an object.
            pub fn upsert(&self, batch: &mut Batch, object: Object) {
                let key = object.key();
                match object {
                    $(Object::$kind(object) => match object.row() {
                        Some(row) => batch.upsert(self.$table, InputKey::of(&key), row),
                        None => batch.remove(self.$table, InputKey::of(&key)),
                    },)+
                }
            }

            /// Removes an object.
            pub fn remove(&self, batch: &mut Batch, key: &ObjectKey) {
                match key.kind {
                    $(Kind::$kind => batch.remove(self.$table, InputKey::of(key)),)+
                }
            }

            /// The UID that the API server assigned to an object with a status, if the object exists; empty outside a
            /// cluster.
            pub fn uid(&self, engine: &Engine, key: &ObjectKey) -> Option<String> {
                match key.kind {
                    $(Kind::$kind => {
                        let row = engine.get(self.$table, &InputKey::of(key))?;
                        sesame_api::$kind::uid(&row).map(str::to_owned)
                    })+
                }
            }
        }
    };
}

input_tables! {
    GatewayClass => gateway_classes,
    Gateway => gateways,
    ListenerSet => listener_sets,
    XListenerSet => listener_sets,
    HTTPRoute => http_routes,
    GRPCRoute => grpc_routes,
    TLSRoute => tls_routes,
    TCPRoute => tcp_routes,
    UDPRoute => udp_routes,
    BackendTLSPolicy => backend_tls_policies,
    XBackend => xbackends,
    XBackendTrafficPolicy => backend_traffic_policies,
    XTelemetryPolicy => telemetry_policies,
    HTTPProxy => http_proxies,
    TLSCertificateDelegation => tls_certificate_delegations,
    ExtensionService => extension_services,
    SesameConfiguration => configurations,
    ContourHTTPProxy => http_proxies,
    ContourTLSCertificateDelegation => tls_certificate_delegations,
    ContourExtensionService => extension_services,
    Ingress => ingresses,
    IngressClass => ingress_classes,
    ReferenceGrant => reference_grants,
    Namespace => namespaces,
    Service => services,
    EndpointSlice => slices,
    Secret => secrets,
    ConfigMap => config_maps,
    ClusterTrustBundle => cluster_trust_bundles,
}

/// Objects stored whole, except for unused fields.
macro_rules! whole_objects {
    ($($kind:ident $(without $status:ident)?,)+) => {$(
        impl InputObject for $kind {
            type Row = Self;

            fn row(mut self) -> Option<Self> {
                $(self.$status = Default::default();)?
                self.meta.resource_version.clear();
                Some(self)
            }

            fn uid(row: &Self) -> Option<&str> {
                Some(&row.meta.uid)
            }
        }
    )+};
}

whole_objects! {
    GatewayClass without status,
    Gateway without status,
    ListenerSet without status,
    HTTPRoute without status,
    GRPCRoute without status,
    TLSRoute without status,
    TCPRoute without status,
    UDPRoute without status,
    BackendTLSPolicy without status,
    XBackend without status,
    XBackendTrafficPolicy without status,
    XTelemetryPolicy without status,
    HTTPProxy without status,
    TLSCertificateDelegation without status,
    ExtensionService without status,
    SesameConfiguration without status,
    Ingress without status,
    IngressClass,
    ReferenceGrant,
}

/// A ListenerSet that keeps the ports in its status.
impl InputObject for XListenerSet {
    type Row = ListenerSet;

    fn row(self) -> Option<ListenerSet> {
        let recorded = assigned_ports::recorded(&self.0);
        let mut row = self.0.row()?;
        row.status.listeners = recorded;
        Some(row)
    }

    fn uid(row: &ListenerSet) -> Option<&str> {
        ListenerSet::uid(row)
    }
}

/// The CA certificates.
impl InputObject for sesame_api::ClusterTrustBundle {
    type Row = Arc<str>;

    fn row(self) -> Option<Arc<str>> {
        Some(self.spec.trust_bundle.into())
    }
}

impl InputObject for sesame_api::Namespace {
    type Row = Labels;

    fn row(self) -> Option<Labels> {
        Some(self.metadata.labels.unwrap_or_default())
    }
}

impl InputObject for sesame_api::Service {
    type Row = Service;

    fn row(self) -> Option<Service> {
        Some(Service::read(&self))
    }
}

impl InputObject for sesame_api::EndpointSlice {
    type Row = Slice;

    fn row(self) -> Option<Slice> {
        Slice::read(&self)
    }
}

impl InputObject for sesame_api::Secret {
    type Row = SecretData;

    /// Stores all entries: an HTTPProxy may refer to any of them as a JWKS.
    fn row(self) -> Option<SecretData> {
        let data = self.data.unwrap_or_default().into_iter();
        let data = data
            .map(|(name, bytes)| (name, Arc::from(bytes.0)))
            .collect();
        Some(SecretData {
            type_: self.type_.unwrap_or_default().into(),
            data,
        })
    }
}

impl InputObject for sesame_api::ConfigMap {
    type Row = ConfigData;

    /// Stores only the entries with a configuration and CA certificates.
    fn row(self) -> Option<ConfigData> {
        let mut data = self.data.unwrap_or_default();
        Some(ConfigData {
            configuration: data.remove(KEY).map(Into::into),
            authorities: data.remove(AUTHORITIES).map(Into::into),
        })
    }
}
