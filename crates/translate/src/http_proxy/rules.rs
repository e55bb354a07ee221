//! The rules of a root: the routes of its tree, each with the conditions of the enclosing inclusions.
//!
//! The routes of each HTTPProxy in the tree are a row of their own, so a changed child doesn't rebuild the others' routes.

use std::sync::Arc;

use sesame_api::ObjectKey;
use sesame_engine::{Index, Reader};
use sesame_model::{
    Action, GlobalRate, HeaderMatch, Rate, Redirect, Route, RouteMatch, RoutePolicy, SourceFilter,
};

use super::Inclusion;
use super::authorization::{CONTEXT, Unchecked};
use super::conditions::{Conditions, Misfit};
use super::findings::{About, Finding, Findings};
use super::fragment::Fragment;
use super::global_rate::Limits;
use super::host::{Host, Root};
use super::includes::{Tree, Visit, roots};
use super::jwt::Required;
use super::rewrite::Variant;
use super::route::{self, OwnRoute, Plan, UNAVAILABLE};
use crate::shared::hosts::{RankedMatch, RouteRules};
use crate::shared::precedence::MatchRank;
use crate::shared::scans::Meter;
use crate::shared::wildcards;

/// The status for requests to an HTTPProxy that can't be included.
const DEAD_END: u16 = 502;

/// The maximum number of inclusions of an HTTPProxy by one root that are checked against its routes.
const MAX_CHECKED: usize = 256;

/// The maximum size of the routes of an HTTPProxy at all its places in the tree of a root, in bytes. Each route counts with
/// its copy of the host's settings, but without those of the instance's default limits and headers.
const MAX_BYTES: usize = 384 * 1024;

/// The routes of an HTTPProxy at one place in the tree of a root.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Placed {
    matches: Vec<Arc<RankedMatch>>,
    /// Matches that follow all other matches of the same rank.
    last: Vec<Arc<RankedMatch>>,
    /// The index of the first route that answers 503, since the routes before it leave too little of the limit.
    exceeding: Option<usize>,
}

/// The routes of an included HTTPProxy, for each set of conditions in `visits`. `https` is the port to which requests
/// without TLS are redirected.
pub(super) fn of_included(
    fragment: &Fragment,
    visits: &[Arc<Conditions>],
    host: &Host,
    https: u16,
) -> Vec<Placed> {
    let mut out = Rules::new(host, https);
    out.default_bytes += fragment.default_bytes;
    let visits = visits.iter().map(|conditions| {
        out.outer = Arc::clone(conditions);
        for route in &fragment.routes {
            out.index = route.index;
            match placed(conditions, route) {
                Ok((both, _)) if route.partial => {
                    out.answer(&both, UNAVAILABLE, route.permit_insecure);
                }
                Ok((both, variants)) => {
                    for (index, variant) in variants.into_iter().enumerate() {
                        out.add(&both, variant, route, index > 0);
                    }
                }
                // The status of the HTTPProxy reports the error.
                Err((_, _, misfit)) => {
                    if let Some(rest) = &misfit.rest {
                        out.answer(rest, UNAVAILABLE, route.permit_insecure);
                    }
                }
            }
        }
        std::mem::take(&mut out.placed)
    });
    visits.collect()
}

/// The routes of an HTTPProxy that is left out of a root's tree.
pub(super) fn dead_ends(visits: &[Arc<Conditions>], host: &Host, https: u16) -> Vec<Placed> {
    let mut out = Rules::new(host, https);
    let visits = visits.iter().map(|conditions| {
        out.outer = Arc::clone(conditions);
        out.answer(conditions, DEAD_END, false);
        std::mem::take(&mut out.placed)
    });
    visits.collect()
}

/// The finding about an HTTPProxy that is left out of a root's tree.
pub(super) fn left_out(root: &ObjectKey) -> Finding {
    let message = format!(
        "more than {} MiB for all HTTPProxies with a virtualhost that include this one, not counting {} KiB for each; \
         requests that it would serve for HTTPProxy {} get 502; shorten the routes, or divide this HTTPProxy so that fewer \
         include all of it",
        roots::LIMIT / 1024 / 1024,
        roots::FREE / 1024,
        root.namespaced_name()
    );
    Finding::error(About::LIMIT, "spec.routes", message)
}

