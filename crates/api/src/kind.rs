//! The table of kinds: one row for each kind that Sesame can decode.
//!
//! A row holds everything kind-specific except the kind's meaning: its API versions and plural, the fields to keep, the
//! part of the status that Sesame owns, and whether Sesame serves it. A new kind needs a row, a type that implements
//! [`Resource`](crate::object::Resource), and a folder in `translate`.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::backend_tls_policy::BackendTLSPolicy;
use crate::backend_traffic_policy::XBackendTrafficPolicy;
use crate::condition;
use crate::configuration::SesameConfiguration;
use crate::contour::{ContourExtensionService, ContourHTTPProxy, ContourTLSCertificateDelegation};
use crate::decode::DecodeError;
use crate::extension_service::ExtensionService;
use crate::fields::{self, KeptFields};
use crate::gateway::Gateway;
use crate::gateway_class::GatewayClass;
use crate::grpc_route::GRPCRoute;
use crate::http_proxy::HTTPProxy;
use crate::http_route::HTTPRoute;
use crate::ingress::{Ingress, IngressClass};
use crate::kind_name::{Group, KindName};
use crate::l4_route::{TCPRoute, TLSRoute, UDPRoute};
use crate::listener_set::{ListenerSet, XListenerSet};
use crate::object::Resource;
use crate::reference_grant::ReferenceGrant;
use crate::status::{StatusEntries, StatusOwner};
use crate::telemetry_policy::XTelemetryPolicy;
use crate::tls_certificate_delegation::TLSCertificateDelegation;
use crate::xbackend::XBackend;
use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// The API group of the Gateway API.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// A row of the table of kinds.
#[derive(Debug)]
pub struct KindInfo {
    /// The kind's name, as in the `kind` field.
    pub name: &'static str,
    /// The `apiVersion` that Sesame writes.
    pub api_version: &'static str,
    /// The API versions that Sesame reads, starting with the one it writes. Older ones differ only in list bounds.
    pub versions: &'static [&'static str],
    /// The kind's name in URLs of an API server and in RBAC rules.
    pub plural: &'static str,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// Which API servers serve the kind.
    pub serving: Serving,
    /// The fields to keep from an API server's objects.
    pub kept: &'static KeptFields,
    /// The part of the status that Sesame writes, if any.
    pub status: Option<StatusOwner>,
}

/// Which API servers serve a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// All.
    Always,
    /// Those with its CRD installed.
    WithCrd,
    /// Those of recent Kubernetes releases.
    Recent,
}

/// Generates [`Kind`], [`Object`] and the table from the rows. A name in parentheses is the kind's name, if it differs from the
/// type's. Missing fields default to `KindInfo::GATEWAY_API`.
macro_rules! kinds {
    ($($kind:ident $(($name:literal))? { $($field:ident: $value:expr,)* })+) => {
        /// A kind that Sesame can decode. Listings use this order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "each variant is the Kubernetes kind of that name")]
        pub enum Kind { $($kind),+ }

        impl Kind {
            /// Every kind, in order.
            pub const ALL: [Kind; [$(Kind::$kind),+].len()] = [$(Kind::$kind),+];
        }

        static TABLE: [KindInfo; Kind::ALL.len()] = [$(KindInfo {
            name: [$($name,)? stringify!($kind)][0],
            $($field: $value,)*
            ..KindInfo::GATEWAY_API
        }),+];

        /// An object of any kind in the table, created by [`Object::decode`] or [`Object::decode_admitted`].
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant holds the kind of that name")]
        pub enum Object { $($kind(Box<$kind>)),+ }

        impl Object {
            /// The kind.
            pub fn kind(&self) -> Kind {
                match self { $(Object::$kind(_) => Kind::$kind),+ }
            }

            pub(crate) fn resource(&self) -> &dyn Resource {
                match self { $(Object::$kind(object) => &**object),+ }
            }

            pub(crate) fn resource_mut(&mut self) -> &mut dyn Resource {
                match self { $(Object::$kind(object) => &mut **object),+ }
            }

            pub(crate) fn of_kind(kind: Kind, value: Value) -> Result<Object, DecodeError> {
                match kind { $(Kind::$kind => $kind::from_value(value).map(Object::$kind)),+ }
            }
        }

        /// The object as in a file, with `apiVersion` and `kind`.
        impl Serialize for Object {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $(Object::$kind(object) => object.write(Kind::$kind, serializer)),+ }
            }
        }
    };
}

impl KindInfo {
    /// Defaults, which fit most Gateway API kinds.
    const GATEWAY_API: KindInfo = KindInfo {
        name: "",
        api_version: "gateway.networking.k8s.io/v1",
        versions: &["v1"],
        plural: "",
        namespaced: true,
        serving: Serving::WithCrd,
        kept: &fields::WHOLE,
        status: None,
    };
}

/// Routes: one entry per parent.
const ROUTE: Option<StatusOwner> = Some(StatusOwner::Entries(StatusEntries {
    list: "parents",
    reference: "parentRef",
    limit: 32,
    conditions: &condition::route::ALL,
}));

