//! Virtual hosts and route tables.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::DataSource;
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::route::v3 as pb;
use envoy_types::pb::envoy::config::route::v3::route::Action as PbAction;
use envoy_types::util::pack_any;
use sesame_model::{
    Action, DirectResponse, Route, RouteTable, RouteTableKey, VirtualHost, VirtualHostKey,
};

use super::headers::{changes, in_order};
use super::matching::{differs, exact, has_port, matching, overlong_host, present};
use super::redirect::{Origin, redirect};
use super::tree::Tree;
use super::{auth, cookies, cors, forward, global_rate, jwt, options, parts, policy, session};
use crate::{hcm, names, shard};

/// The virtual host for a domain. `visible_port` maps a port in the Gateway's spec to the port that clients see, which
/// redirects use.
pub fn virtual_host(
    key: &VirtualHostKey,
    host: &VirtualHost,
    visible_port: &mut dyn FnMut(u16) -> u16,
) -> pb::VirtualHost {
    let mut out = without_routes(key, host);
    let tree = Tree::new(&host.routes);
    let parts = tree
        .map(|tree| parts::parts(host, &tree))
        .into_iter()
        .flatten();
    let parts = parts.map(|(text, part)| (text, part.on_match(key, visible_port)));
    out.matcher = parts::matcher(parts.collect());
    if out.matcher.is_none() {
        out.routes = envoys(key, &Frame::of(host), &host.routes, visible_port);
    }
    out
}

/// A virtual host without its routes.
pub(crate) fn without_routes(key: &VirtualHostKey, host: &VirtualHost) -> pb::VirtualHost {
    let mut out = pb::VirtualHost {
        name: key.domain.to_string(),
        domains: vec![key.domain.to_string()],
        ..Default::default()
    };
    if !host.auth.is_empty() {
        let checks = host.auth.iter().map(|auth| &**auth);
        out.typed_per_filter_config = auth::of_host(checks).collect();
    }
    if !host.jwt.is_empty() {
        let filter = jwt::of_host(host.jwt.iter().flat_map(|providers| providers.iter()));
        out.typed_per_filter_config
            .insert(hcm::JWT.to_owned(), filter);
    }
    if let Some(limit) = &host.rate {
        out.typed_per_filter_config
            .insert(hcm::RATE.to_owned(), pack_any(policy::rate(limit)));
    }
    out
}

/// What a host's routes depend on, besides its key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Frame {
    /// See [`VirtualHost::listener`].
    listener: Option<Arc<str>>,
    /// See [`VirtualHost::fallback`].
    fallback: bool,
    /// The number of the host's checks.
    checks: usize,
    /// Whether the host has a rate limit.
    limited: bool,
    /// Whether Envoy follows redirects of the host's backends.
    redirects: bool,
}

impl Frame {
    pub(super) fn of(host: &VirtualHost) -> Self {
        Self {
            listener: host.listener.clone(),
            fallback: host.fallback,
            checks: host.auth.len(),
            limited: host.rate.is_some(),
            redirects: host.routes.iter().any(|route| options::redirects(route)),
        }
    }
}

/// Some of a host's routes as Envoy routes, after the route for misdirected requests.
pub(super) fn envoys(
    key: &VirtualHostKey,
    frame: &Frame,
    routes: &[Arc<Route>],
    visible_port: &mut dyn FnMut(u16) -> u16,
) -> Vec<pb::Route> {
    let mut out = Vec::with_capacity(routes.len() + 1);
    if let Some(listener) = &frame.listener {
        let mut misdirected = misdirected(listener, frame.fallback);
        misdirected.typed_per_filter_config = auth::unchecked(frame.checks).collect();
        if frame.limited {
            without_rate(&mut misdirected);
        }
        out.push(misdirected);
    }
    let first = out.len();
    let mut origin = Origin {
        domain: &key.domain,
        secure: frame.listener.is_some(),
        port: key.table.port,
        visible_port,
        compares_ports: false,
    };
    for route in routes {
        let mut found = as_envoys(route, &mut origin);
        let policy = route.policy.as_deref();
        if frame.limited && policy.is_none_or(|policy| policy.rate.is_none()) {
            found.iter_mut().for_each(without_rate);
        }
        if frame.redirects {
            found
                .iter_mut()
                .for_each(|route| options::within_host(route, &key.domain));
        }
        out.append(&mut found);
    }
    if origin.compares_ports && origin.domain == "*" {
        out.insert(first, overlong());
    }
    out
}

