//! The backends of an Ingress.

use std::fmt;
use std::sync::Arc;

use sesame_api::{Ingress, IngressBackend, NamespacedName, ObjectKey};
use sesame_engine::{Reader, Table};
use sesame_model::{BackendName, ClusterKey, Session, Transport};

use crate::problem::FieldError;
use crate::shared::services::{self, RoutedBackend, Service};

/// The cluster of a backend, whether or not the cluster exists, or why the backend is invalid.
pub(super) type Backend = Result<ClusterKey, Box<FieldError>>;

/// Where a backend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the path of a rule.
    Path { rule: usize, path: usize },
    /// In `defaultBackend`.
    Default,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { rule, path } => {
                write!(f, "spec.rules[{rule}].http.paths[{path}].backend")
            }
            Self::Default => f.write_str("spec.defaultBackend"),
        }
    }
}

/// All backends of an Ingress: those of its paths in order, then the default backend.
pub(super) fn all(ingress: &Ingress) -> impl Iterator<Item = (Place, &IngressBackend)> {
    let rules = ingress.spec.rules.iter().enumerate();
    let of_paths = rules.flat_map(|(rule, source)| {
        let paths = source.http.iter().flat_map(|http| &http.paths);
        paths
            .enumerate()
            .map(move |(path, source)| (Place::Path { rule, path }, &source.backend))
    });
    let default = ingress.spec.default_backend.as_ref();
    of_paths.chain(default.map(|backend| (Place::Default, backend)))
}

/// Finds the cluster of a backend. Reads its Service only if the port is a name.
pub(super) fn read(
    reader: &mut Reader<'_>,
    services: Table<NamespacedName, Service>,
    ingress: &ObjectKey,
    place: Place,
    backend: &IngressBackend,
) -> Backend {
    let error = |part: &str, message: String| {
        let error = FieldError::new(format!("{place}.{part}"), message);
        Err(Box::new(error))
    };
    let Some(source) = &backend.service else {
        return match &backend.resource {
            Some(resource) => {
                let kind = &resource.kind;
                let message = format!("{kind} is not supported as a backend; use a Service");
                error("resource", message)
            }
            None => error("service", "is required".to_owned()),
        };
    };
    let name = NamespacedName::new(Arc::clone(&ingress.namespace), Arc::clone(&source.name));
    let number = source.port.number.filter(|&number| number != 0);
    let port = match (number, source.port.name.as_deref()) {
        (Some(number), _) => match u16::try_from(number) {
            Ok(port) => port,
            Err(_) => {
                let message = format!("{number} is not a port; use a number from 1 to 65535");
                return error("service.port.number", message);
            }
        },
        (None, Some(port)) if !port.is_empty() => {
            match named(reader.get(services, &name).as_deref(), &name, port) {
                Ok(port) => port,
                Err(message) => return error("service.port.name", message),
            }
        }
        (None, _) => {
            let message = format!("is required; use a port of Service {name}");
            return error("service.port", message);
        }
    };
    Ok(ClusterKey {
        namespace: name.namespace,
        backend: BackendName::ServicePort {
            service: name.name,
            port,
        },
        policy: None,
    })
}

/// Resolves a named port to its number.
fn named(service: Option<&Service>, name: &NamespacedName, port: &str) -> Result<u16, String> {
    let Some(service) = service else {
        return Err(format!("Service {name} does not exist"));
    };
    let tcp = || {
        let ports = service.ports.iter();
        ports.filter(|port| port.transport == Some(Transport::Tcp))
    };
    match tcp().find(|found| *found.name == *port) {
        Some(found) => Ok(found.port),
        None => {
            let names: Vec<&str> = tcp()
                .map(|port| &*port.name)
                .filter(|name| !name.is_empty())
                .collect();
            let names = match names.as_slice() {
                [] => "none".to_owned(),
                names => names.join(", "),
            };
            Err(format!(
                "Service {name} has no TCP port named {port:?} (available names: {names})"
            ))
        }
    }
}

/// Resolves a backend to the cluster that gets its requests, with its session persistence. On an error, requests get
/// 503; the error contains the reason, unless another object's status reports it.
pub(super) fn resolve(
    reader: &mut Reader<'_>,
    backends: Table<ClusterKey, RoutedBackend>,
    place: Place,
    backend: &Backend,
) -> Result<(ClusterKey, Option<Arc<Session>>), Option<FieldError>> {
    let key = match backend {
        Ok(key) => key,
        Err(error) => return Err(Some(FieldError::clone(error))),
    };
    let Some(found) = reader.get(backends, key) else {
        return Err(None);
    };
    let cluster = match &found.backend {
        services::Backend::Serves(_) => key.clone(),
        services::Backend::Secured(secured) => secured.0.clone(),
        services::Backend::Refused(_) | services::Backend::Invalid => return Err(None),
        services::Backend::NotFound(message) | services::Backend::UnsupportedProtocol(message) => {
            let field = format!("{place}.service");
            return Err(Some(FieldError::new(field, message.clone())));
        }
    };
    Ok((cluster, found.session.clone()))
}
