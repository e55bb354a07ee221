//! The section `envoy.networkPublishing`: how clients reach a fleet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sesame_api::{
    AwsLoadBalancerType, Gateway, GatewayClass, GatewayPublishing, LoadBalancerProvider,
    LoadBalancerProviderType, LoadBalancerPublishing, LoadBalancerScope, NetworkPublishing,
    NetworkPublishingType, ObjectKey,
};
use sesame_engine::{Reader, Table};
use sesame_model::{
    ClassParameters, CreatedClass, FLEET_LABEL, FleetParameters, OuterClass, Publishing,
};

use super::envoy::text;
use crate::gateway_api::class;
use crate::problem::FieldError;
use crate::settings::Settings;

/// What is in front of the Envoys. `Other` types can't occur: the schema rejects them.
pub(super) fn publishing(network: &NetworkPublishing) -> Option<Publishing> {
    Some(match network.type_.as_ref()? {
        NetworkPublishingType::NodePortService => Publishing::NodePort,
        NetworkPublishingType::ClusterIpService => Publishing::ClusterIp,
        NetworkPublishingType::LoadBalancerService | NetworkPublishingType::Other(_) => {
            Publishing::LoadBalancer
        }
        // The schema requires the section.
        NetworkPublishingType::Gateway => {
            Publishing::Gateway(outer_class(network.gateway.as_ref()?))
        }
    })
}

fn outer_class(gateway: &GatewayPublishing) -> OuterClass {
    match (&gateway.class_name, &gateway.controller_name) {
        (None, Some(controller)) => OuterClass::Created(CreatedClass {
            controller_name: controller.as_ref().to_owned(),
            parameters: gateway.parameters_ref.as_ref().map(|of| ClassParameters {
                group: of.group.as_ref().to_owned(),
                kind: of.kind.as_ref().to_owned(),
                name: of.name.as_ref().to_owned(),
                namespace: text(of.namespace.as_ref()),
            }),
        }),
        (class, _) => OuterClass::Existing(text(class.as_ref()).unwrap_or_default()),
    }
}

/// Why a fleet can't be published as its parameters say: this instance of Sesame also implements the outer class, so a Gateway
/// in front of the Envoys would get Envoys too, and so on.
pub(crate) fn refusal(
    reader: &mut Reader<'_>,
    classes: Table<ObjectKey, GatewayClass>,
    settings: &Settings,
    parameters: &FleetParameters,
) -> Option<FieldError> {
    let field = "envoy.networkPublishing.gateway";
    match parameters.publishing.as_ref()? {
        Publishing::Gateway(OuterClass::Existing(name)) => {
            let class = reader.get(classes, &class::key(&name.as_str().into()))?;
            settings.controls(&class).then(|| {
                let message = format!(
                    "this instance of Sesame implements GatewayClass {name}; name a class of another implementation"
                );
                FieldError::new(format!("{field}.className"), message)
            })
        }
        Publishing::Gateway(OuterClass::Created(created)) => {
            let own = settings.controller_name.as_deref();
            (own == Some(&*created.controller_name)).then(|| {
                let message =
                    "is the controllerName of this instance of Sesame; name another implementation";
                FieldError::new(format!("{field}.controllerName"), message)
            })
        }
        Publishing::LoadBalancer | Publishing::NodePort | Publishing::ClusterIp => None,
    }
}

/// Why a Gateway's fleet can't be published as its parameters say: the Gateway is in front of another fleet. Two instances of Sesame
/// could otherwise create Gateways for each other without end.
pub(super) fn chain(gateway: &Gateway, parameters: &FleetParameters) -> Option<FieldError> {
    let outer = matches!(parameters.publishing, Some(Publishing::Gateway(_)));
    (outer && gateway.meta.labels.contains_key(FLEET_LABEL)).then(|| {
        let message = "type Gateway is not supported for a Gateway that is itself in front of Envoys of Sesame; use another \
                       type for the Gateways of this class";
        FieldError::new("envoy.networkPublishing.type", message)
    })
}

