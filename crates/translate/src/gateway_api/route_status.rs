//! What a route's owner is told, for each of its parents.

use sesame_api::{Condition, RouteParentStatus, RouteStatus, condition, reason};

use super::attach::Attachments;
use super::class::CONTROLLER_NAME;
use super::problem::Problem;

/// What holds for a route whatever the parent.
pub(crate) struct RouteVerdict<'a> {
    /// Which of its rules can't be done.
    pub(crate) partially_invalid: Option<&'a Problem>,
    /// Which of its references lead nowhere, or to something that Envoy refused.
    pub(crate) unresolved: Option<&'a Problem>,
}

/// The status of a route: an entry for each parentRef that names a Gateway of ours, and no other.
pub(crate) fn status(
    attachments: &Attachments,
    verdict: &RouteVerdict<'_>,
    generation: i64,
) -> RouteStatus {
    let parents = attachments
        .parents
        .iter()
        .map(|parent| {
            let accepted = match &parent.refused {
                Some(problem) => Condition::new(
                    condition::route::ACCEPTED,
                    false,
                    problem.reason,
                    problem.message.clone(),
                    generation,
                ),
                None => Condition::new(
                    condition::route::ACCEPTED,
                    true,
                    reason::route::ACCEPTED,
                    "the route is attached",
                    generation,
                ),
            };
            let resolved = match verdict.unresolved {
                Some(problem) => Condition::new(
                    condition::route::RESOLVED_REFS,
                    false,
                    problem.reason,
                    problem.message.clone(),
                    generation,
                ),
                None => Condition::new(
                    condition::route::RESOLVED_REFS,
                    true,
                    reason::route::RESOLVED_REFS,
                    "all references lead somewhere",
                    generation,
                ),
            };
            let mut conditions = vec![accepted, resolved];
            if let Some(problem) = verdict.partially_invalid {
                conditions.push(Condition::new(
                    condition::route::PARTIALLY_INVALID,
                    true,
                    problem.reason,
                    problem.message.clone(),
                    generation,
                ));
            }
            RouteParentStatus {
                parent_ref: parent.parent.clone(),
                controller_name: CONTROLLER_NAME.into(),
                conditions,
            }
        })
        .collect();
    RouteStatus { parents }
}
