//! The settings of all fleets, and what a fleet's objects are made from.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_model::{FleetParameters, FleetRequest};

/// Settings that all fleets share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetsConfig {
    /// Sesame's own namespace, where fleets without an owner live.
    pub namespace: String,
    /// The value of the label `app.kubernetes.io/instance`, which tells the fleets of several Sesames in one cluster apart.
    /// By default Sesame's own namespace.
    pub instance: String,
    /// The image of Envoy, unless a fleet's parameters name one.
    pub envoy_image: String,
    /// Sesame's own image, for the sidecar.
    pub sidecar_image: String,
    /// The namespaces to watch; `None`: all.
    pub namespaces: Option<Vec<String>>,
    /// How many fleets are written at the same time.
    pub concurrency: usize,
}

impl FleetsConfig {
    /// All namespaces, eight fleets at a time.
    pub fn new(
        namespace: impl Into<String>,
        envoy_image: impl Into<String>,
        sidecar_image: impl Into<String>,
    ) -> Self {
        let namespace = namespace.into();
        Self {
            instance: namespace.clone(),
            namespace,
            envoy_image: envoy_image.into(),
            sidecar_image: sidecar_image.into(),
            namespaces: None,
            concurrency: 8,
        }
    }
}

/// What a fleet's objects are made from.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetSpec {
    /// What is requested, apart from the parameters.
    pub request: FleetRequest,
    /// The parameters in effect.
    pub parameters: FleetParameters,
    /// Envoy's bootstrap as JSON, without a node id. Its paths are those of [`super::layout`].
    pub bootstrap: Arc<str>,
    /// Whether the bootstrap loads Sesame's module from [`super::layout::RUN`].
    pub module: bool,
    /// Further files by name, which the bootstrap refers to in [`super::layout::CONFIG`].
    pub files: BTreeMap<String, String>,
}
