//! Tracing in the HTTP connection manager.
//!
//! In: [`Tracing`]. Out: the connection manager's settings. It must not depend on the collector's cluster beyond its
//! name.
//!
//! Envoy's samplers decide by trace ID and can't sample a share of the requests whose parent is sampled. For such a
//! share, the connection manager's overall sampling, by request ID, applies to all requests; otherwise overall sampling
//! is off.

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::trace::v3 as trace;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::envoy::extensions::request_id::uuid::v3::UuidRequestIdConfig;
use envoy_types::pb::envoy::extensions::tracers::opentelemetry::samplers::v3::{
    ParentBasedSamplerConfig, TraceIdRatioBasedSamplerConfig,
};
use envoy_types::pb::envoy::r#type::tracing::v3::{CustomTag, custom_tag};
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, Percent, fractional_percent};
use envoy_types::util::pack_any;
use hcm::http_connection_manager as pb;
use prost::{Message, Name};
use sesame_model::{Sampling, SpanAttribute, SpanProperty, SpanValue, Target, Tracing};

use crate::{names, wire};

/// Maximum length of an attribute taken from a header, in bytes.
const HEADER_LENGTH: usize = 1024;

/// Tracing with the OpenTelemetry tracer: one span for each request. Only the sampler and [`request_id`] decide which
/// requests are sampled; headers such as `x-client-trace-id` don't.
pub(crate) fn tracing(tracing: &Tracing) -> pb::Tracing {
    let config = trace::OpenTelemetryConfig {
        grpc_service: Some(collector(tracing)),
        service_name: tracing.service.to_string(),
        sampler: Some(sampler(tracing.sampling)),
        ..Default::default()
    };
    pb::Tracing {
        overall_sampling: overall_sampling(tracing.sampling).map(|share| Percent {
            value: f64::from(share) / 100.0,
        }),
        max_path_tag_length: tracing.max_path.and_then(wire::uint32),
        custom_tags: tracing.attributes.iter().map(custom_tag).collect(),
        provider: Some(trace::tracing::Http {
            name: "envoy.tracers.opentelemetry".to_owned(),
            config_type: Some(trace::tracing::http::ConfigType::TypedConfig(pack_any(
                config,
            ))),
        }),
        operation: match &tracing.span {
            Some(name) => literal(name),
            None => format_of(SpanProperty::Method).to_owned(),
        },
        ..Default::default()
    }
}

/// How a connection manager with tracing treats request IDs: it doesn't change them, and uses them only for
/// overall sampling.
pub(crate) fn request_id(tracing: &Tracing) -> hcm::RequestIdExtension {
    let config = UuidRequestIdConfig {
        pack_trace_reason: wire::boolean(false),
        use_request_id_for_trace_sampling: wire::boolean(
            overall_sampling(tracing.sampling).is_some(),
        ),
    };
    hcm::RequestIdExtension {
        typed_config: Some(pack_any(config)),
    }
}

fn collector(tracing: &Tracing) -> core::GrpcService {
    use core::grpc_service::{EnvoyGrpc, TargetSpecifier};
    let (cluster_name, authority) = match &tracing.collector {
        Target::Cluster(key) => (names::cluster(key), names::authority(key)),
        Target::Refused => (names::REFUSED.to_owned(), String::new()),
    };
    let headers = tracing.headers.iter();
    let headers = headers.map(|(name, value)| core::HeaderValue {
        key: name.clone(),
        value: value.clone(),
        ..Default::default()
    });
    core::GrpcService {
        initial_metadata: headers.collect(),
        target_specifier: Some(TargetSpecifier::EnvoyGrpc(EnvoyGrpc {
            cluster_name,
            authority,
            ..Default::default()
        })),
        ..Default::default()
    }
}

/// The share of all requests that may be sampled, in ten-thousandths, which is Envoy's precision; `None` for all.
fn overall_sampling(sampling: Sampling) -> Option<u32> {
    let share = sampling.parents?.0.div_ceil(100);
    (share < 10_000).then_some(share)
}

fn sampler(sampling: Sampling) -> core::TypedExtensionConfig {
    let rate = match overall_sampling(sampling) {
        // Compensates for overall sampling, which keeps this share of the requests.
        Some(share @ 1..) => sampling.rate.0.saturating_mul(10_000).div_ceil(share),
        _ => sampling.rate.0,
    };
    let by_id = extension(
        "envoy.tracers.opentelemetry.samplers.trace_id_ratio_based",
        TraceIdRatioBasedSamplerConfig {
            sampling_percentage: Some(FractionalPercent {
                numerator: rate,
                denominator: fractional_percent::DenominatorType::Million.into(),
            }),
        },
    );
    match sampling.parents {
        None => by_id,
        Some(_) => extension(
            "envoy.tracers.opentelemetry.samplers.parent_based",
            ParentBasedSamplerConfig {
                wrapped_sampler: Some(by_id),
            },
        ),
    }
}

fn extension<M: Message + Name>(name: &str, config: M) -> core::TypedExtensionConfig {
    core::TypedExtensionConfig {
        name: name.to_owned(),
        typed_config: Some(pack_any(config)),
    }
}

fn custom_tag(attribute: &SpanAttribute) -> CustomTag {
    let named = |type_| CustomTag {
        tag: attribute.name.to_string(),
        r#type: Some(type_),
    };
    let value = match &attribute.value {
        SpanValue::Literal(value) => literal(value),
        SpanValue::Header(name) => {
            let operator = |command: &str| {
                format!(
                    r#"{{"command":"{command}","param":"{name}","max_length":{HEADER_LENGTH}}}"#
                )
            };
            let (request, response) = (operator("REQ"), operator("RESP"));
            format!(r#"%COALESCE({{"operators":[{request},{response}]}})%"#)
        }
        SpanValue::RequestHeader(name) => format!("%REQ({name}):{HEADER_LENGTH}%"),
        SpanValue::ResponseHeader(name) => format!("%RESP({name}):{HEADER_LENGTH}%"),
        SpanValue::Environment(name) => {
            let variable = custom_tag::Environment {
                name: (*name).to_owned(),
                default_value: String::new(),
            };
            return named(custom_tag::Type::Environment(variable));
        }
        SpanValue::Property(property) => format_of(*property).to_owned(),
    };
    named(custom_tag::Type::Value(value))
}

/// The format command for a property.
fn format_of(property: SpanProperty) -> &'static str {
    match property {
        SpanProperty::Method => "%REQ(:METHOD):256%",
        SpanProperty::Url => "%REQ(:SCHEME)%://%REQ(:AUTHORITY):256%%PATH(WQ:ORIG_OR_PATH):1024%",
        SpanProperty::Scheme => "%REQ(:SCHEME)%",
        SpanProperty::Path => "%PATH(NQ:ORIG_OR_PATH):1024%",
        SpanProperty::RequestSize => "%BYTES_RECEIVED%",
        SpanProperty::Status => "%RESPONSE_CODE%",
        SpanProperty::ResponseSize => "%BYTES_SENT%",
        SpanProperty::ClientAddress => "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
        SpanProperty::PeerAddress => "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%",
        SpanProperty::PeerPort => "%DOWNSTREAM_DIRECT_REMOTE_PORT%",
        SpanProperty::LocalAddress => "%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%",
        SpanProperty::LocalPort => "%DOWNSTREAM_LOCAL_PORT%",
    }
}

/// Text without commands: percent signs are doubled.
fn literal(text: &str) -> String {
    text.replace('%', "%%")
}
