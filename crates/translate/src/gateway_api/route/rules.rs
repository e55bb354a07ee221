//! The rules of a route, without its attachments: the filters and backends of each rule, in the same way for HTTPRoute
//! and GRPCRoute. Matches, timeouts and retries come from each kind's own module.
//!
//! An invalid rule keeps its valid matches and responds with an error: if they were dropped, a wider rule would serve
//! its requests. A rule is never applied in part, and doesn't affect other rules.

use std::sync::Arc;
use std::time::Duration;

use sesame_api::{BackendRef, Kind, Meta, RequestMirror, RouteFilter, SessionPersistence, reason};
use sesame_model::{
    Action, ExternalAuth, Forward, HeaderChanges, Mirror, PartsPerMillion, PathMatch, Retry, Route,
    RouteMatch, Session, Target, WeightedTarget,
};

use super::backends::{Resolver, Targets};
use super::filters::{self, AuthFilter, Filters, Place};
use super::{session, split};
use crate::gateway_api::external_auth;
use crate::problem::{FieldError, Problem, bounded};
use crate::shared::hosts::{RankedMatch, RouteRules};
use crate::shared::precedence::{MatchRank, Seniority, Source};
use crate::shared::scans::Meter;

/// A rule of any kind of route.
pub(crate) struct Rule<'a> {
    /// The kind of its route.
    pub(crate) kind: Kind,
    /// Its valid matches.
    pub(crate) matches: Vec<ValidMatch>,
    /// The errors in its invalid matches.
    pub(crate) errors: Vec<FieldError>,
    pub(crate) filters: &'a [RouteFilter],
    pub(crate) backend_refs: &'a [BackendRef],
    pub(crate) session: Option<&'a SessionPersistence>,
    /// Timeouts and retries, or the first error in them.
    pub(crate) limits: Result<Limits, FieldError>,
}

/// A valid match of a rule.
pub(crate) struct ValidMatch {
    /// Its index in the rule.
    index: usize,
    rank: MatchRank,
    requests: RouteMatch,
}

/// Limits on requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    /// For the whole request.
    pub(crate) request: Option<Duration>,
    /// For each try.
    pub(crate) each_try: Option<Duration>,
    pub(crate) retry: Option<Retry>,
}

/// Reads a route. `status` is the HTTP status for invalid rules and unresolved backends.
pub(crate) fn read<'a>(
    meta: &Meta,
    rules: impl Iterator<Item = Rule<'a>>,
    status: u16,
    resolver: &mut Resolver<'_, '_>,
) -> RouteRules {
    let mut ranked = Vec::new();
    let mut errors: Vec<FieldError> = Vec::new();
    let mut valid_rules = 0;
    let mut meter = Meter::default();
    for (index, mut rule) in rules.enumerate() {
        let field = format!("spec.rules[{index}]");
        let matches = std::mem::take(&mut rule.matches);
        let plan = plan(&field, (meta, index), &rule, &matches, status, resolver);
        // One invalid match invalidates the rule for its other matches too.
        let plan = match plan {
            Ok(plan) if rule.errors.is_empty() => {
                valid_rules += 1;
                plan
            }
            Ok(_) => Plan::answer(status),
            Err(error) => {
                rule.errors.push(error);
                Plan::answer(status)
            }
        };
        errors.append(&mut rule.errors);
        ranked.reserve_exact(matches.len());
        for valid in matches {
            ranked.push(Arc::new(RankedMatch {
                rank: valid.rank,
                place: (index, valid.index),
                scans: meter.scans(&valid.requests),
                routes: plan.routes(&valid.requests),
                without_tls: None,
            }));
        }
    }
    let (refused, partially_invalid) = judge(&errors, valid_rules);
    RouteRules {
        seniority: Seniority::of(Source::GatewayApi, meta),
        matches: ranked,
        jwt: None,
        rate: None,
        refused,
        partially_invalid,
        unresolved: Problem::merge(std::mem::take(&mut resolver.problems)),
    }
}

/// The valid matches of a list, and the errors in the invalid ones. An empty list means the default match.
pub(crate) fn read_matches<M: Default>(
    field: &str,
    matches: &[M],
    read: impl Fn(&str, &M) -> Result<(MatchRank, RouteMatch), FieldError>,
) -> (Vec<ValidMatch>, Vec<FieldError>) {
    let default = [M::default()];
    let matches = if matches.is_empty() {
        &default
    } else {
        matches
    };
    let (mut valid, mut errors) = (Vec::new(), Vec::new());
    for (index, source) in matches.iter().enumerate() {
        match read(&format!("{field}.matches[{index}]"), source) {
            Ok((rank, requests)) => valid.push(ValidMatch {
                index,
                rank,
                requests,
            }),
            Err(error) => errors.push(error),
        }
    }
    (valid, errors)
}

/// The problem with the whole route if no rule is valid, and the problem with its invalid rules if others are valid.
fn judge(errors: &[FieldError], valid_rules: usize) -> (Option<Problem>, Option<Problem>) {
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
    if valid_rules == 0 {
        (problem(all), None)
    } else {
        // The spec requires the message to start with these two words (RouteConditionPartiallyInvalid).
        (None, problem(format!("Dropped Rule: {all}")))
    }
}

