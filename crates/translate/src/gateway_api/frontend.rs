//! How a Gateway's HTTPS listeners validate clients' certificates (GatewaySpec.tls.frontend), by port.
//!
//! All HTTPS listeners of a port, including those of ListenerSets, share settings: a client may reuse one listener's
//! connection for requests to another.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use sesame_api::{
    FrontendTlsValidation, FrontendValidationMode, Gateway, Kind, ObjectKey, ObjectReference,
    reason,
};
use sesame_engine::{Reader, Table};
use sesame_model::{ClientValidation, TrustBundle, TrustBundleKey};

use crate::problem::Problem;
use crate::shared::authorities::{self, AuthorityState, MAX_REFERENCED, Reasons};
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
    let mut bundles = Bundles {
        first: BTreeMap::new(),
        left: MAX_REFERENCED,
    };
    let states = settings(gateway).map(|(port, field, validation)| {
        let state = validation
            .map(|all| client_state(reader, sources, gateway, (port, &mut bundles), &field, all));
        (port, state)
    });
    FrontendState(states.collect())
}

/// The CA certificates of the ports read so far.
struct Bundles {
    /// The first port with certificates of these objects; `None` for all ports without CAs of their own.
    first: BTreeMap<Vec<ObjectKey>, Option<u16>>,
    /// The remaining size, in bytes, of [`MAX_REFERENCED`].
    left: usize,
}

impl Bundles {
    /// The first port with certificates of these objects; `None` if no more fit.
    fn first(
        &mut self,
        reader: &mut Reader<'_>,
        states: Table<ObjectKey, AuthorityState>,
        authorities: &[ObjectKey],
        port: Option<u16>,
    ) -> Option<Option<u16>> {
        if let Some(first) = self.first.get(authorities) {
            return Some(*first);
        }
        let bundle = authorities::bundle(reader, states, authorities.iter().cloned())?;
        self.left = self.left.checked_sub(bundle.certificates.len())?;
        self.first.insert(authorities.to_vec(), port);
        Some(port)
    }
}

fn client_state(
    reader: &mut Reader<'_>,
    sources: Sources,
    gateway: &Gateway,
    (port, bundles): (Option<u16>, &mut Bundles),
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
    let none = |message: String| {
        let message = format!("{field}.caCertificateRefs of the Gateway: {message}");
        Err(Problem::new(
            reason::listener::NO_VALID_CA_CERTIFICATE,
            message,
        ))
    };
    let validation = match authorities.is_empty() {
        true => {
            none("no reference is valid (see ResolvedRefs), so all clients are rejected".to_owned())
        }
        false => match bundles.first(reader, sources.authorities, &authorities, port) {
            None => none(format!(
                "the CA certificates of all ports take more than {} KiB, so all clients are rejected; remove some, or use \
                 the same references for several ports",
                MAX_REFERENCED / 1024
            )),
            Some(first) => optional(field, &validation.mode).map(|optional| (first, optional)),
        },
    };
    ClientState {
        validation: validation.map(|(port, optional)| {
            Arc::new(ClientValidation {
                authorities: Some(TrustBundleKey::Clients {
                    namespace: Arc::clone(&gateway.meta.namespace),
                    gateway: Arc::clone(&gateway.meta.name),
                    port,
                }),
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
        let mut bundles = BTreeMap::new();
        for clients in self.0.values().flatten() {
            let validation = clients.validation.as_ref().ok();
            let key = validation.and_then(|validation| validation.authorities.clone());
            if let Some(Entry::Vacant(entry)) = key.map(|key| bundles.entry(key)) {
                let of = clients.authorities.iter().cloned();
                if let Some(bundle) = authorities::bundle(reader, authorities, of) {
                    entry.insert(bundle);
                }
            }
        }
        bundles.into_iter().collect()
    }
}
