//! One listener of a Gateway, by itself: protocol, kinds, namespaces, certificates.

use sesame_api::{
    FromNamespaces, Gateway, Kind, Listener, NamespacedName, ProtocolType, SecretObjectReference,
    TlsMode, reason,
};
use sesame_engine::{Reader, Table};
use sesame_model::CertificateKey;

use super::attach::AllowedNamespaces;
use super::gateway::{ListenerState, Protocol, domain_of};
use super::problem::Problem;
use crate::pipeline::Inputs;
use crate::shared::certificates::CertificateState;
use crate::shared::grants;

/// Kinds of routes that a protocol carries and we serve.
fn kinds_of(protocol: Protocol) -> &'static [Kind] {
    match protocol {
        Protocol::Http | Protocol::Https => &[Kind::HTTPRoute],
        Protocol::Tls | Protocol::Tcp | Protocol::Udp | Protocol::Unknown => &[],
    }
}

/// Reads the listener at `index` of a Gateway.
pub(super) fn read(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    certificates: Table<CertificateKey, CertificateState>,
    gateway: &Gateway,
    index: usize,
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
    let field = format!("spec.listeners[{index}]");
    let mut unresolved = Vec::new();
    let kinds = kinds(&field, protocol, listener, &mut unresolved);
    let served = if protocol == Protocol::Https {
        served_certificates(
            reader,
            inputs,
            certificates,
            gateway,
            &field,
            listener,
            &mut unresolved,
        )
    } else {
        Vec::new()
    };
    ListenerState {
        name: listener.name.clone(),
        port: listener.port,
        protocol,
        domain: domain_of(listener),
        kinds,
        namespaces: namespaces(listener),
        certificates: served,
        refused: refused(&field, protocol, gateway, listener),
        conflicted: None,
        unresolved: Problem::merge(unresolved),
        overlapping: None,
    }
}

/// What can't be served. A wish for more safety than there is must not be served without it.
fn refused(
    field: &str,
    protocol: Protocol,
    gateway: &Gateway,
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
                "{field}.protocol: {} is not supported; supported are HTTP and HTTPS",
                listener.protocol
            ),
        ));
    }
    if !listener.filters.is_empty() {
        return unsupported(
            format!("{field}.filters"),
            "filters of listeners are not supported; remove them",
        );
    }
    if protocol != Protocol::Https {
        return None;
    }
    let mode = listener.tls.as_ref().map(|tls| &tls.mode);
    if let Some(mode) = mode.filter(|mode| **mode != TlsMode::Terminate) {
        return unsupported(
            format!("{field}.tls.mode"),
            &format!("{mode} is nothing that protocol HTTPS can do; use Terminate"),
        );
    }
    if asks_for_client_certificates(gateway, listener.port) {
        return unsupported(
            "spec.tls.frontend".to_owned(),
            "client certificates can't be checked, so the listener is not served without the check; remove the validation",
        );
    }
    None
}

fn asks_for_client_certificates(gateway: &Gateway, port: u16) -> bool {
    let Some(frontend) = gateway
        .spec
        .tls
        .as_ref()
        .and_then(|tls| tls.frontend.as_ref())
    else {
        return false;
    };
    let of_port = frontend
        .per_port
        .iter()
        .find(|entry| entry.port == port)
        .map(|entry| &entry.tls);
    of_port.unwrap_or(&frontend.default).validation.is_some()
}

/// The kinds that may attach: what the protocol carries, narrowed by `allowedRoutes.kinds`.
fn kinds(
    field: &str,
    protocol: Protocol,
    listener: &Listener,
    unresolved: &mut Vec<Problem>,
) -> Vec<Kind> {
    let carried = kinds_of(protocol);
    let wanted = &listener.allowed_routes.kinds;
    if wanted.is_empty() {
        return carried.to_vec();
    }
    let mut kinds = Vec::new();
    for (index, kind) in wanted.iter().enumerate() {
        match kind.known_kind().filter(|known| carried.contains(known)) {
            Some(known) if kinds.contains(&known) => {}
            Some(known) => kinds.push(known),
            None => unresolved.push(Problem::new(
                reason::listener::INVALID_ROUTE_KINDS,
                format!(
                    "{field}.allowedRoutes.kinds[{index}]: {} of group {} can't attach to protocol {}",
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
        // An unknown word must not open a door.
        (FromNamespaces::Selector | FromNamespaces::None | FromNamespaces::Other(_), _) => {
            AllowedNamespaces::Nobody
        }
    }
}

/// The certificates that can be served, in the order of the listener.
fn served_certificates(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    certificates: Table<CertificateKey, CertificateState>,
    gateway: &Gateway,
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
            format!("{field}.tls.certificateRefs: a Secret with a certificate must be named"),
        ));
    }
    let mut served = Vec::new();
    for (index, reference) in references.iter().enumerate() {
        match certificate(reader, inputs, certificates, gateway, reference) {
            Ok(key) if served.contains(&key) => {}
            Ok(key) => served.push(key),
            Err(problem) => unresolved.push(Problem::new(
                problem.reason,
                format!("{field}.tls.certificateRefs[{index}]: {}", problem.message),
            )),
        }
    }
    served
}

fn certificate(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    certificates: Table<CertificateKey, CertificateState>,
    gateway: &Gateway,
    reference: &SecretObjectReference,
) -> Result<CertificateKey, Problem> {
    let invalid = |message| Problem::new(reason::listener::INVALID_CERTIFICATE_REF, message);
    if reference.known_kind() != Some(Kind::Secret) {
        return Err(invalid(format!(
            "{} of group {:?} can't hold a certificate; use a Secret",
            reference.kind,
            reference.group.as_str()
        )));
    }
    let namespace = &gateway.meta.namespace;
    let secret: NamespacedName = reference.resolve(namespace);
    if !grants::permitted(
        reader,
        inputs,
        Kind::Gateway,
        namespace,
        Kind::Secret,
        &secret,
    ) {
        return Err(Problem::new(
            reason::listener::REF_NOT_PERMITTED,
            format!(
                "no ReferenceGrant in namespace {} lets Gateways of namespace {namespace} refer to Secret {}",
                secret.namespace, secret.name
            ),
        ));
    }
    let key = CertificateKey {
        namespace: secret.namespace.clone(),
        name: secret.name.clone(),
    };
    match reader.get(certificates, &key).as_deref() {
        Some(CertificateState::Valid { .. }) => Ok(key),
        Some(CertificateState::Invalid(reason)) => {
            Err(invalid(format!("Secret {secret} {reason}")))
        }
        Some(CertificateState::Missing) | None => {
            Err(invalid(format!("Secret {secret} does not exist")))
        }
    }
}
