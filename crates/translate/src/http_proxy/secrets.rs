//! Secrets that HTTPProxies and ExtensionServices refer to, in their own namespace or delegated by another namespace.

use std::sync::Arc;

use sesame_api::{Kind, ObjectKey};
use sesame_engine::Reader;
use sesame_model::CertificateKey;

use super::findings::{About, Findings};
use crate::inputs::Inputs;
use crate::shared::delegation;

/// Resolves a reference `name` or `namespace/name` to a Secret; `None` if it has another form. `namespace` is the
/// referring object's namespace.
pub(super) fn named(namespace: &Arc<str>, name: &str) -> Option<CertificateKey> {
    let secret = sesame_api::secret_name(namespace, name)?;
    Some(CertificateKey {
        namespace: secret.namespace,
        name: secret.name,
    })
}

/// The object key of a Secret.
pub(super) fn object(secret: &CertificateKey) -> ObjectKey {
    let CertificateKey { namespace, name } = secret;
    ObjectKey::new(Kind::Secret, Arc::clone(namespace), Arc::clone(name))
}

/// The Secret with this name, if objects of the namespace may use it; otherwise, adds a finding with the reason.
pub(super) fn permitted(
    reader: &mut Reader<'_>,
    inputs: Inputs,
    namespace: &Arc<str>,
    (about, field, name): (About, &str, &str),
    findings: &mut Findings,
) -> Option<CertificateKey> {
    let Some(secret) = named(namespace, name) else {
        let message = "expected the name of a Secret, or namespace/name";
        findings.error(about, field, message);
        return None;
    };
    is_delegated(reader, inputs, namespace, (about, field, &secret), findings).then_some(secret)
}

/// Whether objects of the namespace may use a Secret; if not, adds a finding with the reason.
pub(super) fn is_delegated(
    reader: &mut Reader<'_>,
    inputs: Inputs,
    namespace: &Arc<str>,
    (about, field, secret): (About, &str, &CertificateKey),
    findings: &mut Findings,
) -> bool {
    let permitted =
        delegation::permitted(reader, inputs.delegations_by_namespace, secret, namespace);
    if !permitted {
        let CertificateKey {
            namespace: owner,
            name,
        } = secret;
        let message = format!(
            "no TLSCertificateDelegation in namespace {owner} lets namespace {namespace} use Secret {name}"
        );
        findings.error(about, field, message);
    }
    permitted
}
