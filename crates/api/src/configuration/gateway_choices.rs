//! What Gateways may choose for their Envoys.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::envoy::ResourceAmounts;
use crate::open_enum::open_enum;
use crate::skip::is_default;

/// What Gateways may choose for their Envoys. The configuration that a Gateway refers to is in the Gateway's namespace,
/// where its authors may have fewer permissions than the owner of the GatewayClass. Only that owner's configuration and
/// the instance's can have this section. An omitted field takes its value from the instance's configuration; failing
/// that, the default applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayChoices {
    /// The fields of `envoy` that a Gateway's configuration may set. By default, all except `networkPolicy`,
    /// `nodeSelector`, `priorityClassName`, `tolerations` and `workload`. Images, pull secrets and annotations of ServiceAccounts are never
    /// allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 14), extend("x-kubernetes-list-type" = "set"))
    )]
    pub fields: Option<Vec<GatewayChoice>>,
    /// The largest value that Gateways may set for `replicas` and `autoscaling.maxReplicas`; 10 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
    pub max_replicas: Option<u32>,
    /// The largest amounts that Gateways may set in `resources.requests` and `resources.limits`; 4 CPUs and 4 GiB by
    /// default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_resources: ResourceAmounts,
    /// The prefixes of permitted annotations, in `networkPublishing.annotations`, from `networkPublishing.loadBalancer`, and in
    /// a Gateway's `infrastructure.annotations`; all annotations by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 64), inner(length(min = 1, max = 317)))
    )]
    pub annotation_prefixes: Option<Vec<Arc<str>>>,
}

open_enum! {
    /// A field of `envoy` that the configuration of a Gateway may set.
    pub enum GatewayChoice {
        /// Autoscaling.
        Autoscaling = "autoscaling",
        /// Whether there is a PodDisruptionBudget.
        DisruptionBudget = "disruptionBudget",
        /// How Envoys shut down.
        Drain = "drain",
        /// The log level.
        LogLevel = "logLevel",
        /// Whether Sesame updates the objects that run the Envoys.
        Managed = "managed",
        /// The maximum number of client connections.
        MaxConnections = "maxConnections",
        /// Whether there is a NetworkPolicy.
        NetworkPolicy = "networkPolicy",
        /// What is in front of the Envoys.
        NetworkPublishing = "networkPublishing",
        /// The nodes that may run the Envoys.
        NodeSelector = "nodeSelector",
        /// The PriorityClass.
        PriorityClassName = "priorityClassName",
        /// The number of Envoys.
        Replicas = "replicas",
        /// Requests and limits.
        Resources = "resources",
        /// The taints that Envoys tolerate.
        Tolerations = "tolerations",
        /// A Deployment or a DaemonSet.
        Workload = "workload",
    }
}
