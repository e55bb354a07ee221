//! Fleet parameters in a ConfigMap.
//!
//! In: the text under the key [`KEY`]. Out: the parameters, or an error message for the first invalid field. Pure:
//! the `fleet` crate applies the parameters.

mod quantity;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde_json::Value;
use sesame_api::Duration;
use sesame_model::{
    Autoscaling, FleetLogLevel, FleetParameters, ServiceType, TaintEffect, Toleration,
    TrafficPolicy, Workload,
};

use self::quantity::{Cpu, Memory};

/// The ConfigMap key that holds the parameters, as YAML or JSON.
pub const KEY: &str = "parameters.yaml";

/// The maximum length of the text, in bytes. All parameters together take less than a hundredth of it.
const MAX_TEXT: usize = 64 * 1024;

/// The maximum nesting of lists and mappings. The parameters have three levels.
const MAX_DEPTH: usize = 16;

/// Reads the parameters.
///
/// # Errors
/// The first error, with its field: `resources.limits.memory: expected …`. Unknown fields are errors too, since they
/// would have no effect.
pub fn parse(text: &str) -> Result<FleetParameters, String> {
    if text.len() > MAX_TEXT {
        return Err(format!("text is longer than the limit of {MAX_TEXT} bytes"));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
        with_snippet: false,
    };
    let value: Option<Value> = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| format!("invalid YAML: {}", error.to_string().replace('\n', " ")))?;
    let value = value.filter(|value| !value.is_null());
    let written: Written =
        sesame_api::decode_value(value.unwrap_or_else(|| Value::Object(serde_json::Map::new())))
            .map_err(|error| error.to_string())?;
    written.checked()
}

/// The parameters as YAML or JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    workload: Option<WrittenWorkload>,
    replicas: Option<u32>,
    autoscaling: Option<WrittenAutoscaling>,
    disruption_budget: Option<bool>,
    #[serde(default)]
    service: WrittenService,
    image: Option<String>,
    image_pull_secrets: Option<Vec<String>>,
    #[serde(default)]
    resources: WrittenResources,
    node_selector: Option<BTreeMap<String, String>>,
    tolerations: Option<Vec<WrittenToleration>>,
    priority_class_name: Option<String>,
    #[serde(default)]
    drain: WrittenDrain,
    log_level: Option<WrittenLogLevel>,
    max_connections: Option<u64>,
}

#[derive(Clone, Copy, Deserialize)]
enum WrittenWorkload {
    Deployment,
    DaemonSet,
}

