//! Listeners, the same in Gateways and ListenerSets, and their status.

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
    /// The name, unique in its Gateway or ListenerSet.
    pub name: Arc<str>,
    /// The hostname, exact or with `*.` in front; every hostname when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Arc<str>>,
    /// The port, 1 to 65535.
    pub port: u16,
    /// The protocol.
    pub protocol: ProtocolType,
    /// TLS; required for HTTPS and TLS to be served, not allowed for HTTP, TCP and UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
    /// The routes that may attach; those of the same namespace by default.
    #[serde(default)]
    pub allowed_routes: AllowedRoutes,
    /// Filters for every request of the listener (experimental).
    #[serde(default, skip_serializing_if = "ListenerFilters::is_empty")]
    pub filters: ListenerFilters,
}

impl Listener {
    /// The hostname, with the empty one read as none.
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
        /// HTTP over TLS, terminated here.
        Https = "HTTPS",
        /// TLS, terminated or passed through.
        Tls = "TLS",
        /// TCP.
        Tcp = "TCP",
        /// UDP.
        Udp = "UDP",
    }
}

/// TLS of a listener.
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
    /// The allowed namespaces; the same one by default.
    #[serde(default)]
    pub namespaces: RouteNamespaces,
    /// The allowed kinds; all kinds of the protocol when empty.
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
    /// The namespaces' labels, with `Selector`.
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
        /// Those whose labels match a selector.
        Selector = "Selector",
        /// The same one.
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

/// A kind of route, with its group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RouteGroupKind {
    /// The group; the Gateway API's by default.
    #[serde(default = "Group::gateway")]
    pub group: Group,
    /// The kind.
    pub kind: KindName,
}

impl RouteGroupKind {
    /// The kind, if the table of kinds has it.
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
    /// Filters for every request, in this order, before a route is chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<ListenerFilter>,
}

impl ListenerFilters {
    /// Whether there is no filter.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// Client authentication, by port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTls {
    /// For every port that `per_port` does not name.
    #[serde(default)]
    pub default: FrontendTlsConfig,
    /// For single ports, in place of `default`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_port: Vec<FrontendTlsPort>,
}

/// Client authentication on one port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTlsPort {
    /// The port, 1 to 65535.
    pub port: u16,
    /// The rule.
    #[serde(default)]
    pub tls: FrontendTlsConfig,
}

/// Client authentication.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTlsConfig {
    /// Validation of client certificates; none when missing.
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
    /// The effect of a missing or invalid certificate; rejection by default.
    #[serde(default)]
    pub mode: FrontendValidationMode,
}

open_enum! {
    /// The effect of a missing or invalid client certificate.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// The listener's name.
    pub name: Arc<str>,
    /// The kinds of route that may attach: allowed and supported by the protocol.
    #[serde(default)]
    pub supported_kinds: Vec<RouteGroupKind>,
    /// The number of accepted routes.
    #[serde(default)]
    pub attached_routes: i32,
    /// The conditions; see [`crate::condition::listener`].
    #[serde(default)]
    pub conditions: Vec<Condition>,
}