/// The finding of a root about an HTTPProxy that is left out of its tree.
pub(super) fn without(included: &ObjectKey) -> Finding {
    let message = format!(
        "HTTPProxy {} is left out, since its routes take more than {} MiB for all HTTPProxies with a virtualhost that include \
         it; its requests get 502; include another HTTPProxy, or divide that one so that fewer include all of it",
        included.namespaced_name(),
        roots::LIMIT / 1024 / 1024
    );
    Finding::error(About::INCLUDE, "spec.includes", message)
}

/// The rules of a root: the routes of the HTTPProxies in its tree, in order. `by_root` has the routes of each HTTPProxy.
pub(super) fn rules(
    reader: &mut Reader<'_>,
    by_root: Index<Inclusion, Vec<Placed>, ObjectKey>,
    tree: &Tree,
    (key, root): (&ObjectKey, &Root),
    host: &Host,
    https: u16,
) -> RouteRules {
    // A row for each member of the tree: each HTTPProxy with inclusions also has routes, if only an empty list.
    let included = reader.values_by(by_root, key);
    let (mut matches, mut last) = (Vec::with_capacity(tree.visits.len()), Vec::new());
    for Visit { member, number, .. } in &tree.visits {
        let placed = &included[*member][*number];
        matches.extend_from_slice(&placed.matches);
        last.extend_from_slice(&placed.last);
    }
    let mut out = Rules::new(host, https);
    for conditions in &tree.dead_ends {
        out.outer = Arc::clone(conditions);
        out.answer(conditions, DEAD_END, false);
    }
    matches.append(&mut last);
    matches.append(&mut out.placed.last);
    RouteRules {
        seniority: root.seniority.clone(),
        matches,
        jwt: host.jwt.all.clone(),
        rate: host.rate.clone(),
        refused: None,
        partially_invalid: None,
        unresolved: None,
    }
}

/// Combines a route with the conditions of the enclosing inclusions.
fn placed(
    conditions: &Conditions,
    route: &OwnRoute,
) -> Result<(Conditions, Vec<Variant>), (About, &'static str, Misfit)> {
    let both = conditions
        .and(&route.conditions)
        .map_err(|misfit| (About::CONDITIONS, "conditions", misfit))?;
    let replacements = &route.plan.replacements;
    match replacements.variants(both.path.as_ref(), &both.requests().path) {
        Ok(variants) => Ok((both, variants)),
        Err(message) => {
            let part = match route.plan.action {
                Action::Redirect(_) => "requestRedirectPolicy.prefix",
                _ => "pathRewritePolicy",
            };
            let misfit = Misfit {
                message: message.to_owned(),
                rest: Some(Box::new(both)),
            };
            Err((About::PREFIX, part, misfit))
        }
    }
}

/// Findings about routes in combination with the enclosing inclusions.
pub(super) fn findings(
    routes: &[OwnRoute],
    (root, host): (&ObjectKey, &Host),
    visits: &[Arc<Conditions>],
    placed: &[Placed],
) -> Vec<Finding> {
    let mut findings = Findings::default();
    if let Some(index) = placed.iter().find_map(|placed| placed.exceeding) {
        let message = format!(
            "the routes take more than {} KiB in the tree of HTTPProxy {}, whose settings apply to each of them; some \
             respond with 503, this one first; divide this HTTPProxy into several, or shorten its routes",
            MAX_BYTES / 1024,
            root.namespaced_name()
        );
        findings.error(About::SIZE, &route::field(index), message);
    }
    if visits.len() > MAX_CHECKED && !routes.is_empty() {
        let message = format!(
            "HTTPProxy {} includes this one {} times; routes are checked only for the first {MAX_CHECKED} inclusions",
            root.namespaced_name(),
            visits.len()
        );
        findings.warn(About::LIMIT, "spec.routes", message);
    }
    for route in routes {
        if let Err(name) = host.jwt.provider(&route.plan.jwt) {
            let field = format!(
                "{}.jwtVerificationPolicy.require",
                route::field(route.index)
            );
            let message = format!(
                "HTTPProxy {} has no provider {name:?}; use the name of one in its jwtProviders",
                root.namespaced_name()
            );
            findings.error(About::JWT, &field, message);
        }
        let check = host
            .auth
            .as_ref()
            .map(|auth| auth.of_route(route.plan.auth.as_deref()));
        if let Some(Err(Unchecked::Context)) = check {
            let field = format!("{}.authPolicy.context", route::field(route.index));
            let message = format!(
                "{CONTEXT} (in the virtualhost of HTTPProxy {})",
                root.namespaced_name()
            );
            findings.error(About::AUTH, &field, message);
        }
        let mut visits = visits.iter().take(MAX_CHECKED);
        let error = visits.find_map(|conditions| self::placed(conditions, route).err());
        if let Some((about, part, Misfit { message, .. })) = error {
            let field = format!("{}.{part}", route::field(route.index));
            let message = format!(
                "{message} (in the routes of HTTPProxy {})",
                root.namespaced_name()
            );
            findings.error(about, &field, message);
        }
    }
    findings.list
}

