//! TLSCertificateDelegations.

use crate::tls_certificate_delegation::TlsCertificateDelegationSpec;

use super::{Check, at, each, ensure, text};

pub(crate) fn spec(spec: &TlsCertificateDelegationSpec) -> Check {
    each("delegations", &spec.delegations, 1024, |delegation| {
        at("secretName", text::length(&delegation.secret_name, 1, 253))?;
        let namespaces = &delegation.target_namespaces;
        each("targetNamespaces", namespaces, 1024, |name| {
            text::length(name, 1, 63)
        })
    })?;
    let namespaces = spec.delegations.iter();
    let namespaces = namespaces.map(|delegation| delegation.target_namespaces.len());
    let message = "the delegations have more than 16384 namespaces";
    at(
        "delegations",
        ensure(namespaces.sum::<usize>() <= 16_384, message),
    )
}
