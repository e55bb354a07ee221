//! Services as backends: their clusters, and what happens to requests for missing Services.

use std::sync::Arc;
use std::time::Duration;

use sesame_api::{
    HttpProxyService, Kind, NamespacedName, ObjectKey, ServiceProtocol, UpstreamValidation,
};
use sesame_engine::{Reader, Table};
use sesame_model::{
    BackendName, Balancing, CertificateKey, ClusterKey, ClusterPolicy, ConnectionSettings,
    HealthCheck, NamedAuthorities, Protocol, Session, Target, TlsSettings, Transport,
};

use super::findings::{About, Findings};
use super::{policies, secrets};
use crate::configuration::client_certificate;
use crate::inputs::Inputs;
use crate::shared::authorities::{self, AuthorityState, Reasons};
use crate::shared::default_fleet::Sources;
use crate::shared::services::{Backend, Service};

/// The settings that the clusters of all of a route's Services share.
#[derive(Clone, Debug, Default)]
pub(super) struct Common {
    pub(super) balancing: Option<Balancing>,
    pub(super) health: Option<HealthCheck>,
    pub(super) idle_timeout: Option<Duration>,
    /// Whether Envoy forwards bytes instead of requests.
    pub(super) opaque: bool,
}

/// The cluster of a Service, whether or not the Service exists; `None` if a field is invalid.
pub(super) fn cluster(
    reader: &mut Reader<'_>,
    services: Table<NamespacedName, Service>,
    namespace: &Arc<str>,
    (field, service): (&str, &HttpProxyService),
    common: &Common,
    findings: &mut Findings,
) -> Option<ClusterKey> {
    let before = findings.refusals();
    for (part, port) in [
        ("port", Some(service.port)),
        ("healthPort", service.health_port),
    ] {
        if port == Some(0) {
            let message = "expected a port from 1 to 65535";
            findings.refuse(About::SERVICE, &format!("{field}.{part}"), message);
        }
    }
    let (protocol, tls) = match &service.protocol {
        None => (None, false),
        Some(ServiceProtocol::H2) => (Some(Protocol::Http2), true),
        Some(ServiceProtocol::H2c) => (Some(Protocol::Http2), false),
        Some(ServiceProtocol::Tls) => (Some(Protocol::Http1), true),
        Some(other) => {
            let message = format!("unknown protocol {:?}; use h2, h2c or tls", other.as_str());
            findings.refuse(About::SERVICE, &format!("{field}.protocol"), message);
            (None, false)
        }
    };
    // Without a protocol here, the Service's own protocol applies, and the validation applies only if that uses TLS.
    let name = NamespacedName::new(Arc::clone(namespace), Arc::clone(&service.name));
    let own_tls = service.protocol.is_none()
        && service.validation.is_some()
        && !common.opaque
        && reader.get(services, &name).is_some_and(|found| {
            let port = found.port(service.port, Transport::Tcp);
            port.is_some_and(|port| found.uses_tls(port))
        });
    // Envoy encrypts forwarded connections only if the HTTPProxy says so.
    let plaintext = !common.opaque && service.protocol == Some(ServiceProtocol::H2c);
    let tls = match service.validation.as_deref() {
        None if plaintext => Some(TlsSettings::Plaintext),
        None => tls.then_some(TlsSettings::Unverified),
        Some(validation) => {
            let field = format!("{field}.validation");
            let validation = self::validation(&field, validation, namespace, findings);
            match tls || own_tls {
                true => validation,
                false => {
                    let message = "has no effect, since the protocol doesn't use TLS; set protocol to tls or h2";
                    findings.warn(About::VALIDATION, &field, message);
                    plaintext.then_some(TlsSettings::Plaintext)
                }
            }
        }
    };
    let slow_start = service.slow_start_policy.as_deref();
    let slow_start = slow_start
        .and_then(|policy| policies::slow_start(field, policy, common.balancing, findings));
    let health = common.health.as_ref().map(|check| {
        Arc::new(HealthCheck {
            port: service.health_port.filter(|port| *port != service.port),
            ..check.clone()
        })
    });
    if findings.refusals() > before {
        return None;
    }
    let policy = ClusterPolicy {
        protocol: match common.opaque {
            true => Some(Protocol::Opaque),
            false => protocol,
        },
        tls,
        connections: policies::unless_default(ConnectionSettings {
            balancing: common.balancing,
            health,
            slow_start,
            idle_timeout: common.idle_timeout,
            limits: None,
        }),
        ..ClusterPolicy::default()
    };
    Some(ClusterKey {
        namespace: Arc::clone(namespace),
        backend: BackendName::ServicePort {
            service: Arc::clone(&service.name),
            port: service.port,
        },
        policy: (policy != ClusterPolicy::default()).then(|| Arc::new(policy)),
    })
}

