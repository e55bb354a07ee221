//! Listeners, shared by Gateways and ListenerSets, and their status.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::filter::ListenerFilter;
use crate::kind::Kind;
use crate::kind_name::{Group, KindName};
use crate::meta::LabelSelector;
use crate::open_enum::open_enum;
use crate::reference::{ObjectReference, SecretObjectReference};

/// A listener: a port, a protocol and optionally a hostname.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// The name, unique within its Gateway or ListenerSet.
    pub name: Arc<str>,
    /// The hostname, exact or with a `*.` prefix; any hostname if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Arc<str>>,
    /// The port, 1 to 65535; in an XListenerSet also 0, for a port that Sesame assigns.
    pub port: u16,
    /// The protocol.
    pub protocol: ProtocolType,
    /// TLS settings; required to serve HTTPS and TLS, not allowed for HTTP, TCP and UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
    /// The routes that may attach; by default, routes in the listener's namespace.
    #[serde(default)]
    pub allowed_routes: AllowedRoutes,
    /// Filters for all requests to the listener (experimental).
    #[serde(default, skip_serializing_if = "ListenerFilters::is_empty")]
    pub filters: ListenerFilters,
}

impl Listener {
    /// The hostname; `None` if absent or empty.
    pub fn hostname(&self) -> Option<&Arc<str>> {
        self.hostname
            .as_ref()
            .filter(|hostname| !hostname.is_empty())
    }
}

open_enum! {
    /// The protocol of a listener.
    pub enum ProtocolType {
        /// HTTP without TLS.
        Http = "HTTP",
        /// HTTP over TLS, terminated at the Gateway.
        Https = "HTTPS",
        /// TLS, terminated or passed through.
        Tls = "TLS",
        /// TCP.
        Tcp = "TCP",
        /// UDP.
        Udp = "UDP",
    }
}

/// TLS settings of a listener.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerTls {
    /// Where TLS is terminated; at the Gateway by default.
    #[serde(default)]
    pub mode: TlsMode,
    /// The server certificates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificate_refs: Vec<SecretObjectReference>,
    /// Implementation-specific options.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// Client authentication in Gateway API v1.3 (experimental), before [`FrontendTls`] replaced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontend_validation: Option<FrontendTlsValidation>,
}

open_enum! {
    /// Where TLS is terminated.
    #[derive(Default)]
    pub enum TlsMode {
        /// At the Gateway.
        #[default]
        Terminate = "Terminate",
        /// At the backend.
        Passthrough = "Passthrough",
    }
}

/// The routes that may attach to a listener.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllowedRoutes {
    /// The allowed namespaces; by default, the listener's namespace.
    #[serde(default)]
    pub namespaces: RouteNamespaces,
    /// The allowed kinds; if empty, all kinds that the protocol supports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<RouteGroupKind>,
}

/// The namespaces from which routes may attach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteNamespaces {
    /// The rule; `Same` by default.
    #[serde(default = "FromNamespaces::same")]
    pub from: FromNamespaces,
    /// The labels of the allowed namespaces, if `from` is `Selector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

impl Default for RouteNamespaces {
    fn default() -> Self {
        RouteNamespaces {
            from: FromNamespaces::Same,
            selector: None,
        }
    }
}

open_enum! {
    /// A choice of namespaces.
    pub enum FromNamespaces {
        /// All.
        All = "All",
        /// Namespaces whose labels match a selector.
        Selector = "Selector",
        /// The same namespace.
        Same = "Same",
        /// None.
        None = "None",
    }
}

impl FromNamespaces {
    fn same() -> Self {
        FromNamespaces::Same
    }

    pub(crate) fn none() -> Self {
        FromNamespaces::None
    }
}

/// A route kind and its group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RouteGroupKind {
    /// The group; the Gateway API group by default.
    #[serde(default = "Group::gateway")]
    pub group: Group,
    /// The kind.
    pub kind: KindName,
}

impl RouteGroupKind {
    /// The kind, if it is in the table of kinds.
    pub fn known_kind(&self) -> Option<Kind> {
        Kind::from_group_kind(&self.group, &self.kind)
    }
}

impl From<Kind> for RouteGroupKind {
    fn from(kind: Kind) -> Self {
        RouteGroupKind {
            group: Group::from(kind.group()),
            kind: kind.into(),
        }
    }
}

/// Filters of a listener (experimental).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerFilters {
    /// Filters applied to every request, in order, before a route is chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<ListenerFilter>,
}

impl ListenerFilters {
    /// Whether there are no filters.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// Client authentication, by port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTls {
    /// The client authentication on all ports not in `per_port`.
    #[serde(default)]
    pub default: FrontendTlsConfig,
    /// The client authentication on individual ports, instead of `default`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_port: Vec<FrontendTlsPort>,
}

/// Client authentication on one port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTlsPort {
    /// The port, 1 to 65535.
    pub port: u16,
    /// The client authentication on this port.
    #[serde(default)]
    pub tls: FrontendTlsConfig,
}

/// Client authentication.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTlsConfig {
    /// Validation of client certificates; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<FrontendTlsValidation>,
}

/// Validation of client certificates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTlsValidation {
    /// The CA certificates.
    #[serde(
        rename = "caCertificateRefs",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ca_certificate_refs: Vec<ObjectReference>,
    /// What to do if the certificate is missing or invalid; by default, the connection is rejected.
    #[serde(default)]
    pub mode: FrontendValidationMode,
}

open_enum! {
    /// What to do if a client certificate is missing or invalid.
    #[derive(Default)]
    pub enum FrontendValidationMode {
        /// The connection is rejected.
        #[default]
        AllowValidOnly = "AllowValidOnly",
        /// The connection is accepted.
        AllowInsecureFallback = "AllowInsecureFallback",
    }
}

/// The status of a listener, in a Gateway or a ListenerSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// The listener's name.
    pub name: Arc<str>,
    /// The port, 1 to 65535; only in an XListenerSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The route kinds that may attach: allowed, and supported by the protocol.
    #[serde(default)]
    pub supported_kinds: Vec<RouteGroupKind>,
    /// The number of accepted routes.
    #[serde(default)]
    pub attached_routes: i32,
    /// The conditions; see [`crate::condition::listener`].
    #[serde(default)]
    pub conditions: Vec<Condition>,
}
