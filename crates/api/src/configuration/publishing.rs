//! How clients reach the Envoys of a fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;

/// How clients reach the Envoys: the Service in front of them, or a Gateway of another implementation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.gateway) == (has(self.type) && self.type == 'Gateway')", "message": "gateway must be set if type is Gateway, and only then"},
])))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPublishing {
    /// The kind of Service, or `Gateway`; `LoadBalancerService` by default.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<NetworkPublishingType>,
    /// Annotations for the Service only, such as those for a load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// The load balancer of a cloud. Sesame translates this section to annotations of the Service; those in `annotations`
    /// take precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancerPublishing>,
    /// The Service's `loadBalancerClass`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub load_balancer_class: Option<Arc<str>>,
    /// The client addresses that the load balancer permits, as CIDRs such as `192.0.2.0/24`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 256), inner(length(min = 1, max = 64)))
    )]
    pub load_balancer_source_ranges: Option<Vec<Arc<str>>>,
    /// Which Envoys get connections that arrive at a node: any of them (`Cluster`, the default), or only those on that node
    /// (`Local`), which preserves client addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_traffic_policy: Option<ExternalTrafficPolicy>,
    /// The GatewayClass of the Gateways in front of the Envoys. Required if the type is `Gateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayPublishing>,
}

open_enum! {
    /// What is in front of Envoys.
    pub enum NetworkPublishingType {
        /// An address from the cluster's load balancer.
        LoadBalancerService = "LoadBalancerService",
        /// A port on every node.
        NodePortService = "NodePortService",
        /// An address inside the cluster.
        ClusterIpService = "ClusterIPService",
        /// A Gateway of another Gateway API implementation.
        Gateway = "Gateway",
    }
}

open_enum! {
    /// Which Envoys get connections that arrive at a node.
    pub enum ExternalTrafficPolicy {
        /// Any Envoy; the client's address may be hidden.
        Cluster = "Cluster",
        /// Only Envoys on the same node.
        Local = "Local",
    }
}

/// The load balancer of a cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.scope) && self.scope == 'Internal' || (!has(self.provider.azure) || !has(self.provider.azure.subnet)) && (!has(self.provider.gcp) || !has(self.provider.gcp.subnet))", "message": "a subnet requires scope Internal"},
    {"rule": "!has(self.scope) || self.scope != 'Internal' || !has(self.provider.aws) || !has(self.provider.aws.allocationIDs)", "message": "allocationIDs require scope External"},
    {"rule": "!has(self.scope) || self.scope != 'Internal' || !has(self.provider.azure) || !has(self.provider.azure.resourceGroup)", "message": "a resourceGroup requires scope External"},
])))]
#[serde(deny_unknown_fields)]
pub struct LoadBalancerPublishing {
    /// Whether the load balancer has a public address (`External`, the default) or a private one (`Internal`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<LoadBalancerScope>,
    /// The cloud.
    pub provider: LoadBalancerProvider,
}

open_enum! {
    /// Where the address of a load balancer is reachable.
    pub enum LoadBalancerScope {
        /// From the internet.
        External = "External",
        /// From the cluster's network.
        Internal = "Internal",
    }
}

/// A cloud, and settings for its load balancers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.aws) || self.type == 'AWS'", "message": "aws requires type AWS"},
    {"rule": "!has(self.azure) || self.type == 'Azure'", "message": "azure requires type Azure"},
    {"rule": "!has(self.gcp) || self.type == 'GCP'", "message": "gcp requires type GCP"},
])))]
#[serde(deny_unknown_fields)]
pub struct LoadBalancerProvider {
    /// The cloud.
    #[serde(rename = "type")]
    pub type_: LoadBalancerProviderType,
    /// Settings for AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsLoadBalancer>,
    /// Settings for Azure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzureLoadBalancer>,
    /// Settings for Google Cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcp: Option<GcpLoadBalancer>,
}

open_enum! {
    /// A cloud.
    pub enum LoadBalancerProviderType {
        /// Amazon Web Services.
        Aws = "AWS",
        /// Microsoft Azure.
        Azure = "Azure",
        /// Google Cloud.
        Gcp = "GCP",
    }
}

/// Settings for load balancers of AWS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.allocationIDs) || !has(self.type) || self.type == 'NLB'", "message": "allocationIDs require type NLB"},
])))]
#[serde(deny_unknown_fields)]
pub struct AwsLoadBalancer {
    /// A Network Load Balancer (`NLB`, the default) or a Classic Load Balancer, which forwards TCP connections.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<AwsLoadBalancerType>,
    /// The allocation IDs of the Elastic IP addresses of the load balancer, one for each of its subnets.
    #[serde(
        default,
        rename = "allocationIDs",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(min = 1, max = 16),
            inner(length(max = 64), regex(pattern = r"^eipalloc-[0-9a-f]+$"))
        )
    )]
    pub allocation_ids: Option<Vec<Arc<str>>>,
}

open_enum! {
    /// A type of load balancer of AWS.
    pub enum AwsLoadBalancerType {
        /// A Classic Load Balancer.
        Classic = "Classic",
        /// A Network Load Balancer.
        Nlb = "NLB",
    }
}

/// Settings for load balancers of Azure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AzureLoadBalancer {
    /// The subnet of an internal load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub subnet: Option<Arc<str>>,
    /// The load balancer's IP address.
    #[serde(default, rename = "addressIP", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub address_ip: Option<Arc<str>>,
    /// The resource group of an external load balancer's public IP address, if it isn't the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub resource_group: Option<Arc<str>>,
}

/// Settings for load balancers of Google Cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GcpLoadBalancer {
    /// The subnet of an internal load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub subnet: Option<Arc<str>>,
}

/// A GatewayClass of another Gateway API implementation: an existing one, or one that Sesame creates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.className) != has(self.controllerName)", "message": "exactly one of className and controllerName must be set"},
    {"rule": "!has(self.parametersRef) || has(self.controllerName)", "message": "parametersRef requires controllerName"},
])))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayPublishing {
    /// The name of an existing GatewayClass. Sesame must not implement it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub class_name: Option<Arc<str>>,
    /// The implementation's `controllerName`, for a GatewayClass that Sesame creates, and deletes when no Envoys need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(min = 1, max = 253),
            regex(
                pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$"
            )
        )
    )]
    pub controller_name: Option<Arc<str>>,
    /// The `parametersRef` of that GatewayClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<GatewayPublishingParameters>,
}

/// The object with the parameters of a GatewayClass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GatewayPublishingParameters {
    /// The object's API group; empty for the core group.
    #[cfg_attr(feature = "schema", schemars(length(max = 253)))]
    pub group: Arc<str>,
    /// The object's kind.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 63)))]
    pub kind: Arc<str>,
    /// The object's name.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: Arc<str>,
    /// The object's namespace; none for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 63)))]
    pub namespace: Option<Arc<str>>,
}
