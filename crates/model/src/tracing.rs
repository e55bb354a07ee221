use std::sync::Arc;

use crate::{PartsPerMillion, Target};

/// How a listener traces its HTTP requests: one span for each sampled request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// Where spans go, over OTLP/gRPC; [`Target::Refused`] drops them. A cluster that doesn't exist drops them too.
    pub collector: Target,
    /// Headers of requests to the collector.
    pub headers: Vec<(String, String)>,
    /// Which requests are sampled.
    pub sampling: Sampling,
    /// The name of the service that the spans belong to.
    pub service: Arc<str>,
    /// The name of spans; `None` for the request's method.
    pub span: Option<Arc<str>>,
    /// The maximum length of the path in the URL of spans, in bytes; `None` for Envoy's default.
    pub max_path: Option<u32>,
    /// Additional attributes, with unique names.
    pub attributes: Vec<SpanAttribute>,
}

/// Which requests are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The share of requests that are sampled.
    pub rate: PartsPerMillion,
    /// If set, [`Sampling::rate`] applies only to new traces. Requests in existing traces are sampled at this share if
    /// the trace is sampled, otherwise not at all. This share is at least `rate`.
    pub parents: Option<PartsPerMillion>,
}

/// An attribute of spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanAttribute {
    /// The name.
    pub name: Arc<str>,
    /// The value.
    pub value: SpanValue,
}

/// The value of an attribute. An attribute without a value is empty or missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanValue {
    /// This text.
    Literal(Arc<str>),
    /// A header of the request or, if the request doesn't have it, of the response.
    Header(Arc<str>),
    /// A header of the request.
    RequestHeader(Arc<str>),
    /// A header of the response.
    ResponseHeader(Arc<str>),
    /// An environment variable of the Envoy.
    Environment(&'static str),
    /// A property of the request or its response.
    Property(SpanProperty),
}

/// A property of a request or its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanProperty {
    /// The request's method.
    Method,
    /// The URL that the client requested, with its query.
    Url,
    /// Its scheme.
    Scheme,
    /// Its path, without its query.
    Path,
    /// The size of the request's body in bytes.
    RequestSize,
    /// The response's status.
    Status,
    /// The size of the response's body in bytes.
    ResponseSize,
    /// The client's IP address.
    ClientAddress,
    /// The IP address of the connection's peer.
    PeerAddress,
    /// The port of the connection's peer.
    PeerPort,
    /// The local IP address of the connection.
    LocalAddress,
    /// The local port of the connection.
    LocalPort,
}
