//! Kinds and groups: which objects we read, and how references name them.

use std::fmt;
use std::sync::Arc;

use crate::open_enum::{open_enum, string_like};

/// The API group of the Gateway API.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// A kind that Sesame reads. The order is the order of the kinds in listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(
    missing_docs,
    reason = "each variant is the Kubernetes kind of its name"
)]
pub enum Kind {
    GatewayClass,
    Gateway,
    ListenerSet,
    HTTPRoute,
    GRPCRoute,
    TLSRoute,
    TCPRoute,
    UDPRoute,
    ReferenceGrant,
    BackendTLSPolicy,
    Namespace,
    Service,
    EndpointSlice,
    Secret,
    ConfigMap,
}

impl Kind {
    /// Every kind, in order.
    pub const ALL: [Kind; 15] = [
        Kind::GatewayClass,
        Kind::Gateway,
        Kind::ListenerSet,
        Kind::HTTPRoute,
        Kind::GRPCRoute,
        Kind::TLSRoute,
        Kind::TCPRoute,
        Kind::UDPRoute,
        Kind::ReferenceGrant,
        Kind::BackendTLSPolicy,
        Kind::Namespace,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Secret,
        Kind::ConfigMap,
    ];

    /// The kind's name, as in the `kind` field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::GatewayClass => "GatewayClass",
            Kind::Gateway => "Gateway",
            Kind::ListenerSet => "ListenerSet",
            Kind::HTTPRoute => "HTTPRoute",
            Kind::GRPCRoute => "GRPCRoute",
            Kind::TLSRoute => "TLSRoute",
            Kind::TCPRoute => "TCPRoute",
            Kind::UDPRoute => "UDPRoute",
            Kind::ReferenceGrant => "ReferenceGrant",
            Kind::BackendTLSPolicy => "BackendTLSPolicy",
            Kind::Namespace => "Namespace",
            Kind::Service => "Service",
            Kind::EndpointSlice => "EndpointSlice",
            Kind::Secret => "Secret",
            Kind::ConfigMap => "ConfigMap",
        }
    }

    /// The API group; empty for the core group.
    pub const fn group(self) -> &'static str {
        match self {
            Kind::Namespace | Kind::Service | Kind::Secret | Kind::ConfigMap => "",
            Kind::EndpointSlice => "discovery.k8s.io",
            _ => GATEWAY_GROUP,
        }
    }

    /// The API versions whose objects have the shape we read; the first is the one we write.
    /// Older versions differ in list bounds at most, never in fields.
    pub const fn versions(self) -> &'static [&'static str] {
        match self {
            Kind::GatewayClass | Kind::Gateway | Kind::HTTPRoute | Kind::ReferenceGrant => {
                &["v1", "v1beta1"]
            }
            Kind::TLSRoute => &["v1", "v1alpha3", "v1alpha2"],
            Kind::TCPRoute | Kind::UDPRoute => &["v1", "v1alpha2"],
            Kind::BackendTLSPolicy => &["v1", "v1alpha3"],
            _ => &["v1"],
        }
    }

    /// The `apiVersion` we write for this kind.
    pub const fn api_version(self) -> &'static str {
        match self {
            Kind::Namespace | Kind::Service | Kind::Secret | Kind::ConfigMap => "v1",
            Kind::EndpointSlice => "discovery.k8s.io/v1",
            _ => "gateway.networking.k8s.io/v1",
        }
    }

    /// The kind's name in URLs of an API server, and in RBAC rules.
    pub const fn plural(self) -> &'static str {
        match self {
            Kind::GatewayClass => "gatewayclasses",
            Kind::Gateway => "gateways",
            Kind::ListenerSet => "listenersets",
            Kind::HTTPRoute => "httproutes",
            Kind::GRPCRoute => "grpcroutes",
            Kind::TLSRoute => "tlsroutes",
            Kind::TCPRoute => "tcproutes",
            Kind::UDPRoute => "udproutes",
            Kind::ReferenceGrant => "referencegrants",
            Kind::BackendTLSPolicy => "backendtlspolicies",
            Kind::Namespace => "namespaces",
            Kind::Service => "services",
            Kind::EndpointSlice => "endpointslices",
            Kind::Secret => "secrets",
            Kind::ConfigMap => "configmaps",
        }
    }

    /// Whether objects of this kind have a status that Sesame may write: that of a Service, say, is others' business.
    pub const fn has_status(self) -> bool {
        match self {
            Kind::GatewayClass
            | Kind::Gateway
            | Kind::ListenerSet
            | Kind::HTTPRoute
            | Kind::GRPCRoute
            | Kind::TLSRoute
            | Kind::TCPRoute
            | Kind::UDPRoute
            | Kind::BackendTLSPolicy => true,
            Kind::ReferenceGrant
            | Kind::Namespace
            | Kind::Service
            | Kind::EndpointSlice
            | Kind::Secret
            | Kind::ConfigMap => false,
        }
    }

    /// Whether objects of this kind live in a namespace.
    pub const fn namespaced(self) -> bool {
        !matches!(self, Kind::GatewayClass | Kind::Namespace)
    }

    /// Whether this is one of the five route kinds.
    pub const fn is_route(self) -> bool {
        matches!(
            self,
            Kind::HTTPRoute | Kind::GRPCRoute | Kind::TLSRoute | Kind::TCPRoute | Kind::UDPRoute
        )
    }

    /// The kind named by an object's `apiVersion` and `kind`, if it is one we read.
    pub fn from_api(api_version: &str, kind: &str) -> Option<Kind> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = Kind::from_name(kind)?;
        (kind.group() == group && kind.versions().contains(&version)).then_some(kind)
    }

    /// The kind named by a reference's group and kind, if it is one we read.
    pub fn from_group_kind(group: &Group, kind: &KindName) -> Option<Kind> {
        match kind {
            KindName::Known(kind) if group == kind.group() => Some(*kind),
            _ => None,
        }
    }

    /// The kind of that name; names are unique over all groups we read.
    fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

