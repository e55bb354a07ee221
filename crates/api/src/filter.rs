//! Filters of route rules, backends and listeners.
//!
//! In an object, a filter has a `type` and a field named after it. Decoding turns both into one enum variant
//! and rejects filters whose type and body do not match, as the API server
//! does. HTTPRoute and GRPCRoute share the enum; a GRPCRoute supports only some filters.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::http_filter::{
    Cors, ExternalAuth, HeaderModifier, RequestMirror, RequestRedirect, UrlRewrite,
};
use crate::reference::LocalObjectReference;

/// A filter of a route rule or of one backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawFilter", into = "RawFilter")]
pub enum RouteFilter {
    /// Changes the headers of requests.
    RequestHeaderModifier(HeaderModifier),
    /// Changes the headers of responses.
    ResponseHeaderModifier(HeaderModifier),
    /// Sends a copy of each request to another backend.
    RequestMirror(RequestMirror),
    /// Responds with a redirect (HTTPRoute only).
    RequestRedirect(Box<RequestRedirect>),
    /// Changes the host or the path of requests (HTTPRoute only).
    UrlRewrite(Box<UrlRewrite>),
    /// Applies a CORS policy (HTTPRoute only).
    Cors(Box<Cors>),
    /// Authorizes requests with an external service (HTTPRoute only, experimental).
    ExternalAuth(Box<ExternalAuth>),
    /// An implementation-specific filter.
    ExtensionRef(LocalObjectReference),
    /// An unknown type, without its body.
    Unknown(Arc<str>),
}

/// A filter of a listener (experimental, GEP-5224).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawFilter", into = "RawFilter")]
pub enum ListenerFilter {
    /// Authorizes requests with an external service.
    ExternalAuth(Box<ExternalAuth>),
    /// An implementation-specific filter.
    ExtensionRef(LocalObjectReference),
    /// A type that is unknown or not valid for listeners, without its body.
    Unknown(Arc<str>),
}

impl RouteFilter {
    /// The `type` as written in an object.
    pub fn type_name(&self) -> &str {
        match self {
            RouteFilter::RequestHeaderModifier(_) => "RequestHeaderModifier",
            RouteFilter::ResponseHeaderModifier(_) => "ResponseHeaderModifier",
            RouteFilter::RequestMirror(_) => "RequestMirror",
            RouteFilter::RequestRedirect(_) => "RequestRedirect",
            RouteFilter::UrlRewrite(_) => "URLRewrite",
            RouteFilter::Cors(_) => "CORS",
            RouteFilter::ExternalAuth(_) => "ExternalAuth",
            RouteFilter::ExtensionRef(_) => "ExtensionRef",
            RouteFilter::Unknown(name) => name,
        }
    }
}

impl ListenerFilter {
    /// The `type` as written in an object.
    pub fn type_name(&self) -> &str {
        match self {
            ListenerFilter::ExternalAuth(_) => "ExternalAuth",
            ListenerFilter::ExtensionRef(_) => "ExtensionRef",
            ListenerFilter::Unknown(name) => name,
        }
    }
}

/// A filter as written in an object.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawFilter {
    #[serde(rename = "type")]
    type_: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_header_modifier: Option<HeaderModifier>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    response_header_modifier: Option<HeaderModifier>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_mirror: Option<RequestMirror>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_redirect: Option<Box<RequestRedirect>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url_rewrite: Option<Box<UrlRewrite>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cors: Option<Box<Cors>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external_auth: Option<Box<ExternalAuth>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    extension_ref: Option<LocalObjectReference>,
}

/// The field that holds the body of this type of filter, if the type is known.
fn body_field(type_: &str) -> Option<&'static str> {
    Some(match type_ {
        "RequestHeaderModifier" => "requestHeaderModifier",
        "ResponseHeaderModifier" => "responseHeaderModifier",
        "RequestMirror" => "requestMirror",
        "RequestRedirect" => "requestRedirect",
        "URLRewrite" => "urlRewrite",
        "CORS" => "cors",
        "ExternalAuth" => "externalAuth",
        "ExtensionRef" => "extensionRef",
        _ => return None,
    })
}

