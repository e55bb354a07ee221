//! Service annotations with connection settings, which apply to the clusters of all sources.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use sesame_api::{Kind, NamespacedName, ObjectKey};
use sesame_engine::{Builder, Table};
use sesame_model::{ConnectionLimits, Protocol};

use super::services::Service;
use crate::problem::Notices;

const MAX_CONNECTIONS: &str = "projectsesame.io/max-connections";
const MAX_PENDING_REQUESTS: &str = "projectsesame.io/max-pending-requests";
const MAX_REQUESTS: &str = "projectsesame.io/max-requests";
const MAX_RETRIES: &str = "projectsesame.io/max-retries";
const PER_HOST_MAX_CONNECTIONS: &str = "projectsesame.io/per-host-max-connections";

/// Each annotation lists port names and numbers. A port in several lists gets the first protocol.
const UPSTREAM_PROTOCOLS: [(&str, UpstreamProtocol); 3] = [
    (
        "projectsesame.io/upstream-protocol.h2",
        UpstreamProtocol::H2,
    ),
    (
        "projectsesame.io/upstream-protocol.h2c",
        UpstreamProtocol::H2c,
    ),
    (
        "projectsesame.io/upstream-protocol.tls",
        UpstreamProtocol::Tls,
    ),
];

/// The names of all annotations.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let limits = [
        MAX_CONNECTIONS,
        MAX_PENDING_REQUESTS,
        MAX_REQUESTS,
        MAX_RETRIES,
        PER_HOST_MAX_CONNECTIONS,
    ];
    limits
        .into_iter()
        .chain(UPSTREAM_PROTOCOLS.map(|(name, _)| name))
}

/// The settings in a Service's annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAnnotations {
    /// Bounds on connections and requests, if any.
    pub limits: Option<ConnectionLimits>,
    /// The protocols of ports without an `appProtocol`, by name or number.
    protocols: BTreeMap<Box<str>, UpstreamProtocol>,
    /// Invalid values, which have no effect.
    invalid: Option<Notices>,
}

/// A protocol in an annotation, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UpstreamProtocol {
    /// HTTP/2 over TLS.
    H2,
    /// HTTP/2 without TLS.
    H2c,
    /// HTTP/1.1 over TLS.
    Tls,
}

impl ServiceAnnotations {
    /// Reads the annotations; `None` if there are none. `ports` contains the names and numbers of the Service's ports.
    pub fn read(annotations: &BTreeMap<String, String>, ports: &[(&str, u16)]) -> Option<Self> {
        let mut invalid = Notices::default();
        let mut limit = |name: &str| {
            let text = annotations.get(name)?.trim();
            match text.parse::<u32>() {
                // As in an ExtensionService, 0 stands for the default.
                Ok(limit) => Some(limit).filter(|&limit| limit > 0),
                Err(_) => {
                    let message = format!(
                        "{text:?} is not a number from 0 to {}; the annotation is ignored",
                        u32::MAX
                    );
                    invalid.warning(field(name), message);
                    None
                }
            }
        };
        let limits = ConnectionLimits {
            connections: limit(MAX_CONNECTIONS),
            pending: limit(MAX_PENDING_REQUESTS),
            requests: limit(MAX_REQUESTS),
            retries: limit(MAX_RETRIES),
            connections_per_endpoint: limit(PER_HOST_MAX_CONNECTIONS),
        };
        let ports: HashSet<String> = ports
            .iter()
            .flat_map(|(name, number)| [(*name).to_owned(), number.to_string()])
            .collect();
        let mut protocols = BTreeMap::new();
        for (name, protocol) in UPSTREAM_PROTOCOLS {
            let Some(list) = annotations.get(name) else {
                continue;
            };
            let entries = list.split(',').map(str::trim);
            for entry in entries.filter(|entry| !entry.is_empty()) {
                if ports.contains(entry) {
                    protocols.entry(entry.into()).or_insert(protocol);
                } else {
                    let message =
                        format!("the Service has no port {entry:?}; the entry is ignored");
                    invalid.warning(field(name), message);
                }
            }
        }
        let limits = Some(limits).filter(|limits| *limits != ConnectionLimits::default());
        let invalid = invalid.non_empty();
        let any = limits.is_some() || !protocols.is_empty() || invalid.is_some();
        any.then_some(Self {
            limits,
            protocols,
            invalid,
        })
    }