enum WrittenAutoscaling {
    Off,
    Between(WrittenBetween),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenBetween {
    min: u32,
    max: u32,
    cpu_percent: u32,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenService {
    #[serde(rename = "type")]
    type_: Option<WrittenServiceType>,
    annotations: Option<BTreeMap<String, String>>,
    load_balancer_class: Option<String>,
    load_balancer_source_ranges: Option<Vec<String>>,
    external_traffic_policy: Option<WrittenTrafficPolicy>,
}

#[derive(Clone, Copy, Deserialize)]
enum WrittenServiceType {
    LoadBalancer,
    NodePort,
    ClusterIP,
}

#[derive(Clone, Copy, Deserialize)]
enum WrittenTrafficPolicy {
    Cluster,
    Local,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenResources {
    #[serde(default)]
    requests: WrittenAmounts,
    #[serde(default)]
    limits: WrittenAmounts,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAmounts {
    cpu: Option<Cpu>,
    memory: Option<Memory>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenToleration {
    key: Option<String>,
    operator: Option<WrittenOperator>,
    value: Option<String>,
    effect: Option<WrittenEffect>,
    toleration_seconds: Option<i64>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
enum WrittenOperator {
    Exists,
    Equal,
}

#[derive(Clone, Copy, Deserialize)]
enum WrittenEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenDrain {
    delay: Option<Duration>,
    timeout: Option<Duration>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenLogLevel {
    Trace,
    Debug,
    Info,
    Warning,
    Error,
    Critical,
}

/// `false`, or a mapping.
impl<'de> Deserialize<'de> for WrittenAutoscaling {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = WrittenAutoscaling;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("false, or a mapping with min, max and cpuPercent")
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<Self::Value, E> {
                match on {
                    false => Ok(WrittenAutoscaling::Off),
                    true => Err(E::invalid_value(serde::de::Unexpected::Bool(on), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                WrittenBetween::deserialize(MapAccessDeserializer::new(map))
                    .map(WrittenAutoscaling::Between)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl Written {
    /// Checks constraints that the types don't express.
    fn checked(self) -> Result<FleetParameters, String> {
        if self.replicas == Some(0) {
            return Err("replicas: expected 1 or more".to_owned());
        }
        if self.max_connections == Some(0) {
            return Err("maxConnections: expected 1 or more".to_owned());
        }
        for (field, name) in [
            ("image", &self.image),
            ("priorityClassName", &self.priority_class_name),
            (
                "service.loadBalancerClass",
                &self.service.load_balancer_class,
            ),
        ] {
            let blank = |text: &String| text.is_empty() || text.contains(char::is_whitespace);
            if name.as_ref().is_some_and(blank) {
                return Err(format!("{field}: expected a name without spaces"));
            }
        }
        self.resources.check()?;
        let autoscaling = match self.autoscaling {
            Some(WrittenAutoscaling::Between(_)) if self.replicas.is_some() => {
                return Err(
                    "replicas: cannot be combined with autoscaling; remove one of them".to_owned(),
                );
            }
            Some(WrittenAutoscaling::Between(between)) => Some(between.checked()?),
            Some(WrittenAutoscaling::Off) => Some(Autoscaling::Off),
            None => None,
        };
        let tolerations = self.tolerations.map(|list| {
            let list = list.into_iter().enumerate();
            list.map(|(index, toleration)| toleration.checked(index))
                .collect()
        });
        let ranges = self.service.load_balancer_source_ranges;
        for (index, range) in ranges.iter().flatten().enumerate() {
            if !is_cidr(range) {
                return Err(format!(
                    "service.loadBalancerSourceRanges[{index}]: expected a range such as 192.0.2.0/24, found {range:?}"
                ));
            }
        }
        Ok(FleetParameters {
            workload: self.workload.map(Into::into),
            replicas: self.replicas,
            autoscaling,
            disruption_budget: self.disruption_budget,
            service_type: self.service.type_.map(Into::into),
            service_annotations: self.service.annotations,
            load_balancer_class: self.service.load_balancer_class,
            load_balancer_source_ranges: ranges,
            external_traffic_policy: self.service.external_traffic_policy.map(Into::into),
            image: self.image,
            image_pull_secrets: self.image_pull_secrets,
            cpu_request: self.resources.requests.cpu.map(|cpu| cpu.0),
            cpu_limit: self.resources.limits.cpu.map(|cpu| cpu.0),
            memory_request: self.resources.requests.memory.map(|memory| memory.0),
            memory_limit: self.resources.limits.memory.map(|memory| memory.0),
            node_selector: self.node_selector,
            tolerations: tolerations.transpose()?,
            priority_class: self.priority_class_name,
            drain_delay: self.drain.delay.map(|delay| delay.as_std()),
            drain_timeout: self.drain.timeout.map(|timeout| timeout.as_std()),
            log_level: self.log_level.map(Into::into),
            max_connections: self.max_connections,
        })
    }
}

impl WrittenBetween {
    fn checked(&self) -> Result<Autoscaling, String> {
        let Self {
            min,
            max,
            cpu_percent,
        } = *self;
        match (min, max, cpu_percent) {
            (0, ..) => Err("autoscaling.min: expected 1 or more".to_owned()),
            (_, max, _) if max < min => Err(format!(
                "autoscaling.max: must not be less than autoscaling.min ({min}), found {max}"
            )),
            (.., 0) => Err("autoscaling.cpuPercent: expected 1 or more".to_owned()),
            _ => Ok(Autoscaling::Between {
                min,
                max,
                cpu_percent,
            }),
        }
    }
}

impl WrittenResources {
    fn check(&self) -> Result<(), String> {
        let (requests, limits) = (&self.requests, &self.limits);
        if matches!((requests.cpu, limits.cpu), (Some(least), Some(most)) if least > most) {
            return Err("resources.requests.cpu: must not exceed resources.limits.cpu".to_owned());
        }
        if matches!((requests.memory, limits.memory), (Some(least), Some(most)) if least > most) {
            return Err(
                "resources.requests.memory: must not exceed resources.limits.memory".to_owned(),
            );
        }
        Ok(())
    }
}

impl WrittenToleration {
    fn checked(self, index: usize) -> Result<Toleration, String> {
        let wrong = |why: &str| Err(format!("tolerations[{index}]: {why}"));
        let value = match (self.operator, self.value) {
            (Some(WrittenOperator::Exists), Some(_)) => {
                return wrong("operator Exists takes no value");
            }
            // Kubernetes treats a missing value as empty.
            (Some(WrittenOperator::Equal), None) => Some(String::new()),
            (_, value) => value,
        };
        if self.key.is_none() && value.is_some() {
            return wrong("a value requires a key");
        }
        if self.toleration_seconds.is_some()
            && !matches!(self.effect, Some(WrittenEffect::NoExecute))
        {
            return wrong("tolerationSeconds requires effect NoExecute");
        }
        Ok(Toleration {
            key: self.key,
            value,
            effect: self.effect.map(Into::into),
            seconds: self.toleration_seconds,
        })
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

/// Converts the enums of the text to the model's.
macro_rules! words {
    ($($written:ident => $model:ident { $($from:ident => $to:ident),+ $(,)? })+) => {$(
        impl From<$written> for $model {
            fn from(word: $written) -> Self {
                match word {
                    $($written::$from => $model::$to),+
                }
            }
        }
    )+};
}

words! {
    WrittenWorkload => Workload { Deployment => Deployment, DaemonSet => DaemonSet }
    WrittenServiceType => ServiceType { LoadBalancer => LoadBalancer, NodePort => NodePort, ClusterIP => ClusterIp }
    WrittenTrafficPolicy => TrafficPolicy { Cluster => Cluster, Local => Local }
    WrittenEffect => TaintEffect {
        NoSchedule => NoSchedule,
        PreferNoSchedule => PreferNoSchedule,
        NoExecute => NoExecute,
    }
    WrittenLogLevel => FleetLogLevel {
        Trace => Trace,
        Debug => Debug,
        Info => Info,
        Warning => Warning,
        Error => Error,
        Critical => Critical,
    }
}

#[cfg(test)]
mod tests;
