//! Shared by the statuses of backends and of all kinds of policies.

use std::sync::Arc;

use sesame_api::{
    Group, Kind, KindName, NamespacedName, ObjectKey, ParentReference, PolicyAncestorStatus,
    PolicyStatus, condition, reason,
};

use crate::problem::Problem;

/// The result of a policy for one Gateway.
pub(crate) struct Verdict {
    /// The Gateway.
    pub(crate) gateway: ObjectKey,
    /// Why the policy isn't in force.
    pub(crate) refused: Option<Problem>,
    /// Its unresolved references.
    pub(crate) unresolved: Option<Problem>,
}

/// The status of a policy; `None` if there are no verdicts. `accepted` is the message for Gateways where the policy is
/// in force.
pub(crate) fn status(
    controller: &Arc<str>,
    generation: i64,
    accepted: &str,
    verdicts: impl IntoIterator<Item = Verdict>,
) -> Option<PolicyStatus> {
    let ancestors = verdicts.into_iter().map(|verdict| {
        let conditions = vec![
            Problem::or_true(
                verdict.refused.as_ref(),
                condition::policy::ACCEPTED,
                (reason::policy::ACCEPTED, accepted.to_owned()),
                generation,
            ),
            Problem::or_true(
                verdict.unresolved.as_ref(),
                condition::policy::RESOLVED_REFS,
                (reason::policy::RESOLVED_REFS, "all references are resolved"),
                generation,
            ),
        ];
        PolicyAncestorStatus {
            ancestor_ref: ParentReference::to_gateway(verdict.gateway),
            controller_name: Arc::clone(controller),
            conditions,
        }
    });
    let ancestors: Vec<_> = ancestors.collect();
    (!ancestors.is_empty()).then_some(PolicyStatus { ancestors })
}

/// The problem with a target whose kind is not `supported`.
pub(crate) fn unsupported_target(
    field: &str,
    kind: &KindName,
    group: &Group,
    supported: Kind,
) -> Problem {
    let group = group.or_core();
    Problem::new(
        reason::policy::INVALID,
        format!(
            "{field}: kind {kind} in group {group} is not supported as a target; use a {supported}"
        ),
    )
}

/// The problem with a target for which an older policy of the same kind takes precedence.
pub(crate) fn conflict(field: &str, kind: Kind, older: &NamespacedName) -> Problem {
    Problem::new(
        reason::policy::CONFLICTED,
        format!(
            "{field}: {kind} {older} has the same target and takes precedence; remove the target from one of the policies"
        ),
    )
}