    /// The protocol of a port, and whether it runs over TLS.
    pub(super) fn protocol(&self, name: &str, number: u16) -> Option<(Protocol, bool)> {
        // Entries are never empty, so an unnamed port is found only by number.
        let by_name = self.protocols.get(name);
        let by_number = self.protocols.get(&*number.to_string());
        Some(match by_name.into_iter().chain(by_number).min()? {
            UpstreamProtocol::H2 => (Protocol::Http2, true),
            UpstreamProtocol::H2c => (Protocol::Http2, false),
            UpstreamProtocol::Tls => (Protocol::Http1, true),
        })
    }
}

/// Declares the notices of Services with invalid annotations.
pub(crate) fn notices(
    b: &mut Builder,
    services: Table<NamespacedName, Service>,
) -> Table<ObjectKey, Notices> {
    let invalid = b.index(
        services,
        "services with invalid annotations",
        |name: &NamespacedName, service| {
            let annotations = service.annotations.as_deref();
            let invalid = annotations.is_some_and(|annotations| annotations.invalid.is_some());
            let key = || {
                ObjectKey::new(
                    Kind::Service,
                    Arc::clone(&name.namespace),
                    Arc::clone(&name.name),
                )
            };
            Vec::from_iter(invalid.then(key))
        },
    );
    b.derive(
        "service notices",
        invalid,
        move |reader, key: &ObjectKey| {
            let service = reader.get(services, &key.namespaced_name())?;
            service.annotations.as_deref()?.invalid.clone()
        },
    )
}

fn field(annotation: &str) -> String {
    format!("metadata.annotations[{annotation}]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::FieldError;

    fn read(annotations: &[(&str, &str)]) -> Option<ServiceAnnotations> {
        let annotations = annotations
            .iter()
            .map(|(name, value)| (format!("projectsesame.io/{name}"), (*value).to_owned()))
            .collect();
        ServiceAnnotations::read(&annotations, &[("web", 80), ("", 443)])
    }

    fn warnings(annotations: &ServiceAnnotations) -> &[FieldError] {
        let invalid = annotations.invalid.as_ref();
        invalid.map_or(&[], |notices| &notices.warnings)
    }

    #[test]
    fn long_lists_have_few_notices() {
        let list = "a,".repeat(100_000);
        let found = read(&[("upstream-protocol.h2", &list)]).expect("annotations");
        assert_eq!(warnings(&found).len(), 17);
        let list = "web,".repeat(100_000);
        let found = read(&[("upstream-protocol.h2", &list)]).expect("annotations");
        assert_eq!(found.protocols.len(), 1);
    }

    #[test]
    fn limits_are_numbers_and_zero_is_the_default() {
        let found = read(&[
            ("max-connections", "1"),
            ("max-pending-requests", "2"),
            ("max-requests", "3"),
            ("max-retries", "4"),
            ("per-host-max-connections", "5"),
        ]);
        let expected = ConnectionLimits {
            connections: Some(1),
            pending: Some(2),
            requests: Some(3),
            retries: Some(4),
            connections_per_endpoint: Some(5),
        };
        let found = found.expect("annotations");
        assert_eq!((found.limits, found.invalid), (Some(expected), None));
        assert_eq!(read(&[("max-connections", "0")]), None);
        assert_eq!(read(&[]), None);
        let found = read(&[("max-connections", "-1"), ("max-requests", "3")]);
        let found = found.expect("annotations");
        assert_eq!(found.limits.and_then(|limits| limits.requests), Some(3));
        assert_eq!(
            warnings(&found)[0].to_string(),
            "metadata.annotations[projectsesame.io/max-connections]: \"-1\" is not a number from 0 to 4294967295; \
             the annotation is ignored"
        );
    }

    #[test]
    fn ports_are_listed_by_name_or_number() {
        let found = read(&[
            ("upstream-protocol.h2c", "web, 8080"),
            ("upstream-protocol.tls", "443,web"),
        ]);
        let found = found.expect("annotations");
        assert_eq!(found.protocol("web", 80), Some((Protocol::Http2, false)));
        assert_eq!(found.protocol("", 443), Some((Protocol::Http1, true)));
        assert_eq!(found.protocol("other", 81), None);
        assert!(warnings(&found)[0].message.contains("no port \"8080\""));
        let found = read(&[("upstream-protocol.h2", "80")]).expect("annotations");
        assert_eq!(found.protocol("web", 80), Some((Protocol::Http2, true)));
    }
}
