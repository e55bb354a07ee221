//! How a Gateway's HTTPS listeners validate clients' certificates (GatewaySpec.tls.frontend), by port.
//!
//! All HTTPS listeners of a port, including those of ListenerSets, share settings: a client may reuse one listener's
//! connection for requests to another.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_api::{
    FrontendTlsValidation, FrontendValidationMode, Gateway, Kind, ObjectKey, ObjectReference,
    reason,
};
use sesame_engine::{Reader, Table};
use sesame_model::{ClientValidation, TrustBundle, TrustBundleKey};

use crate::problem::Problem;
use crate::shared::authorities::{self, AuthorityState, Reasons};
use crate::shared::grants::{self, Grants, Referrer};

const REASONS: Reasons = Reasons {
    kind: reason::listener::INVALID_CA_CERTIFICATE_KIND,
    object: reason::listener::INVALID_CA_CERTIFICATE_REF,
};

/// A Gateway's settings by port; `None` is the key of the settings for all other ports. Rotating a CA doesn't change
/// this row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FrontendState(BTreeMap<Option<u16>, Option<ClientState>>);

/// How a port's clients are validated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientState {
    /// The validation, or why no client can be accepted.
    pub(super) validation: Result<Arc<ClientValidation>, Problem>,
    /// Unresolved references.
    pub(super) unresolved: Option<Problem>,
    /// The objects with valid CA certificates.
    authorities: Vec<ObjectKey>,
}

/// The settings of a Gateway with their ports and fields: the default first, under `None`.
fn settings(
    gateway: &Gateway,
) -> impl Iterator<Item = (Option<u16>, String, Option<&FrontendTlsValidation>)> {
    let tls = gateway.spec.tls.as_ref();
    let frontend = tls.and_then(|tls| tls.frontend.as_ref());
    frontend.into_iter().flat_map(|frontend| {
        let field = |of: &str| format!("spec.tls.frontend.{of}.validation");
        let default = (None, field("default"), frontend.default.validation.as_ref());
        let of_ports = frontend.per_port.iter().enumerate();
        let of_ports = of_ports.map(move |(index, entry)| {
            let field = field(&format!("perPort[{index}].tls"));
            (Some(entry.port), field, entry.tls.validation.as_ref())
        });
        std::iter::once(default).chain(of_ports)
    })
}

/// Whether a Gateway validates clients on any port.
pub(crate) fn validates(gateway: &Gateway) -> bool {
    settings(gateway).any(|(_, _, validation)| validation.is_some())
}

/// The fields that accept clients without a valid certificate.
pub(super) fn insecure(gateway: &Gateway) -> Vec<String> {
    let insecure = settings(gateway).filter(|(_, _, validation)| {
        validation.is_some_and(|all| all.mode == FrontendValidationMode::AllowInsecureFallback)
    });
    insecure.map(|(_, field, _)| field + ".mode").collect()
}

/// The objects with CA certificates that a Gateway refers to, permitted or not.
pub(crate) fn referenced_authorities(gateway: &Gateway) -> Vec<ObjectKey> {
    let validations = settings(gateway).filter_map(|(_, _, validation)| validation);
    let references = validations.flat_map(|validation| &validation.ca_certificate_refs);
    let mut keys: Vec<ObjectKey> = references
        .filter_map(|reference| authority(gateway, reference))
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

fn authority(gateway: &Gateway, reference: &ObjectReference) -> Option<ObjectKey> {
    let name = reference.resolve(&gateway.meta.namespace);
    authorities::key(reference.known_kind(), name)
}

/// The tables needed to resolve CA certificates.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    pub(crate) grants: Grants,
    pub(crate) authorities: Table<ObjectKey, AuthorityState>,
}

/// Reads a Gateway's settings.
pub(crate) fn read(reader: &mut Reader<'_>, sources: Sources, gateway: &Gateway) -> FrontendState {
    let states = settings(gateway).map(|(port, field, validation)| {
        let state = validation.map(|all| client_state(reader, sources, gateway, port, &field, all));
        (port, state)
    });
    FrontendState(states.collect())
}

