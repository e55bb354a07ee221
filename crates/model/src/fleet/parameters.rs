//! What a fleet's owner may choose about it, apart from what the Gateway itself says.
//!
//! Where nothing is chosen the place that runs the fleet has defaults. What a place can't do with a choice (an Envoy on
//! one's own machine has no nodes to be spread over) it leaves aside.

use std::collections::BTreeMap;
use std::time::Duration;

/// Choices about a fleet; `None`: the default of whoever runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetParameters {
    /// By what the Envoys are run.
    pub workload: Option<Workload>,
    /// How many Envoys there are, where they are counted; not with [`Autoscaling::Between`].
    pub replicas: Option<u32>,
    /// Whether their number follows the load.
    pub autoscaling: Option<Autoscaling>,
    /// Whether maintenance of nodes must leave Envoys running (a PodDisruptionBudget).
    pub disruption_budget: Option<bool>,
    /// How clients reach the fleet.
    pub service_type: Option<ServiceType>,
    /// Annotations of the Service alone, as load balancers want them.
    pub service_annotations: Option<BTreeMap<String, String>>,
    /// Who gives the Service its address (`spec.loadBalancerClass`).
    pub load_balancer_class: Option<String>,
    /// From where the load balancer takes connections, as CIDRs.
    pub load_balancer_source_ranges: Option<Vec<String>>,
    /// Whether connections may be led over another node, which hides the client's address.
    pub external_traffic_policy: Option<TrafficPolicy>,
    /// The image of Envoy.
    pub image: Option<String>,
    /// Secrets beside the Gateway with which the images are fetched.
    pub image_pull_secrets: Option<Vec<String>>,
    /// What each Envoy is promised: thousandths of a processor.
    pub cpu_request: Option<u64>,
    /// What each Envoy may use at most: thousandths of a processor. It decides the number of worker threads.
    pub cpu_limit: Option<u64>,
    /// What each Envoy is promised: bytes of memory.
    pub memory_request: Option<u64>,
    /// What each Envoy may use at most: bytes of memory. Close to it, it refuses requests.
    pub memory_limit: Option<u64>,
    /// Labels of the nodes on which Envoys may run.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints of nodes that are put up with.
    pub tolerations: Option<Vec<Toleration>>,
    /// The PriorityClass of the pods.
    pub priority_class: Option<String>,
    /// How long an Envoy that is to end goes on as if nothing were, so that everybody learns not to send to it.
    pub drain_delay: Option<Duration>,
    /// How long it then waits at most for its clients to go.
    pub drain_timeout: Option<Duration>,
    /// What Envoys log.
    pub log_level: Option<FleetLogLevel>,
    /// Connections from clients that each Envoy takes at most.
    pub max_connections: Option<u64>,
}

impl FleetParameters {
    /// These choices, and where there is none, that of `wider`: a Gateway's over those of its class.
    #[must_use]
    pub fn over(self, wider: Self) -> Self {
        Self {
            workload: self.workload.or(wider.workload),
            replicas: self.replicas.or(wider.replicas),
            autoscaling: self.autoscaling.or(wider.autoscaling),
            disruption_budget: self.disruption_budget.or(wider.disruption_budget),
            service_type: self.service_type.or(wider.service_type),
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

/// By what Envoys are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workload {
    /// A Deployment: as many as asked for.
    #[default]
    Deployment,
    /// A DaemonSet: one on each node.
    DaemonSet,
}

/// Whether the number of Envoys follows the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Autoscaling {
    /// It stays.
    #[default]
    Off,
    /// It follows the use of processors.
    Between {
        /// No fewer; at least 1.
        min: u32,
        /// No more; at least `min`.
        max: u32,
        /// The part of the promised processor time that is to be used on average, in percent.
        cpu_percent: u32,
    },
}

/// How clients reach a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceType {
    /// At an address of its own that the cluster's load balancer gives.
    #[default]
    LoadBalancer,
    /// At a port of every node.
    NodePort,
    /// From inside the cluster.
    ClusterIp,
}

/// Whether connections from outside may be led over another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficPolicy {
    /// To any Envoy; the client's address may be hidden.
    #[default]
    Cluster,
    /// Only to an Envoy on the node at which the connection arrives.
    Local,
}

/// A taint that is put up with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toleration {
    /// The taint's key; `None`: any, with [`Toleration::value`] `None`.
    pub key: Option<String>,
    /// The value it must have; `None`: any.
    pub value: Option<String>,
    /// The effect; `None`: any.
    pub effect: Option<TaintEffect>,
    /// With [`TaintEffect::NoExecute`]: for how many seconds; `None`: for ever.
    pub seconds: Option<i64>,
}

/// What a taint does to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintEffect {
    /// No new ones come.
    NoSchedule,
    /// New ones come only if there is no better place.
    PreferNoSchedule,
    /// Those that are there go, too.
    NoExecute,
}

/// What Envoys log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FleetLogLevel {
    /// Everything.
    Trace,
    /// For who searches.
    Debug,
    /// What happens.
    Info,
    /// What may be wrong.
    #[default]
    Warning,
    /// What is wrong.
    Error,
    /// What ends it.
    Critical,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_stands_over_a_wider_one_and_lets_the_others_through() {
        let class = FleetParameters {
            workload: Some(Workload::DaemonSet),
            replicas: Some(3),
            autoscaling: Some(Autoscaling::Between {
                min: 1,
                max: 2,
                cpu_percent: 80,
            }),
            disruption_budget: Some(true),
            service_type: Some(ServiceType::NodePort),
            service_annotations: Some(BTreeMap::from([("a".to_owned(), "b".to_owned())])),
            load_balancer_class: Some("lb".to_owned()),
            load_balancer_source_ranges: Some(vec!["192.0.2.0/24".to_owned()]),
            external_traffic_policy: Some(TrafficPolicy::Local),
            image: Some("image".to_owned()),
            image_pull_secrets: Some(vec!["pull".to_owned()]),
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
        // No field is forgotten: a Gateway that chooses nothing has all of its class's.
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
