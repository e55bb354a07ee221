//! The section `policy`: changes to headers on all routes of HTTPProxies and, if it says so, of Ingresses.

use std::sync::Arc;

use sesame_api::{DefaultHeaders, HeadersPolicy, HttpHeader, PolicyConfiguration};

use crate::http_proxy::default_headers;
use crate::problem::FieldError;
use crate::settings::HeaderDefaults;

/// Reads the section.
///
/// # Errors
/// All invalid fields.
pub(super) fn read(
    section: Option<&PolicyConfiguration>,
) -> Result<HeaderDefaults, Vec<FieldError>> {
    let Some(section) = section else {
        return Ok(HeaderDefaults::default());
    };
    let defaults = HeaderDefaults {
        requests: headers(&section.request_headers),
        responses: headers(&section.response_headers),
        ingresses: section.apply_to_ingress,
    };
    let errors = default_headers::check(&defaults);
    match errors.is_empty() {
        true => Ok(defaults),
        false => Err(errors),
    }
}

fn headers(headers: &DefaultHeaders) -> HeadersPolicy {
    let set = headers.set.iter().map(|header| HttpHeader {
        name: Arc::clone(&header.name),
        value: Arc::clone(&header.value),
    });
    HeadersPolicy {
        set: set.collect(),
        remove: headers.remove.clone(),
    }
}
