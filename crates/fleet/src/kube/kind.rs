//! The kinds of objects that make up a fleet.

use kube::core::{ApiResource, GroupVersionKind};

/// A kind, in write order: an object is written after the objects it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ObjectKind {
    ServiceAccount,
    ConfigMap,
    Service,
    /// A second Service, for addresses inside the cluster.
    ClusterService,
    Deployment,
    DaemonSet,
    PodDisruptionBudget,
    HorizontalPodAutoscaler,
}

impl ObjectKind {
    pub(super) const ALL: [Self; 8] = [
        Self::ServiceAccount,
        Self::ConfigMap,
        Self::Service,
        Self::ClusterService,
        Self::Deployment,
        Self::DaemonSet,
        Self::PodDisruptionBudget,
        Self::HorizontalPodAutoscaler,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::ConfigMap => "ConfigMap",
            Self::Service | Self::ClusterService => "Service",
            Self::Deployment => "Deployment",
            Self::DaemonSet => "DaemonSet",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::HorizontalPodAutoscaler => "HorizontalPodAutoscaler",
        }
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::ServiceAccount | Self::ConfigMap | Self::Service | Self::ClusterService => "v1",
            Self::Deployment | Self::DaemonSet => "apps/v1",
            Self::PodDisruptionBudget => "policy/v1",
            Self::HorizontalPodAutoscaler => "autoscaling/v2",
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
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::ClusterService => "-cluster",
            _ => "",
        }
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
                "apps/v1 deployments",
                "apps/v1 daemonsets",
                "policy/v1 poddisruptionbudgets",
                "autoscaling/v2 horizontalpodautoscalers",
            ]
        );
    }
}
