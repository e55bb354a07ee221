//! Checks of TLSCertificateDelegations.

use super::Check;
use crate::tls_certificate_delegation::TlsCertificateDelegationSpec;

pub(crate) fn spec(_spec: &TlsCertificateDelegationSpec) -> Check {
    Ok(())
}