/// Exempts a route from its host's rate limit.
fn without_rate(route: &mut pb::Route) {
    let filters = &mut route.typed_per_filter_config;
    filters.insert(hcm::RATE.to_owned(), pack_any(policy::no_rate()));
}

/// A table with these hosts. The port in a Host header is ignored, and a backend's header modifications win over the
/// route's.
///
/// The table contains `hosts`, and any reserved domains without a host, sorted by domain. `scripted`: whether one of
/// the hosts changes cookies.
pub fn route_table(
    key: &RouteTableKey,
    table: &RouteTable,
    hosts: impl IntoIterator<Item = pb::VirtualHost>,
    scripted: bool,
) -> pb::RouteConfiguration {
    let mut sorted: BTreeMap<String, pb::VirtualHost> = table
        .reserved
        .iter()
        .map(|domain| (domain.to_string(), reserved(table, domain)))
        .collect();
    sorted.extend(hosts.into_iter().map(|host| (host.name.clone(), host)));
    pb::RouteConfiguration {
        name: names::routes(key),
        virtual_hosts: sorted.into_values().collect(),
        typed_per_filter_config: match scripted {
            true => script().typed_per_filter_config,
            false => HashMap::new(),
        },
        ..table_tail(table, false)
    }
}

/// The fields of a table or, if `sharded`, of one of its shards, after the hosts.
///
/// Only headers that Envoy itself has set are removed, since that takes 1 to 2 µs of a worker for each request. A client's
/// headers of these names reach backends otherwise; Envoys overwrite or ignore them.
pub(crate) fn table_tail(table: &RouteTable, sharded: bool) -> pb::RouteConfiguration {
    let listener = table.secure.then(|| hcm::LISTENER_HEADER.to_owned());
    let shard = sharded.then(|| shard::HEADER.to_owned());
    pb::RouteConfiguration {
        request_headers_to_remove: listener.into_iter().chain(shard).collect(),
        ignore_port_in_host_matching: true,
        most_specific_header_mutations_wins: true,
        ..Default::default()
    }
}

/// The field after a table's tail if one of its hosts changes cookies.
pub(crate) fn script() -> pb::RouteConfiguration {
    pb::RouteConfiguration {
        typed_per_filter_config: [(hcm::COOKIES.to_owned(), cookies::script())].into(),
        ..Default::default()
    }
}

/// The scope that maps the name in a request's header to a shard.
pub(crate) fn scope(name: &str, shard: &str) -> pb::ScopedRouteConfiguration {
    use pb::scoped_route_configuration::{Key, key};
    pb::ScopedRouteConfiguration {
        name: name.to_owned(),
        route_configuration_name: shard.to_owned(),
        key: Some(Key {
            fragments: vec![key::Fragment {
                r#type: Some(key::fragment::Type::StringKey(name.to_owned())),
            }],
        }),
        ..Default::default()
    }
}

/// A listener's host without routes: it returns 404 instead of falling through to a wider host.
pub(crate) fn reserved(table: &RouteTable, domain: &str) -> pb::VirtualHost {
    pb::VirtualHost {
        name: domain.to_owned(),
        domains: vec![domain.to_owned()],
        routes: table
            .secure
            .then(|| misdirected(domain, false))
            .into_iter()
            .collect(),
        ..Default::default()
    }
}

/// A host that responds to all requests with 503.
pub(crate) fn unavailable(domain: &str) -> pb::VirtualHost {
    pb::VirtualHost {
        name: domain.to_owned(),
        domains: vec![domain.to_owned()],
        routes: vec![pb::Route {
            r#match: Some(pb::RouteMatch {
                path_specifier: Some(pb::route_match::PathSpecifier::Prefix("/".to_owned())),
                ..Default::default()
            }),
            action: Some(respond(503)),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Responds with 421 on connections of any listener but `listener` and, with `fallback`, `*`, so that the client opens
/// a connection for the host.
fn misdirected(listener: &str, fallback: bool) -> pb::Route {
    let accepted = [listener].into_iter().chain(fallback.then_some("*"));
    pb::Route {
        r#match: Some(pb::RouteMatch {
            path_specifier: Some(pb::route_match::PathSpecifier::Prefix("/".to_owned())),
            headers: accepted
                .map(|listener| differs(hcm::LISTENER_HEADER, listener))
                .collect(),
            ..Default::default()
        }),
        action: Some(respond(421)),
        ..Default::default()
    }
}

