//! What a route's owner is told, for each of its parents.

use sesame_api::{HTTPRoute, RouteParentStatus, RouteStatus, condition, reason};
use sesame_engine::{Reader, Table};
use sesame_model::FleetId;

use super::attach::Attachments;
use super::class::CONTROLLER_NAME;
use super::http_route::backends::referenced;
use super::problem::Problem;
use crate::fleet::{Rejected, RejectedKind};
use crate::pipeline::Inputs;

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
            let mut conditions = vec![
                Problem::or_true(
                    parent.refused.as_ref(),
                    condition::route::ACCEPTED,
                    (reason::route::ACCEPTED, "the route is attached"),
                    generation,
                ),
                Problem::or_true(
                    verdict.unresolved,
                    condition::route::RESOLVED_REFS,
                    (
                        reason::route::RESOLVED_REFS,
                        "all references lead somewhere",
                    ),
                    generation,
                ),
            ];
            // Never said of a route that isn't accepted (RouteConditionPartiallyInvalid).
            let partially_invalid = verdict
                .partially_invalid
                .filter(|_| parent.refused.is_none());
            conditions.extend(partially_invalid.map(|problem| {
                problem.condition(condition::route::PARTIALLY_INVALID, true, generation)
            }));
            RouteParentStatus {
                parent_ref: parent.parent.clone(),
                controller_name: CONTROLLER_NAME.into(),
                conditions,
            }
        })
        .collect();
    RouteStatus { parents }
}

/// Reason of ResolvedRefs=False where Envoy refused a backend. The spec has none for it: it is our mistake, not the owner's.
const REJECTED: &str = "RejectedByEnvoy";

/// A backend of the route that an Envoy has refused.
pub(crate) fn rejected_backend(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    refusing: Table<FleetId, ()>,
    fleets: Vec<FleetId>,
    route: &HTTPRoute,
) -> Option<Problem> {
    let clusters = referenced(route);
    for fleet in fleets {
        if !reader.exists(refusing, &fleet) {
            continue;
        }
        for cluster in &clusters {
            for what in [RejectedKind::Cluster, RejectedKind::Endpoints] {
                let key = Rejected {
                    fleet: fleet.clone(),
                    what,
                    name: cluster.to_string().into(),
                };
                if let Some(message) = reader.get(inputs.rejections, &key) {
                    return Some(Problem::new(
                        REJECTED,
                        format!(
                            "Envoy refused backend {cluster} and keeps the configuration before: {message}"
                        ),
                    ));
                }
            }
        }
    }
    None
}
