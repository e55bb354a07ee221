//! How the operator runs an instance of Sesame.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::envoy::{EnvoyToleration, ResourceAmounts};
use crate::open_enum::open_enum;
use crate::skip::is_default;

/// How the operator runs Sesame itself for this configuration. Without the operator, this section has no effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstanceConfiguration {
    /// The number of replicas; 2 by default. Every replica serves Envoys; the leader writes statuses and manages Envoys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 16)))]
    pub replicas: Option<u32>,
    /// The namespace of the Envoys of Gateways: that of the Gateway (`Gateway`, the default) or this object's (`Sesame`). With
    /// `Sesame`, the instance may run Envoys, and write Services of XBackends, in this object's namespace only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envoy_namespace: Option<EnvoyNamespace>,
    /// Whether a NetworkPolicy limits connections to Sesame: to the xDS server from Envoys that it manages, or from anywhere
    /// if it doesn't manage any, and to the port for probes and metrics; true by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<bool>,
    /// The resources of each replica; by default, requests of 50m CPU and 64Mi memory, and a memory limit of 768Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<InstanceResources>,
    /// The labels of the nodes that may run Sesame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// The node taints that Sesame tolerates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub tolerations: Option<Vec<EnvoyToleration>>,
    /// The PriorityClass of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub priority_class_name: Option<Arc<str>>,
    /// The names of Secrets for pulling Sesame's image, in this object's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 16), inner(length(min = 1, max = 253)))
    )]
    pub image_pull_secrets: Option<Vec<Arc<str>>>,
}

/// The resources of a replica of Sesame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InstanceResources {
    /// The amounts to reserve.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requests: ResourceAmounts,
    /// The limits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: ResourceAmounts,
}

open_enum! {
    /// The namespace of the Envoys of Gateways.
    pub enum EnvoyNamespace {
        /// The Gateway's.
        Gateway = "Gateway",
        /// Sesame's own.
        Sesame = "Sesame",
    }
}
