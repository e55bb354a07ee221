//! XBackends: the settings of each, its clusters, and its status; `pods` handles those of type EndpointSelector.
//!
//! An XBackend with errors doesn't get requests, so requests never go out unencrypted or unverified.

mod pods;

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_api::{
    BackendProtocol, BackendTlsMode, Kind, NamespacedName, ObjectKey, ObjectStatus, XBackend,
    XBackendType, reason,
};
use sesame_engine::{Builder, Reader, Table};
use sesame_model::{
    AddressFamilies, BackendName, CertificateKey, Cluster, ClusterKey, Discovery, Endpoints,
    ExternalHost, PodServiceChange, Protocol, Session, TlsSettings, TrustBundle, TrustBundleKey,
    UpstreamTls,
};

use self::pods::Pods;
pub(crate) use self::pods::changes as pod_service_changes;
use super::ancestors::Uses;
use super::backend_validation::{self, Place};
use super::certificate_ref;
use super::policy_status::{self, Verdict};
use crate::inputs::Inputs;
use crate::problem::Problem;
use crate::shared::authorities::{self, AuthorityState};
use crate::shared::certificates::CertificateState;
use crate::shared::grants::{Grants, Referrer};
use crate::shared::hostname;
use crate::shared::services::{Backend, Service};

const CONSEQUENCE: &str = "requests to the backend fail";

/// An XBackend's settings and problems.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct XBackendState {
    /// How to connect to it, or why Envoy must not.
    destination: Result<Destination, Problem>,
    /// Its unresolved references.
    unresolved: Option<Problem>,
    /// Whether its type is EndpointSelector.
    selects_pods: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Destination {
    location: Location,
    protocol: Option<BackendProtocol>,
    tls: Option<Arc<UpstreamTls>>,
}

/// Where the endpoints are.
#[derive(Clone, Debug, PartialEq)]
enum Location {
    /// Outside the cluster.
    Host(Arc<ExternalHost>),
    /// In the XBackend's namespace.
    Pods(Pods),
}

/// The tables of XBackends.
#[derive(Clone, Copy)]
pub(crate) struct XBackends {
    pub(super) states: Table<ObjectKey, XBackendState>,
    /// Their CA certificates.
    pub(crate) trust_bundles: Table<TrustBundleKey, TrustBundle>,
}

/// The tables with the objects that XBackends refer to.
#[derive(Clone, Copy)]
struct Sources {
    services: Table<NamespacedName, Service>,
    grants: Grants,
    authorities: Table<ObjectKey, AuthorityState>,
    certificates: Table<CertificateKey, CertificateState>,
}

/// Declares the tables of XBackends.
pub(crate) fn stages(
    b: &mut Builder,
    inputs: &Inputs,
    authorities: Table<ObjectKey, AuthorityState>,
    certificates: Table<CertificateKey, CertificateState>,
) -> XBackends {
    let xbackends = inputs.xbackends;
    let sources = Sources {
        services: inputs.services,
        grants: inputs.grants_by_namespace,
        authorities,
        certificates,
    };
    let states: Table<ObjectKey, XBackendState> =
        b.derive("xbackend state", xbackends, move |reader, key| {
            let xbackend = reader.get(xbackends, key)?;
            Some(read(reader, sources, &xbackend))
        });
    let trust_bundles = b.derive_many(
        "xbackend trust bundle",
        states,
        move |reader, key: &ObjectKey| {
            let bundle = reader.get(xbackends, key).and_then(|xbackend| {
                authorities::bundle(reader, authorities, referenced_authorities(&xbackend))
            });
            bundle
                .map(|bundle| (bundle_key(key.namespaced_name()), bundle))
                .into_iter()
                .collect()
        },
    );
    XBackends {
        states,
        trust_bundles,
    }
}

/// The objects with CA certificates that an XBackend refers to.
pub(crate) fn referenced_authorities(xbackend: &XBackend) -> Vec<ObjectKey> {
    let validation = xbackend.spec.tls.validation.as_ref();
    validation.map_or_else(Vec::new, |validation| {
        backend_validation::referenced_authorities(&xbackend.meta.namespace, validation)
    })
}

