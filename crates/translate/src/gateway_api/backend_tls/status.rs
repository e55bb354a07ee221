//! The status of a BackendTLSPolicy: an entry for each of our Gateways whose routes or listeners refer to a target.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_api::{
    Kind, NamespacedName, ObjectKey, ObjectStatus, PolicyStatus, PolicyTargetReference, reason,
};
use sesame_engine::{Builder, Reader, Table};

use super::{Policies, PolicyState, oldest};
use crate::gateway_api::ancestors::Uses;
use crate::gateway_api::policy_status::{self, Verdict};
use crate::inputs::Inputs;
use crate::problem::Problem;
use crate::shared::services::Service;

/// The tables needed for a status.
#[derive(Clone, Copy)]
struct Sources {
    services: Table<NamespacedName, Service>,
    policies: Policies,
    uses: Uses,
}

/// Declares the table of statuses.
pub(crate) fn statuses(
    b: &mut Builder,
    inputs: &Inputs,
    policies: Policies,
    uses: Uses,
) -> Table<ObjectKey, ObjectStatus> {
    let inputs = *inputs;
    let sources = Sources {
        services: inputs.services,
        policies,
        uses,
    };
    b.derive(
        "backend_tls_policy status",
        policies.states,
        move |reader, key| {
            let generation = reader
                .get(inputs.backend_tls_policies, key)?
                .meta
                .generation;
            let settings = reader.get(inputs.settings, &())?;
            let controller = settings.controller_name.as_ref()?;
            let status = status(reader, sources, key, controller, generation)?;
            Some(ObjectStatus::Policy(Arc::new(status)))
        },
    )
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
        let name = NamespacedName::new(Arc::clone(&key.namespace), Arc::clone(&target.name));
        if target.known_kind() == Some(Kind::XBackend) {
            let message = format!(
                "{field}: a BackendTLSPolicy does not apply to XBackends; set spec.tls of XBackend {name} instead"
            );
            let problem = Problem::new(reason::policy::INVALID, message);
            for used in reader.keys(sources.uses, &name.of_kind(Kind::XBackend)) {
                let problems = by_gateway.entry(used.gateway).or_default();
                problems.push(problem.clone());
            }
            continue;
        }
        if target.known_kind() != Some(Kind::Service) {
            let (kind, group) = (&target.kind, &target.group);
            let problem = policy_status::unsupported_target(&field, kind, group, Kind::Service);
            everywhere.push(problem);
            continue;
        }
        let service = reader.get(sources.services, &name);
        let problem = not_found(&field, &name, target, service.as_deref())
            .or_else(|| conflict(reader, sources.policies, &field, &name, target, &state));
        for used in reader.keys(sources.uses, &name.of_kind(Kind::Service)) {
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

/// Whether a target includes a port of its Service. If the Service has no port with its sectionName, it includes all
/// ports, so that all of them report the error.
fn selects(target: &PolicyTargetReference, service: Option<&Service>, number: Option<u16>) -> bool {
    let (Some(section), Some(service)) = (&target.section_name, service) else {
        return true;
    };
    let mut named = service.ports.iter().filter(|port| *port.name == **section);
    match named.next() {
        Some(port) => Some(port.port) == number,
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
    let all = reader.by(policies.by_target, &name.of_kind(Kind::Service));
    let (_, winner) = oldest(&all, name, target.section_name.as_deref())?;
    let older = &winner.seniority.name;
    (*older != state.seniority.name)
        .then(|| policy_status::conflict(field, Kind::BackendTLSPolicy, older))
}
