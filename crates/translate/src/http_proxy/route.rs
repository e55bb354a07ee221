//! The routes of one HTTPProxy, without the enclosing inclusions.
//!
//! In: a route and the Services that it refers to. Out: its conditions and a plan for its requests. An invalid route
//! keeps its valid conditions and answers 503; otherwise, a less specific route would serve its requests.

use std::sync::Arc;

use sesame_api::{AuthorizationPolicy, HTTPProxy, HttpProxyRoute};
use sesame_engine::Reader;
use sesame_model::{
    Action, ClusterKey, CookieChange, Forward, ForwardOptions, HeaderChanges, Mirror,
    PartsPerMillion, RateLimit, SourceFilter, Target, WeightedTarget,
};

use super::conditions::{self, Conditions, Listed};
use super::default_headers::{DefaultChanges, merged};
use super::findings::{About, Findings};
use super::headers::{self, Changes, HostRewrite, Place};
use super::operators::Names;
use super::rewrite::{self, Replacements};
use super::services::{self, Common};
use super::{
    access, authorization, balancing, cookies, global_rate, health, jwt, policies, redirect,
};
use crate::inputs::Inputs;
use crate::shared::default_fleet::Sources;

/// The status for requests that can't be served.
pub(super) const UNAVAILABLE: u16 = 503;

/// A route of an HTTPProxy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnRoute {
    /// The index in `spec.routes`.
    pub(super) index: usize,
    pub(super) conditions: Conditions,
    /// Whether the route also has invalid conditions. Then requests that satisfy the valid conditions get 503, unless
    /// another route has exactly these valid conditions.
    pub(super) partial: bool,
    /// Whether requests without TLS are served even if the host uses TLS.
    pub(super) permit_insecure: bool,
    pub(super) plan: Plan,
}

impl OwnRoute {
    /// The route of an HTTPProxy that exceeds a limit even without its routes: all requests get 503.
    pub(super) fn unavailable() -> Self {
        Self {
            index: 0,
            conditions: Conditions::default(),
            partial: false,
            permit_insecure: false,
            plan: Plan::answer(UNAVAILABLE),
        }
    }
}

/// What happens to the requests of a route.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// The action, without prefix replacements.
    pub(super) action: Action,
    /// The prefix replacements.
    pub(super) replacements: Replacements,
    pub(super) request_headers: HeaderChanges,
    pub(super) response_headers: HeaderChanges,
    /// `None` if the host's filter applies.
    pub(super) sources: Option<Box<SourceFilter>>,
    /// `None` if the host's limit applies.
    pub(super) rate: Option<Box<RateLimit>>,
    pub(super) global_rate: global_rate::Limits,
    pub(super) jwt: jwt::Required,
    /// `None` if the host's policy applies.
    pub(super) auth: Option<Arc<AuthorizationPolicy>>,
}

impl Plan {
    /// A plan that answers with a status.
    pub(super) fn answer(status: u16) -> Self {
        Self {
            action: Action::Respond(status),
            replacements: Replacements::default(),
            request_headers: HeaderChanges::default(),
            response_headers: HeaderChanges::default(),
            sources: None,
            rate: None,
            global_rate: global_rate::Limits::default(),
            jwt: jwt::Required::Nothing,
            auth: None,
        }
    }

    /// The same plan with default changes to headers.
    pub(super) fn with_defaults(self, defaults: &DefaultChanges) -> Self {
        let request_headers = match self.action {
            Action::Forward(_) => merged(&self.request_headers, &defaults.requests),
            _ => self.request_headers,
        };
        Self {
            request_headers,
            response_headers: merged(&self.response_headers, &defaults.responses),
            ..self
        }
    }
}

/// Reads a route; `None` if its conditions don't define which requests match.
pub(super) fn read(
    reader: &mut Reader<'_>,
    of: (Inputs, Sources),
    proxy: &HTTPProxy,
    index: usize,
    findings: &mut Findings,
) -> Option<OwnRoute> {
    let route = proxy.spec.routes.get(index)?;
    let field = field(index);
    let place = conditions::Place::Route;
    let listed = conditions::read(&field, &route.conditions, place, findings);
    let before = findings.refusals();
    let plan = plan(reader, of, proxy, &field, route, findings);
    let Listed {
        conditions,
        partial,
    } = listed?;
    let disabled = |reader: &mut Reader<'_>| {
        let settings = reader.get(of.0.settings, &());
        settings.is_some_and(|settings| settings.ingress.disable_permit_insecure)
    };
    Some(OwnRoute {
        index,
        conditions,
        partial,
        permit_insecure: route.permit_insecure && !disabled(reader),
        plan: match partial || findings.refusals() > before {
            true => Plan::answer(UNAVAILABLE),
            false => plan,
        },
    })
}

/// The field path of a route.
pub(super) fn field(index: usize) -> String {
    format!("spec.routes[{index}]")
}