/// The Secret that an XBackend names as its client certificate, permitted or not, for the index by Secret.
pub(crate) fn client_secret(xbackend: &XBackend) -> Option<CertificateKey> {
    let reference = xbackend.spec.tls.client_certificate_ref.as_ref()?;
    certificate_ref::secret(reference, &xbackend.meta.namespace)
}

fn bundle_key(NamespacedName { namespace, name }: NamespacedName) -> TrustBundleKey {
    TrustBundleKey::XBackend { namespace, name }
}

fn invalid(message: impl Into<String>) -> Problem {
    Problem::new(reason::policy::INVALID, message)
}

fn read(reader: &mut Reader<'_>, sources: Sources, xbackend: &XBackend) -> XBackendState {
    let (tls, unresolved) = tls(reader, sources, xbackend);
    let destination = location(reader, sources.services, xbackend).and_then(|location| {
        let protocol = xbackend.spec.protocol.clone();
        if let Some(BackendProtocol::Other(name)) = &protocol {
            let known = BackendProtocol::KNOWN.join(", ");
            return Err(invalid(format!(
                "spec.protocol: {name} is not supported; use one of {known}"
            )));
        }
        Ok(Destination {
            location,
            protocol,
            tls: tls?,
        })
    });
    XBackendState {
        destination,
        unresolved,
        selects_pods: xbackend.spec.type_ == XBackendType::EndpointSelector,
    }
}

fn location(
    reader: &mut Reader<'_>,
    services: Table<NamespacedName, Service>,
    xbackend: &XBackend,
) -> Result<Location, Problem> {
    let spec = &xbackend.spec;
    match (&spec.type_, &spec.external_hostname) {
        (XBackendType::ExternalHostname, Some(external)) => {
            check_external(&external.hostname)?;
            Ok(Location::Host(Arc::new(ExternalHost {
                hostname: Arc::clone(&external.hostname),
                port: spec.port.number,
                families: AddressFamilies::All,
            })))
        }
        (XBackendType::ExternalHostname, None) => Err(invalid(
            "spec.externalHostname is required with type ExternalHostname",
        )),
        (XBackendType::EndpointSelector, _) => {
            pods::read(reader, services, xbackend).map(Location::Pods)
        }
        (XBackendType::Other(type_), _) => Err(invalid(format!(
            "spec.type: {type_} is not supported; use ExternalHostname or EndpointSelector"
        ))),
    }
}

fn check_external(hostname: &str) -> Result<(), Problem> {
    match hostname::not_external(hostname) {
        None => Ok(()),
        Some(problem) => Err(invalid(format!(
            "spec.externalHostname.hostname: {hostname} {problem}; use the name of an external host"
        ))),
    }
}

/// The TLS settings, and the unresolved references.
fn tls(
    reader: &mut Reader<'_>,
    sources: Sources,
    xbackend: &XBackend,
) -> (Result<Option<Arc<UpstreamTls>>, Problem>, Option<Problem>) {
    let tls = &xbackend.spec.tls;
    let presents = match &tls.mode {
        BackendTlsMode::None => return (Ok(None), None),
        BackendTlsMode::ServerOnly => false,
        BackendTlsMode::ClientAndServer => true,
        BackendTlsMode::Other(mode) => {
            let message = format!(
                "spec.tls.mode: {mode} is not supported, so {CONSEQUENCE}; use None, ServerOnly or ClientAndServer"
            );
            return (Err(invalid(message)), None);
        }
    };
    let Some(validation) = &tls.validation else {
        let message = format!("spec.tls.validation is required for TLS, so {CONSEQUENCE}");
        return (Err(invalid(message)), None);
    };
    let namespace = &xbackend.meta.namespace;
    let place = Place {
        namespace,
        field: "spec.tls.validation",
        consequence: CONSEQUENCE,
    };
    let bundle = bundle_key(xbackend.meta.namespaced_name());
    let (verification, unresolved) =
        backend_validation::read(reader, sources.authorities, place, validation, bundle);
    let mut unresolved = Vec::from_iter(unresolved);
    let certificate = match presents {
        false => Ok(None),
        true => client_certificate(reader, sources, xbackend).map(Some),
    };
    unresolved.extend(certificate.as_ref().err().cloned());
    let settings = verification.and_then(|verification| {
        Ok(Some(Arc::new(UpstreamTls {
            server_name: Some(Arc::clone(&validation.hostname)),
            verification: Some(verification),
            client_certificate: certificate?,
        })))
    });
    (settings, Problem::merge(unresolved))
}

