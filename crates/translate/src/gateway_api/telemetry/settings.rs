//! Reads a policy. Settings that Envoy doesn't support make it invalid, except for unsupported attributes, which are
//! omitted and reported.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_api::{
    Fraction, HttpHeader, Kind, ObjectKey, ParentBasedSampling, SamplingMode,
    SpanAttribute as Attribute, SpanAttributeSource, TracingConfig, TracingMode, TracingProvider,
    XTelemetryPolicy, reason,
};
use sesame_engine::Reader;
use sesame_model::{
    PartsPerMillion, Sampling, SpanAttribute, SpanProperty, SpanValue, Target, Tracing,
};

use super::OwnTracing;
use crate::gateway_api::policy_status;
use crate::gateway_api::route::backends::{self, Resolver};
use crate::gateway_api::route::matches::{CONTROLS, has_controls};
use crate::problem::{FieldError, Problem, bounded};
use crate::shared::grants::Referrer;
use crate::shared::headers::check_name;

/// All requests.
const ALL: PartsPerMillion = PartsPerMillion(1_000_000);

/// The settings of a valid policy.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Settings {
    /// Requests are not traced.
    Off(TracingMode),
    /// Requests are traced.
    On {
        /// How requests are traced. The service name is empty if none is configured.
        tracing: Tracing,
        /// The fields of unsupported attributes, with reasons.
        omitted: Vec<FieldError>,
    },
}

impl Settings {
    /// How a Gateway traces requests; `None` if the instance's configuration decides. The default service name is
    /// `name.namespace`.
    pub(super) fn tracing(&self, gateway: &ObjectKey) -> Option<OwnTracing> {
        let tracing = match self {
            Self::On { tracing, .. } => tracing,
            Self::Off(TracingMode::Disabled) => return Some(OwnTracing(None)),
            Self::Off(_) => return None,
        };
        let mut tracing = tracing.clone();
        if tracing.service.is_empty() {
            tracing.service = format!("{}.{}", gateway.name, gateway.namespace).into();
        }
        Some(OwnTracing(Some(tracing)))
    }

    /// The effect, for the condition of an accepted policy. `traced` is whether the instance's configuration has tracing.
    pub(super) fn effect(&self, traced: bool) -> String {
        match self {
            Self::Off(TracingMode::Disabled) => "requests are not traced".to_owned(),
            Self::Off(_) if traced => {
                "requests are traced as in the configuration of the Sesame instance, which is the default".to_owned()
            }
            Self::Off(_) => {
                "requests are not traced, which is the default; set spec.tracing.mode to Enabled to trace them"
                    .to_owned()
            }
            Self::On { omitted, .. } => {
                let omitted = omitted.iter().map(|error| format!("; {error}"));
                bounded("requests are traced".to_owned() + &omitted.collect::<String>())
            }
        }
    }
}

/// The maximum total size of the names and values of attributes, in bytes: each listener of a Gateway has a copy.
const MAX_ATTRIBUTES: usize = 64 * 1024;

/// A policy's settings, or why it is invalid; and its unresolved reference.
pub(super) fn read(
    reader: &mut Reader<'_>,
    sources: backends::Sources,
    key: &ObjectKey,
    policy: &XTelemetryPolicy,
) -> (Result<Settings, Problem>, Option<Problem>) {
    let (settings, unresolved) = match &policy.spec.tracing {
        None => (Ok(Settings::Off(TracingMode::ImplementationDefault)), None),
        Some(config) => match (&config.mode, &config.provider) {
            (TracingMode::Enabled, Some(provider)) => {
                let (collector, unresolved) = collector(reader, sources, key, provider);
                (on(config, provider, collector), unresolved)
            }
            (TracingMode::Enabled, None) => (
                Err(FieldError::new("spec.tracing.provider", "is required")),
                None,
            ),
            (TracingMode::Other(mode), _) => (
                Err(FieldError::new(
                    "spec.tracing.mode",
                    format!("{mode} is not supported; use Enabled or Disabled"),
                )),
                None,
            ),
            (off, _) => (Ok(Settings::Off(off.clone())), None),
        },
    };
    let settings = match unsupported_targets(policy) {
        Some(problem) => Err(problem),
        None => settings.map_err(invalid),
    };
    (settings, unresolved)
}

fn unsupported_targets(policy: &XTelemetryPolicy) -> Option<Problem> {
    let targets = policy.spec.target_refs.iter().enumerate();
    let unsupported = targets.filter(|(_, target)| target.known_kind() != Some(Kind::Gateway));
    let problems = unsupported.map(|(index, target)| {
        let field = format!("spec.targetRefs[{index}]");
        policy_status::unsupported_target(&field, &target.kind, &target.group, Kind::Gateway)
    });
    Problem::merge(problems.collect())
}

