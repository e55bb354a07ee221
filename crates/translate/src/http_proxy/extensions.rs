//! ExtensionServices: services that Envoy itself calls on behalf of HTTPProxies.
//!
//! In: ExtensionServices, and the objects that they refer to. Out: the cluster of each, its endpoints, and statuses.
//!
//! HTTPProxies in all namespaces may refer to an ExtensionService, so creating one shares its Services with all of
//! them: the ExtensionService, not the HTTPProxy, needs permission to use Services and Secrets. The key of its cluster
//! contains its settings but not its list of Services, so that a changed weight changes only endpoints.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sesame_api::{
    CircuitBreakerPolicy, ConditionsStatus, ExtensionProtocol, ExtensionProtocolVersion,
    ExtensionService, ExtensionServiceReference, Kind, NamespacedName, ObjectKey, ObjectStatus,
};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{
    BackendName, ClusterKey, ClusterPolicy, ConnectionLimits, ConnectionSettings, EndpointShare,
    Endpoints, Protocol, TlsSettings,
};

use super::findings::{About, Finding, Findings};
use super::{balancing, policies, services, status};
use crate::configuration::client_certificate;
use crate::inputs::Inputs;
use crate::shared::authorities::AuthorityState;
use crate::shared::contour;
use crate::shared::services::{self as shared, Backend};
use crate::shared::shares;

/// The maximum weight of a Service. Envoy rejects endpoints if the sum of all weights exceeds 32 bits.
const MAX_WEIGHT: u32 = 1_000_000;

/// The maximum number of Services.
const MAX_SERVICES: usize = 128;

/// ExtensionServices, indexed by the objects that they refer to.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    declared: Table<ObjectKey, Declared>,
    /// ExtensionServices by their own cluster.
    pub(crate) by_cluster: Index<ObjectKey, Declared, ClusterKey>,
    /// ExtensionServices by the Secret of their CA bundle.
    pub(crate) by_authority: Index<ObjectKey, Declared, ObjectKey>,
}

/// The contents of an ExtensionService, whether or not the objects that it refers to exist.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Declared {
    /// `None` if a field is invalid.
    cluster: Option<ClusterKey>,
    /// Sorted by cluster, without duplicates.
    services: Box<[Declaration]>,
    timeout: Option<Duration>,
    findings: Box<[Finding]>,
}

/// A Service of an ExtensionService.
#[derive(Clone, Debug, PartialEq)]
struct Declaration {
    /// The Service's own cluster.
    cluster: ClusterKey,
    name: NamespacedName,
    port: u16,
    /// The sum of the weights of all entries for this port.
    weight: u32,
    /// The field path of the first entry for this port.
    field: String,
}

/// The state of an ExtensionService.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExtensionState {
    /// `None` if Envoy can't or must not call the ExtensionService.
    usable: Option<Arc<Extension>>,
    findings: Box<[Finding]>,
}

/// An ExtensionService that Envoy can call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Extension {
    /// Its cluster.
    pub(crate) cluster: ClusterKey,
    /// The timeout of a call: zero means no limit, `None` means the caller's default.
    pub(crate) timeout: Option<Duration>,
}

impl Extension {
    /// Whether gRPC calls are possible; they need HTTP/2.
    pub(crate) fn speaks_grpc(&self) -> bool {
        let policy = self.cluster.policy.as_ref();
        policy.is_some_and(|policy| policy.protocol == Some(Protocol::Http2))
    }
}

/// Declares the contents of ExtensionServices.
pub(crate) fn read(b: &mut Builder, inputs: &Inputs) -> Read {
    let extensions = inputs.extension_services;
    let declared = b.derive(
        "declared extension_service",
        extensions,
        move |reader, key: &ObjectKey| {
            let superseded = contour::is_superseded(reader, extensions, key);
            let extension = (!superseded).then(|| reader.get(extensions, key))??;
            Some(declared(&extension))
        },
    );
    Read {
        declared,
        by_cluster: b.index(declared, "extension_services by cluster", |_, of| {
            of.cluster.iter().cloned().collect()
        }),
        by_authority: b.index(declared, "extension_services by authority", |_, of| {
            let cluster = of.cluster.as_ref();
            cluster
                .and_then(services::authorities)
                .into_iter()
                .collect()
        }),
    }
}

