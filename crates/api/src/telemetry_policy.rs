//! XTelemetryPolicy: tracing for Gateways (GEP-4768).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check::{self, Check};
use crate::http_filter::{Fraction, HttpHeader};
use crate::meta::Meta;
use crate::object::resource;
use crate::open_enum::open_enum;
use crate::policy_status::PolicyStatus;
use crate::reference::{BackendObjectReference, LocalObjectReference};

/// An XTelemetryPolicy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct XTelemetryPolicy {
    /// The metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// The spec.
    pub spec: TelemetryPolicySpec,
    /// The status, by ancestor.
    #[serde(default, skip_serializing_if = "PolicyStatus::is_empty")]
    pub status: PolicyStatus,
}

resource! { XTelemetryPolicy {
    fn check(&self) -> Check {
        check::at("spec", check::policy::telemetry(&self.spec))
    }
} }

/// The spec of an XTelemetryPolicy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TelemetryPolicySpec {
    /// The target Gateways, 1 to 16.
    pub target_refs: Vec<LocalObjectReference>,
    /// Tracing. Required, since there are no other settings yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<TracingConfig>,
}

/// Distributed tracing. All fields except `mode` require mode Enabled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracingConfig {
    /// Whether requests are traced.
    #[serde(default = "TracingMode::default_mode")]
    pub mode: TracingMode,
    /// The collector that receives spans. Required if tracing is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<TracingProvider>,
    /// The share of new traces that are sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_rate: Option<Fraction>,
    /// Sampling of requests that already belong to a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_based_sampling: Option<ParentBasedSampling>,
    /// The resource attribute `service.name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<Arc<str>>,
    /// The name of spans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_name: Option<Arc<str>>,
    /// Attributes of spans; names are unique.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<SpanAttribute>,
}

open_enum! {
    /// Whether requests are traced.
    pub enum TracingMode {
        /// Requests are traced.
        Enabled = "Enabled",
        /// Requests are not traced.
        Disabled = "Disabled",
        /// The implementation decides.
        ImplementationDefault = "ImplementationDefault",
    }
}

impl TracingMode {
    fn default_mode() -> Self {
        Self::ImplementationDefault
    }
}

/// The collector of spans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracingProvider {
    /// The backend that receives spans over OTLP.
    pub backend_ref: BackendObjectReference,
    /// Headers of requests to the collector, at most 16; names are unique.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HttpHeader>,
}

/// Sampling of requests that already belong to a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentBasedSampling {
    /// Whether the sampling decision of a request's trace applies.
    #[serde(default = "SamplingMode::default_mode")]
    pub mode: SamplingMode,
    /// The share of requests in already sampled traces that are sampled too; only with mode Enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_rate: Option<Fraction>,
}

open_enum! {
    /// Whether the sampling decision of a request's trace applies.
    pub enum SamplingMode {
        /// The decision applies.
        Enabled = "Enabled",
        /// The decision is ignored.
        Disabled = "Disabled",
        /// The implementation decides.
        ImplementationDefault = "ImplementationDefault",
    }
}

impl SamplingMode {
    fn default_mode() -> Self {
        Self::ImplementationDefault
    }
}

/// An attribute of spans.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawSpanAttribute", into = "RawSpanAttribute")]
pub struct SpanAttribute {
    /// The name.
    pub name: Arc<str>,
    /// The source of the value.
    pub source: SpanAttributeSource,
}

/// The source of an attribute's value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SpanAttributeSource {
    /// The header of a request or response with this name.
    Header(Arc<str>),
    /// This value.
    Literal(Arc<str>),
    /// The attribute with this key in OpenTelemetry's semantic conventions.
    Attribute(Arc<str>),
    /// An unknown type.
    Unknown(Arc<str>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpanAttribute {
    name: Arc<str>,
    source_type: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    header_name: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    literal_value: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attribute_key: Option<Arc<str>>,
}

impl TryFrom<RawSpanAttribute> for SpanAttribute {
    type Error = String;

    fn try_from(raw: RawSpanAttribute) -> Result<Self, String> {
        let fields = (raw.header_name, raw.literal_value, raw.attribute_key);
        let source = match (&*raw.source_type, fields) {
            ("Header", (Some(name), None, None)) => SpanAttributeSource::Header(name),
            ("Literal", (None, Some(value), None)) => SpanAttributeSource::Literal(value),
            ("Attribute", (None, None, Some(key))) => SpanAttributeSource::Attribute(key),
            (type_ @ ("Header" | "Literal" | "Attribute"), _) => {
                let required = match type_ {
                    "Header" => "headerName",
                    "Literal" => "literalValue",
                    _ => "attributeKey",
                };
                return Err(format!(
                    "sourceType {type_} requires {required} and does not allow other sources"
                ));
            }
            (_, (None, None, None)) => SpanAttributeSource::Unknown(raw.source_type),
            (other, _) => return Err(format!("sourceType {other} does not allow a source")),
        };
        Ok(Self {
            name: raw.name,
            source,
        })
    }
}

impl From<SpanAttribute> for RawSpanAttribute {
    fn from(attribute: SpanAttribute) -> Self {
        let mut raw = Self {
            name: attribute.name,
            source_type: Arc::from(""),
            header_name: None,
            literal_value: None,
            attribute_key: None,
        };
        match attribute.source {
            SpanAttributeSource::Header(name) => {
                raw.source_type = "Header".into();
                raw.header_name = Some(name);
            }
            SpanAttributeSource::Literal(value) => {
                raw.source_type = "Literal".into();
                raw.literal_value = Some(value);
            }
            SpanAttributeSource::Attribute(key) => {
                raw.source_type = "Attribute".into();
                raw.attribute_key = Some(key);
            }
            SpanAttributeSource::Unknown(type_) => raw.source_type = type_,
        }
        raw
    }
}