/// The annotations of a Service for a cloud's load balancer. Cloud providers document them; where an annotation was renamed, both
/// names are set.
pub(super) fn annotations(
    balancer: &LoadBalancerPublishing,
    errors: &mut Vec<FieldError>,
) -> BTreeMap<String, String> {
    let internal = balancer.scope == Some(LoadBalancerScope::Internal);
    let provider = &balancer.provider;
    let annotations = match provider.type_ {
        LoadBalancerProviderType::Aws => aws(provider, internal),
        LoadBalancerProviderType::Azure => azure(provider, internal, errors),
        LoadBalancerProviderType::Gcp | LoadBalancerProviderType::Other(_) => {
            gcp(provider, internal)
        }
    };
    let owned = |(key, value): (&str, String)| (key.to_owned(), value);
    annotations.into_iter().map(owned).collect()
}

/// The cloud provider in Kubernetes reads `internal`, the AWS Load Balancer Controller `scheme`, which is internal by default.
fn aws(provider: &LoadBalancerProvider, internal: bool) -> Vec<(&'static str, String)> {
    let aws = provider.aws.as_ref();
    let classic = aws.is_some_and(|aws| aws.type_ == Some(AwsLoadBalancerType::Classic));
    let scheme = match internal {
        true => "internal",
        false => "internet-facing",
    };
    let mut annotations = vec![(
        "service.beta.kubernetes.io/aws-load-balancer-scheme",
        scheme.to_owned(),
    )];
    if internal {
        annotations.push((
            "service.beta.kubernetes.io/aws-load-balancer-internal",
            "true".to_owned(),
        ));
    }
    annotations.push(match classic {
        true => (
            "service.beta.kubernetes.io/aws-load-balancer-backend-protocol",
            "tcp".to_owned(),
        ),
        false => (
            "service.beta.kubernetes.io/aws-load-balancer-type",
            "nlb".to_owned(),
        ),
    });
    if let Some(ids) = aws.and_then(|aws| aws.allocation_ids.as_ref()) {
        annotations.push((
            "service.beta.kubernetes.io/aws-load-balancer-eip-allocations",
            ids.join(","),
        ));
    }
    annotations
}

fn azure(
    provider: &LoadBalancerProvider,
    internal: bool,
    errors: &mut Vec<FieldError>,
) -> Vec<(&'static str, String)> {
    let azure = provider.azure.clone().unwrap_or_default();
    let mut annotations = Vec::new();
    if internal {
        annotations.push((
            "service.beta.kubernetes.io/azure-load-balancer-internal",
            "true".to_owned(),
        ));
    }
    if let Some(subnet) = text(azure.subnet.as_ref()) {
        annotations.push((
            "service.beta.kubernetes.io/azure-load-balancer-internal-subnet",
            subnet,
        ));
    }
    if let Some(group) = text(azure.resource_group.as_ref()) {
        annotations.push((
            "service.beta.kubernetes.io/azure-load-balancer-resource-group",
            group,
        ));
    }
    if let Some(address) = azure.address_ip {
        match address.parse() {
            Ok(IpAddr::V4(ip)) => annotations.push((
                "service.beta.kubernetes.io/azure-load-balancer-ipv4",
                ip.to_string(),
            )),
            Ok(IpAddr::V6(ip)) => annotations.push((
                "service.beta.kubernetes.io/azure-load-balancer-ipv6",
                ip.to_string(),
            )),
            Err(_) => errors.push(FieldError::new(
                "envoy.networkPublishing.loadBalancer.provider.azure.addressIP",
                format!("expected an IP address, found {address:?}"),
            )),
        }
    }
    annotations
}

fn gcp(provider: &LoadBalancerProvider, internal: bool) -> Vec<(&'static str, String)> {
    let mut annotations = Vec::new();
    if internal {
        for name in [
            "networking.gke.io/load-balancer-type",
            "cloud.google.com/load-balancer-type",
        ] {
            annotations.push((name, "Internal".to_owned()));
        }
    }
    let subnet = provider.gcp.as_ref().and_then(|gcp| gcp.subnet.as_ref());
    if let Some(subnet) = text(subnet) {
        annotations.push(("networking.gke.io/internal-load-balancer-subnet", subnet));
    }
    annotations
}
