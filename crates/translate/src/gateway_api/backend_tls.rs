//! BackendTLSPolicies: the settings of each, and the policy for each port of a Service. `status` has the statuses.
//!
//! A policy that has errors still applies: requests to its targets fail, and never go out unencrypted or unverified.

mod status;

use std::sync::Arc;

use sesame_api::{
    BackendTLSPolicy, BackendTlsValidation, Kind, LocalObjectReference, NamespacedName, ObjectKey,
    PolicyTargetReference, SubjectAltName, WellKnownCaCertificates, reason,
};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{
    Authorities, CertificateName, Cluster, ClusterKey, Protocol, TlsPolicyKey, TrustBundle,
    TrustBundleKey, UpstreamTls, Verification,
};

pub(crate) use self::status::statuses;
use crate::inputs::Inputs;
use crate::problem::Problem;
use crate::shared::authorities::{self, AuthorityState, Reasons};
use crate::shared::precedence::{Seniority, Source};
use crate::shared::services::{Backend, Service};

const REASONS: Reasons = Reasons {
    kind: reason::policy::INVALID_KIND,
    object: reason::policy::INVALID_CA_CERTIFICATE_REF,
};

/// What a policy says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PolicyState {
    /// The order among policies with the same target.
    seniority: Seniority,
    targets: Vec<PolicyTargetReference>,
    /// The settings, or why there are none.
    tls: Result<Arc<UpstreamTls>, Problem>,
    /// Its unresolved references.
    unresolved: Option<Problem>,
}

/// The tables of policies.
#[derive(Clone, Copy)]
pub(crate) struct Policies {
    states: Table<ObjectKey, PolicyState>,
    by_service: Index<ObjectKey, PolicyState, NamespacedName>,
    /// The CA certificates of policies.
    pub(crate) trust_bundles: Table<TrustBundleKey, TrustBundle>,
}

/// Declares the tables of policies.
pub(crate) fn policies(
    b: &mut Builder,
    inputs: &Inputs,
    authorities: Table<ObjectKey, AuthorityState>,
) -> Policies {
    let policies = inputs.backend_tls_policies;
    let states: Table<ObjectKey, PolicyState> =
        b.derive("backend_tls_policy state", policies, move |reader, key| {
            let policy = reader.get(policies, key)?;
            Some(read(reader, authorities, key, &policy))
        });
    let by_service = b.index(
        states,
        "backend_tls_policies by service",
        |key: &ObjectKey, state| state.services(key).collect(),
    );
    let trust_bundles = b.derive_many("trust bundle", states, move |reader, key: &ObjectKey| {
        let bundle = reader.get(policies, key).and_then(|policy| {
            authorities::bundle(reader, authorities, referenced_authorities(key, &policy))
        });
        bundle
            .map(|bundle| (bundle_key(key), bundle))
            .into_iter()
            .collect()
    });
    Policies {
        states,
        by_service,
        trust_bundles,
    }
}

/// The objects with CA certificates that a policy refers to.
pub(crate) fn referenced_authorities<'a>(
    key: &'a ObjectKey,
    policy: &'a BackendTLSPolicy,
) -> impl Iterator<Item = ObjectKey> + 'a {
    let references = policy.spec.validation.ca_certificate_refs.iter();
    references.filter_map(|reference| authority(key, reference))
}

fn authority(policy: &ObjectKey, reference: &LocalObjectReference) -> Option<ObjectKey> {
    let name = NamespacedName::new(Arc::clone(&policy.namespace), Arc::clone(&reference.name));
    authorities::key(reference.known_kind(), name)
}

fn bundle_key(key: &ObjectKey) -> TrustBundleKey {
    TrustBundleKey::Policy(policy_key(key))
}

fn policy_key(key: &ObjectKey) -> TlsPolicyKey {
    TlsPolicyKey {
        namespace: Arc::clone(&key.namespace),
        name: Arc::clone(&key.name),
    }
}

fn read(
    reader: &mut Reader<'_>,
    authorities: Table<ObjectKey, AuthorityState>,
    key: &ObjectKey,
    policy: &BackendTLSPolicy,
) -> PolicyState {
    let validation = &policy.spec.validation;
    let (trusted, unresolved) = trusted(reader, authorities, key, validation);
    let settings = trusted.and_then(|authorities| {
        Ok(Arc::new(UpstreamTls {
            server_name: Some(Arc::clone(&validation.hostname)),
            verification: Some(Verification {
                authorities,
                names: names(validation)?,
            }),
            client_certificate: None,
        }))
    });
    PolicyState {
        seniority: Seniority::of(Source::GatewayApi, &policy.meta),
        targets: policy.spec.target_refs.clone(),
        tls: settings,
        unresolved,
    }
}

