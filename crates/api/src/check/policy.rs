//! ReferenceGrant and BackendTLSPolicy.

use crate::backend_tls_policy::{
    BackendTlsPolicySpec, BackendTlsValidation, PolicyTargetReference, SubjectAltName,
    WellKnownCaCertificates,
};
use crate::reference_grant::ReferenceGrantSpec;

use super::{Check, at, at_index, each, each_of_some, ensure, optional, reference, text};

pub(crate) fn reference_grant(spec: &ReferenceGrantSpec) -> Check {
    each_of_some("from", &spec.from, 16, |from| {
        at("group", text::group(from.group.as_str()))?;
        at("kind", text::kind(from.kind.as_str()))?;
        at("namespace", text::label(&from.namespace))
    })?;
    each_of_some("to", &spec.to, 16, |to| {
        at("group", text::group(to.group.as_str()))?;
        at("kind", text::kind(to.kind.as_str()))?;
        optional("name", to.name.as_ref(), |name| text::length(name, 1, 253))
    })
}

pub(crate) fn backend_tls(spec: &BackendTlsPolicySpec) -> Check {
    each_of_some("targetRefs", &spec.target_refs, 16, |target| {
        reference::object(&target.group, &target.kind, &target.name, None)?;
        optional("sectionName", target.section_name.as_ref(), |name| {
            text::subdomain(name)
        })
    })?;
    distinct_targets(&spec.target_refs)?;
    at("validation", validation(&spec.validation))?;
    reference::annotations("options", &spec.options, 16)
}

/// References to the same target must have different sectionNames.
fn distinct_targets(list: &[PolicyTargetReference]) -> Check {
    for (index, target) in list.iter().enumerate() {
        let clash = list[..index].iter().any(|other| {
            other.group == target.group
                && other.kind == target.kind
                && other.name == target.name
                && (other.section_name.is_none()
                    || target.section_name.is_none()
                    || other.section_name == target.section_name)
        });
        let message = "another entry refers to the same target; each needs a different sectionName";
        at("targetRefs", at_index(index, ensure(!clash, message)))?;
    }
    Ok(())
}

pub(super) fn validation(validation: &BackendTlsValidation) -> Check {
    each(
        "caCertificateRefs",
        &validation.ca_certificate_refs,
        8,
        reference::local,
    )?;
    let refs = !validation.ca_certificate_refs.is_empty();
    let well_known = validation.well_known_ca_certificates.as_ref();
    ensure(
        refs != well_known.is_some(),
        "exactly one of caCertificateRefs and wellKnownCACertificates is required",
    )?;
    if let Some(WellKnownCaCertificates::Other(name)) = well_known {
        at("wellKnownCACertificates", text::domain_path(name))?;
    }
    at("hostname", text::precise_hostname(&validation.hostname))?;
    each(
        "subjectAltNames",
        &validation.subject_alt_names,
        5,
        |name| match name {
            SubjectAltName::Hostname(hostname) => at("hostname", text::hostname(hostname)),
            SubjectAltName::Uri(uri) => at("uri", text::absolute_uri(uri)),
            SubjectAltName::Unknown(_) => Ok(()),
        },
    )
}
