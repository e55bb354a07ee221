//! References to Secrets with certificates: those that listeners present, and the client certificates of Gateways and
//! XBackends.

use std::sync::Arc;

use sesame_api::{Gateway, Kind, NamespacedName, SecretObjectReference, reason};
use sesame_engine::{Reader, Table};
use sesame_model::CertificateKey;

use super::listener::Sources;
use crate::problem::{Problem, bounded};
use crate::shared::certificates::CertificateState;
use crate::shared::grants::{self, Grants, Referrer};

/// The certificate that a reference names, or why it can't be used. `invalid` is the reason for references that are
/// permitted, but don't name a valid certificate.
pub(super) fn resolve(
    reader: &mut Reader<'_>,
    grants: Grants,
    certificates: Table<CertificateKey, CertificateState>,
    referrer: Referrer<'_>,
    reference: &SecretObjectReference,
    invalid: &'static str,
) -> Result<CertificateKey, Problem> {
    let invalid = |message| Problem::new(invalid, message);
    if reference.known_kind() != Some(Kind::Secret) {
        return Err(invalid(format!(
            "kind {} in group {:?} is not supported as a certificate; use a Secret",
            reference.kind,
            reference.group.as_str()
        )));
    }
    let Referrer { kind, namespace } = referrer;
    let secret: NamespacedName = reference.resolve(namespace);
    if !grants::permitted(reader, grants, referrer, Kind::Secret, &secret) {
        return Err(Problem::new(
            reason::listener::REF_NOT_PERMITTED,
            format!(
                "no ReferenceGrant in namespace {} allows {kind}s in namespace {namespace} to reference Secret {}",
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

/// The client certificate that a Gateway requires for its backends (GatewayBackendTLS.clientCertificateRef).
pub(super) fn client_certificate(
    reader: &mut Reader<'_>,
    sources: Sources,
    gateway: &Gateway,
) -> Option<Result<CertificateKey, Problem>> {
    let reference = client_certificate_ref(gateway)?;
    let referrer = Referrer {
        kind: Kind::Gateway,
        namespace: &gateway.meta.namespace,
    };
    let invalid = reason::gateway::INVALID_CLIENT_CERTIFICATE_REF;
    let (grants, certificates) = (sources.grants, sources.certificates);
    let resolved = resolve(reader, grants, certificates, referrer, reference, invalid);
    Some(resolved.map_err(|problem| {
        let message = format!(
            "spec.tls.backend.clientCertificateRef: {}; until this is fixed, requests to Services with a \
             BackendTLSPolicy fail",
            problem.message()
        );
        Problem::new(problem.reason(), bounded(message))
    }))
}

/// The Secret that a Gateway names as its client certificate, permitted or not, for the index by Secret.
pub(crate) fn client_secret(gateway: &Gateway) -> Option<CertificateKey> {
    secret(client_certificate_ref(gateway)?, &gateway.meta.namespace)
}

/// The Secret that a reference in an object of this namespace names.
pub(super) fn secret(
    reference: &SecretObjectReference,
    namespace: &Arc<str>,
) -> Option<CertificateKey> {
    (reference.known_kind() == Some(Kind::Secret)).then(|| {
        let NamespacedName { namespace, name } = reference.resolve(namespace);
        CertificateKey { namespace, name }
    })
}

fn client_certificate_ref(gateway: &Gateway) -> Option<&SecretObjectReference> {
    let backend = gateway.spec.tls.as_ref()?.backend.as_ref()?;
    backend.client_certificate_ref.as_ref()
}
