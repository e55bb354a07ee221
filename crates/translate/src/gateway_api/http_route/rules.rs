//! What an HTTPRoute says, apart from where it is attached: matches, filters and backends, each rule for itself.
//!
//! A rule that can't be done as written answers 500 on its matches: it neither vanishes, so that a wider rule would answer
//! in its place, nor is half of it done. Its neighbours are untouched.

use std::sync::Arc;

use sesame_api::{BackendRef, HTTPRoute, HttpRouteRule, NamespacedName, RequestMirror, reason};
use sesame_engine::{Reader, Table};
use sesame_model::{
    Action, ClusterKey, Forward, HeaderChanges, Mirror, PartsPerMillion, PathMatch, Route,
    RouteMatch, Session, Target, WeightedTarget,
};

use super::backends::Resolver;
use super::filters::{self, Filters, Place};
use super::{matches, policy, split};
use crate::gateway_api::problem::{FieldError, Problem, bounded};
use crate::pipeline::Inputs;
use crate::shared::precedence::{MatchRank, Seniority};
use crate::shared::services::Backend;

/// The status of a rule that can't be done.
const REFUSED: u16 = 500;

/// What a route says.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteRules {
    /// Which of two alike routes goes first.
    pub seniority: Seniority,
    /// In the order of the route.
    pub matches: Vec<RankedMatch>,
    /// Why the route as a whole can't be accepted: none of its rules can be done.
    pub refused: Option<Problem>,
    /// Which of its rules can't be done.
    pub partially_invalid: Option<Problem>,
    /// Which of its references lead nowhere.
    pub unresolved: Option<Problem>,
}

/// One match of a rule, and what it leads to.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedMatch {
    /// How specific it is.
    pub rank: MatchRank,
    /// The rule's place in the route, and the match's in the rule.
    pub order: (usize, usize),
    /// Mostly one; several where requests are split before they are changed.
    pub routes: Vec<Arc<Route>>,
}

/// Reads a route.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    backends: Table<ClusterKey, Backend>,
    route: &HTTPRoute,
) -> RouteRules {
    let name = route.meta.namespaced_name();
    let mut resolver = Resolver {
        reader,
        inputs,
        backends,
        namespace: &route.meta.namespace,
        problems: Vec::new(),
    };
    let mut ranked = Vec::new();
    let mut errors: Vec<FieldError> = Vec::new();
    let mut good_rules = 0;
    for (index, rule) in route.spec.rules.iter().enumerate() {
        let field = format!("spec.rules[{index}]");
        let before = errors.len();
        let matches = read_matches(&field, rule, &mut errors);
        let prefix_path = matches
            .iter()
            .all(|(_, found)| matches!(found.path, PathMatch::Prefix(_)));
        let plan = plan(&field, index, &name, rule, prefix_path, &mut resolver);
        let plan = match plan {
            // A rule with a match that can't be done is no good for its other matches either.
            Ok(plan) if errors.len() == before => {
                good_rules += 1;
                plan
            }
            Ok(_) => Plan::answer(REFUSED),
            Err(error) => {
                errors.push(error);
                Plan::answer(REFUSED)
            }
        };
        ranked.reserve_exact(matches.len());
        for (order, found) in matches {
            ranked.push(RankedMatch {
                rank: MatchRank::of(&found),
                order: (index, order),
                routes: plan.routes(&found),
            });
        }
    }
    let (refused, partially_invalid) = judge(&errors, good_rules);
    RouteRules {
        seniority: Seniority {
            created: route.meta.creation_timestamp,
            name,
        },
        matches: ranked,
        refused,
        partially_invalid,
        unresolved: Problem::merge(resolver.problems),
    }
}

/// The matches that can be done, with their places.
fn read_matches(
    field: &str,
    rule: &HttpRouteRule,
    errors: &mut Vec<FieldError>,
) -> Vec<(usize, RouteMatch)> {
    if rule.matches.is_empty() {
        return vec![(0, matches::everything())];
    }
    let mut found = Vec::new();
    for (index, source) in rule.matches.iter().enumerate() {
        match matches::read(&format!("{field}.matches[{index}]"), source) {
            Ok(read) => found.push((index, read)),
            Err(error) => errors.push(error),
        }
    }
    found
}

/// Whether the route is refused as a whole, or in part.
fn judge(errors: &[FieldError], good_rules: usize) -> (Option<Problem>, Option<Problem>) {
    if errors.is_empty() {
        return (None, None);
    }
    let all = errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ");
    let problem = |message| {
        Some(Problem::new(
            reason::route::UNSUPPORTED_VALUE,
            bounded(message),
        ))
    };
    if good_rules == 0 {
        (problem(all), None)
    } else {
        // The spec asks for these two words at the start (RouteConditionPartiallyInvalid).
        (None, problem(format!("Dropped Rule: {all}")))
    }
}

/// What a rule does with the requests that it takes.
struct Plan {
    /// Each with the share of requests up to which it is taken; the last one takes the rest.
    actions: Vec<(Option<PartsPerMillion>, Action)>,
    request_headers: HeaderChanges,
    response_headers: HeaderChanges,
    cors: Option<Arc<sesame_model::Cors>>,
    session: Option<Arc<Session>>,
}

