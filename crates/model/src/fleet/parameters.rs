//! Optional parameters of a fleet, in addition to the Gateway's spec.
//!
//! The code that runs the fleet supplies defaults and ignores parameters that don't apply (a local Envoy has no node
//! selector).

use std::collections::BTreeMap;
use std::time::Duration;

/// Parameters of a fleet; `None` means the default of the code that runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetParameters {
    /// Whether the objects that run the fleet are created and updated. Either way, they are deleted with their owner.
    pub managed: Option<bool>,
    /// The kind of workload.
    pub workload: Option<Workload>,
    /// The number of Envoys in a Deployment; not used with [`Autoscaling::Between`].
    pub replicas: Option<u32>,
    /// Whether the number of Envoys follows the load.
    pub autoscaling: Option<Autoscaling>,
    /// Whether the fleet has a PodDisruptionBudget.
    pub disruption_budget: Option<bool>,
    /// Whether the fleet has a NetworkPolicy.
    pub network_policy: Option<bool>,
    /// How clients reach the fleet.
    pub publishing: Option<Publishing>,
    /// Annotations for the Service if its type is LoadBalancer, for a cloud's load balancer.
    pub load_balancer_annotations: Option<BTreeMap<String, String>>,
    /// Annotations for the Service only, such as those for a load balancer.
    pub service_annotations: Option<BTreeMap<String, String>>,
    /// The Service's `spec.loadBalancerClass`.
    pub load_balancer_class: Option<String>,
    /// The client addresses that the load balancer permits, as CIDRs.
    pub load_balancer_source_ranges: Option<Vec<String>>,
    /// The Service's `spec.externalTrafficPolicy`.
    pub external_traffic_policy: Option<TrafficPolicy>,
    /// The Envoy image.
    pub image: Option<String>,
    /// Annotations for the ServiceAccount.
    pub service_account_annotations: Option<BTreeMap<String, String>>,
    /// Secrets for pulling images, in the Gateway's namespace.
    pub image_pull_secrets: Option<Vec<String>>,
    /// CPU request of each Envoy, in millicores.
    pub cpu_request: Option<u64>,
    /// CPU limit of each Envoy, in millicores. Determines the number of worker threads.
    pub cpu_limit: Option<u64>,
    /// Memory request of each Envoy, in bytes.
    pub memory_request: Option<u64>,
    /// Memory limit of each Envoy, in bytes. Near the limit, Envoy rejects requests.
    pub memory_limit: Option<u64>,
    /// Labels of the nodes that may run Envoys.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Tolerated taints.
    pub tolerations: Option<Vec<Toleration>>,
    /// The PriorityClass of the pods.
    pub priority_class: Option<String>,
    /// How long a terminating Envoy keeps serving normally, so that load balancers can stop sending to it.
    pub drain_delay: Option<Duration>,
    /// The maximum time to drain connections after the drain delay.
    pub drain_timeout: Option<Duration>,
    /// The log level of the Envoys.
    pub log_level: Option<FleetLogLevel>,
    /// The maximum number of client connections per Envoy.
    pub max_connections: Option<u64>,
}

impl FleetParameters {
    /// These parameters, with those of `wider` as defaults, such as a Gateway's over its class's.
    #[must_use]
    pub fn over(self, wider: Self) -> Self {
        Self {
            managed: self.managed.or(wider.managed),
            workload: self.workload.or(wider.workload),
            replicas: self.replicas.or(wider.replicas),
            autoscaling: self.autoscaling.or(wider.autoscaling),
            disruption_budget: self.disruption_budget.or(wider.disruption_budget),
            network_policy: self.network_policy.or(wider.network_policy),
            publishing: self.publishing.or(wider.publishing),
            load_balancer_annotations: self
                .load_balancer_annotations
                .or(wider.load_balancer_annotations),
            service_annotations: self.service_annotations.or(wider.service_annotations),
            load_balancer_class: self.load_balancer_class.or(wider.load_balancer_class),
            load_balancer_source_ranges: self
                .load_balancer_source_ranges
                .or(wider.load_balancer_source_ranges),
            external_traffic_policy: self
                .external_traffic_policy
                .or(wider.external_traffic_policy),
            image: self.image.or(wider.image),
            image_pull_secrets: self.image_pull_secrets.or(wider.image_pull_secrets),
            service_account_annotations: self
                .service_account_annotations
                .or(wider.service_account_annotations),
            cpu_request: self.cpu_request.or(wider.cpu_request),
            cpu_limit: self.cpu_limit.or(wider.cpu_limit),
            memory_request: self.memory_request.or(wider.memory_request),
            memory_limit: self.memory_limit.or(wider.memory_limit),
            node_selector: self.node_selector.or(wider.node_selector),
            tolerations: self.tolerations.or(wider.tolerations),
            priority_class: self.priority_class.or(wider.priority_class),
            drain_delay: self.drain_delay.or(wider.drain_delay),
            drain_timeout: self.drain_timeout.or(wider.drain_timeout),
            log_level: self.log_level.or(wider.log_level),
            max_connections: self.max_connections.or(wider.max_connections),
        }
    }
}

