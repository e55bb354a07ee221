//! Services that select the Pods of XBackends, so that Kubernetes writes EndpointSlices for them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The label with the name of an XBackend: on its Service, and on EndpointSlices that belong to no Service.
pub const XBACKEND_LABEL: &str = "projectsesame.io/xbackend";

/// Identifies a Service by its XBackend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodServiceId {
    /// The namespace of both.
    pub namespace: Arc<str>,
    /// The name of the XBackend.
    pub xbackend: Arc<str>,
}

/// A headless Service, owned by an XBackend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodService {
    /// Its name.
    pub name: Arc<str>,
    /// The UID of the XBackend.
    pub owner_uid: String,
    /// The labels of the Pods.
    pub selector: BTreeMap<String, String>,
    /// The port of the Service and of the Pods.
    pub port: u16,
}

/// What has to change for a Service to be as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodServiceChange {
    /// It doesn't exist.
    Create(PodService),
    /// It differs.
    Update {
        /// The UID of the existing Service.
        uid: String,
        /// The Service as it should be.
        service: PodService,
    },
    /// It isn't needed any more, since its XBackend has another type.
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

    /// The Service as it should be; `None` if it shouldn't exist.
    pub fn desired(&self) -> Option<&PodService> {
        match self {
            Self::Create(service) | Self::Update { service, .. } => Some(service),
            Self::Delete { .. } => None,
        }
    }
}