/// Rejects requests whose Host header would take time in the expressions of each redirect.
fn overlong() -> pb::Route {
    pb::Route {
        r#match: Some(pb::RouteMatch {
            path_specifier: Some(pb::route_match::PathSpecifier::Prefix("/".to_owned())),
            headers: vec![overlong_host()],
            ..Default::default()
        }),
        action: Some(respond(400)),
        ..Default::default()
    }
}

/// A response without a body.
pub(super) fn respond(status: u16) -> PbAction {
    PbAction::DirectResponse(pb::DirectResponseAction {
        status: status.into(),
        ..Default::default()
    })
}

fn respond_with(response: &DirectResponse) -> PbAction {
    PbAction::DirectResponse(pb::DirectResponseAction {
        status: response.status.into(),
        body: (!response.body.is_empty()).then(|| DataSource {
            specifier: Some(Specifier::InlineString(response.body.clone())),
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// The route as one or more Envoy routes.
fn as_envoys(route: &Route, origin: &mut Origin<'_>) -> Vec<pb::Route> {
    let mut out = Vec::with_capacity(1);
    let route = &*in_order(route);
    let policy = route.policy.as_deref();
    let limits = policy.and_then(|policy| policy.global_rate.as_deref());
    let (action, with_port) = match &route.action {
        Action::Forward(target) => {
            let mut action = forward::forward(target, &route.matches.path);
            if let (PbAction::Route(action), Some(limits)) = (&mut action, limits) {
                action.rate_limits = global_rate::descriptors(limits);
            }
            (action, None)
        }
        Action::Redirect(target) => {
            let redirects = redirect(target, &route.matches.path, origin);
            (
                PbAction::Redirect(redirects.action),
                redirects.with_port.map(PbAction::Redirect),
            )
        }
        Action::Respond(status) => (respond(*status), None),
        Action::RespondWith(response) => (respond_with(response), None),
    };
    let main = pb::Route {
        action: Some(action),
        ..without_action(route)
    };
    if let Some(preflight) = preflight(route, &main) {
        out.push(preflight);
    }
    if let Some(action) = with_port {
        let mut variant = pb::Route {
            action: Some(action),
            ..main.clone()
        };
        if let Some(matches) = &mut variant.r#match {
            matches.headers.insert(0, has_port(origin.domain));
        }
        out.push(variant);
    }
    out.push(main);
    out
}

fn without_action(route: &Route) -> pb::Route {
    let request = changes(&route.request_headers);
    let response = changes(&route.response_headers);
    let mut out = pb::Route {
        r#match: Some(matching(&route.matches)),
        request_headers_to_add: request.add,
        request_headers_to_remove: request.remove,
        response_headers_to_add: response.add,
        response_headers_to_remove: response.remove,
        ..Default::default()
    };
    let filters = &mut out.typed_per_filter_config;
    if let Some(rules) = &route.cors {
        filters.insert(hcm::CORS.to_owned(), cors::policy(rules));
    }
    if let Some(check) = &route.auth {
        filters.extend([auth::of_route(check)]);
    }
    if let Some(rules) = &route.policy {
        filters.extend(policy::filters(rules));
    }
    if let Some(rules) = &route.session {
        filters.insert(hcm::STATEFUL_SESSION.to_owned(), session::session(rules));
    }
    out
}

/// A route with CORS that matches one method must also match that method's preflights, which are OPTIONS requests.
fn preflight(route: &Route, main: &pb::Route) -> Option<pb::Route> {
    let method = route.matches.method.as_deref()?;
    if route.cors.is_none() || method == "OPTIONS" {
        return None;
    }
    let mut out = main.clone();
    let headers = &mut out.r#match.as_mut()?.headers;
    headers.retain(|header| header.name != ":method");
    // First, since other conditions may take time.
    let of_preflights = [
        exact(":method", "OPTIONS"),
        exact("access-control-request-method", method),
        present("origin"),
    ];
    headers.splice(0..0, of_preflights);
    Some(out)
}
