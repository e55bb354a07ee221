//! The status of a BackendTLSPolicy: an entry for each of our Gateways whose routes or listeners refer to a target.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_api::{
    Kind, NamespacedName, ObjectKey, ObjectStatus, ParentReference, PolicyAncestorStatus,
    PolicyStatus, PolicyTargetReference, condition, reason,
};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::ClusterKey;

use super::{Policies, PolicyState, oldest};
use crate::gateway_api::listener_state::referenced_services;
use crate::gateway_api::route;
use crate::inputs::Inputs;
use crate::problem::Problem;
use crate::shared::grants::{self, Referrer};
use crate::shared::hosts::Attachments;
use crate::shared::listeners::AttachPoints;
use crate::shared::services::Service;

/// A port of a Service that an accepted route of a Gateway, or one of its listeners, refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ServiceUse {
    service: NamespacedName,
    port: u16,
    gateway: ObjectKey,
}

/// The tables needed for a status.
#[derive(Clone, Copy)]
struct Sources {
    services: Table<NamespacedName, Service>,
    policies: Policies,
    uses: Index<ServiceUse, (), NamespacedName>,
}

/// Declares the table of statuses.
pub(crate) fn statuses(
    b: &mut Builder,
    inputs: &Inputs,
    policies: Policies,
    attachments: Table<ObjectKey, Attachments>,
    checked: Index<ObjectKey, AttachPoints, ObjectKey>,
) -> Table<ObjectKey, ObjectStatus> {
    let inputs = *inputs;
    let of_routes: Table<ObjectKey, Vec<ServiceUse>> =
        b.derive("service uses", attachments, move |reader, key| {
            uses(reader, &inputs, policies, attachments, key)
        });
    let by_use = b.index(of_routes, "routes by service use", |_, uses| uses.clone());
    let of_listeners: Table<ObjectKey, Vec<ServiceUse>> =
        b.derive("service uses of listeners", checked, move |reader, key| {
            uses_of_listeners(reader, &inputs, policies, key)
        });
    let by_listener_use = b.index(of_listeners, "listeners by service use", |_, uses| {
        uses.clone()
    });
    let in_use = b.union_keys("services in use", [by_use.into(), by_listener_use.into()]);
    let sources = Sources {
        services: inputs.services,
        policies,
        uses: b.index(in_use, "uses by service", |used: &ServiceUse, ()| {
            vec![used.service.clone()]
        }),
    };
    b.derive(
        "backend_tls_policy status",
        policies.states,
        move |reader, key| {
            let generation = reader
                .get(inputs.backend_tls_policies, key)?
                .meta
                .generation;
            let controller = &reader.get(inputs.settings, &())?.controller_name;
            let status = status(reader, sources, key, controller, generation)?;
            Some(ObjectStatus::Policy(Arc::new(status)))
        },
    )
}

/// The Services with policies that an accepted route refers to.
fn uses(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    policies: Policies,
    attachments: Table<ObjectKey, Attachments>,
    key: &ObjectKey,
) -> Option<Vec<ServiceUse>> {
    let attachments = reader.get(attachments, key)?;
    let parents = attachments.parents.iter();
    let owners = parents.filter(|parent| parent.refused.is_none());
    let gateways: BTreeSet<ObjectKey> = owners
        .filter_map(|parent| gateway_of(reader, inputs, &parent.owner))
        .collect();
    let clusters = match key.kind {
        Kind::HTTPRoute => route::referenced(&*reader.get(inputs.http_routes, key)?),
        Kind::GRPCRoute => route::referenced(&*reader.get(inputs.grpc_routes, key)?),
        Kind::TLSRoute => route::referenced(&*reader.get(inputs.tls_routes, key)?),
        Kind::TCPRoute => route::referenced(&*reader.get(inputs.tcp_routes, key)?),
        _ => return None,
    };
    uses_of_clusters(reader, inputs, policies, key, clusters, &gateways)
}

/// The Services with policies that check the requests of an object's listeners.
fn uses_of_listeners(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    policies: Policies,
    key: &ObjectKey,
) -> Option<Vec<ServiceUse>> {
    let clusters = match key.kind {
        Kind::Gateway => {
            let listeners = &reader.get(inputs.gateways, key)?.spec.listeners;
            referenced_services(&key.namespace, listeners)
        }
        _ => {
            let listeners = &reader.get(inputs.listener_sets, key)?.spec.listeners;
            referenced_services(&key.namespace, listeners)
        }
    };
    if clusters.is_empty() {
        return None;
    }
    let gateways = BTreeSet::from_iter(gateway_of(reader, inputs, key));
    uses_of_clusters(reader, inputs, policies, key, clusters, &gateways)
}

/// The Services with policies among the clusters that an object of these Gateways refers to.
fn uses_of_clusters(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    policies: Policies,
    key: &ObjectKey,
    clusters: Vec<ClusterKey>,
    gateways: &BTreeSet<ObjectKey>,
) -> Option<Vec<ServiceUse>> {
    let referrer = Referrer {
        kind: key.kind,
        namespace: &key.namespace,
    };
    let mut uses = Vec::new();
    for cluster in clusters {
        let service = NamespacedName::new(cluster.namespace, cluster.service);
        let grants = inputs.grants_by_namespace;
        if reader.count(policies.by_service, &service) > 0
            && grants::permitted(reader, grants, referrer, Kind::Service, &service)
        {
            uses.extend(gateways.iter().map(|gateway| ServiceUse {
                service: service.clone(),
                port: cluster.port,
                gateway: gateway.clone(),
            }));
        }
    }
    (!uses.is_empty()).then_some(uses)
}