/// The size of a host's settings on each route, in bytes, without the default limits.
pub(super) fn bytes_of_host(host: &Host) -> usize {
    let auth = host.auth.as_ref().map(|auth| auth.of_route(None));
    let route = Route {
        auth: auth.and_then(Result::ok).flatten(),
        cors: host.cors.clone(),
        policy: Rules::new(host, 0).forwarded,
        ..Route::respond_to_all(UNAVAILABLE)
    };
    route.bytes() - host.global_rate.default_bytes()
}

struct Rules<'a> {
    host: &'a Host,
    /// The redirect to HTTPS.
    to_https: Arc<Redirect>,
    /// The condition that limits a wildcard host to one label.
    one_label: Option<HeaderMatch>,
    /// The policy for routes that answer with a status.
    policy: Option<Arc<RoutePolicy>>,
    /// The policy for routes without a policy of their own.
    unchanged: Option<Arc<RoutePolicy>>,
    /// The same policy with the global rate limits, for routes that forward requests.
    forwarded: Option<Arc<RoutePolicy>>,
    /// The rate limit for routes without a limit of their own.
    rate: Option<Rate>,
    /// The provider whose tokens are required by routes without a requirement of their own.
    default: Option<Arc<str>>,
    placed: Placed,
    /// The conditions of the enclosing inclusions.
    outer: Arc<Conditions>,
    /// The index of the current route.
    index: usize,
    /// The remaining size, in bytes.
    left: usize,
    /// The size of the instance's default limits and header changes on each route, in bytes.
    default_bytes: usize,
    meter: Meter,
}

impl<'a> Rules<'a> {
    fn new(host: &'a Host, https: u16) -> Self {
        let default = host.jwt.provider(&Required::Default).unwrap_or_default();
        let rate = host.rate.as_ref().map(|_| Rate::OfHost);
        let global = Limits::default().or(&host.global_rate);
        let global = global.unwrap_or_default();
        let of = |rate, global, jwt| route::shared(policy(host.sources.clone(), rate, global, jwt));
        Self {
            host,
            to_https: Arc::new(Redirect::to_https(https)),
            one_label: wildcards::one_label(&host.fqdn),
            policy: of(rate.clone(), None, None),
            unchanged: of(rate.clone(), None, default.clone()),
            forwarded: of(rate.clone(), global, default.clone()),
            rate,
            default,
            placed: Placed::default(),
            outer: Arc::default(),
            index: 0,
            left: MAX_BYTES,
            default_bytes: host.global_rate.default_bytes(),
            meter: Meter::default(),
        }
    }

