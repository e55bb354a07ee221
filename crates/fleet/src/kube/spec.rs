//! Settings shared by all fleets, and a single fleet's spec.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_model::{FleetParameters, FleetRequest};

/// Settings that all fleets share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetsConfig {
    /// Sesame's own namespace, where fleets without an owner live.
    pub namespace: String,
    /// The value of the label `app.kubernetes.io/instance`, which distinguishes the fleets of several Sesame instances
    /// in one cluster. The default is Sesame's own namespace.
    pub instance: String,
    /// Whether the fleets of Gateways also live in Sesame's own namespace, instead of the Gateways' namespaces.
    pub own_namespace: bool,
    /// The image of Envoy, unless a fleet's parameters set another.
    pub envoy_image: String,
    /// Sesame's own image, for the sidecar.
    pub sidecar_image: String,
    /// The release of Sesame, with its default images: whatever makes the pods of all fleets differ from those of another
    /// release. Workloads of another release are upgraded in order.
    pub release: String,
    /// The namespaces to watch; `None` means all.
    pub namespaces: Option<Vec<String>>,
    /// The maximum number of fleets that are written concurrently.
    pub concurrency: usize,
}

impl FleetsConfig {
    /// Settings for all namespaces, with a concurrency of eight.
    pub fn new(
        namespace: impl Into<String>,
        envoy_image: impl Into<String>,
        sidecar_image: impl Into<String>,
    ) -> Self {
        let namespace = namespace.into();
        let (envoy_image, sidecar_image) = (envoy_image.into(), sidecar_image.into());
        let version = env!("CARGO_PKG_VERSION");
        Self {
            instance: namespace.clone(),
            namespace,
            own_namespace: false,
            release: format!("{version} {sidecar_image} {envoy_image}"),
            envoy_image,
            sidecar_image,
            namespaces: None,
            concurrency: 8,
        }
    }
}

/// The spec from which a fleet's objects are built.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetSpec {
    /// The request, apart from its parameters.
    pub request: FleetRequest,
    /// The parameters in effect.
    pub parameters: FleetParameters,
    /// Envoy's bootstrap as JSON, without a node ID. Its paths are those in [`super::layout`].
    pub bootstrap: Arc<str>,
    /// Whether the bootstrap loads Sesame's module from [`super::layout::RUN_DIR`].
    pub module: bool,
    /// The files to which the bootstrap refers, by name. They are in [`super::layout::CONFIG_DIR`].
    pub files: BTreeMap<String, String>,
}