/// Policies and backends: one entry per ancestor.
const fn by_ancestor(limit: usize) -> Option<StatusOwner> {
    Some(StatusOwner::Entries(StatusEntries {
        list: "ancestors",
        reference: "ancestorRef",
        limit,
        conditions: &condition::policy::ALL,
    }))
}

/// Sesame's own kinds.
const OWN: Option<StatusOwner> = Some(StatusOwner::Whole {
    conditions: &condition::own::ALL,
});

/// The `apiVersion` of the experimental kinds.
const EXPERIMENTAL: &str = "gateway.networking.x-k8s.io/v1alpha1";

kinds! {
    GatewayClass {
        versions: &["v1", "v1beta1"],
        plural: "gatewayclasses",
        namespaced: false,
        status: Some(StatusOwner::Whole { conditions: &condition::gateway_class::ALL }),
    }
    Gateway {
        versions: &["v1", "v1beta1"],
        plural: "gateways",
        status: Some(StatusOwner::Whole { conditions: &condition::gateway::ALL }),
    }
    ListenerSet {
        plural: "listenersets",
        status: Some(StatusOwner::Whole { conditions: &condition::listener_set::ALL }),
    }
    XListenerSet {
        api_version: EXPERIMENTAL,
        versions: &["v1alpha1"],
        plural: "xlistenersets",
        kept: &fields::WITH_PORTS,
        status: Some(StatusOwner::Whole { conditions: &condition::listener_set::ALL }),
    }
    HTTPRoute {
        versions: &["v1", "v1beta1"],
        plural: "httproutes",
        status: ROUTE,
    }
    GRPCRoute {
        plural: "grpcroutes",
        status: ROUTE,
    }
    TLSRoute {
        versions: &["v1", "v1alpha3", "v1alpha2"],
        plural: "tlsroutes",
        status: ROUTE,
    }
    TCPRoute {
        versions: &["v1", "v1alpha2"],
        plural: "tcproutes",
        status: ROUTE,
    }
    UDPRoute {
        versions: &["v1", "v1alpha2"],
        plural: "udproutes",
        status: ROUTE,
    }
    ReferenceGrant {
        versions: &["v1", "v1beta1"],
        plural: "referencegrants",
    }
    BackendTLSPolicy {
        versions: &["v1", "v1alpha3"],
        plural: "backendtlspolicies",
        status: by_ancestor(16),
    }
    XBackend {
        api_version: EXPERIMENTAL,
        versions: &["v1alpha1"],
        plural: "xbackends",
        status: by_ancestor(32),
    }
    XBackendTrafficPolicy {
        api_version: EXPERIMENTAL,
        versions: &["v1alpha1"],
        plural: "xbackendtrafficpolicies",
        status: by_ancestor(16),
    }
    XTelemetryPolicy {
        api_version: EXPERIMENTAL,
        versions: &["v1alpha1"],
        plural: "xtelemetrypolicies",
        status: by_ancestor(16),
    }
    HTTPProxy {
        api_version: "projectsesame.io/v1",
        plural: "httpproxies",
        status: OWN,
    }
    TLSCertificateDelegation {
        api_version: "projectsesame.io/v1",
        plural: "tlscertificatedelegations",
        status: OWN,
    }
    ExtensionService {
        api_version: "projectsesame.io/v1alpha1",
        versions: &["v1alpha1"],
        plural: "extensionservices",
        status: OWN,
    }
    SesameConfiguration {
        api_version: "projectsesame.io/v1alpha1",
        versions: &["v1alpha1"],
        plural: "sesameconfigurations",
        status: Some(StatusOwner::Whole { conditions: &condition::configuration::ALL }),
    }
    ContourHTTPProxy ("HTTPProxy") {
        api_version: "projectcontour.io/v1",
        plural: "httpproxies",
        status: OWN,
    }
    ContourTLSCertificateDelegation ("TLSCertificateDelegation") {
        api_version: "projectcontour.io/v1",
        plural: "tlscertificatedelegations",
        status: OWN,
    }
    ContourExtensionService ("ExtensionService") {
        api_version: "projectcontour.io/v1alpha1",
        versions: &["v1alpha1"],
        plural: "extensionservices",
        status: OWN,
    }
    Ingress {
        api_version: "networking.k8s.io/v1",
        plural: "ingresses",
        serving: Serving::Always,
        status: Some(StatusOwner::Whole { conditions: &[] }),
    }
    IngressClass {
        api_version: "networking.k8s.io/v1",
        plural: "ingressclasses",
        namespaced: false,
        serving: Serving::Always,
    }
    Namespace {
        api_version: "v1",
        plural: "namespaces",
        namespaced: false,
        serving: Serving::Always,
        kept: &fields::LABELS,
    }
    Service {
        api_version: "v1",
        plural: "services",
        serving: Serving::Always,
        kept: &fields::SERVICE,
    }
    EndpointSlice {
        api_version: "discovery.k8s.io/v1",
        plural: "endpointslices",
        serving: Serving::Always,
        kept: &fields::ENDPOINT_SLICE,
    }
    Secret {
        api_version: "v1",
        plural: "secrets",
        serving: Serving::Always,
        kept: &fields::CONTENT,
    }
    ConfigMap {
        api_version: "v1",
        plural: "configmaps",
        serving: Serving::Always,
        kept: &fields::CONTENT,
    }
    ClusterTrustBundle {
        api_version: "certificates.k8s.io/v1",
        versions: &["v1", "v1beta1"],
        plural: "clustertrustbundles",
        namespaced: false,
        serving: Serving::Recent,
        kept: &fields::CONTENT,
    }
}

