//! An OTLP/gRPC collector: spans that clients export.
//!
//! The messages have only the fields that tests read, with OpenTelemetry's field numbers.

use std::collections::BTreeMap;

use envoy_types::pb::opentelemetry::proto::common::v1::{KeyValue, any_value::Value};
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use prost::Message;

use super::response::Body;

/// The path of export requests.
pub(super) const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The length of a gRPC message header: a flag and the message's length.
const GRPC_HEADER: usize = 5;

/// A span as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// `service.name` of its resource.
    pub service: String,
    /// The name.
    pub name: String,
    /// The trace's ID, in hexadecimal.
    pub trace: String,
    /// The span's ID, in hexadecimal.
    pub id: String,
    /// The parent's ID, in hexadecimal; empty without a parent.
    pub parent: String,
    /// The attributes; those that aren't strings are omitted.
    pub attributes: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}

/// The spans in the body of an export request; none if it doesn't decode.
pub(super) fn spans(body: &[u8]) -> Vec<Span> {
    let message = body.get(GRPC_HEADER..).unwrap_or_default();
    let request = ExportRequest::decode(message).unwrap_or_default();
    let resources = request.resource_spans.into_iter();
    let spans = resources.flat_map(|of| {
        let resource = strings(of.resource.unwrap_or_default().attributes);
        let service = resource.get("service.name").cloned().unwrap_or_default();
        let spans = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.map(move |span| Span {
            service: service.clone(),
            name: span.name,
            trace: hex(&span.trace_id),
            id: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            attributes: strings(span.attributes),
        })
    });
    spans.collect()
}

fn strings(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let strings = attributes.into_iter().filter_map(|attribute| {
        let value = attribute.value.and_then(|value| value.value)?;
        match value {
            Value::StringValue(value) => Some((attribute.key, value)),
            _ => None,
        }
    });
    strings.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The response to an export request.
pub(super) fn exported() -> Response<Body> {
    let status = HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    let empty = Full::new(Bytes::from_static(&[0; GRPC_HEADER]));
    let body = empty.with_trailers(async move { Some(Ok(status)) }).boxed();
    let mut response = Response::new(body);
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    response
}
