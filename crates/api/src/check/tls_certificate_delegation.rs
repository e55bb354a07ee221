//! TLSCertificateDelegations.

use crate::tls_certificate_delegation::TlsCertificateDelegationSpec;

use super::{Check, at, each, text};

pub(crate) fn spec(spec: &TlsCertificateDelegationSpec) -> Check {
    each("delegations", &spec.delegations, 1024, |delegation| {
        at("secretName", text::length(&delegation.secret_name, 1, 253))?;
        let namespaces = &delegation.target_namespaces;
        each("targetNamespaces", namespaces, 1024, |name| {
            text::length(name, 1, 63)
        })
    })
}