fn invalid(error: FieldError) -> Problem {
    Problem::new(reason::policy::INVALID, error.to_string())
}

fn on(
    config: &TracingConfig,
    provider: &TracingProvider,
    collector: Target,
) -> Result<Settings, FieldError> {
    let sizes = config.attributes.iter().map(|attribute| {
        let (SpanAttributeSource::Header(text)
        | SpanAttributeSource::Literal(text)
        | SpanAttributeSource::Attribute(text)
        | SpanAttributeSource::Unknown(text)) = &attribute.source;
        attribute.name.len() + text.len()
    });
    let size = sizes.sum::<usize>();
    if size > MAX_ATTRIBUTES {
        return Err(FieldError::new(
            "spec.tracing.attributes",
            format!("names and values total {size} bytes; at most {MAX_ATTRIBUTES} are allowed"),
        ));
    }
    let (attributes, omitted) = attributes(&config.attributes);
    let tracing = Tracing {
        collector,
        headers: headers(&provider.headers)?,
        sampling: sampling(config.sampling_rate, config.parent_based_sampling.as_ref())?,
        service: config.service_name.clone().unwrap_or_default(),
        span: config.span_name.clone(),
        max_path: None,
        attributes,
    };
    Ok(Settings::On { tracing, omitted })
}

/// The collector, and why it can't be reached. If its Service is missing, listeners refer to a cluster that doesn't
/// exist yet, so they don't change when the Service is created.
fn collector(
    reader: &mut Reader<'_>,
    sources: backends::Sources,
    key: &ObjectKey,
    provider: &TracingProvider,
) -> (Target, Option<Problem>) {
    let policy = super::cluster_policy();
    let referrer = Referrer {
        kind: key.kind,
        namespace: &key.namespace,
    };
    let mut resolver = Resolver::new(reader, sources, referrer, Some(&policy));
    let permitted = resolver.permitted(&provider.backend_ref, Some(&policy));
    let field = "spec.tracing.provider.backendRef";
    let found = resolver.service(field, &provider.backend_ref, Some(&policy));
    let unresolved = Problem::merge(resolver.problems);
    let is_service = provider.backend_ref.known_kind() == Some(Kind::Service);
    let collector = match (&unresolved, permitted) {
        (Some(_), Ok(cluster)) if is_service => Target::Cluster(cluster),
        _ => found,
    };
    (collector, unresolved)
}

/// Uses the first of several headers with equivalent names (HTTPHeader.name).
fn headers(headers: &[HttpHeader]) -> Result<Vec<(String, String)>, FieldError> {
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for (index, header) in headers.iter().enumerate() {
        let field = format!("spec.tracing.provider.headers[{index}]");
        check_name(format!("{field}.name"), &header.name)?;
        if has_controls(&header.value) {
            return Err(FieldError::new(format!("{field}.value"), CONTROLS));
        }
        // Envoy expands command operators in these values, and has no reliable way to escape them.
        if header.value.contains('%') {
            return Err(FieldError::new(
                format!("{field}.value"),
                "percent signs are not supported; remove them",
            ));
        }
        if seen.insert(header.name.to_ascii_lowercase()) {
            out.push((header.name.to_string(), header.value.to_string()));
        }
    }
    Ok(out)
}

/// By default, clients' sampling decisions are ignored, since anyone can send one, and new traces are sampled at the
/// rate for requests with a sampled parent.
fn sampling(
    rate: Option<Fraction>,
    parents: Option<&ParentBasedSampling>,
) -> Result<Sampling, FieldError> {
    const FIELD: &str = "spec.tracing.parentBasedSampling";
    let own = rate.map(|rate| share("spec.tracing.samplingRate", rate));
    let own = own.transpose()?;
    let parents = match parents {
        Some(parents) => match &parents.mode {
            SamplingMode::Enabled => {
                let field = format!("{FIELD}.samplingRate");
                let rate = parents.sampling_rate.map(|rate| share(&field, rate));
                Some(rate.transpose()?.unwrap_or(ALL))
            }
            SamplingMode::Disabled | SamplingMode::ImplementationDefault => None,
            SamplingMode::Other(mode) => {
                return Err(FieldError::new(
                    format!("{FIELD}.mode"),
                    format!("{mode} is not supported; use Enabled or Disabled"),
                ));
            }
        },
        None => None,
    };
    let rate = own.or(parents).unwrap_or(ALL);
    if parents.is_some_and(|parents| parents < rate) {
        return Err(FieldError::new(
            format!("{FIELD}.samplingRate"),
            "a rate below spec.tracing.samplingRate is not supported; raise it, or lower spec.tracing.samplingRate",
        ));
    }
    Ok(Sampling { rate, parents })
}

