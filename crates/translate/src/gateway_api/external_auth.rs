//! ExternalAuth filters of routes and of listeners (GEP-1494).

use std::sync::Arc;
use std::time::Duration;

use sesame_api::{self as api, ExternalAuthProtocol};
use sesame_model::{AuthProtocol, ExternalAuth, HeaderChanges, List, Target};

use super::route::backends::Resolver;
use crate::problem::FieldError;
use crate::shared::headers::check_name;

/// The timeout of a check. The API has no field for it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum body for a service, in bytes: an Envoy, which several users may share, holds it in memory.
const MAX_BODY: u32 = 8 << 20;

/// Reads a filter; `None` if its service can't be resolved. `before` are changes to requests before the check, `limit` is
/// the timeout of requests.
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
    let max_body = max_body(field, filter)?;
    for name in exclusive(&protocol) {
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
            max_body,
            timeout: limit.map_or(TIMEOUT, |limit| limit.min(TIMEOUT)),
            before,
        }),
    })
}

fn protocol(field: &str, filter: &api::ExternalAuth) -> Result<AuthProtocol, FieldError> {
    let names = |names: &[Arc<str>]| Vec::from_iter(names.iter().map(|name| name.to_string()));
    let all_or = |listed: &[Arc<str>]| match listed {
        [] => List::All,
        listed => List::Only(names(listed)),
    };
    match &filter.protocol {
        ExternalAuthProtocol::Grpc => {
            let grpc = filter.grpc.clone().unwrap_or_default();
            Ok(AuthProtocol::Grpc {
                request_headers: all_or(&grpc.allowed_headers),
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
                path_prefix: path_prefix(&field, path)?,
                request_headers: names(&http.allowed_headers),
                response_headers: all_or(&http.allowed_response_headers),
            })
        }
        ExternalAuthProtocol::Other(other) => Err(FieldError::new(
            format!("{field}.protocol"),
            format!("unknown protocol {other:?}; use HTTP or GRPC"),
        )),
    }
}

/// The prefix with a leading slash, and without a trailing one: the request's path starts with a slash.
fn path_prefix(field: &str, path: &str) -> Result<String, FieldError> {
    let outside = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'?' | b'#');
    if path.bytes().any(outside) {
        return Err(FieldError::new(
            format!("{field}.path"),
            "a path cannot contain a query, a fragment, spaces or control characters",
        ));
    }
    let path = path.trim_matches('/');
    Ok(match path.is_empty() {
        true => String::new(),
        false => format!("/{path}"),
    })
}

fn max_body(field: &str, filter: &api::ExternalAuth) -> Result<Option<u32>, FieldError> {
    let size = filter.forward_body.map_or(0, |body| body.max_size);
    if size > MAX_BODY {
        return Err(FieldError::new(
            format!("{field}.forwardBody.maxSize"),
            format!("{size} is not supported; the maximum is {MAX_BODY}"),
        ));
    }
    Ok((size > 0).then_some(size))
}

/// The headers that only the service may set: those copied from its response that it doesn't get. Otherwise, a client's
/// value would reach the backend if the service sets none.
fn exclusive(protocol: &AuthProtocol) -> impl Iterator<Item = &String> {
    let (copied, seen) = match protocol {
        AuthProtocol::Http {
            request_headers,
            response_headers: List::Only(copied),
            ..
        } => (&copied[..], &request_headers[..]),
        _ => (&[][..], &[][..]),
    };
    copied.iter().filter(move |name| {
        let mut seen = seen.iter().map(String::as_str).chain(["authorization"]);
        !seen.any(|other| other.eq_ignore_ascii_case(name))
    })
}
