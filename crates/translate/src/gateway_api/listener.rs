//! A single listener of a Gateway or ListenerSet: protocol, kinds, namespaces, certificates.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_api::{FromNamespaces, Kind, Listener, ObjectKey, ProtocolType, TlsMode, reason};
use sesame_engine::{Reader, Table};
use sesame_model::CertificateKey;

use super::frontend::{ClientState, FrontendState};
use super::listener_state::{ListenerState, domain_of};
use super::route::backends;
use super::{certificate_ref, listener_filters};
use crate::problem::Problem;
use crate::shared::certificates::CertificateState;
use crate::shared::grants::{Grants, Referrer};
use crate::shared::hostname;
use crate::shared::listeners::{AllowedNamespaces, Protocol};
use crate::shared::namespaces::check_selector;
use crate::shared::open_listeners;

/// The route kinds that a protocol supports and Sesame implements.
fn kinds_of(protocol: Protocol) -> &'static [Kind] {
    match protocol {
        Protocol::Http | Protocol::Https => &[Kind::HTTPRoute, Kind::GRPCRoute],
        Protocol::Tls => &[Kind::TLSRoute],
        Protocol::Tcp => &[Kind::TCPRoute],
        Protocol::Udp => &[Kind::UDPRoute],
        Protocol::Unknown => &[],
    }
}

/// The tables needed to read listeners and references to certificates.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    pub(crate) grants: Grants,
    pub(crate) certificates: Table<CertificateKey, CertificateState>,
    pub(crate) frontends: Table<ObjectKey, FrontendState>,
    pub(crate) backends: backends::Sources,
}

/// An object with listeners.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    /// Gateway or ListenerSet.
    pub(super) kind: Kind,
    /// The namespace.
    pub(super) namespace: &'a Arc<str>,
    /// The listeners.
    pub(super) listeners: &'a [Listener],
    /// The Gateway, whose frontend TLS settings apply.
    pub(super) gateway: &'a ObjectKey,
}

/// Reads an object's listeners, in their order.
pub(super) fn read_all(
    reader: &mut Reader<'_>,
    sources: Sources,
    owner: Owner<'_>,
) -> Vec<ListenerState> {
    let listeners = owner.listeners.iter().enumerate();
    let frontend = reader.get(sources.frontends, owner.gateway);
    let mut resolver = Resolver {
        reader,
        sources,
        referrer: Referrer {
            kind: owner.kind,
            namespace: owner.namespace,
        },
        open_ports: BTreeSet::new(),
    };
    listeners
        .map(|(index, listener)| {
            let field = format!("spec.listeners[{index}]");
            read(&mut resolver, frontend.as_deref(), &field, listener)
        })
        .collect()
}

fn read(
    resolver: &mut Resolver<'_, '_>,
    frontend: Option<&FrontendState>,
    field: &str,
    listener: &Listener,
) -> ListenerState {
    let protocol = match listener.protocol {
        ProtocolType::Http => Protocol::Http,
        ProtocolType::Https => Protocol::Https,
        ProtocolType::Tls => Protocol::Tls,
        ProtocolType::Tcp => Protocol::Tcp,
        ProtocolType::Udp => Protocol::Udp,
        ProtocolType::Other(_) => Protocol::Unknown,
    };
    let mut unresolved = Vec::new();
    let kinds = kinds(
        field,
        protocol,
        listener,
        &mut resolver.open_ports,
        &mut unresolved,
    );
    let mode = listener.tls.as_ref().map(|tls| &tls.mode);
    let passthrough = protocol == Protocol::Tls && mode == Some(&TlsMode::Passthrough);
    let certificates = match protocol.is_tls() && !passthrough {
        true => resolver.certificates(field, listener, &mut unresolved),
        false => Vec::new(),
    };
    let clients = frontend
        .filter(|_| protocol == Protocol::Https)
        .and_then(|frontend| frontend.on_port(listener.port));
    unresolved.extend(clients.and_then(|clients| clients.unresolved.clone()));
    let filters = listener_filters::read(
        &format!("{field}.filters.requests"),
        &listener.filters.requests,
        resolver.services(),
    );
    unresolved.extend(filters.unresolved);
    ListenerState {
        name: listener.name.clone(),
        port: listener.port,
        protocol,
        passthrough,
        domain: match protocol.has_hostname() {
            true => domain_of(listener),
            false => hostname::ANY.into(),
        },
        kinds,
        namespaces: namespaces(listener),
        certificates,
        clients: clients.and_then(|clients| clients.validation.clone().ok()),
        checks: filters.checks,
        invalid_filters: filters.invalid,
        refused: refused(field, protocol, clients, listener),
        conflicted: None,
        unresolved: Problem::merge(unresolved),
        overlapping: None,
    }
}