impl Plan {
    fn answer(status: u16) -> Self {
        Self {
            actions: vec![(None, Action::Respond(status))],
            request_headers: HeaderChanges::default(),
            response_headers: HeaderChanges::default(),
            cors: None,
            session: None,
        }
    }

    fn routes(&self, found: &RouteMatch) -> Vec<Arc<Route>> {
        self.actions
            .iter()
            .map(|(share, action)| {
                Arc::new(Route {
                    matches: RouteMatch {
                        share: *share,
                        ..found.clone()
                    },
                    action: action.clone(),
                    request_headers: self.request_headers.clone(),
                    response_headers: self.response_headers.clone(),
                    cors: self.cors.clone(),
                    session: self.session.clone(),
                })
            })
            .collect()
    }
}

fn plan(
    field: &str,
    index: usize,
    route: &NamespacedName,
    rule: &HttpRouteRule,
    prefix_path: bool,
    resolver: &mut Resolver<'_, '_>,
) -> Result<Plan, FieldError> {
    // References are resolved whatever else is wrong: the status tells of them in any case.
    let targets: Vec<Target> = rule
        .backend_refs
        .iter()
        .enumerate()
        .map(|(position, backend)| {
            resolver.target(
                &format!("{field}.backendRefs[{position}]"),
                &backend.object_reference(),
            )
        })
        .collect();
    let filters = filters::gather(
        &format!("{field}.filters"),
        &rule.filters,
        Place::Rule,
        prefix_path,
    )?;
    let limits = policy::timeouts(&format!("{field}.timeouts"), rule.timeouts.as_ref())?;
    let session = policy::session(
        &format!("{field}.sessionPersistence"),
        route,
        index,
        rule.session_persistence.as_deref(),
    )?;
    let mirrors = read_mirrors(&filters, resolver)?;
    let actions = match filters.redirect {
        Some(redirect) => vec![(None, Action::Redirect(Box::new(redirect)))],
        None => {
            let template = Forward {
                targets: Vec::new(),
                path_rewrite: filters.path_rewrite,
                host_rewrite: filters.host_rewrite,
                mirrors,
                timeout: limits.request,
                try_timeout: limits.each_try,
                retry: policy::retry(rule.retry.as_deref()),
            };
            let choices = read_choices(field, &rule.backend_refs, targets, prefix_path, resolver)?;
            split::actions(&template, choices)
        }
    };
    Ok(Plan {
        actions,
        request_headers: filters.request_headers,
        response_headers: filters.response_headers,
        cors: filters.cors,
        session,
    })
}

/// The backends that can be chosen, with what their own filters ask for.
fn read_choices(
    field: &str,
    backend_refs: &[BackendRef],
    targets: Vec<Target>,
    prefix_path: bool,
    resolver: &mut Resolver<'_, '_>,
) -> Result<Vec<split::Choice>, FieldError> {
    let mut choices = Vec::new();
    for (position, (backend, target)) in backend_refs.iter().zip(targets).enumerate() {
        let field = format!("{field}.backendRefs[{position}].filters");
        let filters = filters::gather(&field, &backend.filters, Place::Backend, prefix_path)?;
        let mirrors = read_mirrors(&filters, resolver)?;
        choices.push(split::Choice {
            target: WeightedTarget {
                target,
                weight: backend.weight,
                request_headers: filters.request_headers,
                response_headers: filters.response_headers,
                host_rewrite: filters.host_rewrite,
            },
            path_rewrite: filters.path_rewrite,
            mirrors,
        });
    }
    Ok(choices)
}

/// Those mirrors that lead somewhere: a copy that can't be sent harms nobody, and the status tells.
fn read_mirrors(
    filters: &Filters<'_>,
    resolver: &mut Resolver<'_, '_>,
) -> Result<Vec<Mirror>, FieldError> {
    let mut mirrors = Vec::new();
    for (field, mirror) in &filters.mirrors {
        let share = mirror_share(field, mirror)?;
        let target = resolver.target(&format!("{field}.backendRef"), &mirror.backend_ref);
        if let (Target::Cluster(cluster), true) = (target, share != Some(PartsPerMillion(0))) {
            mirrors.push(Mirror { cluster, share });
        }
    }
    Ok(mirrors)
}

fn mirror_share(
    field: &str,
    mirror: &RequestMirror,
) -> Result<Option<PartsPerMillion>, FieldError> {
    let millionths = match (mirror.percent, mirror.fraction) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(FieldError::new(
                field,
                "percent and fraction exclude each other; remove one of the two",
            ));
        }
        (Some(percent), None) => u64::from(percent) * 10_000,
        (None, Some(fraction)) if fraction.denominator == 0 => {
            return Err(FieldError::new(
                format!("{field}.fraction.denominator"),
                "must be at least 1",
            ));
        }
        (None, Some(fraction)) => {
            u64::from(fraction.numerator) * 1_000_000 / u64::from(fraction.denominator)
        }
    };
    match u32::try_from(millionths) {
        Ok(1_000_000) => Ok(None),
        Ok(share @ 0..1_000_000) => Ok(Some(PartsPerMillion(share))),
        _ => Err(FieldError::new(
            field,
            "a share of more than all requests can't be mirrored",
        )),
    }
}
