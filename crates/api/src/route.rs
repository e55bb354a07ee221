//! Types shared by all route kinds: spec, backends, status and a common view.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::filter::RouteFilter;
use crate::kind::Kind;
use crate::kind_name::{Group, KindName};
use crate::meta::Meta;
use crate::open_enum::open_enum;
use crate::reference::{BackendObjectReference, ParentReference, resolvable};

/// A backend of a route rule, with its share of the traffic.
///
/// Shared by all route kinds; `filters` is always empty for TLSRoute, TCPRoute and UDPRoute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendRef {
    /// The group; the core group by default.
    #[serde(default = "Group::core")]
    pub group: Group,
    /// The kind; Service by default.
    #[serde(default = "KindName::service")]
    pub kind: KindName,
    /// The name.
    pub name: Arc<str>,
    /// The namespace; defaults to the route's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Arc<str>>,
    /// The port of the Service (not of its Pods), 1 to 65535. Required for a Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The weight, relative to the total weight of the rule's backends, 0 to 1000000; 1 by default. A backend with
    /// weight 0 doesn't get requests.
    #[serde(default = "one")]
    pub weight: u32,
    /// Filters for requests to this backend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<RouteFilter>,
}

fn one() -> u32 {
    1
}

resolvable!(BackendRef);

impl BackendRef {
    /// The reference without weight and filters.
    pub fn object_reference(&self) -> BackendObjectReference {
        BackendObjectReference {
            group: self.group.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            port: self.port,
        }
    }
}

open_enum! {
    /// Which default Gateways a route uses, or which routes a default Gateway applies to (experimental).
    pub enum DefaultScope {
        /// Every default Gateway.
        All = "All",
        /// None.
        None = "None",
    }
}

/// Status of a route: one entry per parent and controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteStatus {
    /// The entries of all controllers.
    #[serde(default)]
    pub parents: Vec<RouteParentStatus>,
}

impl RouteStatus {
    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.parents.is_empty()
    }
}

/// The status of a route for one parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteParentStatus {
    /// The parent, as in the route's spec.
    pub parent_ref: ParentReference,
    /// The controller that wrote the entry.
    pub controller_name: Arc<str>,
    /// The conditions; see [`crate::condition::route`].
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub conditions: Box<[Condition]>,
}

/// Accessors common to all route kinds.
pub trait Route {
    /// The kind.
    const KIND: Kind;
    /// The metadata.
    fn meta(&self) -> &Meta;
    /// The parents.
    fn parent_refs(&self) -> &[ParentReference];
    /// The default Gateways that the route also attaches to (experimental).
    fn use_default_gateways(&self) -> Option<&DefaultScope>;
    /// The hostnames; empty for all hostnames and for kinds without hostnames.
    fn hostnames(&self) -> &[Arc<str>];
    /// The status as read.
    fn status(&self) -> &RouteStatus;
}

/// The fields common to all routes, for code that does not depend on the kind.
#[derive(Clone, Copy, Debug)]
pub struct RouteView<'a> {
    /// The parents.
    pub parent_refs: &'a [ParentReference],
    /// The hostnames; see [`Route::hostnames`].
    pub hostnames: &'a [Arc<str>],
    /// The status as read.
    pub status: &'a RouteStatus,
}

impl<'a> RouteView<'a> {
    pub(crate) fn of(route: &'a impl Route) -> Self {
        Self {
            parent_refs: route.parent_refs(),
            hostnames: route.hostnames(),
            status: route.status(),
        }
    }
}

/// The spec of a route, generic over the kind's rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    bound(deserialize = "R: Rule + Deserialize<'de>")
)]
pub struct RouteSpec<R> {
    /// The parents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parent_refs: Vec<ParentReference>,
    /// The default Gateways that the route also attaches to (experimental).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_default_gateways: Option<DefaultScope>,
    /// The hostnames, exact or with a `*.` prefix; if empty, the listener's hostnames. Required for a TLSRoute; always
    /// empty for TCPRoute and UDPRoute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<Arc<str>>,
    /// The rules.
    #[serde(default = "Rule::unsaid", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<R>,
}

impl<R> Default for RouteSpec<R> {
    fn default() -> Self {
        Self {
            parent_refs: Vec::new(),
            use_default_gateways: None,
            hostnames: Vec::new(),
            rules: Vec::new(),
        }
    }
}

/// A rule of a route.
pub trait Rule: Sized {
    /// The rules of a route that does not set `rules`.
    fn unsaid() -> Vec<Self> {
        Vec::new()
    }
}

/// Declares a route kind with `meta`, `spec` and `status`, and implements [`Route`] for it.
macro_rules! route_kind {
    ($(#[$meta:meta])* $name:ident { $(#[$of_spec:meta])* spec: $spec:ty }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $name {
            /// The metadata.
            #[serde(rename = "metadata")]
            pub meta: $crate::meta::Meta,
            /// The spec.
            $(#[$of_spec])*
            pub spec: $spec,
            /// The status, by parent.
            #[serde(default, skip_serializing_if = "crate::route::RouteStatus::is_empty")]
            pub status: $crate::route::RouteStatus,
        }

        impl $crate::route::Route for $name {
            const KIND: $crate::kind::Kind = $crate::kind::Kind::$name;

            fn meta(&self) -> &$crate::meta::Meta {
                &self.meta
            }

            fn parent_refs(&self) -> &[$crate::reference::ParentReference] {
                &self.spec.parent_refs
            }

            fn use_default_gateways(&self) -> Option<&$crate::route::DefaultScope> {
                self.spec.use_default_gateways.as_ref()
            }

            fn hostnames(&self) -> &[std::sync::Arc<str>] {
                &self.spec.hostnames
            }

            fn status(&self) -> &$crate::route::RouteStatus {
                &self.status
            }
        }
    };
}

pub(crate) use route_kind;