/// The cluster of an ExtensionService for gRPC calls that may be lost, such as exports of spans; `None` if the fields of the
/// ExtensionService are invalid. Doesn't depend on its Services, so that listeners with this cluster don't change with them.
pub(crate) fn best_effort(
    reader: &mut Reader<'_>,
    read: Read,
    name: &NamespacedName,
) -> Option<ClusterKey> {
    let own = name.clone().of_kind(Kind::ExtensionService);
    let (_, declared) = contour::find(reader, read.declared, &own)?;
    let cluster = declared.cluster.clone()?;
    let policy = cluster.policy.as_deref()?;
    let grpc = policy.protocol == Some(Protocol::Http2);
    grpc.then(|| cluster.as_best_effort())
}

/// Declares the states of ExtensionServices.
pub(crate) fn states(
    b: &mut Builder,
    inputs: &Inputs,
    read: Read,
    authorities: Table<ObjectKey, AuthorityState>,
    client_certificate: Table<(), String>,
) -> Table<ObjectKey, ExtensionState> {
    let inputs = *inputs;
    let declared = read.declared;
    b.derive(
        "extension_service",
        declared,
        move |reader, key: &ObjectKey| {
            let declared = reader.get(declared, key)?;
            let checked = (authorities, client_certificate);
            Some(state(reader, inputs, checked, &declared))
        },
    )
}

/// Declares the statuses of ExtensionServices.
pub(crate) fn statuses(
    b: &mut Builder,
    inputs: &Inputs,
    states: Table<ObjectKey, ExtensionState>,
) -> Table<ObjectKey, ObjectStatus> {
    let inputs = *inputs;
    let used = b.derive(
        "extension_service status",
        states,
        move |reader, key: &ObjectKey| {
            let generation = reader.get(inputs.extension_services, key)?.meta.generation;
            let state = reader.get(states, key)?;
            Some(status_of(&state.findings, generation))
        },
    );
    let superseded = contour::statuses(
        b,
        (
            "contour's extension_services",
            "superseded extension_service",
        ),
        inputs.extension_services,
        |extension| status_of(&[status::supersession()], extension.meta.generation),
    );
    b.union("extension_service statuses", [used, superseded])
}

fn status_of(findings: &[Finding], generation: i64) -> ObjectStatus {
    ObjectStatus::Conditions(Arc::new(ConditionsStatus {
        conditions: vec![status::whole(findings, generation)],
    }))
}

/// Resolves a reference to an ExtensionService. `namespace` is the referring object's namespace.
///
/// # Errors
/// Why the ExtensionService can't be called.
pub(super) fn resolve(
    reader: &mut Reader<'_>,
    states: Table<ObjectKey, ExtensionState>,
    namespace: &Arc<str>,
    reference: &ExtensionServiceReference,
) -> Result<Arc<Extension>, String> {
    let version = Kind::ExtensionService.api_version();
    let of_reference = reference.api_version.as_deref();
    if let Some(other) = of_reference.filter(|other| !other.is_empty() && *other != version) {
        return Err(format!("unknown API version {other:?}; use {version}"));
    }
    let own = reference.namespace.as_ref().filter(|own| !own.is_empty());
    let namespace = Arc::clone(own.unwrap_or(namespace));
    let name = NamespacedName::new(namespace, Arc::clone(&reference.name));
    usable(reader, states, &name)
}

/// The ExtensionService with this name.
///
/// # Errors
/// Why the ExtensionService can't be called.
pub(crate) fn usable(
    reader: &mut Reader<'_>,
    states: Table<ObjectKey, ExtensionState>,
    name: &NamespacedName,
) -> Result<Arc<Extension>, String> {
    let own = name.clone().of_kind(Kind::ExtensionService);
    let Some((_, state)) = contour::find(reader, states, &own) else {
        return Err(format!("ExtensionService {name} does not exist"));
    };
    state
        .usable
        .clone()
        .ok_or_else(|| format!("ExtensionService {name} can't be used; see its status"))
}

