//! Services that select the Pods of XBackends, so that Kubernetes writes EndpointSlices for them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The label with the name of an XBackend: on its Service, and on EndpointSlices that don't belong to a Service.
pub const XBACKEND_LABEL: &str = "projectsesame.io/xbackend";

/// Identifies a Service by its XBackend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodServiceId {
    /// The namespace of both.
    pub namespace: Arc<str>,
    /// The name of the XBackend.
    pub xbackend: Arc<str>,
}

/// A headless Service without ports, owned by an XBackend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodService {
    /// Its name.
    pub name: Arc<str>,
    /// The UID of the XBackend.
    pub owner_uid: String,
    /// The labels of the Pods.
    pub selector: BTreeMap<String, String>,
}

/// The write that brings a Service to its desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodServiceChange {
    /// The Service doesn't exist.
    Create(PodService),
    /// The Service differs from the desired one.
    Update {
        /// The UID of the existing Service.
        uid: String,
        /// The desired Service.
        service: PodService,
    },
    /// The Service is no longer needed, since its XBackend has another type.
    Delete {
        /// Its name.
        name: Arc<str>,
        /// Its UID.
        uid: String,
    },
}

impl PodServiceChange {
    /// The name of the Service.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Create(service) | Self::Update { service, .. } => &service.name,
            Self::Delete { name, .. } => name,
        }
    }

    /// The desired Service; `None` if it must not exist.
    pub fn desired(&self) -> Option<&PodService> {
        match self {
            Self::Create(service) | Self::Update { service, .. } => Some(service),
            Self::Delete { .. } => None,
        }
    }
}
