//! The status of a BackendTLSPolicy: an entry for each of our Gateways whose routes refer to a target.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_api::{
    Kind, NamespacedName, ObjectKey, ObjectStatus, PolicyStatus, PolicyTargetReference, reason,
};
use sesame_engine::{Builder, Index, Reader, Table};

use super::{Policies, PolicyState, oldest};
use crate::gateway_api::policy_status::{self, Verdict};
use crate::gateway_api::route;
use crate::inputs::Inputs;
use crate::problem::Problem;
use crate::shared::grants::{self, Referrer};
use crate::shared::hosts::Attachments;
use crate::shared::services::Service;

/// A port of a Service that an accepted route of a Gateway refers to.
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
) -> Table<ObjectKey, ObjectStatus> {
    let inputs = *inputs;
    let of_routes: Table<ObjectKey, Vec<ServiceUse>> =
        b.derive("service uses", attachments, move |reader, key| {
            uses(reader, &inputs, policies, attachments, key)
        });
    let by_use = b.index(of_routes, "routes by service use", |_, uses| uses.clone());
    let in_use = b.union_keys("services in use", [by_use.into()]);
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
            let (kind, group) = (&target.kind, &target.group);
            let problem = policy_status::unsupported_target(&field, kind, group, Kind::Service);
            everywhere.push(problem);
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
    let verdicts = by_gateway.into_iter().map(|(gateway, problems)| {
        let of_settings = state.tls.as_ref().err();
        let problems = problems.into_iter().chain(everywhere.iter().cloned());
        Verdict {
            gateway,
            refused: Problem::merge(problems.chain(of_settings.cloned()).collect()),
            unresolved: state.unresolved.clone(),
        }
    });
    let accepted = "connections to the targets use TLS";
    policy_status::status(controller, generation, accepted, verdicts)
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
    (*older != state.seniority.name)
        .then(|| policy_status::conflict(field, Kind::BackendTLSPolicy, older))
}