fn declared(extension: &ExtensionService) -> Declared {
    let (spec, namespace) = (&extension.spec, &extension.meta.namespace);
    let mut findings = Findings::default();
    let (protocol, tls) = protocol(spec.protocol.as_ref(), &mut findings);
    let tls = match spec.validation.as_deref() {
        None => tls.then_some(TlsSettings::Unverified),
        Some(_) if spec.protocol == Some(ExtensionProtocol::H2c) => {
            let message = "can't be applied to protocol h2c, which doesn't use TLS; \
                           remove it, or change the protocol to h2";
            findings.refuse(About::VALIDATION, "spec.validation", message);
            None
        }
        Some(validation) => {
            services::validation("spec.validation", validation, namespace, &mut findings)
        }
    };
    if let Some(version) = &spec.protocol_version
        && *version != ExtensionProtocolVersion::V3
    {
        let message = format!("unknown version {:?}; use v3", version.as_str());
        findings.refuse(About::SERVICE, "spec.protocolVersion", message);
    }
    let policy = spec.load_balancer_policy.as_deref();
    let place = ("spec", About::EXTENSION_BALANCING, "an ExtensionService");
    let selection = balancing::unhashed(place, policy, &mut findings);
    let timeouts = spec.timeout_policy.as_deref();
    let mut limit = |part: &str, text: Option<&String>| {
        let field = format!("spec.timeoutPolicy.{part}");
        policies::limit(About::EXTENSION_TIMEOUT, &field, text, &mut findings)
    };
    let timeout = limit("response", timeouts.and_then(|of| of.response.as_ref()));
    let idle = timeouts.and_then(|of| of.idle_connection.as_ref());
    let idle_timeout = limit("idleConnection", idle);
    if timeouts.is_some_and(|timeouts| timeouts.idle.is_some()) {
        let message = "has no effect; remove it, or set response to limit the duration of a call";
        findings.warn(About::EXTENSION_TIMEOUT, "spec.timeoutPolicy.idle", message);
    }
    let services = declarations(extension, &mut findings);
    let connections = policies::unless_default(ConnectionSettings {
        balancing: selection.balancing,
        health: None,
        slow_start: None,
        idle_timeout,
        limits: spec
            .circuit_breaker_policy
            .as_ref()
            .and_then(|policy| limits(policy, &mut findings)),
    });
    let cluster = (findings.refusals() == 0).then(|| ClusterKey {
        namespace: Arc::clone(namespace),
        backend: BackendName::ExtensionService {
            name: Arc::clone(&extension.meta.name),
        },
        policy: Some(Arc::new(ClusterPolicy {
            protocol: Some(protocol),
            tls,
            connections,
            ..ClusterPolicy::default()
        })),
    });
    Declared {
        cluster,
        services,
        timeout,
        findings: findings.list.into(),
    }
}

/// Reads the protocol, and whether it uses TLS even if no validation is set.
fn protocol(protocol: Option<&ExtensionProtocol>, findings: &mut Findings) -> (Protocol, bool) {
    match protocol {
        None | Some(ExtensionProtocol::H2) => (Protocol::Http2, true),
        Some(ExtensionProtocol::H2c) => (Protocol::Http2, false),
        Some(ExtensionProtocol::Http11) => (Protocol::Http1, false),
        Some(other) => {
            let message = format!(
                "unknown protocol {:?}; use h2, h2c or http/1.1",
                other.as_str()
            );
            findings.refuse(About::SERVICE, "spec.protocol", message);
            (Protocol::Http2, true)
        }
    }
}

/// Reads the Services, sorted by cluster, without duplicates.
fn declarations(extension: &ExtensionService, findings: &mut Findings) -> Box<[Declaration]> {
    let namespace = &extension.meta.namespace;
    let services = &extension.spec.services;
    if services.is_empty() || services.len() > MAX_SERVICES {
        let message = format!("expected 1 to {MAX_SERVICES} Services");
        findings.refuse(About::SERVICE, "spec.services", message);
    }
    let mut by_cluster: BTreeMap<ClusterKey, Declaration> = BTreeMap::new();
    for (index, service) in services.iter().take(MAX_SERVICES).enumerate() {
        let field = format!("spec.services[{index}]");
        if service.port == 0 {
            let message = "expected a port from 1 to 65535";
            findings.refuse(About::SERVICE, &format!("{field}.port"), message);
        }
        let weight = findings.count(About::SERVICE, &format!("{field}.weight"), service.weight);
        let cluster = ClusterKey {
            namespace: Arc::clone(namespace),
            backend: BackendName::ServicePort {
                service: Arc::clone(&service.name),
                port: service.port,
            },
            policy: None,
        };
        let entry = by_cluster.entry(cluster);
        let entry = entry.or_insert_with_key(|cluster| Declaration {
            cluster: cluster.clone(),
            name: NamespacedName::new(Arc::clone(namespace), Arc::clone(&service.name)),
            port: service.port,
            weight: 0,
            field,
        });
        entry.weight += weight.min(MAX_WEIGHT);
    }
    by_cluster.into_values().collect()
}

