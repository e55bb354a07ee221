//! ExternalAuth filters of routes and listeners (GEP-1494).

use std::sync::Arc;
use std::time::Duration;

use sesame_api::{self as api, ExternalAuthProtocol};
use sesame_model::{
    AuthBody, AuthProtocol, ExternalAuth, HeaderChanges, List, Target, TextPosition,
};

use super::route::backends::Resolver;
use crate::problem::FieldError;
use crate::shared::external_auth::{self, MAX_BODY, PATH_PREFIX, TIMEOUT};
use crate::shared::headers::check_name;

/// Reads a filter; `None` if its service can't be resolved. `before` contains the header changes made before the check;
/// `limit` is the request timeout.
///
/// # Errors
/// The first invalid field.
pub(super) fn read(
    field: &str,
    filter: &api::ExternalAuth,
    mut before: HeaderChanges,
    limit: Option<Duration>,
    resolver: &mut Resolver<'_, '_>,
) -> Result<Option<ExternalAuth>, FieldError> {
    let service = resolver.auth_service(field, filter);
    let protocol = protocol(field, filter)?;
    let body = body(field, filter)?;
    for name in external_auth::exclusive(&protocol) {
        let replaced = before.set.iter().map(|(name, _)| name);
        let mut replaced = replaced.chain(&before.remove);
        if !replaced.any(|other| other.eq_ignore_ascii_case(name)) {
            before.remove.push(name.clone());
        }
    }
    let limit = limit.filter(|limit| !limit.is_zero());
    Ok(match service {
        Target::Refused => None,
        Target::Cluster(cluster) => Some(ExternalAuth {
            cluster,
            protocol,
            body,
            // The API has no field for this timeout.
            timeout: limit.map_or(TIMEOUT, |limit| limit.min(TIMEOUT)),
            fail_open: false,
            before,
        }),
    })
}

fn protocol(field: &str, filter: &api::ExternalAuth) -> Result<AuthProtocol, FieldError> {
    let names = |names: &[Arc<str>]| {
        let names = names.iter();
        Vec::from_iter(names.map(|name| external_auth::names(name, TextPosition::Whole)))
    };
    match &filter.protocol {
        ExternalAuthProtocol::Grpc => {
            let grpc = filter.grpc.clone().unwrap_or_default();
            Ok(AuthProtocol::Grpc {
                request_headers: match &grpc.allowed_headers[..] {
                    [] => List::All,
                    names => List::Only(names.iter().map(ToString::to_string).collect()),
                },
            })
        }
        ExternalAuthProtocol::Http => {
            let http = filter.http.clone().unwrap_or_default();
            let field = format!("{field}.http");
            for (index, name) in http.allowed_response_headers.iter().enumerate() {
                check_name(format!("{field}.allowedResponseHeaders[{index}]"), name)?;
            }
            let path = http.path.as_deref().unwrap_or_default();
            Ok(AuthProtocol::Http {
                path_prefix: external_auth::path_prefix(path)
                    .ok_or_else(|| FieldError::new(format!("{field}.path"), PATH_PREFIX))?,
                request_headers: names(&http.allowed_headers),
                response_headers: match &http.allowed_response_headers[..] {
                    [] => None,
                    listed => Some(names(listed)),
                },
            })
        }
        ExternalAuthProtocol::Other(other) => Err(FieldError::new(
            format!("{field}.protocol"),
            format!("unknown protocol {other:?}; use HTTP or GRPC"),
        )),
    }
}

fn body(field: &str, filter: &api::ExternalAuth) -> Result<Option<AuthBody>, FieldError> {
    let size = filter.forward_body.map_or(0, |body| body.max_size);
    if size > MAX_BODY {
        return Err(FieldError::new(
            format!("{field}.forwardBody.maxSize"),
            format!("{size} is not supported; the maximum is {MAX_BODY}"),
        ));
    }
    Ok((size > 0).then_some(AuthBody {
        max: size,
        partial: false,
        bytes: false,
    }))
}
