//! TLSCertificateDelegation: lets HTTPProxies and Ingresses in other namespaces use Secrets.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check::{self, Check};
use crate::condition::ConditionsStatus;
use crate::meta::Meta;
use crate::object::resource;

/// Lets HTTPProxies and Ingresses in other namespaces use Secrets in this one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TLSCertificateDelegation {
    /// The metadata.
    #[serde(rename = "metadata")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::metadata"))]
    pub meta: Meta,
    /// The Secrets and the namespaces that may use them.
    pub spec: TlsCertificateDelegationSpec,
    /// The status, as reported by Sesame.
    #[serde(default, skip_serializing_if = "ConditionsStatus::is_empty")]
    pub status: ConditionsStatus,
}

resource! { TLSCertificateDelegation {
    fn check(&self) -> Check {
        check::at("spec", check::tls_certificate_delegation::spec(&self.spec))
    }
} }

/// The Secrets and the namespaces that may use them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TlsCertificateDelegationSpec {
    /// The Secrets, each with the namespaces that may use it.
    #[cfg_attr(feature = "schema", schemars(
        length(max = 1024),
        extend("x-kubernetes-validations" = [{
            "rule": "self.map(delegation, size(delegation.targetNamespaces)).sum() <= 16384",
            "message": "the delegations have more than 16384 namespaces",
        }]),
    ))]
    pub delegations: Vec<CertificateDelegation>,
}

/// A Secret and the namespaces that may use it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CertificateDelegation {
    /// The name of the Secret, in the TLSCertificateDelegation's namespace.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub secret_name: Arc<str>,
    /// The namespaces that may use the Secret; `*` means all.
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 1024), inner(length(min = 1, max = 63)))
    )]
    pub target_namespaces: Vec<Arc<str>>,
}
