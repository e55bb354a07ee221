//! The status of a ListenerSet.

use sesame_api::{
    Condition, GatewayStatus, ListenerSet, ListenerSetStatus, ObjectKey, condition, reason,
};
use sesame_engine::Reader;

use super::listener_set::{SetState, parent_not_accepted};
use super::listener_status::{self, Sources, Verdict};
use crate::problem::{Problem, bounded};

/// The part of a Gateway's status that its sets' statuses need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ParentStatus {
    accepted: bool,
    programmed: bool,
}

impl ParentStatus {
    /// Reads a Gateway's status.
    pub(crate) fn of(status: &GatewayStatus) -> Self {
        let is_true = |type_: &str| {
            let mut conditions = status.conditions.iter();
            conditions.any(|condition| *condition.type_ == *type_ && condition.is_true())
        };
        Self {
            accepted: is_true(condition::gateway::ACCEPTED),
            programmed: is_true(condition::gateway::PROGRAMMED),
        }
    }
}

/// The status of a set.
pub(crate) fn status(
    reader: &mut Reader<'_>,
    sources: &Sources<'_>,
    parent: ParentStatus,
    owner: &ObjectKey,
    set: &ListenerSet,
    state: &SetState,
) -> ListenerSetStatus {
    let generation = set.meta.generation;
    let refused = state.refused.is_some();
    let refused = refused.then_some("the ListenerSet is not accepted; see its Accepted condition");
    let verdicts = listener_status::judge_all(reader, sources, &state.listeners, refused);
    let accepted = accepted(state, parent, &verdicts, generation);
    let programmed = Problem::or_true(
        unprogrammed(state, parent, &verdicts, &accepted).as_ref(),
        condition::listener_set::PROGRAMMED,
        (
            reason::listener_set::PROGRAMMED,
            "the listeners are programmed in Envoy",
        ),
        generation,
    );
    let mut listeners = listener_status::statuses(
        reader,
        sources,
        owner,
        &state.listeners,
        verdicts,
        generation,
    );
    // The status of a listener requires a port.
    listeners.retain(|listener| listener.port != Some(0));
    ListenerSetStatus {
        conditions: vec![accepted, programmed],
        listeners,
    }
}

fn accepted(
    state: &SetState,
    parent: ParentStatus,
    verdicts: &[Verdict],
    generation: i64,
) -> Condition {
    let type_ = condition::listener_set::ACCEPTED;
    let refused = state.refused.clone();
    let refused = refused.or((!parent.accepted).then(|| parent_not_accepted(&state.gateway)));
    if let Some(problem) = refused {
        return problem.condition(type_, false, generation);
    }
    let (valid, reason, message) = match listener_status::invalid(&state.listeners, verdicts) {
        None => (
            true,
            reason::listener_set::ACCEPTED,
            "the ListenerSet is valid".to_owned(),
        ),
        Some((others_valid, mut message)) => {
            // Listeners without a port have no status of their own.
            let mut without_port = state.listeners.iter().filter(|l| l.port == 0);
            if let Some(problem) = without_port.next().and_then(|l| l.refused.as_ref()) {
                message = format!("{}; {message}", problem.message());
            }
            (
                others_valid,
                reason::listener_set::LISTENERS_NOT_VALID,
                bounded(message),
            )
        }
    };
    Condition::new(type_, valid, reason, message, generation)
}

fn unprogrammed(
    state: &SetState,
    parent: ParentStatus,
    verdicts: &[Verdict],
    accepted: &Condition,
) -> Option<Problem> {
    let not_accepted = "the ListenerSet is not accepted; see its Accepted condition";
    if let Some(problem) = &state.refused
        && problem.reason() == reason::listener_set::NOT_ALLOWED
    {
        return Some(Problem::new(problem.reason(), not_accepted));
    }
    if !parent.programmed {
        return Some(Problem::new(
            reason::listener_set::PARENT_NOT_PROGRAMMED,
            format!(
                "Gateway {} is not programmed; see its conditions",
                state.gateway.namespaced_name()
            ),
        ));
    }
    if !accepted.is_true() {
        return Some(Problem::new(
            reason::listener_set::LISTENERS_NOT_VALID,
            not_accepted,
        ));
    }
    let none = verdicts.iter().all(|verdict| verdict.idle.is_some());
    none.then(|| {
        Problem::new(
            reason::listener_set::LISTENERS_NOT_VALID,
            "no listener is programmed; see the listeners' conditions",
        )
    })
}