/// The kind of workload that runs the Envoys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workload {
    /// A Deployment with a configurable number of replicas.
    #[default]
    Deployment,
    /// A DaemonSet: one Envoy on each node.
    DaemonSet,
}

/// Whether the number of Envoys follows the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Autoscaling {
    /// The number is fixed.
    #[default]
    Off,
    /// The number follows CPU usage.
    Between {
        /// The minimum; at least 1.
        min: u32,
        /// The maximum; at least `min`.
        max: u32,
        /// The target average CPU usage, as a percentage of the CPU request.
        cpu_percent: u32,
    },
}

/// How clients reach a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Publishing {
    /// A Service with an address from the cluster's load balancer.
    #[default]
    LoadBalancer,
    /// A Service with a port on every node.
    NodePort,
    /// A Service with an address inside the cluster.
    ClusterIp,
    /// A Gateway of another implementation, in front of a Service with an address inside the cluster.
    Gateway(OuterClass),
}

/// The class of the Gateways in front of fleets. Another Gateway API implementation serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OuterClass {
    /// An existing GatewayClass, by name.
    Existing(String),
    /// A GatewayClass that the fleets share and that is created for them.
    Created(CreatedClass),
}

/// The spec of a GatewayClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedClass {
    /// The implementation's controller name.
    pub controller_name: String,
    /// The object with the implementation's parameters.
    pub parameters: Option<ClassParameters>,
}

/// The object with the parameters of a GatewayClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassParameters {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The namespace; `None` for a cluster-scoped object.
    pub namespace: Option<String>,
}

/// Which Envoys get connections that arrive at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficPolicy {
    /// Any Envoy; the client's address may be hidden.
    #[default]
    Cluster,
    /// Only Envoys on the same node.
    Local,
}

/// A toleration of a taint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toleration {
    /// The taint's key; `None` for any key, which requires [`Toleration::value`] to be `None`.
    pub key: Option<String>,
    /// The taint's value; `None` for any value.
    pub value: Option<String>,
    /// The taint's effect; `None` for any effect.
    pub effect: Option<TaintEffect>,
    /// How long [`TaintEffect::NoExecute`] is tolerated, in seconds; `None` for no limit.
    pub seconds: Option<i64>,
}

/// The effect of a taint on pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintEffect {
    /// No new pods.
    NoSchedule,
    /// New pods only if no other node fits.
    PreferNoSchedule,
    /// No new pods, and running pods are evicted.
    NoExecute,
}

/// The log level of Envoys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FleetLogLevel {
    /// All messages.
    Trace,
    /// Details for debugging.
    Debug,
    /// Normal events.
    Info,
    /// Possible problems.
    #[default]
    Warning,
    /// Errors.
    Error,
    /// Fatal errors.
    Critical,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrower_parameters_override_wider_ones() {
        let class = FleetParameters {
            managed: Some(true),
            workload: Some(Workload::DaemonSet),
            replicas: Some(3),
            autoscaling: Some(Autoscaling::Between {
                min: 1,
                max: 2,
                cpu_percent: 80,
            }),
            disruption_budget: Some(true),
            network_policy: Some(true),
            publishing: Some(Publishing::NodePort),
            load_balancer_annotations: Some(BTreeMap::new()),
            service_annotations: Some(BTreeMap::from([("a".to_owned(), "b".to_owned())])),
            load_balancer_class: Some("lb".to_owned()),
            load_balancer_source_ranges: Some(vec!["192.0.2.0/24".to_owned()]),
            external_traffic_policy: Some(TrafficPolicy::Local),
            image: Some("image".to_owned()),
            image_pull_secrets: Some(vec!["pull".to_owned()]),
            service_account_annotations: Some(BTreeMap::new()),
            cpu_request: Some(100),
            cpu_limit: Some(2000),
            memory_request: Some(1 << 20),
            memory_limit: Some(1 << 30),
            node_selector: Some(BTreeMap::new()),
            tolerations: Some(vec![Toleration::default()]),
            priority_class: Some("high".to_owned()),
            drain_delay: Some(Duration::from_secs(1)),
            drain_timeout: Some(Duration::from_secs(2)),
            log_level: Some(FleetLogLevel::Debug),
            max_connections: Some(1000),
        };
        // Covers every field: a Gateway without parameters gets all of its class's.
        assert_eq!(FleetParameters::default().over(class.clone()), class);
        assert_eq!(class.clone().over(FleetParameters::default()), class);

        let gateway = FleetParameters {
            autoscaling: Some(Autoscaling::Off),
            replicas: Some(5),
            ..FleetParameters::default()
        };
        assert_eq!(
            gateway.over(class.clone()),
            FleetParameters {
                autoscaling: Some(Autoscaling::Off),
                replicas: Some(5),
                ..class
            }
        );
    }
}
