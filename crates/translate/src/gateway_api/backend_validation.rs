//! The validation of a backend's certificate, in a BackendTLSPolicy or an XBackend.

use std::sync::Arc;

use sesame_api::{
    BackendTlsValidation, LocalObjectReference, NamespacedName, ObjectKey, SubjectAltName,
    WellKnownCaCertificates, reason,
};
use sesame_engine::{Reader, Table};
use sesame_model::{Authorities, CertificateName, TrustBundleKey, Verification};

use crate::problem::Problem;
use crate::shared::authorities::{self, AuthorityState, MAX_REFERENCED, Reasons};

const REASONS: Reasons = Reasons {
    kind: reason::policy::INVALID_KIND,
    object: reason::policy::INVALID_CA_CERTIFICATE_REF,
};

/// Where a validation is configured.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The namespace of the object.
    pub(super) namespace: &'a Arc<str>,
    /// The field.
    pub(super) field: &'static str,
    /// The consequence of an invalid validation, for messages.
    pub(super) consequence: &'static str,
}

/// The objects with CA certificates that a validation refers to.
pub(super) fn referenced_authorities(
    namespace: &Arc<str>,
    validation: &BackendTlsValidation,
) -> Vec<ObjectKey> {
    let references = validation.ca_certificate_refs.iter();
    references
        .filter_map(|reference| authority(namespace, reference))
        .collect()
}

fn authority(namespace: &Arc<str>, reference: &LocalObjectReference) -> Option<ObjectKey> {
    let name = NamespacedName::new(Arc::clone(namespace), Arc::clone(&reference.name));
    authorities::key(reference.known_kind(), name)
}

/// Reads how a backend's certificate is verified, and the unresolved references. `bundle` contains the certificates of
/// all valid references.
pub(super) fn read(
    reader: &mut Reader<'_>,
    authorities: Table<ObjectKey, AuthorityState>,
    place: Place<'_>,
    validation: &BackendTlsValidation,
    bundle: TrustBundleKey,
) -> (Result<Verification, Problem>, Option<Problem>) {
    let (trusted, unresolved) = trusted(reader, authorities, place, validation, bundle);
    let verification = trusted.and_then(|authorities| {
        Ok(Verification {
            authorities,
            names: names(place, validation)?,
        })
    });
    (verification, unresolved)
}

fn trusted(
    reader: &mut Reader<'_>,
    authorities: Table<ObjectKey, AuthorityState>,
    place: Place<'_>,
    validation: &BackendTlsValidation,
    bundle: TrustBundleKey,
) -> (Result<Authorities, Problem>, Option<Problem>) {
    let Place {
        field, consequence, ..
    } = place;
    match &validation.well_known_ca_certificates {
        Some(WellKnownCaCertificates::System) => return (Ok(Authorities::System), None),
        Some(WellKnownCaCertificates::Other(name)) => {
            let message = format!(
                "{field}.wellKnownCACertificates: {name} is not supported, so {consequence}; use System"
            );
            return (Err(Problem::new(reason::policy::INVALID, message)), None);
        }
        None => {}
    }
    let refs = &validation.ca_certificate_refs;
    let mut problems = Vec::new();
    for (index, reference) in refs.iter().enumerate() {
        if let Some(problem) = authority_problem(reader, authorities, place.namespace, reference) {
            problems.push(Problem::new(
                problem.reason(),
                format!("{field}.caCertificateRefs[{index}]: {}", problem.message()),
            ));
        }
    }
    let any_valid = problems.len() < refs.len();
    let unresolved = Problem::merge(problems);
    let keys = referenced_authorities(place.namespace, validation);
    let trusted = match authorities::bundle(reader, authorities, keys) {
        Some(_) => return (Ok(Authorities::Bundle(bundle)), unresolved),
        None if any_valid => {
            let limit = MAX_REFERENCED / 1024;
            format!("the CA certificates take more than {limit} KiB, so {consequence}; remove some")
        }
        None => format!("no reference is valid (see ResolvedRefs), so {consequence}"),
    };
    let message = format!("{field}.caCertificateRefs: {trusted}");
    let problem = Problem::new(reason::policy::NO_VALID_CA_CERTIFICATE, message);
    (Err(problem), unresolved)
}

fn authority_problem(
    reader: &mut Reader<'_>,
    authorities: Table<ObjectKey, AuthorityState>,
    namespace: &Arc<str>,
    reference: &LocalObjectReference,
) -> Option<Problem> {
    let Some(authority) = authority(namespace, reference) else {
        let (kind, group) = (&reference.kind, &reference.group);
        return Some(authorities::unsupported_kind(REASONS, kind, group));
    };
    authorities::unusable(reader, authorities, &authority, REASONS)
}

/// The accepted names, of which the certificate must have at least one (BackendTLSPolicyValidation.subjectAltNames).
fn names(
    place: Place<'_>,
    validation: &BackendTlsValidation,
) -> Result<Vec<CertificateName>, Problem> {
    let Place {
        field, consequence, ..
    } = place;
    let names = &validation.subject_alt_names;
    if names.is_empty() {
        return Ok(vec![CertificateName::Dns(Arc::clone(&validation.hostname))]);
    }
    let names = names.iter().enumerate().map(|(index, name)| match name {
        SubjectAltName::Hostname(hostname) => Ok(CertificateName::Dns(Arc::clone(hostname))),
        SubjectAltName::Uri(uri) => Ok(CertificateName::Uri(Arc::clone(uri))),
        SubjectAltName::Unknown(type_) => Err(Problem::new(
            reason::policy::INVALID,
            format!(
                "{field}.subjectAltNames[{index}].type: {type_} is not supported, so {consequence}; use Hostname or URI"
            ),
        )),
    });
    names.collect()
}