impl RawFilter {
    /// The body fields that are present, in declaration order.
    fn bodies(&self) -> impl Iterator<Item = &'static str> {
        [
            (
                "requestHeaderModifier",
                self.request_header_modifier.is_some(),
            ),
            (
                "responseHeaderModifier",
                self.response_header_modifier.is_some(),
            ),
            ("requestMirror", self.request_mirror.is_some()),
            ("requestRedirect", self.request_redirect.is_some()),
            ("urlRewrite", self.url_rewrite.is_some()),
            ("cors", self.cors.is_some()),
            ("externalAuth", self.external_auth.is_some()),
            ("extensionRef", self.extension_ref.is_some()),
        ]
        .into_iter()
        .filter_map(|(field, present)| present.then_some(field))
    }

    /// Why type and body do not match; `None` if they do.
    fn misfit(&self) -> Option<String> {
        let wanted = body_field(&self.type_);
        if let Some(other) = self.bodies().find(|field| Some(*field) != wanted) {
            return Some(format!(
                "{other} is not allowed in a filter of type {}",
                self.type_
            ));
        }
        let wanted = wanted?;
        if self.bodies().next().is_none() {
            return Some(format!(
                "{wanted} is required in a filter of type {}",
                self.type_
            ));
        }
        None
    }
}

impl TryFrom<RawFilter> for RouteFilter {
    type Error = String;

    fn try_from(raw: RawFilter) -> Result<Self, String> {
        if let Some(reason) = raw.misfit() {
            return Err(reason);
        }
        // Only the field for the type is present, or none if the type is unknown.
        let known = raw
            .request_header_modifier
            .map(RouteFilter::RequestHeaderModifier)
            .or_else(|| {
                raw.response_header_modifier
                    .map(RouteFilter::ResponseHeaderModifier)
            })
            .or_else(|| raw.request_mirror.map(RouteFilter::RequestMirror))
            .or_else(|| raw.request_redirect.map(RouteFilter::RequestRedirect))
            .or_else(|| raw.url_rewrite.map(RouteFilter::UrlRewrite))
            .or_else(|| raw.cors.map(RouteFilter::Cors))
            .or_else(|| raw.external_auth.map(RouteFilter::ExternalAuth))
            .or_else(|| raw.extension_ref.map(RouteFilter::ExtensionRef));
        Ok(known.unwrap_or(RouteFilter::Unknown(raw.type_)))
    }
}

impl TryFrom<RawFilter> for ListenerFilter {
    type Error = String;

    fn try_from(raw: RawFilter) -> Result<Self, String> {
        if let Some(reason) = raw.misfit() {
            return Err(reason);
        }
        let known = raw
            .external_auth
            .map(ListenerFilter::ExternalAuth)
            .or_else(|| raw.extension_ref.map(ListenerFilter::ExtensionRef));
        Ok(known.unwrap_or(ListenerFilter::Unknown(raw.type_)))
    }
}

impl From<RouteFilter> for RawFilter {
    fn from(filter: RouteFilter) -> Self {
        let mut raw = RawFilter {
            type_: filter.type_name().into(),
            ..RawFilter::default()
        };
        match filter {
            RouteFilter::RequestHeaderModifier(body) => raw.request_header_modifier = Some(body),
            RouteFilter::ResponseHeaderModifier(body) => raw.response_header_modifier = Some(body),
            RouteFilter::RequestMirror(body) => raw.request_mirror = Some(body),
            RouteFilter::RequestRedirect(body) => raw.request_redirect = Some(body),
            RouteFilter::UrlRewrite(body) => raw.url_rewrite = Some(body),
            RouteFilter::Cors(body) => raw.cors = Some(body),
            RouteFilter::ExternalAuth(body) => raw.external_auth = Some(body),
            RouteFilter::ExtensionRef(body) => raw.extension_ref = Some(body),
            RouteFilter::Unknown(_) => {}
        }
        raw
    }
}

impl From<ListenerFilter> for RawFilter {
    fn from(filter: ListenerFilter) -> Self {
        let mut raw = RawFilter {
            type_: filter.type_name().into(),
            ..RawFilter::default()
        };
        match filter {
            ListenerFilter::ExternalAuth(body) => raw.external_auth = Some(body),
            ListenerFilter::ExtensionRef(body) => raw.extension_ref = Some(body),
            ListenerFilter::Unknown(_) => {}
        }
        raw
    }
}