/// Reads the connection limits; 0 means the default.
fn limits(policy: &CircuitBreakerPolicy, findings: &mut Findings) -> Option<ConnectionLimits> {
    let mut limit = |part: &str, limit| {
        let field = format!("spec.circuitBreakerPolicy.{part}");
        let limit = findings.count(About::SERVICE, &field, limit);
        (limit > 0).then_some(limit)
    };
    let limits = ConnectionLimits {
        connections: limit("maxConnections", policy.max_connections),
        pending: limit("maxPendingRequests", policy.max_pending_requests),
        requests: limit("maxRequests", policy.max_requests),
        retries: limit("maxRetries", policy.max_retries),
        connections_per_endpoint: limit("perHostMaxConnections", policy.per_host_max_connections),
    };
    (limits != ConnectionLimits::default()).then_some(limits)
}

fn state(
    reader: &mut Reader<'_>,
    inputs: Inputs,
    (authorities, client_certificate): (Table<ObjectKey, AuthorityState>, Table<(), String>),
    declared: &Declared,
) -> ExtensionState {
    let mut findings = Findings::default();
    for finding in &declared.findings {
        findings.add(finding.clone());
    }
    let mut usable = declared.cluster.as_ref();
    let verifiable = usable.is_some_and(|cluster| {
        services::verifiable(
            reader,
            (inputs, authorities),
            "spec",
            cluster,
            &mut findings,
        )
    });
    let unpresentable =
        usable.and_then(|key| client_certificate::problem(reader, client_certificate, key));
    if let Some(message) = &unpresentable {
        findings.error(About::CLIENT_CERTIFICATE, "spec", message);
    }
    let mut found = 0;
    for service in &declared.services {
        match shared::backend(
            &service.cluster,
            &service.name,
            service.port,
            reader.get(inputs.services, &service.name).as_deref(),
        ) {
            Backend::NotFound(message) | Backend::UnsupportedProtocol(message) => {
                findings.error(About::UNRESOLVED, &service.field, message);
            }
            _ => found += 1,
        }
    }
    if !verifiable || unpresentable.is_some() || found == 0 {
        usable = None;
    }
    ExtensionState {
        usable: usable.map(|cluster| {
            Arc::new(Extension {
                cluster: cluster.clone(),
                timeout: declared.timeout,
            })
        }),
        findings: findings.list.into(),
    }
}

/// The endpoints of an ExtensionService's cluster.
pub(crate) fn endpoints(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    read: Read,
    key: &ObjectKey,
) -> Option<Endpoints> {
    let (_, declared) = contour::find(reader, read.declared, key)?;
    let mut found = Vec::new();
    for declaration in &declared.services {
        let service = reader.get(inputs.services, &declaration.name);
        let Some(service) = service.filter(|service| !service.external) else {
            continue;
        };
        let transport = declaration.cluster.transport();
        let Some(port) = service.port(declaration.port, transport) else {
            continue;
        };
        let slices = reader.by(inputs.slices_by_service, &declaration.name);
        let slices = slices.iter().map(|(_, slice)| &**slice);
        let endpoints = shared::endpoints(&service, port, None, slices).endpoints;
        found.push((declaration, endpoints));
    }
    let even = found.iter().all(|(declaration, _)| declaration.weight == 0);
    let shares = found
        .into_iter()
        .map(|(declaration, endpoints)| EndpointShare {
            cluster: declaration.cluster.clone(),
            weight: if even { 1 } else { declaration.weight },
            endpoints,
        });
    let shares = shares.filter(|share| share.weight > 0 && !share.endpoints.is_empty());
    let mut shares = Vec::from_iter(shares);
    shares::limit(&mut shares);
    Some(Endpoints {
        endpoints: Vec::new(),
        shares: shares.into(),
    })
}
