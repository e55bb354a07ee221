//! The API resources that the tests use.

use kube::api::ApiResource;

/// The resource with this plural name; for Contour's kinds, the group follows the name.
pub(crate) fn resource(plural: &str) -> ApiResource {
    let (group, version, kind) = match plural {
        "gatewayclasses" => ("gateway.networking.k8s.io", "v1", "GatewayClass"),
        "gateways" => ("gateway.networking.k8s.io", "v1", "Gateway"),
        "httpproxies" => ("projectsesame.io", "v1", "HTTPProxy"),
        "httpproxies.projectcontour.io" => ("projectcontour.io", "v1", "HTTPProxy"),
        "sesameconfigurations" => ("projectsesame.io", "v1alpha1", "SesameConfiguration"),
        "ingresses" => ("networking.k8s.io", "v1", "Ingress"),
        "events" => ("events.k8s.io", "v1", "Event"),
        "xlistenersets" => ("gateway.networking.x-k8s.io", "v1alpha1", "XListenerSet"),
        "xbackends" => ("gateway.networking.x-k8s.io", "v1alpha1", "XBackend"),
        "resourcequotas" => ("", "v1", "ResourceQuota"),
        "httproutes" => ("gateway.networking.k8s.io", "v1", "HTTPRoute"),
        "udproutes" => ("gateway.networking.k8s.io", "v1", "UDPRoute"),
        "services" => ("", "v1", "Service"),
        "secrets" => ("", "v1", "Secret"),
        "configmaps" => ("", "v1", "ConfigMap"),
        "namespaces" => ("", "v1", "Namespace"),
        "endpointslices" => ("discovery.k8s.io", "v1", "EndpointSlice"),
        "deployments" => ("apps", "v1", "Deployment"),
        "customresourcedefinitions" => ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        other => panic!("{other}"),
    };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: match group {
            "" => version.to_owned(),
            _ => format!("{group}/{version}"),
        },
        kind: kind.to_owned(),
        plural: plural.split('.').next().unwrap().to_owned(),
    }
}