fn client_certificate(
    reader: &mut Reader<'_>,
    sources: Sources,
    xbackend: &XBackend,
) -> Result<CertificateKey, Problem> {
    const FIELD: &str = "spec.tls.clientCertificateRef";
    let Some(reference) = &xbackend.spec.tls.client_certificate_ref else {
        let message = format!("{FIELD} is required with mode ClientAndServer, so {CONSEQUENCE}");
        return Err(invalid(message));
    };
    let Sources {
        grants,
        certificates,
        ..
    } = sources;
    let referrer = Referrer {
        kind: Kind::XBackend,
        namespace: &xbackend.meta.namespace,
    };
    let invalid = reason::gateway::INVALID_CLIENT_CERTIFICATE_REF;
    certificate_ref::resolve(reader, grants, certificates, referrer, reference, invalid).map_err(
        |problem| {
            let message = format!("{FIELD}: {}, so {CONSEQUENCE}", problem.message());
            Problem::new(problem.reason(), message)
        },
    )
}

/// The backend for a cluster of the XBackend `name`.
pub(crate) fn backend(
    reader: &mut Reader<'_>,
    xbackends: XBackends,
    key: &ClusterKey,
    name: &Arc<str>,
) -> Backend {
    let xbackend = NamespacedName::new(Arc::clone(&key.namespace), Arc::clone(name));
    let Some(state) = reader.get(xbackends.states, &xbackend.of_kind(Kind::XBackend)) else {
        return Backend::NotFound(format!("XBackend {xbackend} does not exist"));
    };
    let Ok(destination) = &state.destination else {
        return Backend::Invalid;
    };
    let route = key.policy.as_ref().and_then(|policy| policy.protocol);
    let Some(protocol) = protocol(destination, route) else {
        let protocol = destination.protocol.as_ref();
        return Backend::UnsupportedProtocol(match protocol {
            Some(protocol) if route != Some(Protocol::Datagrams) => format!(
                "XBackend {xbackend} has protocol {protocol}, which this kind of route does not support"
            ),
            _ => format!("XBackend {xbackend} does not support UDP; use a Service"),
        });
    };
    let tls = destination.tls.clone();
    let client_certificate = tls.as_ref().map(|tls| tls.client_certificate.clone());
    let cluster = Cluster {
        discovery: match &destination.location {
            Location::Host(host) => Discovery::Dns(Arc::clone(host)),
            Location::Pods(_) => Discovery::Endpoints,
        },
        protocol,
        tls,
        retries: None,
        connections: None,
    };
    match client_certificate {
        None => Backend::Serves(cluster),
        Some(certificate) => {
            let key = key
                .with_tls(TlsSettings::Own)
                .with_client_certificate(certificate);
            Backend::Secured(Box::new((key, cluster)))
        }
    }
}

