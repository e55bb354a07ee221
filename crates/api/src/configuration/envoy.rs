//! How the Envoys of a fleet run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::gateway_choices::GatewayChoices;
use super::publishing::NetworkPublishing;
use crate::duration::Duration;
use crate::open_enum::open_enum;
use crate::skip::is_default;

/// How Envoys run. An omitted field takes its value from the SesameConfiguration of the Gateway's class, then from the
/// instance's SesameConfiguration; failing both, the default applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.replicas) || !has(self.autoscaling)", "message": "replicas and autoscaling are mutually exclusive"},
])))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvoyConfiguration {
    /// Whether Sesame creates and updates the objects that run the Envoys; true by default. If false, Sesame leaves them
    /// unchanged: existing Envoys still get configuration, but new fleets don't start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<bool>,
    /// How clients reach the Envoys.
    #[serde(default, skip_serializing_if = "is_default")]
    pub network_publishing: NetworkPublishing,
    /// The kind of workload; a Deployment by default. A DaemonSet runs one Envoy on each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<EnvoyWorkload>,
    /// The number of Envoys in a Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
    pub replicas: Option<u32>,
    /// Scales the number of Envoys in a Deployment with the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<EnvoyAutoscaling>,
    /// Whether a PodDisruptionBudget limits evictions, for example when nodes are drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_budget: Option<bool>,
    /// Whether a NetworkPolicy limits connections to the Envoys to the ports of their listeners and the port for probes and
    /// metrics; false by default. It doesn't limit connections from the Envoys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<bool>,
    /// The Envoy image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))
    )]
    pub image: Option<Arc<str>>,
    /// The names of Secrets for pulling images, in the namespace of the Envoys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 16), inner(length(min = 1, max = 253)))
    )]
    pub image_pull_secrets: Option<Vec<Arc<str>>>,
    /// Annotations for the ServiceAccount of the Envoys, such as those that give it an identity in a cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_annotations: Option<BTreeMap<String, String>>,
    /// The resources of each Envoy.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resources: EnvoyResources,
    /// The labels of the nodes that may run Envoys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// The node taints that Envoys tolerate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub tolerations: Option<Vec<EnvoyToleration>>,
    /// The PriorityClass of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub priority_class_name: Option<Arc<str>>,
    /// How Envoys shut down.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drain: EnvoyDrain,
    /// The log level; `warning` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<EnvoyLogLevel>,
    /// The maximum number of client connections to each Envoy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 4_294_967_295_u32)))]
    pub max_connections: Option<u32>,
    /// What Gateways may choose for their Envoys.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gateway_choices: GatewayChoices,
}

open_enum! {
    /// The kind of workload that runs Envoys.
    pub enum EnvoyWorkload {
        /// A number of replicas.
        Deployment = "Deployment",
        /// One Envoy on each node.
        DaemonSet = "DaemonSet",
    }
}

open_enum! {
    /// A log level of Envoy.
    pub enum EnvoyLogLevel {
        /// All messages.
        Trace = "trace",
        /// Details for debugging.
        Debug = "debug",
        /// Normal events.
        Info = "info",
        /// Possible problems.
        Warning = "warning",
        /// Errors.
        Error = "error",
        /// Fatal errors.
        Critical = "critical",
    }
}

/// Autoscaling: bounds for the number of Envoys, and the target load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.minReplicas <= self.maxReplicas", "message": "minReplicas must not exceed maxReplicas"},
])))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvoyAutoscaling {
    /// The minimum number of Envoys.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
    pub min_replicas: u32,
    /// The maximum number of Envoys.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
    pub max_replicas: u32,
    /// The target average CPU usage, as a percentage of the CPU request.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
    pub cpu_percent: u32,
}

/// Resources of a container. A request must not exceed its limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EnvoyResources {
    /// The amounts to reserve.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requests: ResourceAmounts,
    /// The limits. The CPU limit sets the number of worker threads; near the memory limit, Envoy rejects requests.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: ResourceAmounts,
}

/// Amounts of resources, as Kubernetes quantities.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ResourceAmounts {
    /// CPUs, such as `500m` or `"2"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 32)))]
    pub cpu: Option<Arc<str>>,
    /// Bytes, such as `128Mi` or `1Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 32)))]
    pub memory: Option<Arc<str>>,
}

/// A toleration of a taint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.operator) || self.operator != 'Exists' || !has(self.value)", "message": "the Exists operator takes no value"},
    {"rule": "has(self.key) || !has(self.value)", "message": "a value requires a key"},
    {"rule": "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'", "message": "tolerationSeconds requires the NoExecute effect"},
])))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvoyToleration {
    /// The key of the taint; any by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Arc<str>>,
    /// Whether the value of the taint must be equal (`Equal`, the default) or is ignored (`Exists`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// The value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Arc<str>>,
    /// The effect of the taint; any by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TolerationEffect>,
    /// How long the `NoExecute` effect is tolerated, in seconds; indefinitely by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

open_enum! {
    /// How the value of a taint is compared.
    pub enum TolerationOperator {
        /// Any value matches.
        Exists = "Exists",
        /// The same value matches.
        Equal = "Equal",
    }
}

open_enum! {
    /// The effect of a taint on pods.
    pub enum TolerationEffect {
        /// No new pods.
        NoSchedule = "NoSchedule",
        /// New pods only if no other node fits.
        PreferNoSchedule = "PreferNoSchedule",
        /// No new pods, and running pods are evicted.
        NoExecute = "NoExecute",
    }
}

/// How an Envoy shuts down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EnvoyDrain {
    /// How long an Envoy keeps serving while load balancers stop sending it traffic, such as `5s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::duration"))]
    pub delay: Option<Duration>,
    /// How long clients may take to disconnect after that, such as `60s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::duration"))]
    pub timeout: Option<Duration>,
}