open_enum! {
    /// The API group in a reference.
    pub enum Group {
        /// The core group, written as the empty string.
        Core = "",
        /// The Gateway API.
        Gateway = "gateway.networking.k8s.io",
        /// The experimental kinds of the Gateway API.
        GatewayX = "gateway.networking.x-k8s.io",
        /// The group of ClusterTrustBundle.
        Certificates = "certificates.k8s.io",
        /// The group of EndpointSlice.
        Discovery = "discovery.k8s.io",
    }
}

impl Group {
    pub(crate) fn core() -> Self {
        Group::Core
    }

    pub(crate) fn gateway() -> Self {
        Group::Gateway
    }
}

/// The kind in a reference: one of ours by name, or any other name.
///
/// It says nothing about the group; [`Kind::from_group_kind`] decides on both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KindName {
    /// The name of a kind we read.
    Known(Kind),
    /// Any other name, kept as written.
    Other(Arc<str>),
}

impl KindName {
    /// The name as it is written in a reference.
    pub fn as_str(&self) -> &str {
        match self {
            KindName::Known(kind) => kind.as_str(),
            KindName::Other(name) => name,
        }
    }

    pub(crate) fn gateway() -> Self {
        KindName::Known(Kind::Gateway)
    }

    pub(crate) fn service() -> Self {
        KindName::Known(Kind::Service)
    }

    pub(crate) fn secret() -> Self {
        KindName::Known(Kind::Secret)
    }
}

impl From<Kind> for KindName {
    fn from(kind: Kind) -> Self {
        KindName::Known(kind)
    }
}

impl From<&str> for KindName {
    fn from(name: &str) -> Self {
        match Kind::from_name(name) {
            Some(kind) => KindName::Known(kind),
            None => KindName::Other(name.into()),
        }
    }
}

string_like!(KindName);

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
            assert!(!matches!(group, Group::Other(_)), "{kind}");
            assert_eq!(
                Kind::from_group_kind(&group, &KindName::from(kind.as_str())),
                Some(kind)
            );
            assert_eq!(Kind::from_group_kind(&Group::from("x"), &kind.into()), None);
            // English, as the API has it.
            let singular = kind.as_str().to_lowercase();
            let plural = match (singular.strip_suffix("cy"), singular.ends_with('s')) {
                (Some(stem), _) => format!("{stem}cies"),
                (None, true) => format!("{singular}es"),
                (None, false) => format!("{singular}s"),
            };
            assert_eq!(kind.plural(), plural);
            assert!(kind.has_status() || !kind.is_route());
        }
        assert_eq!(
            Kind::from_api("gateway.networking.k8s.io/v1alpha2", "GRPCRoute"),
            None
        );
        assert_eq!(Kind::from_api("", ""), None);
        assert_eq!(KindName::from("Pod").as_str(), "Pod");
    }
}
