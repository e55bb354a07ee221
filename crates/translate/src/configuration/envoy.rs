//! The `envoy` section: parameters for fleets, which the `fleet` crate applies.

use std::net::IpAddr;
use std::sync::Arc;

use sesame_api::{
    Duration, EnvoyConfiguration, EnvoyLogLevel, EnvoyResources, EnvoyToleration, EnvoyWorkload,
    ExternalTrafficPolicy, ResourceAmounts, TolerationEffect, TolerationOperator,
};
use sesame_model::{
    Autoscaling, FleetLogLevel, FleetParameters, TaintEffect, Toleration, TrafficPolicy, Workload,
};

use super::{publishing, quantity};
use crate::problem::FieldError;

/// Reads the parameters for a fleet.
///
/// # Errors
/// All invalid fields.
pub(crate) fn parameters(envoy: &EnvoyConfiguration) -> Result<FleetParameters, Vec<FieldError>> {
    let mut errors = Vec::new();
    let network = &envoy.network_publishing;
    let ranges = network.load_balancer_source_ranges.as_deref();
    for (index, range) in ranges.unwrap_or_default().iter().enumerate() {
        if !is_cidr(range) {
            errors.push(FieldError::new(
                format!("envoy.networkPublishing.loadBalancerSourceRanges[{index}]"),
                format!("expected a range such as 192.0.2.0/24, found {range:?}"),
            ));
        }
    }
    let load_balancer = network.load_balancer.as_ref();
    let load_balancer_annotations =
        load_balancer.map(|balancer| publishing::annotations(balancer, &mut errors));
    let amounts = Amounts::read(&envoy.resources, &mut errors);
    let autoscaling = match (&envoy.autoscaling, envoy.replicas) {
        (Some(limits), _) => Some(Autoscaling::Between {
            min: limits.min_replicas,
            max: limits.max_replicas,
            cpu_percent: limits.cpu_percent,
        }),
        // A fixed number of replicas overrides inherited autoscaling.
        (None, Some(_)) => Some(Autoscaling::Off),
        (None, None) => None,
    };
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(FleetParameters {
        managed: envoy.managed,
        workload: envoy.workload.as_ref().map(workload),
        replicas: envoy.replicas,
        autoscaling,
        disruption_budget: envoy.disruption_budget,
        network_policy: envoy.network_policy,
        publishing: publishing::publishing(network),
        load_balancer_annotations,
        service_annotations: network.annotations.clone(),
        load_balancer_class: text(network.load_balancer_class.as_ref()),
        load_balancer_source_ranges: texts(ranges),
        external_traffic_policy: network.external_traffic_policy.as_ref().map(traffic_policy),
        image: text(envoy.image.as_ref()),
        service_account_annotations: envoy.service_account_annotations.clone(),
        image_pull_secrets: texts(envoy.image_pull_secrets.as_deref()),
        cpu_request: amounts.cpu_request,
        cpu_limit: amounts.cpu_limit,
        memory_request: amounts.memory_request,
        memory_limit: amounts.memory_limit,
        node_selector: envoy.node_selector.clone(),
        tolerations: envoy
            .tolerations
            .as_ref()
            .map(|list| list.iter().map(toleration).collect()),
        priority_class: text(envoy.priority_class_name.as_ref()),
        drain_delay: envoy.drain.delay.as_ref().map(Duration::as_std),
        drain_timeout: envoy.drain.timeout.as_ref().map(Duration::as_std),
        log_level: envoy.log_level.as_ref().map(log_level),
        max_connections: envoy.max_connections.map(u64::from),
    })
}

/// Resources: CPU in millicores, memory in bytes.
#[derive(Default)]
struct Amounts {
    cpu_request: Option<u64>,
    cpu_limit: Option<u64>,
    memory_request: Option<u64>,
    memory_limit: Option<u64>,
}

