//! BackendTLSPolicy: TLS for connections to a Service.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check::{self, Check};
use crate::kind::Kind;
use crate::kind_name::{Group, KindName};
use crate::meta::Meta;
use crate::named::Named;
use crate::object::resource;
use crate::open_enum::open_enum;
use crate::policy_status::PolicyStatus;
use crate::reference::LocalObjectReference;

/// A BackendTLSPolicy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackendTLSPolicy {
    /// The metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// The spec.
    pub spec: BackendTlsPolicySpec,
    /// The status, by ancestor.
    #[serde(default, skip_serializing_if = "PolicyStatus::is_empty")]
    pub status: PolicyStatus,
}

resource! { BackendTLSPolicy {
    fn check(&self) -> Check {
        check::at("spec", check::policy::backend_tls(&self.spec))
    }

    fn references(&self, named: &mut Named) {
        named.by_policy(self);
    }
} }

/// The spec of a BackendTLSPolicy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsPolicySpec {
    /// The target Services, 1 to 16.
    pub target_refs: Vec<PolicyTargetReference>,
    /// Validation of the backend's certificate.
    pub validation: BackendTlsValidation,
    /// Implementation-specific options.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// A target of a policy, in the policy's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyTargetReference {
    /// The group; empty for the core group.
    pub group: Group,
    /// The kind.
    pub kind: KindName,
    /// The name.
    pub name: Arc<str>,
    /// The name of a port of the target Service; the whole Service if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<Arc<str>>,
}

impl PolicyTargetReference {
    /// The kind, if it is in the table of kinds.
    pub fn known_kind(&self) -> Option<Kind> {
        Kind::from_group_kind(&self.group, &self.kind)
    }
}

/// Validation of a backend's certificate. Exactly one of `ca_certificate_refs` and `well_known_ca_certificates` is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsValidation {
    /// Objects with the CA certificates, at most 8.
    #[serde(
        rename = "caCertificateRefs",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ca_certificate_refs: Vec<LocalObjectReference>,
    /// A well-known set of CA certificates.
    #[serde(
        rename = "wellKnownCACertificates",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub well_known_ca_certificates: Option<WellKnownCaCertificates>,
    /// The server name (SNI). The certificate must have this name, unless `subject_alt_names` is set.
    pub hostname: Arc<str>,
    /// At most 5 names; the certificate must have at least one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subject_alt_names: Vec<SubjectAltName>,
}

open_enum! {
    /// A well-known set of CA certificates.
    pub enum WellKnownCaCertificates {
        /// The operating system's.
        System = "System",
    }
}

/// A name in a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawSubjectAltName", into = "RawSubjectAltName")]
pub enum SubjectAltName {
    /// A hostname, optionally with a `*.` prefix.
    Hostname(Arc<str>),
    /// A URI with a scheme.
    Uri(Arc<str>),
    /// An unknown type.
    Unknown(Arc<str>),
}

#[derive(Serialize, Deserialize)]
struct RawSubjectAltName {
    #[serde(rename = "type")]
    type_: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hostname: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uri: Option<Arc<str>>,
}

impl TryFrom<RawSubjectAltName> for SubjectAltName {
    type Error = String;

    fn try_from(raw: RawSubjectAltName) -> Result<Self, String> {
        // The API treats an empty string as missing here.
        let hostname = raw.hostname.filter(|text| !text.is_empty());
        let uri = raw.uri.filter(|text| !text.is_empty());
        match (&*raw.type_, hostname, uri) {
            ("Hostname", Some(hostname), None) => Ok(SubjectAltName::Hostname(hostname)),
            ("URI", None, Some(uri)) => Ok(SubjectAltName::Uri(uri)),
            ("Hostname", ..) => {
                Err("type Hostname requires hostname and does not allow uri".to_owned())
            }
            ("URI", ..) => Err("type URI requires uri and does not allow hostname".to_owned()),
            (other, None, None) => Ok(SubjectAltName::Unknown(other.into())),
            (other, ..) => Err(format!("type {other} allows neither hostname nor uri")),
        }
    }
}

impl From<SubjectAltName> for RawSubjectAltName {
    fn from(name: SubjectAltName) -> Self {
        let (type_, hostname, uri) = match name {
            SubjectAltName::Hostname(hostname) => ("Hostname".into(), Some(hostname), None),
            SubjectAltName::Uri(uri) => ("URI".into(), None, Some(uri)),
            SubjectAltName::Unknown(type_) => (type_, None, None),
        };
        RawSubjectAltName {
            type_,
            hostname,
            uri,
        }
    }
}
