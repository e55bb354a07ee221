//! The status of an XTelemetryPolicy: an entry for each targeted Gateway that is ours or doesn't exist.

use std::sync::Arc;

use sesame_api::{Kind, ObjectKey, ObjectStatus, PolicyStatus, reason};
use sesame_engine::{Builder, Reader, Table};

use super::{ByGateway, PolicyState, oldest, targets};
use crate::gateway_api::gateway::GatewayState;
use crate::gateway_api::policy_status::{self, Verdict};
use crate::inputs::Inputs;
use crate::problem::Problem;

/// Declares the table of statuses.
pub(super) fn statuses(
    b: &mut Builder,
    inputs: &Inputs,
    ours: Table<ObjectKey, GatewayState>,
    by_gateway: ByGateway,
    states: Table<ObjectKey, PolicyState>,
) -> Table<ObjectKey, ObjectStatus> {
    let inputs = *inputs;
    b.derive("telemetry_policy status", states, move |reader, key| {
        let state = reader.get(states, key)?;
        let status = status(reader, &inputs, ours, by_gateway, key, &state)?;
        Some(ObjectStatus::Policy(Arc::new(status)))
    })
}

fn status(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    ours: Table<ObjectKey, GatewayState>,
    by_gateway: ByGateway,
    key: &ObjectKey,
    state: &PolicyState,
) -> Option<PolicyStatus> {
    let policy = reader.get(inputs.telemetry_policies, key)?;
    let settings = reader.get(inputs.settings, &())?;
    let controller = settings.controller_name.as_ref()?;
    let traced = settings.tracing.is_some();
    let mut verdicts = Vec::new();
    for gateway in targets(key, &policy) {
        let field = || {
            let mut names = policy.spec.target_refs.iter().map(|target| &target.name);
            let index = names.position(|name| *name == gateway.name);
            format!("spec.targetRefs[{}]", index.unwrap_or_default())
        };
        let problem = if reader.exists(ours, &gateway) {
            let (_, oldest) = oldest(reader, by_gateway, &gateway)?;
            (oldest != state.seniority)
                .then(|| policy_status::conflict(&field(), Kind::XTelemetryPolicy, &oldest.name))
        } else if reader.exists(inputs.gateways, &gateway) {
            continue;
        } else {
            let message = format!(
                "{}: Gateway {} does not exist",
                field(),
                gateway.namespaced_name()
            );
            Some(Problem::new(reason::policy::TARGET_NOT_FOUND, message))
        };
        let problems = problem.into_iter().chain(state.settings.clone().err());
        verdicts.push(Verdict {
            gateway,
            refused: Problem::merge(problems.collect()),
            unresolved: state.unresolved.clone(),
        });
    }
    let accepted = match &state.settings {
        Ok(settings) => settings.effect(traced),
        Err(_) => String::new(),
    };
    policy_status::status(controller, policy.meta.generation, &accepted, verdicts)
}