/// Reads how a backend's certificate is verified.
pub(super) fn validation(
    field: &str,
    validation: &UpstreamValidation,
    namespace: &Arc<str>,
    findings: &mut Findings,
) -> Option<TlsSettings> {
    let names = match validation.subject_names.as_slice() {
        [] => vec![Arc::clone(&validation.subject_name)],
        names => names.to_vec(),
    };
    let before = findings.refusals();
    if names.first() != Some(&validation.subject_name) {
        let message = "the first entry must equal subjectName";
        findings.refuse(About::VALIDATION, &format!("{field}.subjectNames"), message);
    }
    for (index, name) in names.iter().enumerate() {
        let valid = match index {
            // It is also the SNI.
            0 => sesame_api::is_precise_hostname(name),
            _ => sesame_api::is_hostname(name),
        };
        if !valid {
            let message = format!("{name:?} is not a lowercase DNS name such as api.example.com");
            findings.refuse(About::VALIDATION, &format!("{field}.subjectName"), message);
        }
    }
    let authorities = sesame_api::secret_name(namespace, &validation.ca_secret);
    if authorities.is_none() {
        let message = "expected the name of a Secret, or namespace/name";
        findings.refuse(About::VALIDATION, &format!("{field}.caSecret"), message);
    }
    let authorities = authorities.filter(|_| findings.refusals() == before)?;
    Some(TlsSettings::Verified(Arc::new(NamedAuthorities {
        authorities: CertificateKey {
            namespace: authorities.namespace,
            name: authorities.name,
        },
        names,
    })))
}

/// The Secret with the CA bundle that verifies a cluster.
pub(super) fn authorities(cluster: &ClusterKey) -> Option<ObjectKey> {
    match cluster.tls()? {
        TlsSettings::Verified(validation) => {
            let CertificateKey { namespace, name } = &validation.authorities;
            Some(ObjectKey::new(
                Kind::Secret,
                Arc::clone(namespace),
                Arc::clone(name),
            ))
        }
        _ => None,
    }
}

/// Finds the target for a cluster, and the session persistence for requests to it. The result is `None` if the Service
/// can't be used, and [`Target::Refused`] if connections to it aren't allowed.
pub(super) fn target(
    reader: &mut Reader<'_>,
    (inputs, sources): (Inputs, Sources),
    field: &str,
    key: &ClusterKey,
    findings: &mut Findings,
) -> Option<(Target, Option<Arc<Session>>)> {
    if !verifiable(reader, (inputs, sources.authorities), field, key, findings) {
        return Some((Target::Refused, None));
    }
    let found = reader.get(sources.backends, key)?;
    let cluster = match &found.backend {
        Backend::Serves(_) => key,
        Backend::Secured(secured) => &secured.0,
        // Another object's status reports the reason.
        Backend::Refused(_) | Backend::Invalid => return Some((Target::Refused, None)),
        Backend::NotFound(message) => {
            findings.error(About::UNRESOLVED, field, message);
            return None;
        }
        Backend::UnsupportedProtocol(message) => {
            findings.error(About::SERVICE, field, message);
            return None;
        }
    };
    if let Some(message) = client_certificate::problem(reader, sources.client_certificate, cluster)
    {
        findings.error(About::CLIENT_CERTIFICATE, field, message);
    }
    Some((Target::Cluster(cluster.clone()), found.session.clone()))
}

/// Whether the CA bundle that verifies a cluster, if any, exists and may be used.
pub(super) fn verifiable(
    reader: &mut Reader<'_>,
    (inputs, states): (Inputs, Table<ObjectKey, AuthorityState>),
    field: &str,
    key: &ClusterKey,
    findings: &mut Findings,
) -> bool {
    let Some(secret) = authorities(key) else {
        return true;
    };
    let field = format!("{field}.validation.caSecret");
    let certificate = CertificateKey {
        namespace: Arc::clone(&secret.namespace),
        name: Arc::clone(&secret.name),
    };
    let place = (About::VALIDATION, field.as_str(), &certificate);
    if !secrets::is_delegated(reader, inputs, &key.namespace, place, findings) {
        return false;
    }
    let reasons = Reasons {
        kind: About::VALIDATION.1,
        object: About::VALIDATION.1,
    };
    let problem = authorities::unusable(reader, states, &secret, reasons);
    if let Some(problem) = &problem {
        findings.error(About::VALIDATION, &field, problem.message());
    }
    problem.is_none()
}