/// The CAs of a policy, and its unresolved references.
fn trusted(
    reader: &mut Reader<'_>,
    authorities: Table<ObjectKey, AuthorityState>,
    key: &ObjectKey,
    validation: &BackendTlsValidation,
) -> (Result<Authorities, Problem>, Option<Problem>) {
    match &validation.well_known_ca_certificates {
        Some(WellKnownCaCertificates::System) => return (Ok(Authorities::System), None),
        Some(WellKnownCaCertificates::Other(name)) => {
            let message = format!(
                "spec.validation.wellKnownCACertificates: {name} is not supported, so requests to the targets fail; \
                 use System"
            );
            return (Err(Problem::new(reason::policy::INVALID, message)), None);
        }
        None => {}
    }
    let refs = &validation.ca_certificate_refs;
    let mut problems = Vec::new();
    for (index, reference) in refs.iter().enumerate() {
        if let Some(problem) = authority_problem(reader, authorities, key, reference) {
            problems.push(Problem::new(
                problem.reason,
                format!(
                    "spec.validation.caCertificateRefs[{index}]: {}",
                    problem.message
                ),
            ));
        }
    }
    let any_valid = problems.len() < refs.len();
    let unresolved = Problem::merge(problems);
    let trusted = match any_valid {
        true => Ok(Authorities::Bundle(bundle_key(key))),
        false => Err(Problem::new(
            reason::policy::NO_VALID_CA_CERTIFICATE,
            "spec.validation.caCertificateRefs: no reference is valid (see ResolvedRefs), so requests to the targets \
             fail",
        )),
    };
    (trusted, unresolved)
}

fn authority_problem(
    reader: &mut Reader<'_>,
    authorities: Table<ObjectKey, AuthorityState>,
    key: &ObjectKey,
    reference: &LocalObjectReference,
) -> Option<Problem> {
    let Some(authority) = authority(key, reference) else {
        let (kind, group) = (&reference.kind, &reference.group);
        return Some(authorities::unsupported_kind(REASONS, kind, group));
    };
    authorities::unusable(reader, authorities, &authority, REASONS)
}

/// The names, one of which the certificate must have (BackendTLSPolicyValidation.subjectAltNames).
fn names(validation: &BackendTlsValidation) -> Result<Vec<CertificateName>, Problem> {
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
                "spec.validation.subjectAltNames[{index}].type: {type_} is not supported, so requests to the targets \
                 fail; use Hostname or URI"
            ),
        )),
    });
    names.collect()
}

impl PolicyState {
    /// The Services that it targets.
    fn services(&self, key: &ObjectKey) -> impl Iterator<Item = NamespacedName> {
        let targets = self.targets.iter();
        let services = targets.filter(|target| target.known_kind() == Some(Kind::Service));
        services
            .map(|target| NamespacedName::new(Arc::clone(&key.namespace), Arc::clone(&target.name)))
    }

    /// The sectionNames of its targets that are this Service, in its own namespace.
    fn sections<'a>(&'a self, service: &'a str) -> impl Iterator<Item = Option<&'a str>> {
        let targets = self.targets.iter();
        targets
            .filter(move |target| {
                *target.name == *service && target.known_kind() == Some(Kind::Service)
            })
            .map(|target| target.section_name.as_deref())
    }
}

/// The oldest policy for a target: a port's name, or `None` for a whole Service.
fn oldest<'a>(
    policies: &'a [(ObjectKey, Arc<PolicyState>)],
    service: &NamespacedName,
    section: Option<&str>,
) -> Option<&'a (ObjectKey, Arc<PolicyState>)> {
    policies
        .iter()
        .filter(|(_, state)| {
            let mut sections = state.sections(&service.name);
            sections.any(|other| other == section)
        })
        .min_by(|(_, a), (_, b)| a.seniority.cmp(&b.seniority))
}

/// A backend, given its key, with the policy for its port, if any. A policy for the port takes precedence over one for
/// the Service.
pub(crate) fn secured(
    reader: &mut Reader<'_>,
    policies: Policies,
    key: &ClusterKey,
    name: &NamespacedName,
    service: Option<&Service>,
    backend: Backend,
) -> Backend {
    let cluster = match backend {
        Backend::Serves(cluster) if cluster.protocol != Protocol::Datagrams => cluster,
        other => return other,
    };
    let port = service.and_then(|service| service.port(key));
    let of_service = reader.by(policies.by_service, name);
    let of_port = port.and_then(|port| oldest(&of_service, name, Some(&port.name)));
    match of_port.or_else(|| oldest(&of_service, name, None)) {
        None => Backend::Serves(cluster),
        Some((policy, state)) => match &state.tls {
            Ok(tls) => {
                let tls = Some(Arc::clone(tls));
                let key = key.with_tls(policy_key(policy));
                Backend::Secured(Box::new((key, Cluster { tls, ..cluster })))
            }
            Err(_) => Backend::Refused,
        },
    }
}
