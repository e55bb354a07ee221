//! Groups and kinds in references.

use std::sync::Arc;

use crate::kind::Kind;
use crate::open_enum::{open_enum, string_like};

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
        /// The group of Ingress.
        Networking = "networking.k8s.io",
        /// Sesame's own kinds.
        Sesame = "projectsesame.io",
    }
}

impl Group {
    pub(crate) fn core() -> Self {
        Group::Core
    }

    pub(crate) fn gateway() -> Self {
        Group::Gateway
    }

    /// The name for messages; `core` for the core group.
    pub fn or_core(&self) -> &str {
        match self {
            Group::Core => "core",
            group => group.as_str(),
        }
    }
}

/// The kind in a reference: one from the table of kinds, or any other name.
///
/// Names alone are ambiguous across groups; [`Kind::from_group_kind`] compares both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KindName {
    /// A kind from the table of kinds.
    Known(Kind),
    /// Any other name, kept as written.
    Other(Arc<str>),
}

impl KindName {
    /// The name as written in a reference.
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