/// The clusters of a route's Services, whether or not these exist; `None` for each invalid Service.
pub(super) fn clusters(
    reader: &mut Reader<'_>,
    inputs: Inputs,
    proxy: &HTTPProxy,
    (field, route): (&str, &HttpProxyRoute),
    findings: &mut Findings,
) -> Vec<Option<ClusterKey>> {
    let timeouts = policies::timeouts(field, route.timeout_policy.as_deref(), findings);
    let balancing = balancing::of_requests(field, route.load_balancer_policy.as_deref(), findings);
    let health = route.health_check_policy.as_deref();
    let health = health.map(|policy| health::by_request(field, policy, findings));
    let common = Common {
        balancing: balancing.balancing,
        health,
        idle_timeout: timeouts.idle_connection,
        opaque: false,
    };
    let namespace = &proxy.meta.namespace;
    let services = route.services.iter().enumerate();
    services
        .map(|(index, service)| {
            let field = format!("{field}.services[{index}]");
            let place = (field.as_str(), service);
            services::cluster(reader, inputs.services, namespace, place, &common, findings)
        })
        .collect()
}

fn plan(
    reader: &mut Reader<'_>,
    of: (Inputs, Sources),
    proxy: &HTTPProxy,
    field: &str,
    route: &HttpProxyRoute,
    findings: &mut Findings,
) -> Plan {
    let names = Names {
        namespace: &proxy.meta.namespace,
        service: None,
    };
    let request = headers::read(
        &format!("{field}.requestHeadersPolicy"),
        route.request_headers_policy.as_deref(),
        Place::RequestOfRoute,
        names,
        findings,
    );
    let response = headers::read(
        &format!("{field}.responseHeadersPolicy"),
        route.response_headers_policy.as_deref(),
        Place::Response,
        names,
        findings,
    );
    let policies = &route.cookie_rewrite_policies;
    let cookies = cookies::read(field, policies, About::COOKIES, findings);
    let (allow, deny) = (&route.ip_allow_policy, &route.ip_deny_policy);
    let sources = access::sources(field, allow, deny, findings);
    let rates = route.rate_limit_policy.as_deref();
    let rate = rates.and_then(|policy| policy.local.as_deref());
    let global = rates.and_then(|policy| policy.global.as_deref());
    let global_rate = match route.services.is_empty() {
        true => {
            if global.is_some() {
                let message = "has no effect, since only forwarded requests are limited; remove it";
                let field = format!("{field}.rateLimitPolicy.global");
                findings.warn(About::RATE, &field, message);
            }
            global_rate::Limits::default()
        }
        false => global_rate::read(reader, of, ("RouteError", field), global, findings),
    };
    let rate = rate.and_then(|policy| access::rate(About::RATE, field, policy, findings));
    let jwt = jwt::required(field, route.jwt_verification_policy.as_deref(), findings);
    let auth = authorization::of_route(field, route.auth_policy.as_deref(), findings);
    let actions = [
        !route.services.is_empty(),
        route.request_redirect_policy.is_some(),
        route.direct_response_policy.is_some(),
    ];
    let (action, replacements) = if actions.iter().filter(|set| **set).count() != 1 {
        let message =
            "exactly one of services, requestRedirectPolicy and directResponsePolicy is required";
        findings.refuse(About::ACTION, field, message);
        (Action::Respond(UNAVAILABLE), Replacements::default())
    } else if let Some(policy) = route.request_redirect_policy.as_deref() {
        let (redirect, replacements) = redirect::redirect(field, policy, findings);
        (Action::Redirect(Arc::new(redirect)), replacements)
    } else if let Some(policy) = route.direct_response_policy.as_deref() {
        let action = redirect::response(field, policy, findings);
        (action, Replacements::default())
    } else {
        let policy = route.path_rewrite_policy.as_deref();
        let replacements = rewrite::read(field, policy, findings);
        let place = (field, route);
        let action = forward(reader, of, proxy, place, request.host, &cookies, findings);
        (action, replacements)
    };
    if !cookies.is_empty() && route.services.is_empty() {
        let message = "has no effect, since no Service sets cookies; remove it";
        let field = format!("{field}.cookieRewritePolicies");
        findings.warn(About::COOKIES, &field, message);
    }
    Plan {
        action,
        replacements,
        request_headers: request.headers,
        response_headers: response.headers,
        sources: sources.map(Box::new),
        rate: rate.map(Box::new),
        global_rate,
        jwt,
        auth,
    }
}

