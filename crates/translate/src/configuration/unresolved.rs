//! Objects that the instance's configuration refers to but that can't be used.

use sesame_api::{ConfigurationSpec, ObjectKey, ObjectName};
use sesame_engine::{Reader, Table};

use crate::http_proxy::extensions::{self, ExtensionState};
use crate::problem::FieldError;

/// The errors, by the field with the reference. `client_certificate` is that of
/// [`OwnClientCertificate::unusable`](super::client_certificate::OwnClientCertificate::unusable).
pub(super) fn unresolved(
    reader: &mut Reader<'_>,
    states: Table<ObjectKey, ExtensionState>,
    client_certificate: Table<(), String>,
    spec: &ConfigurationSpec,
) -> Vec<FieldError> {
    let auth = spec.global_auth.as_deref();
    let limits = spec.rate_limit_service.as_ref();
    let tracing = spec.tracing.as_deref();
    let references = [
        ("globalAuth", auth.map(|of| &of.extension_service)),
        ("rateLimitService", limits.map(|of| &of.extension_service)),
        ("tracing", tracing.map(|of| &of.extension_service)),
    ];
    let mut errors = Vec::new();
    for (section, name) in references {
        let problem = name.and_then(|name| problem(reader, states, name));
        errors.extend(problem.map(|message| {
            let field = format!("{section}.extensionService");
            FieldError::new(field, message)
        }));
    }
    if spec.client_certificate.is_some()
        && let Some(reason) = reader.get(client_certificate, &())
    {
        errors.push(FieldError::new("clientCertificate", String::clone(&reason)));
    }
    errors
}

/// Why gRPC calls to an ExtensionService aren't possible.
fn problem(
    reader: &mut Reader<'_>,
    states: Table<ObjectKey, ExtensionState>,
    name: &ObjectName,
) -> Option<String> {
    let name = name.key();
    match extensions::usable(reader, states, &name) {
        Ok(extension) if extension.speaks_grpc() => None,
        Ok(_) => Some(format!(
            "ExtensionService {name} has protocol http/1.1, but gRPC needs h2 or h2c; change its protocol"
        )),
        Err(message) => Some(message),
    }
}