    /// Adds a variant of a route. `later`: the variant follows all other matches of the same rank.
    fn add(&mut self, both: &Conditions, variant: Variant, route: &OwnRoute, later: bool) {
        let requests = RouteMatch {
            path: variant.path.clone(),
            ..both.requests()
        };
        let rank = MatchRank::of(&match &variant.ranked_as {
            Some(path) => RouteMatch {
                path: path.clone(),
                ..requests.clone()
            },
            None => requests.clone(),
        });
        let plan = &route.plan;
        let mut action = plan.action.clone();
        if let Some(rewrite) = variant.rewrite {
            match &mut action {
                Action::Forward(forward) => Arc::make_mut(forward).path_rewrite = Some(rewrite),
                Action::Redirect(redirect) => Arc::make_mut(redirect).path = Some(rewrite),
                Action::Respond(_) | Action::RespondWith(_) => {}
            }
        }
        let permit_insecure = route.permit_insecure;
        // The status of the HTTPProxy names the missing provider.
        let Ok(jwt) = self.host.jwt.provider(&plan.jwt) else {
            return self.push(rank, requests, None, UNAVAILABLE, permit_insecure, later);
        };
        let forwards = matches!(action, Action::Forward(_));
        let global = match forwards {
            true => plan.global_rate.or(&self.host.global_rate),
            false => Ok(None),
        };
        // The statuses report why the limits can't be enforced.
        let Ok(global) = global else {
            return self.push(rank, requests, None, UNAVAILABLE, permit_insecure, later);
        };
        let unchanged = plan.sources.is_none()
            && plan.rate.is_none()
            && plan.global_rate == Limits::default()
            && jwt == self.default;
        let policy = match unchanged {
            true if forwards => self.forwarded.clone(),
            true => self.unchanged.clone(),
            false => {
                let sources = plan.sources.as_deref().or(self.host.sources.as_ref());
                let rate = plan.rate.as_deref().cloned().map(Rate::Own);
                let rate = rate.or_else(|| self.rate.clone());
                route::shared(policy(sources.cloned(), rate, global, jwt))
            }
        };
        let auth = self.host.auth.as_ref();
        let auth = auth.map(|auth| auth.of_route(plan.auth.as_deref()));
        let route = match auth.unwrap_or(Ok(None)) {
            _ if self.host.refused => None,
            Err(_) => None,
            Ok(auth) => Some(Route {
                auth,
                action,
                request_headers: plan.request_headers.clone(),
                response_headers: plan.response_headers.clone(),
                policy,
                ..Route::respond_to_all(UNAVAILABLE)
            }),
        };
        self.push(rank, requests, route, UNAVAILABLE, permit_insecure, later);
    }

    /// Adds a match that answers requests with a status.
    fn answer(&mut self, conditions: &Conditions, status: u16, permit_insecure: bool) {
        let requests = conditions.requests();
        let rank = MatchRank::of(&requests);
        let status = if self.host.refused {
            UNAVAILABLE
        } else {
            status
        };
        self.push(rank, requests, None, status, permit_insecure, true);
    }

    fn push(
        &mut self,
        rank: MatchRank,
        mut requests: RouteMatch,
        route: Option<Route>,
        status: u16,
        permit_insecure: bool,
        later: bool,
    ) {
        let Conditions { headers, query, .. } = &*self.outer;
        let scans = self.meter.scans_below(&requests, headers, query);
        // The condition of a wildcard host doesn't affect the rank.
        requests.headers.extend(self.one_label.clone());
        let redirect = self.host.redirects() && !permit_insecure;
        let without_tls = redirect.then(|| Arc::new(self.to_https(requests.clone())));
        let route = route.unwrap_or_else(|| {
            let plan = Plan::answer(status);
            Route {
                action: plan.action,
                response_headers: self.host.response_headers.clone(),
                policy: self.policy.clone(),
                ..Route::respond_to_all(status)
            }
        });
        let mut route = Route {
            matches: requests,
            cors: self.host.cors.clone(),
            ..route
        };
        let bytes = route.bytes() + without_tls.as_ref().map_or(0, |route| route.bytes());
        match self
            .left
            .checked_sub(bytes.saturating_sub(self.default_bytes))
        {
            Some(left) => self.left = left,
            None => {
                self.placed.exceeding.get_or_insert(self.index);
                route = Route {
                    matches: route.matches,
                    ..Route::respond_to_all(status)
                };
            }
        }
        let list = match later {
            true => &mut self.placed.last,
            false => &mut self.placed.matches,
        };
        list.push(Arc::new(RankedMatch {
            rank,
            place: (0, 0),
            routes: [Arc::new(route)].into(),
            without_tls,
            scans,
        }));
    }

    /// Redirects requests without TLS to the same host with TLS.
    fn to_https(&self, requests: RouteMatch) -> Route {
        Route {
            matches: requests,
            action: Action::Redirect(Arc::clone(&self.to_https)),
            response_headers: self.host.response_headers.clone(),
            ..Route::respond_to_all(301)
        }
    }
}

fn policy(
    sources: Option<SourceFilter>,
    rate: Option<Rate>,
    global_rate: Option<Arc<GlobalRate>>,
    jwt: Option<Arc<str>>,
) -> Option<RoutePolicy> {
    let policy = RoutePolicy {
        sources,
        rate,
        global_rate,
        jwt,
    };
    (policy != RoutePolicy::default()).then_some(policy)
}