impl Kind {
    /// The kind's row in the table.
    pub fn info(self) -> &'static KindInfo {
        &TABLE[self as usize]
    }

    /// The kind's name, as in the `kind` field.
    pub fn as_str(self) -> &'static str {
        self.info().name
    }

    /// The API group; empty for the core group.
    pub fn group(self) -> &'static str {
        let group = self.api_version().split_once('/');
        group.map_or("", |(group, _)| group)
    }

    /// The API versions that Sesame reads, starting with the one it writes.
    pub fn versions(self) -> &'static [&'static str] {
        self.info().versions
    }

    /// The `apiVersion` that Sesame writes.
    pub fn api_version(self) -> &'static str {
        self.info().api_version
    }

    /// The kind's name in URLs of an API server and in RBAC rules.
    pub fn plural(self) -> &'static str {
        self.info().plural
    }

    /// Whether Sesame writes at least part of the status.
    pub fn has_status(self) -> bool {
        self.info().status.is_some()
    }

    /// Whether objects are namespaced.
    pub fn namespaced(self) -> bool {
        self.info().namespaced
    }

    /// Whether this is a Gateway API route kind, whose status has an entry for each parent.
    pub fn is_route(self) -> bool {
        matches!(
            self.info().status,
            Some(StatusOwner::Entries(StatusEntries {
                list: "parents",
                ..
            }))
        )
    }

    /// Whether this is ListenerSet or its early kind.
    pub fn is_listener_set(self) -> bool {
        matches!(self, Kind::ListenerSet | Kind::XListenerSet)
    }

    /// Whether objects have listeners: Gateways and ListenerSets.
    pub fn has_listeners(self) -> bool {
        self == Kind::Gateway || self.is_listener_set()
    }

    /// The kind with this `apiVersion` and `kind`, if it is in the table.
    pub fn from_api(api_version: &str, kind: &str) -> Option<Kind> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut named = Kind::ALL.into_iter().filter(|of| of.as_str() == kind);
        let kind = named.find(|kind| kind.group() == group)?;
        kind.versions().contains(&version).then_some(kind)
    }

    /// The kind with this group and name, if it is in the table.
    pub fn from_group_kind(group: &Group, kind: &KindName) -> Option<Kind> {
        match kind {
            KindName::Known(kind) if group == kind.group() => Some(*kind),
            _ => None,
        }
    }

    /// The kind with this name; names are unique in the table, except for Contour's kinds, which come after Sesame's.
    pub(crate) fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// The kind's name; for Contour's kinds, with the group, as in kubectl.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        match self.is_of_contour() {
            true => write!(f, ".{}", self.group()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_their_own_names() {
        for kind in Kind::ALL {
            assert_eq!(
                Kind::from_api(kind.api_version(), kind.as_str()),
                Some(kind)
            );
            assert!(kind.api_version().ends_with(kind.versions()[0]));
            let group = Group::from(kind.group());
            // References name Sesame's own kinds.
            let named = (!kind.is_of_contour()).then_some(kind);
            assert_eq!(matches!(group, Group::Other(_)), named.is_none(), "{kind}");
            assert_eq!(
                Kind::from_group_kind(&group, &KindName::from(kind.as_str())),
                named
            );
            assert_eq!(Kind::from_group_kind(&Group::from("x"), &kind.into()), None);
            // The API uses English plurals.
            let singular = kind.as_str().to_lowercase();
            let after_consonant = |stem: &&str| !stem.ends_with(['a', 'e', 'o', 'u']);
            let stem = singular.strip_suffix('y').filter(after_consonant);
            let plural = match (stem, singular.ends_with('s')) {
                (Some(stem), _) => format!("{stem}ies"),
                (None, true) => format!("{singular}es"),
                (None, false) => format!("{singular}s"),
            };
            assert_eq!(kind.plural(), plural);
            if let Some(StatusOwner::Entries(entries)) = kind.info().status {
                assert_eq!(kind.is_route(), entries.list == "parents");
            }
        }
        assert_eq!(
            Kind::from_api("gateway.networking.k8s.io/v1alpha2", "GRPCRoute"),
            None
        );
        assert_eq!(Kind::from_api("", ""), None);
        assert_eq!(KindName::from("Pod").as_str(), "Pod");
    }
}
