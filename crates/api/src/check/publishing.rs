//! The section `envoy.networkPublishing` of SesameConfigurations.

use std::sync::Arc;

use crate::configuration::{
    AwsLoadBalancer, AwsLoadBalancerType, AzureLoadBalancer, ExternalTrafficPolicy,
    GatewayPublishing, GatewayPublishingParameters, GcpLoadBalancer, LoadBalancerProvider,
    LoadBalancerProviderType, LoadBalancerPublishing, LoadBalancerScope, NetworkPublishing,
    NetworkPublishingType,
};

use super::configuration::{namespace, object_name};
use super::{Check, at, each, each_of_some, ensure, known, optional, text};

pub(super) fn publishing(publishing: &NetworkPublishing) -> Check {
    let type_ = publishing.type_.as_ref();
    known("type", type_, NetworkPublishingType::KNOWN)?;
    let balancer = publishing.load_balancer.as_ref();
    optional("loadBalancer", balancer, load_balancer)?;
    let class = publishing.load_balancer_class.as_deref();
    optional("loadBalancerClass", class, object_name)?;
    let ranges = publishing.load_balancer_source_ranges.as_deref();
    each(
        "loadBalancerSourceRanges",
        ranges.unwrap_or_default(),
        256,
        |range| text::length(range, 1, 64),
    )?;
    let policy = publishing.external_traffic_policy.as_ref();
    known(
        "externalTrafficPolicy",
        policy,
        ExternalTrafficPolicy::KNOWN,
    )?;
    optional("gateway", publishing.gateway.as_ref(), gateway)?;
    ensure(
        publishing.gateway.is_some() == (type_ == Some(&NetworkPublishingType::Gateway)),
        "gateway must be set if type is Gateway, and only then",
    )
}

fn load_balancer(balancer: &LoadBalancerPublishing) -> Check {
    let LoadBalancerPublishing { scope, provider } = balancer;
    known("scope", scope.as_ref(), LoadBalancerScope::KNOWN)?;
    at("provider", self::provider(provider))?;
    let internal = scope.as_ref() == Some(&LoadBalancerScope::Internal);
    let LoadBalancerProvider {
        aws, azure, gcp, ..
    } = provider;
    let azure_subnet = azure.as_ref().is_some_and(|azure| azure.subnet.is_some());
    let gcp_subnet = gcp.as_ref().is_some_and(|gcp| gcp.subnet.is_some());
    ensure(
        internal || !(azure_subnet || gcp_subnet),
        "a subnet requires scope Internal",
    )?;
    let ids = aws.as_ref().is_some_and(|aws| aws.allocation_ids.is_some());
    ensure(!internal || !ids, "allocationIDs require scope External")?;
    let group = azure
        .as_ref()
        .is_some_and(|azure| azure.resource_group.is_some());
    ensure(
        !internal || !group,
        "a resourceGroup requires scope External",
    )
}

fn provider(provider: &LoadBalancerProvider) -> Check {
    let type_ = &provider.type_;
    known("type", Some(type_), LoadBalancerProviderType::KNOWN)?;
    optional("aws", provider.aws.as_ref(), aws)?;
    optional("azure", provider.azure.as_ref(), azure)?;
    optional("gcp", provider.gcp.as_ref(), gcp)?;
    for (set, of, message) in [
        (
            provider.aws.is_some(),
            LoadBalancerProviderType::Aws,
            "aws requires type AWS",
        ),
        (
            provider.azure.is_some(),
            LoadBalancerProviderType::Azure,
            "azure requires type Azure",
        ),
        (
            provider.gcp.is_some(),
            LoadBalancerProviderType::Gcp,
            "gcp requires type GCP",
        ),
    ] {
        ensure(!set || *type_ == of, message)?;
    }
    Ok(())
}

fn aws(aws: &AwsLoadBalancer) -> Check {
    let type_ = aws.type_.as_ref();
    known("type", type_, AwsLoadBalancerType::KNOWN)?;
    let Some(ids) = aws.allocation_ids.as_deref() else {
        return Ok(());
    };
    each_of_some("allocationIDs", ids, 16, |id: &Arc<str>| {
        text::length(id, 0, 64)?;
        let digits = id.strip_prefix("eipalloc-").unwrap_or_default();
        let hexadecimal = |digit: char| matches!(digit, '0'..='9' | 'a'..='f');
        ensure(
            !digits.is_empty() && digits.chars().all(hexadecimal),
            "expected an ID such as eipalloc-0123456789abcdef0",
        )
    })?;
    ensure(
        type_ != Some(&AwsLoadBalancerType::Classic),
        "allocationIDs require type NLB",
    )
}

fn azure(azure: &AzureLoadBalancer) -> Check {
    let name = |name: &str| text::length(name, 1, 256);
    optional("subnet", azure.subnet.as_deref(), name)?;
    optional("addressIP", azure.address_ip.as_deref(), |ip| {
        text::length(ip, 1, 64)
    })?;
    optional("resourceGroup", azure.resource_group.as_deref(), name)
}

fn gcp(gcp: &GcpLoadBalancer) -> Check {
    let name = |name: &str| text::length(name, 1, 256);
    optional("subnet", gcp.subnet.as_deref(), name)
}

fn gateway(gateway: &GatewayPublishing) -> Check {
    let class = gateway.class_name.as_deref();
    optional("className", class, object_name)?;
    let controller = gateway.controller_name.as_deref();
    optional("controllerName", controller, text::domain_path)?;
    let reference = gateway.parameters_ref.as_ref();
    optional("parametersRef", reference, parameters)?;
    ensure(
        class.is_some() != controller.is_some(),
        "exactly one of className and controllerName must be set",
    )?;
    ensure(
        reference.is_none() || controller.is_some(),
        "parametersRef requires controllerName",
    )
}

fn parameters(reference: &GatewayPublishingParameters) -> Check {
    at("group", text::length(&reference.group, 0, 253))?;
    at("kind", text::length(&reference.kind, 1, 63))?;
    at("name", object_name(&reference.name))?;
    optional("namespace", reference.namespace.as_deref(), namespace)
}
