//! CA certificates in ConfigMaps, Secrets and ClusterTrustBundles, validated so that Envoy accepts all valid ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use sesame_api::{Group, Kind, KindName, NamespacedName, ObjectKey};
use sesame_engine::{Reader, Table};
use sesame_model::TrustBundle;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::problem::Problem;
use crate::shared::certificates::{pem, pem_error};
use crate::shared::der;

/// The key of CA certificates in a ConfigMap or Secret.
pub(crate) const AUTHORITIES: &str = "ca.crt";

/// The field of CA certificates in a ClusterTrustBundle.
pub(crate) const TRUST_BUNDLE: &str = "spec.trustBundle";

/// The maximum number of CA certificates in one object.
const MAX_AUTHORITIES: usize = 1_000;

/// The maximum size of the CA certificates in one object, in bytes.
const MAX_BYTES: usize = 384 * 1024;

/// The maximum size of all CA certificates that an object refers to, in bytes.
pub(crate) const MAX_REFERENCED: usize = 512 * 1024;

/// The state of an object with CA certificates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AuthorityState {
    /// The certificates, each in PEM, in order, without duplicates. Never empty.
    Valid(Arc<[String]>),
    /// The object doesn't exist.
    Missing,
    /// The API server doesn't serve its kind.
    Unserved,
    /// The object has no valid certificates; the reason is a clause to follow "ConfigMap ns/name".
    Invalid(String),
}

/// Reads the text in a field: [`AUTHORITIES`] or [`TRUST_BUNDLE`].
pub(crate) fn read(text: &[u8], field: &str) -> AuthorityState {
    match try_read(text, field) {
        Ok(certificates) => AuthorityState::Valid(certificates),
        Err(reason) => AuthorityState::Invalid(reason),
    }
}

fn try_read(text: &[u8], field: &str) -> Result<Arc<[String]>, String> {
    if text.is_empty() {
        return Err(format!("has no data in {field}"));
    }
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(text)
        .take(MAX_AUTHORITIES + 1)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("has invalid PEM in {field}: {}", pem_error(&error)))?;
    if certificates.is_empty() {
        return Err(format!("has no PEM certificate in {field}"));
    }
    if certificates.len() > MAX_AUTHORITIES {
        return Err(format!(
            "has more than {MAX_AUTHORITIES} certificates in {field}"
        ));
    }
    for (position, certificate) in certificates.iter().enumerate() {
        let parsed = X509Certificate::from_der(certificate);
        if parsed.is_err() || !der::is_certificate(certificate) {
            return Err(format!(
                "has an invalid X.509 certificate in {field}, at position {}",
                position + 1
            ));
        }
    }
    let certificates = distinct(certificates.iter().map(|der| pem("CERTIFICATE", der)));
    let bytes: usize = certificates.iter().map(String::len).sum();
    match bytes > MAX_BYTES {
        true => Err(format!(
            "has {} KiB of certificates in {field}; the limit is {} KiB",
            bytes / 1024,
            MAX_BYTES / 1024
        )),
        false => Ok(certificates),
    }
}

/// The condition reasons for problems with a reference to CA certificates.
#[derive(Clone, Copy)]
pub(crate) struct Reasons {
    /// Its kind isn't supported.
    pub(crate) kind: &'static str,
    /// Its object has no valid CA certificates.
    pub(crate) object: &'static str,
}

/// The object that a reference to CA certificates refers to; `None` if its kind isn't supported.
pub(crate) fn key(kind: Option<Kind>, name: NamespacedName) -> Option<ObjectKey> {
    match kind? {
        kind @ (Kind::ConfigMap | Kind::Secret) => Some(name.of_kind(kind)),
        kind @ Kind::ClusterTrustBundle => Some(ObjectKey::new(kind, "", name.name)),
        _ => None,
    }
}

/// The problem with a reference to another kind.
pub(crate) fn unsupported_kind(reasons: Reasons, kind: &KindName, group: &Group) -> Problem {
    let message = format!(
        "kind {kind} in group {} is not supported; use a ConfigMap or a Secret with CA certificates under the key \
         {AUTHORITIES}, or a ClusterTrustBundle",
        group.or_core()
    );
    Problem::new(reasons.kind, message)
}

/// Why an object doesn't have valid CA certificates; `None` if it does.
pub(crate) fn unusable(
    reader: &mut Reader<'_>,
    states: Table<ObjectKey, AuthorityState>,
    key: &ObjectKey,
    reasons: Reasons,
) -> Option<Problem> {
    let kind = key.kind;
    let name = match kind.namespaced() {
        true => key.namespaced_name().to_string(),
        false => key.name.to_string(),
    };
    let message = match reader.get(states, key).as_deref() {
        Some(AuthorityState::Valid(_)) => return None,
        Some(AuthorityState::Unserved) => {
            let message = format!(
                "the API server does not serve kind {kind}; use a ConfigMap or a Secret with CA certificates under the \
                 key {AUTHORITIES}"
            );
            return Some(Problem::new(reasons.kind, message));
        }
        Some(AuthorityState::Invalid(why)) => format!("{kind} {name} {why}"),
        Some(AuthorityState::Missing) | None => format!("{kind} {name} does not exist"),
    };
    Some(Problem::new(reasons.object, message))
}

/// All valid CA certificates of these objects. `None` if there are none, or if they exceed [`MAX_REFERENCED`].
pub(crate) fn bundle(
    reader: &mut Reader<'_>,
    states: Table<ObjectKey, AuthorityState>,
    keys: impl IntoIterator<Item = ObjectKey>,
) -> Option<TrustBundle> {
    let mut certificates = Vec::new();
    for key in keys {
        if let Some(AuthorityState::Valid(valid)) = reader.get(states, &key).as_deref() {
            certificates.extend_from_slice(valid);
        }
    }
    let certificates = distinct(certificates.into_iter()).concat();
    let fits = (1..=MAX_REFERENCED).contains(&certificates.len());
    fits.then(|| TrustBundle {
        certificates: certificates.into_bytes().into(),
        revoked: None,
    })
}

/// Removes duplicates.
fn distinct(certificates: impl Iterator<Item = String>) -> Arc<[String]> {
    let mut seen = BTreeSet::new();
    certificates
        .filter(|certificate| seen.insert(certificate.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> String {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        params.self_signed(&key).expect("a certificate").pem()
    }

    fn reason(text: &str) -> String {
        match read(text.as_bytes(), AUTHORITIES) {
            AuthorityState::Invalid(reason) => reason,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    #[test]
    fn certificates_are_read_in_order_and_once() {
        let (a, b) = (authority(), authority());
        let text = format!("# a comment\n{a}\n{b}{a}");
        let expected = [a, b].map(|pem| pem.replace('\r', ""));
        match read(text.as_bytes(), AUTHORITIES) {
            AuthorityState::Valid(certificates) => assert_eq!(*certificates, expected),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn text_without_valid_certificates_is_refused_with_a_reason() {
        let valid = authority();
        assert_eq!(reason(""), "has no data in ca.crt");
        assert_eq!(reason("junk"), "has no PEM certificate in ca.crt");
        assert!(reason(&valid[..valid.len() / 2]).contains("ca.crt"));
        let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        assert_eq!(reason(&key), "has no PEM certificate in ca.crt");
        let other = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(
            reason(&format!("{valid}{other}")),
            "has an invalid X.509 certificate in ca.crt, at position 2"
        );
        assert!(reason(&valid.repeat(1_001)).starts_with("has more than 1000"));
    }
}