/// Why a listener is invalid. A listener that requires an unsupported security feature is rejected, never served
/// without it.
fn refused(
    field: &str,
    protocol: Protocol,
    clients: Option<&ClientState>,
    listener: &Listener,
) -> Option<Problem> {
    let unsupported = |field: String, message: &str| {
        Some(Problem::new(
            reason::listener::UNSUPPORTED_VALUE,
            format!("{field}: {message}"),
        ))
    };
    if kinds_of(protocol).is_empty() {
        return Some(Problem::new(
            reason::listener::UNSUPPORTED_PROTOCOL,
            format!(
                "{field}.protocol: {} is not supported; use HTTP, HTTPS, TLS, TCP or UDP",
                listener.protocol
            ),
        ));
    }
    if !listener.filters.is_empty() && !matches!(protocol, Protocol::Http | Protocol::Https) {
        return unsupported(
            format!("{field}.filters"),
            &format!("filters are not valid for protocol {protocol}; remove them"),
        );
    }
    if let AllowedNamespaces::Selected(selector) = namespaces(listener)
        && let Err(error) = check_selector(
            &format!("{field}.allowedRoutes.namespaces.selector"),
            &selector,
        )
    {
        return unsupported(error.field, &error.message);
    }
    if !protocol.is_tls() {
        return None;
    }
    let tls = listener.tls.as_ref();
    if tls.is_some_and(|tls| tls.frontend_validation.is_some()) {
        return unsupported(
            format!("{field}.tls.frontendValidation"),
            "is not supported; use spec.tls.frontend of the Gateway",
        );
    }
    match tls.map(|tls| &tls.mode) {
        None | Some(TlsMode::Terminate) => {}
        Some(TlsMode::Passthrough) if protocol == Protocol::Tls => return None,
        Some(mode) => {
            let valid = match protocol {
                Protocol::Tls => "Terminate or Passthrough",
                _ => "Terminate",
            };
            return unsupported(
                format!("{field}.tls.mode"),
                &format!("{mode} is not valid for protocol {protocol}; use {valid}"),
            );
        }
    }
    clients.and_then(|clients| clients.validation.clone().err())
}

/// The route kinds that may attach: the protocol's, narrowed by `allowedRoutes.kinds`. Kinds without parentRefs must be
/// named there, and attach to the first [`open_listeners::MAX_PORTS`] ports that name them, `open_ports`.
fn kinds(
    field: &str,
    protocol: Protocol,
    listener: &Listener,
    open_ports: &mut BTreeSet<u16>,
    unresolved: &mut Vec<Problem>,
) -> Vec<Kind> {
    let mut carried = kinds_of(protocol).to_vec();
    let wanted = &listener.allowed_routes.kinds;
    if wanted.is_empty() {
        return carried;
    }
    if matches!(protocol, Protocol::Http | Protocol::Https) {
        carried.extend(open_listeners::KINDS);
    }
    let mut kinds = Vec::new();
    for (index, kind) in wanted.iter().enumerate() {
        match kind.known_kind().filter(|known| carried.contains(known)) {
            Some(known) if kinds.contains(&known) => {}
            Some(known) if open_listeners::KINDS.contains(&known) => {
                if open_ports.len() < open_listeners::MAX_PORTS {
                    open_ports.insert(listener.port);
                }
                match open_ports.contains(&listener.port) {
                    true => kinds.push(known),
                    false => unresolved.push(Problem::new(
                        reason::listener::INVALID_ROUTE_KINDS,
                        format!(
                            "{field}.allowedRoutes.kinds[{index}]: {} other ports serve HTTPProxies or Ingresses, \
                             the maximum; remove kind {known} from this listener or from those",
                            open_listeners::MAX_PORTS
                        ),
                    )),
                }
            }
            Some(known) => kinds.push(known),
            None => unresolved.push(Problem::new(
                reason::listener::INVALID_ROUTE_KINDS,
                format!(
                    "{field}.allowedRoutes.kinds[{index}]: kind {} in group {} is not supported for protocol {}",
                    kind.kind, kind.group, listener.protocol
                ),
            )),
        }
    }
    kinds
}

fn namespaces(listener: &Listener) -> AllowedNamespaces {
    let namespaces = &listener.allowed_routes.namespaces;
    match (&namespaces.from, &namespaces.selector) {
        (FromNamespaces::All, _) => AllowedNamespaces::All,
        (FromNamespaces::Same, _) => AllowedNamespaces::Same,
        (FromNamespaces::Selector, Some(selector)) => AllowedNamespaces::Selected(selector.clone()),
        // An unknown value doesn't permit any namespace.
        (FromNamespaces::Selector | FromNamespaces::None | FromNamespaces::Other(_), _) => {
            AllowedNamespaces::None
        }
    }
}

/// Resolves the references of one object's listeners.
struct Resolver<'a, 'r> {
    reader: &'a mut Reader<'r>,
    sources: Sources,
    referrer: Referrer<'a>,
    /// The ports that serve kinds without parentRefs.
    open_ports: BTreeSet<u16>,
}

impl<'a, 'r> Resolver<'a, 'r> {
    /// A resolver for authorization services.
    fn services(&mut self) -> backends::Resolver<'_, 'r> {
        backends::Resolver::new(self.reader, self.sources.backends, self.referrer, None)
    }

    /// The valid certificates, in the listener's order.
    fn certificates(
        &mut self,
        field: &str,
        listener: &Listener,
        unresolved: &mut Vec<Problem>,
    ) -> Vec<CertificateKey> {
        let references = listener
            .tls
            .as_ref()
            .map(|tls| tls.certificate_refs.as_slice())
            .unwrap_or_default();
        if references.is_empty() {
            unresolved.push(Problem::new(
                reason::listener::INVALID_CERTIFICATE_REF,
                format!("{field}.tls.certificateRefs: at least one Secret is required"),
            ));
        }
        let mut valid = Vec::new();
        for (index, reference) in references.iter().enumerate() {
            let resolved = certificate_ref::resolve(
                self.reader,
                self.sources.grants,
                self.sources.certificates,
                self.referrer,
                reference,
                reason::listener::INVALID_CERTIFICATE_REF,
            );
            match resolved {
                Ok(key) if valid.contains(&key) => {}
                Ok(key) => valid.push(key),
                Err(problem) => unresolved.push(Problem::new(
                    problem.reason(),
                    format!(
                        "{field}.tls.certificateRefs[{index}]: {}",
                        problem.message()
                    ),
                )),
            }
        }
        valid
    }
}