/// The actions of a rule.
struct Plan {
    /// Each with the upper bound of its share of requests; the last one takes the rest.
    actions: Vec<(Option<PartsPerMillion>, Action)>,
    request_headers: HeaderChanges,
    response_headers: HeaderChanges,
    cors: Option<Arc<sesame_model::Cors>>,
    session: Option<Arc<Session>>,
    auth: Option<Arc<ExternalAuth>>,
}

impl Plan {
    fn answer(status: u16) -> Self {
        Self {
            actions: vec![(None, Action::Respond(status))],
            request_headers: HeaderChanges::default(),
            response_headers: HeaderChanges::default(),
            cors: None,
            session: None,
            auth: None,
        }
    }

    fn routes(&self, found: &RouteMatch) -> Box<[Arc<Route>]> {
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
                    auth: self.auth.clone(),
                    policy: None,
                })
            })
            .collect()
    }
}

fn plan(
    field: &str,
    (route, index): (&Meta, usize),
    rule: &Rule<'_>,
    matches: &[ValidMatch],
    status: u16,
    resolver: &mut Resolver<'_, '_>,
) -> Result<Plan, FieldError> {
    // References are always resolved, since the status reports them even if the rule is invalid.
    let targets: Vec<Targets> = rule
        .backend_refs
        .iter()
        .enumerate()
        .map(|(position, backend)| {
            resolver.targets(
                &format!("{field}.backendRefs[{position}]"),
                &backend.object_reference(),
            )
        })
        .collect();
    let prefix_path = matches
        .iter()
        .all(|valid| matches!(valid.requests.path, PathMatch::Prefix(_)));
    let filters = filters::gather(
        &format!("{field}.filters"),
        rule.filters,
        (rule.kind, Place::Rule),
        prefix_path,
    )?;
    let limits = rule.limits.clone()?;
    let session = rule.session.map(|persistence| {
        let field = format!("{field}.sessionPersistence");
        // Rules of the same host must not share a cookie.
        let cookie = || format!("sesame-session-{}-{}-{index}", route.namespace, route.name);
        session::read(&field, persistence, cookie)
    });
    let session = session.transpose()?;
    let mirrors = read_mirrors(&filters, resolver)?;
    let auth = read_auth(filters.auth, limits.request, resolver)?;
    let actions = match filters.redirect {
        Some(redirect) => vec![(None, Action::Redirect(Arc::new(redirect)))],
        None => {
            let template = Forward {
                targets: Vec::new(),
                refused_status: status,
                path_rewrite: filters.path_rewrite,
                host_rewrite: filters.host_rewrite,
                mirrors,
                timeout: limits.request,
                try_timeout: limits.each_try,
                retry: limits.retry.map(Box::new),
                options: None,
            };
            let mut choices = read_choices(field, rule, targets, prefix_path, resolver)?;
            if session.is_some() {
                for choice in &mut choices {
                    choice.target.session = None;
                }
            }
            split::actions(&template, choices, status)
        }
    };
    let auth = match auth {
        Some(None) => return Ok(Plan::answer(status)),
        Some(auth) => auth.map(Arc::new),
        None => None,
    };
    Ok(Plan {
        actions,
        request_headers: filters.request_headers,
        response_headers: filters.response_headers,
        cors: filters.cors,
        session,
        auth,
    })
}

/// The check for a rule; `Some(None)` if its service can't be resolved, so requests must not pass.
fn read_auth(
    found: Option<AuthFilter<'_>>,
    limit: Option<Duration>,
    resolver: &mut Resolver<'_, '_>,
) -> Result<Option<Option<ExternalAuth>>, FieldError> {
    let Some(AuthFilter {
        field,
        filter,
        before,
    }) = found
    else {
        return Ok(None);
    };
    external_auth::read(&field, filter, before, limit, resolver).map(Some)
}

/// The backends with their own filters.
fn read_choices(
    field: &str,
    rule: &Rule<'_>,
    targets: Vec<Targets>,
    prefix_path: bool,
    resolver: &mut Resolver<'_, '_>,
) -> Result<Vec<split::Choice>, FieldError> {
    let mut choices = Vec::new();
    for (position, (backend, target)) in rule.backend_refs.iter().zip(targets).enumerate() {
        let field = format!("{field}.backendRefs[{position}].filters");
        let place = (rule.kind, Place::Backend);
        let filters = filters::gather(&field, &backend.filters, place, prefix_path)?;
        let mirrors = read_mirrors(&filters, resolver)?;
        choices.push(split::Choice {
            target: WeightedTarget {
                target: target.usual,
                weight: backend.weight,
                request_headers: filters.request_headers,
                response_headers: filters.response_headers,
                host_rewrite: filters.host_rewrite,
                session: target.session,
            },
            path_rewrite: filters.path_rewrite,
            mirrors,
        });
    }
    Ok(choices)
}

/// The mirrors with resolved references. A missing mirror doesn't affect requests; the status reports it.
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
                "percent and fraction are mutually exclusive; remove one of them",
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
            "must not exceed 100 percent of requests",
        )),
    }
}
