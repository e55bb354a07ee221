//! The Secrets that store CAs and certificates: their keys and metadata.
//!
//! Pure. The contents are untrusted input: any client with permission can write them.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use sesame_model::FleetId;

use super::FleetSecret;
use super::ca::CaBundle;
use super::cert::{self, Ca, CertificateError, TlsFiles};
use crate::kube::names;

/// The Secret with the CAs and their keys, in Sesame's namespace.
pub const CA: &str = "sesame-ca";
/// The Secret with the xDS server's certificate, in Sesame's namespace.
pub const SERVER: &str = "sesame-xds";

/// Label on every fleet's Secret: the namespace of the Sesame instance that manages it.
pub const INSTANCE_LABEL: &str = "projectsesame.io/identity";
/// Annotation on every fleet's Secret: the fleet's name.
const FLEET_ANNOTATION: &str = "projectsesame.io/identity-of";

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const BUNDLE: &str = "ca.crt";
/// The certificate of the CA that will issue next.
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";

/// The type of a Secret with a certificate and its key. Other keys are allowed.
const TYPE: &str = "kubernetes.io/tls";

/// Replaces a Secret's data with CAs.
pub(super) fn write_cas(secret: &mut Secret, cas: &CaBundle) {
    let mut data = BTreeMap::from([(BUNDLE, cas.pem())]);
    for (ca, certificate, key) in [
        (&cas.issuing, CERTIFICATE, KEY),
        (&cas.next, NEXT_CERTIFICATE, NEXT_KEY),
    ] {
        if let Some(ca) = ca {
            data.insert(certificate, ca.certificate.pem.clone());
            data.insert(key, ca.private_key.clone());
        }
    }
    write(secret, data);
}

/// The CAs in a Secret. If the bundle is invalid, only the previous CAs are lost.
///
/// # Errors
/// No CA has a key, or a CA is invalid.
pub(super) fn read_cas(secret: &Secret) -> Result<CaBundle, CertificateError> {
    let read = |certificate, key| match (text(secret, certificate), text(secret, key)) {
        (None, None) => Ok(None),
        (pem, key) => Ca::read(&pem.unwrap_or_default(), key.unwrap_or_default()).map(Some),
    };
    let issuing = read(CERTIFICATE, KEY)?;
    let next = read(NEXT_CERTIFICATE, NEXT_KEY)?;
    if issuing.is_none() && next.is_none() {
        return Err(CertificateError::Invalid("no CA"));
    }
    let mut previous = cert::read_bundle(&text(secret, BUNDLE).unwrap_or_default());
    for ca in issuing.iter().chain(&next) {
        previous.retain(|other| *other != ca.certificate);
    }
    Ok(CaBundle {
        issuing,
        next,
        previous,
    })
}

/// Replaces a Secret's data with a peer's files.
pub(super) fn write_files(secret: &mut Secret, files: TlsFiles) {
    let data = BTreeMap::from([
        (CERTIFICATE, files.certificate),
        (KEY, files.private_key),
        (BUNDLE, files.ca_bundle),
    ]);
    write(secret, data);
    // An existing Secret's type is immutable.
    secret.type_.get_or_insert_with(|| TYPE.to_owned());
}

/// A peer's files in a Secret. Missing files are empty.
pub(super) fn read_files(secret: &Secret) -> TlsFiles {
    let file = |key| text(secret, key).unwrap_or_default();
    TlsFiles {
        certificate: file(CERTIFICATE),
        private_key: file(KEY),
        ca_bundle: file(BUNDLE),
    }
}

/// Adds the desired metadata to a fleet's Secret.
pub(super) fn write_metadata(
    metadata: &mut ObjectMeta,
    sesame_namespace: &str,
    fleet: &FleetId,
    desired: &FleetSecret,
) {
    let labels = metadata.labels.get_or_insert_default();
    labels.extend(desired.labels.clone());
    labels.insert(INSTANCE_LABEL.to_owned(), sesame_namespace.to_owned());
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.extend(desired.annotations.clone());
    annotations.insert(FLEET_ANNOTATION.to_owned(), fleet.to_string());
    if let Some(reference) = &desired.owner_reference {
        let references = metadata.owner_references.get_or_insert_default();
        if !references.contains(reference) {
            // Replaces the reference to a deleted owner of the same name.
            references
                .retain(|other| (&other.kind, &other.name) != (&reference.kind, &reference.name));
            references.push(reference.clone());
        }
    }
}

/// Whether a Secret belongs to the fleet: it has this Sesame instance's label or the fleet's annotation.
pub(super) fn belongs_to(metadata: &ObjectMeta, sesame_namespace: &str, fleet: &FleetId) -> bool {
    let has = |map: &Option<BTreeMap<String, String>>, key, value: &str| {
        let map = map.as_ref();
        map.is_some_and(|map| map.get(key).is_some_and(|actual| actual == value))
    };
    has(&metadata.labels, INSTANCE_LABEL, sesame_namespace)
        || has(&metadata.annotations, FLEET_ANNOTATION, &fleet.to_string())
}

/// Whether a Secret has the name and namespace of its fleet's Secret. A copy of the Secret doesn't.
pub(super) fn has_expected_name(metadata: &ObjectMeta, namespace: &str, name: &str) -> bool {
    let fleet = metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(FLEET_ANNOTATION));
    let Some(Ok(fleet)) = fleet.map(|fleet| fleet.parse::<FleetId>()) else {
        return false;
    };
    let sesame_namespace = metadata
        .labels
        .as_ref()
        .and_then(|all| all.get(INSTANCE_LABEL));
    let is_sesames = sesame_namespace.is_some_and(|sesame_namespace| sesame_namespace == namespace);
    let namespace_matches = match &fleet {
        // All fleets may be in Sesame's namespace.
        FleetId::Gateway {
            namespace: expected,
            ..
        } => **expected == *namespace || is_sesames,
        FleetId::Default => is_sesames,
        FleetId::Unmanaged => false,
    };
    namespace_matches && names::certificate_secret(&fleet) == name
}

fn write(secret: &mut Secret, data: BTreeMap<&str, String>) {
    let data = data.into_iter();
    secret.data = Some(
        data.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())))
            .collect(),
    );
    let labels = secret.metadata.labels.get_or_insert_default();
    labels.insert(
        "app.kubernetes.io/managed-by".to_owned(),
        "sesame".to_owned(),
    );
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    Some(String::from_utf8_lossy(&bytes.0).into_owned())
}