/// The Gateway with the listeners of an object: the object itself, or that of a ListenerSet.
fn gateway_of(reader: &mut Reader<'_>, inputs: &Inputs, owner: &ObjectKey) -> Option<ObjectKey> {
    if owner.kind != Kind::ListenerSet {
        return Some(owner.clone());
    }
    let set = reader.get(inputs.listener_sets, owner)?;
    let gateway = set.spec.parent_ref.resolve(&owner.namespace);
    Some(gateway.of_kind(Kind::Gateway))
}

/// The status of a policy; `None` if no Gateway of ours uses it.
fn status(
    reader: &mut Reader<'_>,
    sources: Sources,
    key: &ObjectKey,
    controller: &Arc<str>,
    generation: i64,
) -> Option<PolicyStatus> {
    let state = reader.get(sources.policies.states, key)?;
    let mut everywhere = Vec::new();
    let mut by_gateway: BTreeMap<ObjectKey, Vec<Problem>> = BTreeMap::new();
    for (index, target) in state.targets.iter().enumerate() {
        let field = format!("spec.targetRefs[{index}]");
        if target.known_kind() != Some(Kind::Service) {
            let message = format!(
                "{field}: kind {} in group {} is not supported as a target; use a Service",
                target.kind,
                target.group.or_core()
            );
            everywhere.push(Problem::new(reason::policy::INVALID, message));
            continue;
        }
        let name = NamespacedName::new(Arc::clone(&key.namespace), Arc::clone(&target.name));
        let service = reader.get(sources.services, &name);
        let problem = not_found(&field, &name, target, service.as_deref())
            .or_else(|| conflict(reader, sources.policies, &field, &name, target, &state));
        for used in reader.keys(sources.uses, &name) {
            if selects(target, service.as_deref(), used.port) {
                let problems = by_gateway.entry(used.gateway).or_default();
                problems.extend(problem.clone());
            }
        }
    }
    let ancestors = by_gateway.into_iter().map(|(gateway, problems)| {
        let of_settings = state.tls.as_ref().err();
        let problems = problems.into_iter().chain(everywhere.iter().cloned());
        let refused = Problem::merge(problems.chain(of_settings.cloned()).collect());
        let conditions = vec![
            Problem::or_true(
                refused.as_ref(),
                condition::policy::ACCEPTED,
                (
                    reason::policy::ACCEPTED,
                    "connections to the targets use TLS",
                ),
                generation,
            ),
            Problem::or_true(
                state.unresolved.as_ref(),
                condition::policy::RESOLVED_REFS,
                (reason::policy::RESOLVED_REFS, "all references are resolved"),
                generation,
            ),
        ];
        PolicyAncestorStatus {
            ancestor_ref: ParentReference::to_gateway(gateway),
            controller_name: Arc::clone(controller),
            conditions,
        }
    });
    let ancestors: Vec<_> = ancestors.collect();
    (!ancestors.is_empty()).then_some(PolicyStatus { ancestors })
}

/// Whether a target includes a port of its Service. If its sectionName is wrong, all ports report that.
fn selects(target: &PolicyTargetReference, service: Option<&Service>, number: u16) -> bool {
    let (Some(section), Some(service)) = (&target.section_name, service) else {
        return true;
    };
    let mut named = service.ports.iter().filter(|port| *port.name == **section);
    match named.next() {
        Some(port) => port.port == number,
        None => true,
    }
}

fn not_found(
    field: &str,
    name: &NamespacedName,
    target: &PolicyTargetReference,
    service: Option<&Service>,
) -> Option<Problem> {
    let message = match (service, &target.section_name) {
        (None, _) => format!("{field}: Service {name} does not exist"),
        (Some(service), Some(section)) => {
            let names: Vec<&str> = service.ports.iter().map(|port| &*port.name).collect();
            if names.contains(&&**section) {
                return None;
            }
            let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
            let available = match names[..] {
                [] => "none".to_owned(),
                _ => names.join(", "),
            };
            format!(
                "{field}.sectionName: Service {name} has no port named {section} (available names: {available})"
            )
        }
        (Some(_), None) => return None,
    };
    Some(Problem::new(reason::policy::TARGET_NOT_FOUND, message))
}

/// The older policy for the same target, if any.
fn conflict(
    reader: &mut Reader<'_>,
    policies: Policies,
    field: &str,
    name: &NamespacedName,
    target: &PolicyTargetReference,
    state: &PolicyState,
) -> Option<Problem> {
    let all = reader.by(policies.by_service, name);
    let (_, winner) = oldest(&all, name, target.section_name.as_deref())?;
    let older = &winner.seniority.name;
    (*older != state.seniority.name).then(|| {
        let message = format!(
            "{field}: BackendTLSPolicy {older} has the same target and takes precedence; remove the target from one of \
             the policies"
        );
        Problem::new(reason::policy::CONFLICTED, message)
    })
}
