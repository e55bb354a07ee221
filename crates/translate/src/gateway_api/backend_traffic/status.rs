//! The status of an XBackendTrafficPolicy: an entry for each of our Gateways whose routes or listeners refer to a
//! target.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_api::{Kind, LocalObjectReference, ObjectKey, ObjectStatus, PolicyStatus, reason};
use sesame_engine::{Builder, Reader, Table};

use super::{Policies, PolicyState, SESSION, Settings, oldest, target};
use crate::gateway_api::ancestors::Uses;
use crate::gateway_api::policy_status::{self, Verdict};
use crate::gateway_api::xbackend::{self, XBackends};
use crate::inputs::Inputs;
use crate::problem::Problem;

/// Declares the table of statuses.
pub(crate) fn statuses(
    b: &mut Builder,
    inputs: &Inputs,
    policies: Policies,
    xbackends: XBackends,
    uses: Uses,
) -> Table<ObjectKey, ObjectStatus> {
    let inputs = *inputs;
    b.derive(
        "backend_traffic_policy status",
        policies.states,
        move |reader, key| {
            let status = status(reader, &inputs, policies, xbackends, uses, key)?;
            Some(ObjectStatus::Policy(Arc::new(status)))
        },
    )
}

/// The status of a policy; `None` if no Gateway of ours uses its targets.
fn status(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    policies: Policies,
    xbackends: XBackends,
    uses: Uses,
    key: &ObjectKey,
) -> Option<PolicyStatus> {
    let policy = reader.get(inputs.backend_traffic_policies, key)?;
    let settings = reader.get(inputs.settings, &())?;
    let controller = settings.controller_name.as_ref()?;
    let state = reader.get(policies.states, key)?;
    let mut everywhere = Vec::new();
    let mut by_gateway: BTreeMap<ObjectKey, Vec<Problem>> = BTreeMap::new();
    for (index, reference) in state.targets.iter().enumerate() {
        let field = format!("spec.targetRefs[{index}]");
        let Some(target) = target(key, reference) else {
            let LocalObjectReference { kind, group, .. } = reference;
            let problem = policy_status::unsupported_target(&field, kind, group, Kind::Service);
            everywhere.push(problem);
            continue;
        };
        let problem = not_found(reader, inputs, &field, &target)
            .or_else(|| conflict(reader, policies, &field, &target, &state))
            .or_else(|| without_sessions(reader, xbackends, &field, &target, &state));
        for used in reader.keys(uses, &target) {
            let problems = by_gateway.entry(used.gateway).or_default();
            problems.extend(problem.clone());
        }
    }
    let verdicts = by_gateway.into_iter().map(|(gateway, problems)| {
        let problems = problems.into_iter().chain(everywhere.iter().cloned());
        let of_settings = state.settings.as_ref().err();
        Verdict {
            gateway,
            refused: Problem::merge(problems.chain(of_settings.cloned()).collect()),
            unresolved: None,
        }
    });
    let accepted = match &state.settings {
        Ok(settings) => settings.effect(),
        Err(_) => String::new(),
    };
    policy_status::status(controller, policy.meta.generation, &accepted, verdicts)
}

fn not_found(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    field: &str,
    target: &ObjectKey,
) -> Option<Problem> {
    let name = target.namespaced_name();
    let exists = match target.kind {
        Kind::XBackend => reader.exists(inputs.xbackends, target),
        _ => reader.exists(inputs.services, &name),
    };
    (!exists).then(|| {
        let message = format!("{field}: {} {name} does not exist", target.kind);
        Problem::new(reason::policy::TARGET_NOT_FOUND, message)
    })
}

/// The older policy for the same target, if any.
fn conflict(
    reader: &mut Reader<'_>,
    policies: Policies,
    field: &str,
    target: &ObjectKey,
    state: &PolicyState,
) -> Option<Problem> {
    let older = &oldest(reader, policies, target)?.seniority.name;
    (*older != state.seniority.name)
        .then(|| policy_status::conflict(field, Kind::XBackendTrafficPolicy, older))
}

/// The problem with session persistence for an external host.
fn without_sessions(
    reader: &mut Reader<'_>,
    xbackends: XBackends,
    field: &str,
    target: &ObjectKey,
    state: &PolicyState,
) -> Option<Problem> {
    let settings = state.settings.as_ref().ok()?;
    if target.kind != Kind::XBackend
        || settings.session.is_none()
        || xbackend::selects_pods(reader, xbackends, target)
    {
        return None;
    }
    let message = format!(
        "{field}: {SESSION} applies only to Services and XBackends of type EndpointSelector; \
         remove it, or target only those"
    );
    Some(Problem::new(reason::policy::INVALID, message))
}

impl Settings {
    /// The policy's effect, for its status.
    fn effect(&self) -> String {
        let retries = self.retries.map(|limit| {
            format!(
                "concurrent retries are limited to {}% of concurrent requests, but at least {} are allowed",
                limit.percent, limit.always
            )
        });
        let session = self.session.as_ref().map(|_| {
            "sessions are persistent; session settings on routes and XBackends take precedence"
                .to_owned()
        });
        let parts: Vec<String> = retries.into_iter().chain(session).collect();
        match parts[..] {
            [] => "the policy has no settings".to_owned(),
            _ => parts.join("; "),
        }
    }
}