/// The protocol, given the one that the kind of route requires; `None` if they are incompatible.
fn protocol(destination: &Destination, route: Option<Protocol>) -> Option<Protocol> {
    use BackendProtocol::{Grpc, H2c, Http, Http2, Http11, Mcp, Other, Tcp, Wss};
    let any_version = match destination.tls {
        Some(_) => Protocol::Negotiated,
        None => Protocol::Http1,
    };
    match (route, &destination.protocol) {
        // Bytes are forwarded unread, whatever the protocol.
        (Some(Protocol::Opaque), _) => Some(Protocol::Opaque),
        (Some(Protocol::Datagrams), _) | (_, Some(Tcp | Other(_))) => None,
        (Some(Protocol::Http2), None | Some(Http | Http2 | H2c | Grpc)) => Some(Protocol::Http2),
        (Some(Protocol::Http2), Some(Http11 | Mcp | Wss)) => None,
        (_, None | Some(Http | Mcp)) => Some(any_version),
        (_, Some(Http2 | H2c | Grpc)) => Some(Protocol::Http2),
        // A WebSocket starts as HTTP/1.1: if ALPN offered HTTP/2, the backend might choose it.
        (_, Some(Http11 | Wss)) => Some(Protocol::Http1),
    }
}

/// The endpoints of an XBackend's Pods; `None` for a host.
pub(crate) fn endpoints(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    xbackends: XBackends,
    xbackend: &ObjectKey,
) -> Option<Endpoints> {
    let state = reader.get(xbackends.states, xbackend)?;
    let pods = state.pods()?;
    Some(pods::endpoints(reader, inputs, pods))
}

/// Whether an XBackend selects Pods. An external host doesn't support sessions: for Envoy, it is a single endpoint.
pub(crate) fn selects_pods(
    reader: &mut Reader<'_>,
    xbackends: XBackends,
    xbackend: &ObjectKey,
) -> bool {
    let state = reader.get(xbackends.states, xbackend);
    state.is_some_and(|state| state.selects_pods)
}

/// The XBackend's own session persistence, for requests to a cluster.
pub(crate) fn session(
    reader: &mut Reader<'_>,
    xbackends: XBackends,
    cluster: &ClusterKey,
) -> Option<Arc<Session>> {
    let BackendName::XBackend { name } = &cluster.backend else {
        return None;
    };
    let protocol = cluster.policy.as_ref().and_then(|policy| policy.protocol);
    if !protocol.is_none_or(Protocol::is_http) {
        return None;
    }
    let xbackend = NamespacedName::new(Arc::clone(&cluster.namespace), Arc::clone(name));
    let state = reader.get(xbackends.states, &xbackend.of_kind(Kind::XBackend))?;
    state.pods()?.session.clone()
}

impl XBackendState {
    fn pods(&self) -> Option<&Pods> {
        match &self.destination.as_ref().ok()?.location {
            Location::Pods(pods) => Some(pods),
            Location::Host(_) => None,
        }
    }
}

/// Declares the table of statuses.
pub(crate) fn statuses(
    b: &mut Builder,
    inputs: &Inputs,
    xbackends: XBackends,
    changes: Table<ObjectKey, PodServiceChange>,
    uses: Uses,
) -> Table<ObjectKey, ObjectStatus> {
    let inputs = *inputs;
    b.derive("xbackend status", xbackends.states, move |reader, key| {
        let generation = reader.get(inputs.xbackends, key)?.meta.generation;
        let settings = reader.get(inputs.settings, &())?;
        let controller = settings.controller_name.as_ref()?;
        let state = reader.get(xbackends.states, key)?;
        let accepted = match &state.destination {
            Ok(Destination { tls: None, .. }) => "connections to the backend are not encrypted",
            _ => "connections to the backend use TLS",
        };
        let uses = reader.keys(uses, key).into_iter();
        let gateways: BTreeSet<ObjectKey> = uses.map(|used| used.gateway).collect();
        let refused = match &state.destination {
            Ok(_) => pods::refusal(reader, &inputs, changes, key),
            Err(problem) => Some(problem.clone()),
        };
        let verdicts = gateways.into_iter().map(|gateway| Verdict {
            gateway,
            refused: refused.clone(),
            unresolved: state.unresolved.clone(),
        });
        let status = policy_status::status(controller, generation, accepted, verdicts)?;
        Some(ObjectStatus::Policy(Arc::new(status)))
    })
}