fn forward(
    reader: &mut Reader<'_>,
    of: (Inputs, Sources),
    proxy: &HTTPProxy,
    (field, route): (&str, &HttpProxyRoute),
    host: Option<HostRewrite>,
    cookies: &[CookieChange],
    findings: &mut Findings,
) -> Action {
    let clusters = clusters(reader, of.0, proxy, (field, route), findings);
    // `clusters` has already read these policies and added their findings.
    let scratch = &mut Findings::default();
    let timeouts = policies::timeouts(field, route.timeout_policy.as_deref(), scratch);
    let selection = balancing::of_requests(field, route.load_balancer_policy.as_deref(), scratch);
    let (retry, try_timeout) = policies::retry(field, route.retry_policy.as_deref(), findings);
    let internal = route.internal_redirect_policy.as_deref();
    let internal_redirects = redirect::internal(field, internal, findings);
    let (mut targets, mut mirrors) = (Vec::new(), Vec::new());
    let mut cookies_of_targets = Vec::new();
    let (mut sharing, mut copies) = (0, 0);
    for (index, (service, cluster)) in route.services.iter().zip(clusters).enumerate() {
        let field = format!("{field}.services[{index}]");
        let names = Names {
            namespace: &proxy.meta.namespace,
            service: Some((&service.name, service.port)),
        };
        let request = headers::read(
            &format!("{field}.requestHeadersPolicy"),
            service.request_headers_policy.as_deref(),
            Place::RequestOfService,
            names,
            findings,
        );
        let response = headers::read(
            &format!("{field}.responseHeadersPolicy"),
            service.response_headers_policy.as_deref(),
            Place::Response,
            names,
            findings,
        );
        let policies = &service.cookie_rewrite_policies;
        let own_cookies = cookies::read(&field, policies, About::SERVICE_COOKIES, findings);
        let found = cluster.and_then(|key| services::target(reader, of, &field, &key, findings));
        let weight = findings.count(About::SERVICE, &format!("{field}.weight"), service.weight);
        if service.mirror {
            copies += 1;
            if copies == 2 {
                let message = "only one Service of a route can be a mirror; remove the others";
                findings.refuse(About::SERVICE, &format!("{field}.mirror"), message);
            }
            if request != Changes::default()
                || response != Changes::default()
                || !own_cookies.is_empty()
            {
                let message = "a mirror gets requests as the route modifies them; \
                               the mirror's own policies have no effect";
                findings.warn(About::HEADERS, &field, message);
            }
            let share = share(&field, weight, findings);
            if let Some((Target::Cluster(cluster), _)) = found {
                mirrors.push(Mirror { cluster, share });
            }
            continue;
        }
        sharing += 1;
        let Some((target, session)) = found else {
            continue;
        };
        cookies_of_targets.push(cookies::merged(cookies, own_cookies));
        targets.push(WeightedTarget {
            target,
            weight,
            request_headers: request.headers,
            response_headers: response.headers,
            host_rewrite: literal(request.host),
            // The route's hash policies take precedence over session persistence.
            session: session.filter(|_| selection.hash.is_empty()),
        });
    }
    if sharing == 0 {
        let message = "all Services are mirrors; add one that isn't a mirror";
        findings.refuse(About::SERVICE, &format!("{field}.services"), message);
    }
    if targets.is_empty() {
        return Action::Respond(UNAVAILABLE);
    }
    if targets.iter().all(|target| target.weight == 0) {
        targets.iter_mut().for_each(|target| target.weight = 1);
    }
    let (host_rewrite, host_from_header) = match host {
        Some(HostRewrite::Header(name)) => (None, Some(name)),
        host => (literal(host), None),
    };
    let options = ForwardOptions {
        idle_timeout: timeouts.idle,
        host_from_header,
        hash: selection.hash,
        internal_redirects,
        cookies: cookies::unless_none(cookies_of_targets),
    };
    targets.shrink_to_fit();
    Action::Forward(Arc::new(Forward {
        targets,
        refused_status: UNAVAILABLE,
        path_rewrite: None,
        host_rewrite,
        mirrors,
        timeout: Some(timeouts.response),
        try_timeout,
        retry: retry.map(Box::new),
        options: (options != ForwardOptions::default()).then(|| Box::new(options)),
    }))
}

fn literal(host: Option<HostRewrite>) -> Option<Box<str>> {
    match host {
        Some(HostRewrite::Literal(host)) => Some(host.into()),
        Some(HostRewrite::Header(_)) | None => None,
    }
}

/// Reads the share of requests that a mirror gets; `None` means all requests.
fn share(field: &str, weight: u32, findings: &mut Findings) -> Option<PartsPerMillion> {
    match weight {
        0 | 100 => None,
        1..100 => Some(PartsPerMillion(weight * 10_000)),
        _ => {
            let message =
                format!("{weight} is not a percentage; a mirror needs a weight from 1 to 100");
            findings.refuse(About::SERVICE, &format!("{field}.weight"), message);
            None
        }
    }
}

/// Moves a value, which is usually absent, into an `Arc`.
pub(super) fn shared<T>(value: Option<T>) -> Option<Arc<T>> {
    value.map(Arc::new)
}
