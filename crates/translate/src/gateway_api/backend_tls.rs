//! BackendTLSPolicies: the settings of each, and the policy for each port of a Service. `status` has the statuses.
//!
//! A policy with errors still applies: requests to its targets fail, and never go out unencrypted or unverified.

mod status;

use std::sync::Arc;

use sesame_api::{BackendTLSPolicy, Kind, NamespacedName, ObjectKey, PolicyTargetReference};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{
    Cluster, ClusterKey, Protocol, TlsPolicyKey, TlsSettings, TrustBundle, TrustBundleKey,
    UpstreamTls,
};

pub(crate) use self::status::statuses;
use super::backend_validation::{self, Place};
use crate::inputs::Inputs;
use crate::problem::Problem;
use crate::shared::authorities::{self, AuthorityState};
use crate::shared::precedence::{Seniority, Source};
use crate::shared::services::{Backend, ServicePort};

/// A policy's settings and problems.
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
    /// By the Services and XBackends that they target.
    pub(crate) by_target: Index<ObjectKey, PolicyState, ObjectKey>,
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
    let by_target = b.index(
        states,
        "backend_tls_policies by target",
        |key: &ObjectKey, state| state.targets(key),
    );
    let trust_bundles = b.derive_many("trust bundle", states, move |reader, key: &ObjectKey| {
        let bundle = reader.get(policies, key).and_then(|policy| {
            authorities::bundle(reader, authorities, referenced_authorities(&policy))
        });
        bundle
            .map(|bundle| (bundle_key(key), bundle))
            .into_iter()
            .collect()
    });
    Policies {
        states,
        by_target,
        trust_bundles,
    }
}

/// The objects with CA certificates that a policy refers to.
pub(crate) fn referenced_authorities(policy: &BackendTLSPolicy) -> Vec<ObjectKey> {
    backend_validation::referenced_authorities(&policy.meta.namespace, &policy.spec.validation)
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
    let place = Place {
        namespace: &policy.meta.namespace,
        field: "spec.validation",
        consequence: "requests to the targets fail",
    };
    let (verification, unresolved) =
        backend_validation::read(reader, authorities, place, validation, bundle_key(key));
    let settings = verification.map(|verification| {
        Arc::new(UpstreamTls {
            server_name: Some(Arc::clone(&validation.hostname)),
            verification: Some(verification),
            client_certificate: None,
        })
    });
    PolicyState {
        seniority: Seniority::of(Source::GatewayApi, &policy.meta),
        targets: policy.spec.target_refs.clone(),
        tls: settings,
        unresolved,
    }
}

impl PolicyState {
    /// The backends that it targets. It doesn't apply to XBackends; its status reports that.
    fn targets(&self, key: &ObjectKey) -> Vec<ObjectKey> {
        let targets = self.targets.iter();
        let targets = targets.filter_map(|target| match target.known_kind()? {
            kind @ (Kind::Service | Kind::XBackend) => Some(ObjectKey::new(
                kind,
                Arc::clone(&key.namespace),
                Arc::clone(&target.name),
            )),
            _ => None,
        });
        targets.collect()
    }

    /// The sectionNames of its targetRefs to this Service, which is in the policy's namespace.
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

/// Applies the policy for the Service `name` and its `port` to a backend, if there is one. A policy for the port takes
/// precedence over one for the Service.
pub(crate) fn secured(
    reader: &mut Reader<'_>,
    policies: Policies,
    key: &ClusterKey,
    name: &NamespacedName,
    port: Option<&ServicePort>,
    backend: Backend,
) -> Backend {
    let cluster = match backend {
        Backend::Serves(cluster) if cluster.protocol != Protocol::Datagrams => cluster,
        other => return other,
    };
    let of_service = reader.by(policies.by_target, &name.of_kind(Kind::Service));
    let of_port = port.and_then(|port| oldest(&of_service, name, Some(&port.name)));
    match of_port.or_else(|| oldest(&of_service, name, None)) {
        None => Backend::Serves(cluster),
        Some((policy, state)) => match &state.tls {
            Ok(tls) => {
                let tls = Some(Arc::clone(tls));
                let key = key.with_tls(TlsSettings::Policy(policy_key(policy)));
                Backend::Secured(Box::new((key, Cluster { tls, ..cluster })))
            }
            Err(_) => Backend::Refused(cluster),
        },
    }
}