/// A fraction in millionths, rounded up.
fn share(field: &str, fraction: Fraction) -> Result<PartsPerMillion, FieldError> {
    let (part, whole) = (fraction.numerator, fraction.denominator);
    if part > whole || whole == 0 {
        return Err(FieldError::new(field, "must be from 0 to 1"));
    }
    let millionths = (u64::from(part) * 1_000_000).div_ceil(u64::from(whole));
    Ok(PartsPerMillion(u32::try_from(millionths).unwrap_or(ALL.0)))
}

/// The supported attributes, and the fields of unsupported ones.
fn attributes(attributes: &[Attribute]) -> (Vec<SpanAttribute>, Vec<FieldError>) {
    let (mut supported, mut omitted) = (Vec::new(), Vec::new());
    for (index, attribute) in attributes.iter().enumerate() {
        let field = format!("spec.tracing.attributes[{index}]");
        let value = match &attribute.source {
            SpanAttributeSource::Header(name) => Ok(SpanValue::Header(Arc::clone(name))),
            SpanAttributeSource::Literal(value) => Ok(SpanValue::Literal(Arc::clone(value))),
            SpanAttributeSource::Attribute(key) => property(key).ok_or_else(|| {
                FieldError::new(
                    format!("{field}.attributeKey"),
                    format!("{key} is not supported, so the attribute is omitted"),
                )
            }),
            SpanAttributeSource::Unknown(type_) => Err(FieldError::new(
                format!("{field}.sourceType"),
                format!("{type_} is not supported, so the attribute is omitted"),
            )),
        };
        match value {
            Ok(value) => supported.push(SpanAttribute {
                name: Arc::clone(&attribute.name),
                value,
            }),
            Err(error) => omitted.push(error),
        }
    }
    (supported, omitted)
}

/// The value of an attribute in OpenTelemetry's semantic conventions for HTTP, networks and user agents; `None` if it
/// isn't supported.
fn property(key: &str) -> Option<SpanValue> {
    if let Some(name) = key.strip_prefix("http.request.header.") {
        return header(name).map(SpanValue::RequestHeader);
    }
    if let Some(name) = key.strip_prefix("http.response.header.") {
        return header(name).map(SpanValue::ResponseHeader);
    }
    let property = match key {
        "network.protocol.name" => return Some(SpanValue::Literal("http".into())),
        "network.transport" => return Some(SpanValue::Literal("tcp".into())),
        "user_agent.original" => return Some(SpanValue::RequestHeader("user-agent".into())),
        "client.address" => SpanProperty::ClientAddress,
        "http.request.body.size" => SpanProperty::RequestSize,
        "http.request.method" => SpanProperty::Method,
        "http.response.body.size" => SpanProperty::ResponseSize,
        "http.response.status_code" => SpanProperty::Status,
        "network.local.address" => SpanProperty::LocalAddress,
        "network.local.port" => SpanProperty::LocalPort,
        "network.peer.address" => SpanProperty::PeerAddress,
        "network.peer.port" => SpanProperty::PeerPort,
        "url.full" => SpanProperty::Url,
        "url.path" => SpanProperty::Path,
        "url.scheme" => SpanProperty::Scheme,
        _ => return None,
    };
    Some(SpanValue::Property(property))
}

fn header(name: &str) -> Option<Arc<str>> {
    (!name.is_empty()).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(key: &str) -> Attribute {
        Attribute {
            name: "a".into(),
            source: SpanAttributeSource::Attribute(key.into()),
        }
    }

    #[test]
    fn unsupported_attributes_are_omitted_and_reported() {
        let keys = ["url.path", "gen_ai.tool.name", "http.request.header."];
        let (supported, omitted) = attributes(&keys.map(attribute));
        assert_eq!(supported.len(), 1);
        let settings = Settings::On {
            tracing: Tracing {
                collector: Target::Refused,
                headers: Vec::new(),
                sampling: Sampling {
                    rate: ALL,
                    parents: None,
                },
                service: "".into(),
                span: None,
                max_path: None,
                attributes: supported,
            },
            omitted,
        };
        assert_eq!(
            settings.effect(false),
            "requests are traced; spec.tracing.attributes[1].attributeKey: gen_ai.tool.name is not supported, so the \
             attribute is omitted; spec.tracing.attributes[2].attributeKey: http.request.header. is not supported, so \
             the attribute is omitted"
        );
    }

    #[test]
    fn fractions_are_rounded_up() {
        let share = |numerator, denominator| {
            let fraction = Fraction {
                numerator,
                denominator,
            };
            share("f", fraction).ok().map(|share| share.0)
        };
        assert_eq!(share(0, 1), Some(0));
        assert_eq!(share(1, 2_000_000_000), Some(1));
        assert_eq!(share(1, 3), Some(333_334));
        assert_eq!(share(100, 100), Some(1_000_000));
        assert_eq!((share(2, 1), share(0, 0)), (None, None));
    }
}