impl Amounts {
    fn read(resources: &EnvoyResources, errors: &mut Vec<FieldError>) -> Self {
        let EnvoyResources { requests, limits } = resources;
        let mut read = |part: &str, of: &ResourceAmounts| {
            amounts(&format!("envoy.resources.{part}"), of, errors)
        };
        let (cpu_request, memory_request) = read("requests", requests);
        let (cpu_limit, memory_limit) = read("limits", limits);
        let amounts = Self {
            cpu_request,
            cpu_limit,
            memory_request,
            memory_limit,
        };
        for (name, request, limit) in [
            ("cpu", amounts.cpu_request, amounts.cpu_limit),
            ("memory", amounts.memory_request, amounts.memory_limit),
        ] {
            if matches!((request, limit), (Some(request), Some(limit)) if request > limit) {
                errors.push(FieldError::new(
                    format!("envoy.resources.requests.{name}"),
                    format!("must not exceed envoy.resources.limits.{name}"),
                ));
            }
        }
        amounts
    }
}

/// CPU in millicores and memory in bytes, at `field`.
pub(super) fn amounts(
    field: &str,
    amounts: &ResourceAmounts,
    errors: &mut Vec<FieldError>,
) -> (Option<u64>, Option<u64>) {
    let mut read =
        |name: &str, text: &Option<Arc<str>>, parse: fn(&str) -> Option<u64>, expected: &str| {
            let text = text.as_deref()?;
            let amount = parse(text);
            if amount.is_none() {
                let message = format!("expected {expected}, found {text:?}");
                errors.push(FieldError::new(format!("{field}.{name}"), message));
            }
            amount
        };
    let cpu = "a CPU quantity such as 500m or 2";
    let memory = "a memory quantity such as 128Mi or 1Gi";
    (
        read("cpu", &amounts.cpu, quantity::millicores, cpu),
        read("memory", &amounts.memory, quantity::bytes, memory),
    )
}

pub(super) fn text(text: Option<&Arc<str>>) -> Option<String> {
    text.map(|text| text.as_ref().to_owned())
}

pub(super) fn texts(list: Option<&[Arc<str>]>) -> Option<Vec<String>> {
    list.map(|list| list.iter().map(|text| text.as_ref().to_owned()).collect())
}

fn toleration(toleration: &EnvoyToleration) -> Toleration {
    let value = match toleration.operator {
        Some(TolerationOperator::Exists) => None,
        // Kubernetes treats a missing value as empty.
        Some(_) => Some(text(toleration.value.as_ref()).unwrap_or_default()),
        None => text(toleration.value.as_ref()),
    };
    Toleration {
        key: text(toleration.key.as_ref()),
        value,
        effect: toleration.effect.as_ref().map(|effect| match effect {
            TolerationEffect::NoSchedule => TaintEffect::NoSchedule,
            TolerationEffect::PreferNoSchedule => TaintEffect::PreferNoSchedule,
            TolerationEffect::NoExecute | TolerationEffect::Other(_) => TaintEffect::NoExecute,
        }),
        seconds: toleration.toleration_seconds,
    }
}

// `Other` can't occur: the schema rejects unknown values, both in the API server and in files.

fn workload(workload: &EnvoyWorkload) -> Workload {
    match workload {
        EnvoyWorkload::DaemonSet => Workload::DaemonSet,
        EnvoyWorkload::Deployment | EnvoyWorkload::Other(_) => Workload::Deployment,
    }
}

fn traffic_policy(policy: &ExternalTrafficPolicy) -> TrafficPolicy {
    match policy {
        ExternalTrafficPolicy::Local => TrafficPolicy::Local,
        ExternalTrafficPolicy::Cluster | ExternalTrafficPolicy::Other(_) => TrafficPolicy::Cluster,
    }
}

fn log_level(level: &EnvoyLogLevel) -> FleetLogLevel {
    match level {
        EnvoyLogLevel::Trace => FleetLogLevel::Trace,
        EnvoyLogLevel::Debug => FleetLogLevel::Debug,
        EnvoyLogLevel::Info => FleetLogLevel::Info,
        EnvoyLogLevel::Warning | EnvoyLogLevel::Other(_) => FleetLogLevel::Warning,
        EnvoyLogLevel::Error => FleetLogLevel::Error,
        EnvoyLogLevel::Critical => FleetLogLevel::Critical,
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((ip, length)) = text.split_once('/') else {
        return false;
    };
    let most = match ip.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= most)
}
