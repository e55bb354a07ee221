//! The kinds of objects that make up a fleet.

use std::borrow::Cow;

use kube::core::{ApiResource, GroupVersionKind};

/// A kind, in write order: an object is written after the objects it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ObjectKind {
    ServiceAccount,
    ConfigMap,
    Service,
    /// A second Service, for addresses inside the cluster.
    ClusterService,
    NetworkPolicy,
    Deployment,
    DaemonSet,
    PodDisruptionBudget,
    HorizontalPodAutoscaler,
    /// A Gateway of another implementation, in front of the Service.
    Gateway,
    /// One for each TCP port of that Gateway. `None` stands for all ports, in a watch.
    TcpRoute(Option<u16>),
    /// One for each UDP port of that Gateway. `None` stands for all ports, in a watch.
    UdpRoute(Option<u16>),
    /// The class of these Gateways, which fleets share.
    GatewayClass,
}

impl ObjectKind {
    /// All kinds, as they are watched.
    pub(super) const ALL: [Self; 13] = [
        Self::ServiceAccount,
        Self::ConfigMap,
        Self::Service,
        Self::ClusterService,
        Self::NetworkPolicy,
        Self::Deployment,
        Self::DaemonSet,
        Self::PodDisruptionBudget,
        Self::HorizontalPodAutoscaler,
        Self::Gateway,
        Self::TcpRoute(None),
        Self::UdpRoute(None),
        Self::GatewayClass,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::ConfigMap => "ConfigMap",
            Self::Service | Self::ClusterService => "Service",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::Deployment => "Deployment",
            Self::DaemonSet => "DaemonSet",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::HorizontalPodAutoscaler => "HorizontalPodAutoscaler",
            Self::Gateway => "Gateway",
            Self::TcpRoute(_) => "TCPRoute",
            Self::UdpRoute(_) => "UDPRoute",
            Self::GatewayClass => "GatewayClass",
        }
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::ServiceAccount | Self::ConfigMap | Self::Service | Self::ClusterService => "v1",
            Self::NetworkPolicy => "networking.k8s.io/v1",
            Self::Deployment | Self::DaemonSet => "apps/v1",
            Self::PodDisruptionBudget => "policy/v1",
            Self::HorizontalPodAutoscaler => "autoscaling/v2",
            Self::Gateway | Self::TcpRoute(_) | Self::UdpRoute(_) | Self::GatewayClass => {
                "gateway.networking.k8s.io/v1"
            }
        }
    }

    pub(super) fn resource(self) -> ApiResource {
        let (group, version) = self
            .api_version()
            .split_once('/')
            .unwrap_or(("", self.api_version()));
        // All these kinds have regular plurals.
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, self.name()))
    }

    /// The suffix appended to the fleet's name in object names of this kind; usually empty.
    pub(super) fn suffix(self) -> Cow<'static, str> {
        match self {
            Self::ClusterService => "-cluster".into(),
            Self::TcpRoute(Some(port)) => format!("-tcp-{port}").into(),
            Self::UdpRoute(Some(port)) => format!("-udp-{port}").into(),
            _ => "".into(),
        }
    }

    /// The kind with its port, if it has one, and the fleet's name, from the name of an object of this kind.
    pub(super) fn parse(self, name: &str) -> Option<(Self, &str)> {
        let port = || name.rsplit_once('-')?.1.parse().ok();
        let kind = match self {
            Self::TcpRoute(_) => Self::TcpRoute(Some(port()?)),
            Self::UdpRoute(_) => Self::UdpRoute(Some(port()?)),
            other => other,
        };
        Some((kind, name.strip_suffix(&*kind.suffix())?))
    }

    /// The kind as it is watched: without a port.
    pub(super) fn watched(self) -> Self {
        match self {
            Self::TcpRoute(_) => Self::TcpRoute(None),
            Self::UdpRoute(_) => Self::UdpRoute(None),
            other => other,
        }
    }

    pub(super) fn is_cluster_scoped(self) -> bool {
        self == Self::GatewayClass
    }

    /// Whether a CRD that may be missing defines the kind.
    pub(super) fn is_custom(self) -> bool {
        self.api_version() == Self::Gateway.api_version()
    }

    /// Whether the object has the fleet's ports: without ports, it would be invalid.
    pub(super) fn has_ports(self) -> bool {
        matches!(
            self,
            Self::Service
                | Self::ClusterService
                | Self::Gateway
                | Self::TcpRoute(_)
                | Self::UdpRoute(_)
        )
    }

    /// Whether objects of this kind run pods.
    pub(super) fn is_workload(self) -> bool {
        matches!(self, Self::Deployment | Self::DaemonSet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_match_the_api_server() {
        let plurals = ObjectKind::ALL.map(|kind| {
            let resource = kind.resource();
            format!("{} {}", resource.api_version, resource.plural)
        });
        assert_eq!(
            plurals,
            [
                "v1 serviceaccounts",
                "v1 configmaps",
                "v1 services",
                "v1 services",
                "networking.k8s.io/v1 networkpolicies",
                "apps/v1 deployments",
                "apps/v1 daemonsets",
                "policy/v1 poddisruptionbudgets",
                "autoscaling/v2 horizontalpodautoscalers",
                "gateway.networking.k8s.io/v1 gateways",
                "gateway.networking.k8s.io/v1 tcproutes",
                "gateway.networking.k8s.io/v1 udproutes",
                "gateway.networking.k8s.io/v1 gatewayclasses",
            ]
        );
    }

    #[test]
    fn names_of_routes_contain_their_ports() {
        let kind = ObjectKind::TcpRoute(None);
        let parsed = kind.parse("web-tcp-8-j3-tcp-8080");
        assert_eq!(
            parsed,
            Some((ObjectKind::TcpRoute(Some(8080)), "web-tcp-8-j3"))
        );
        assert_eq!(parsed.unwrap().0.watched(), kind);
        for other in ["web", "web-udp-80", "web-tcp-080", "web-tcp-99999"] {
            assert_eq!(kind.parse(other), None, "{other}");
        }
    }
}
