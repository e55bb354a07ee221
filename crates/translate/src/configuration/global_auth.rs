//! The section `globalAuth`: external authorization of requests to all hosts of HTTPProxies.

use sesame_api::{Duration, GlobalAuthConfiguration};
use sesame_model::AuthBody;

use crate::http_proxy::authorization;
use crate::problem::FieldError;
use crate::settings::GlobalAuthSettings;

/// Reads the section.
///
/// # Errors
/// The invalid field.
pub(super) fn read(
    section: Option<&GlobalAuthConfiguration>,
) -> Result<Option<GlobalAuthSettings>, Vec<FieldError>> {
    let Some(section) = section else {
        return Ok(None);
    };
    let policy = &section.auth_policy;
    if let Err(message) = authorization::context_size(&policy.context) {
        let field = "globalAuth.authPolicy.context";
        return Err(vec![FieldError::new(field, message)]);
    }
    Ok(Some(GlobalAuthSettings {
        service: section.extension_service.key(),
        fail_open: section.fail_open,
        disabled: policy.disabled,
        context: policy.context.clone(),
        timeout: section.response_timeout.as_ref().map(Duration::as_std),
        body: section.with_request_body.map(|body| AuthBody {
            max: body.max_request_bytes,
            partial: body.allow_partial_message,
            bytes: body.pack_as_bytes,
        }),
    }))
}