fn client_state(
    reader: &mut Reader<'_>,
    sources: Sources,
    gateway: &Gateway,
    port: Option<u16>,
    field: &str,
    validation: &FrontendTlsValidation,
) -> ClientState {
    let (mut authorities, mut unresolved) = (Vec::new(), Vec::new());
    for (index, reference) in validation.ca_certificate_refs.iter().enumerate() {
        match resolve(reader, sources, gateway, reference) {
            Ok(authority) => authorities.push(authority),
            Err(problem) => unresolved.push(Problem::new(
                problem.reason(),
                format!(
                    "{field}.caCertificateRefs[{index}] of the Gateway: {}",
                    problem.message()
                ),
            )),
        }
    }
    let accepted = match authorities.is_empty() {
        true => Err(Problem::new(
            reason::listener::NO_VALID_CA_CERTIFICATE,
            format!(
                "{field}.caCertificateRefs of the Gateway: no reference is valid (see ResolvedRefs), so all clients are \
                 rejected"
            ),
        )),
        false => optional(field, &validation.mode),
    };
    let key = TrustBundleKey::Clients {
        namespace: Arc::clone(&gateway.meta.namespace),
        gateway: Arc::clone(&gateway.meta.name),
        port,
    };
    ClientState {
        validation: accepted.map(|optional| {
            Arc::new(ClientValidation {
                authorities: Some(key),
                optional,
                untrusted: optional,
                revocable_leaf: false,
                forwarded: None,
            })
        }),
        unresolved: Problem::merge(unresolved),
        authorities,
    }
}

/// Whether clients are accepted without a valid certificate.
fn optional(field: &str, mode: &FrontendValidationMode) -> Result<bool, Problem> {
    match mode {
        FrontendValidationMode::AllowValidOnly => Ok(false),
        FrontendValidationMode::AllowInsecureFallback => Ok(true),
        FrontendValidationMode::Other(mode) => Err(Problem::new(
            reason::listener::UNSUPPORTED_VALUE,
            format!(
                "{field}.mode of the Gateway: {mode} is not supported; use AllowValidOnly or AllowInsecureFallback"
            ),
        )),
    }
}

/// The object that a reference refers to, if it has CA certificates.
fn resolve(
    reader: &mut Reader<'_>,
    sources: Sources,
    gateway: &Gateway,
    reference: &ObjectReference,
) -> Result<ObjectKey, Problem> {
    let namespace = &gateway.meta.namespace;
    let authority = authority(gateway, reference)
        .ok_or_else(|| authorities::unsupported_kind(REASONS, &reference.kind, &reference.group))?;
    let referrer = Referrer {
        kind: Kind::Gateway,
        namespace,
    };
    let (kind, name) = (authority.kind, authority.namespaced_name());
    if kind.namespaced() && !grants::permitted(reader, sources.grants, referrer, kind, &name) {
        return Err(Problem::new(
            reason::listener::REF_NOT_PERMITTED,
            format!(
                "no ReferenceGrant in namespace {} allows Gateways in namespace {namespace} to reference {kind} {}",
                name.namespace, name.name
            ),
        ));
    }
    match authorities::unusable(reader, sources.authorities, &authority, REASONS) {
        None => Ok(authority),
        Some(problem) => Err(problem),
    }
}

impl FrontendState {
    /// How the clients of HTTPS listeners on a port are validated; `None` if they are not.
    pub(super) fn on_port(&self, port: u16) -> Option<&ClientState> {
        let of_port = self.0.get(&Some(port)).or_else(|| self.0.get(&None));
        of_port?.as_ref()
    }

    /// The CA certificates, by the key in each port's validation.
    pub(crate) fn trust_bundles(
        &self,
        reader: &mut Reader<'_>,
        authorities: Table<ObjectKey, AuthorityState>,
    ) -> Vec<(TrustBundleKey, TrustBundle)> {
        let clients = self.0.values().flatten();
        let bundles = clients.filter_map(|clients| {
            let validation = clients.validation.as_ref().ok()?;
            let of = clients.authorities.iter().cloned();
            let bundle = authorities::bundle(reader, authorities, of)?;
            Some((validation.authorities.clone()?, bundle))
        });
        bundles.collect()
    }
}
