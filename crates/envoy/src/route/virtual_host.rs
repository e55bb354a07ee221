//! Virtual hosts and the table that holds them.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::route::v3 as pb;
use envoy_types::pb::envoy::config::route::v3::route::Action as PbAction;
use sesame_model::{Action, Route, RouteTable, RouteTableKey, VirtualHost, VirtualHostKey};

use super::headers::{changes, in_order};
use super::matching::{exact, matches_regex, matching, present};
use super::redirect::{Place, redirect};
use super::tree::Tree;
use super::{cors, forward, session};
use crate::{hcm, names, shard};

/// Name of the virtual host for hosts that belong to another listener; no domain is called so.
const MISDIRECTED: &str = "misdirected";

/// The virtual host of that domain. `port_offset` is added to every port that a redirect names, so that it leads to where
/// the other listeners of the Gateway are bound.
pub fn virtual_host(key: &VirtualHostKey, host: &VirtualHost, port_offset: u16) -> pb::VirtualHost {
    let place = Place {
        domain: &key.domain,
        secure: host.secure,
        port: key.table.port,
        offset: port_offset,
    };
    let routes = host.routes.iter().map(|route| as_envoys(route, &place));
    let mut out = pb::VirtualHost {
        name: key.domain.to_string(),
        domains: vec![key.domain.to_string()],
        ..Default::default()
    };
    match Tree::new(&host.routes) {
        Some(tree) => out.matcher = Some(tree.matcher(routes)),
        None => out.routes = routes.flatten().collect(),
    }
    out
}

/// The table with these hosts. A port in the Host doesn't count, and of several changes to one header the backend's
/// wins over the route's.
///
/// Misdirected hosts come first, then the others sorted by domain: those given, and the table's reserved ones that are
/// not among them.
pub fn route_table(
    key: &RouteTableKey,
    table: &RouteTable,
    hosts: impl IntoIterator<Item = pb::VirtualHost>,
) -> pb::RouteConfiguration {
    let mut sorted: BTreeMap<String, pb::VirtualHost> = table
        .reserved
        .iter()
        .map(|domain| (domain.clone(), reserved(domain)))
        .collect();
    sorted.extend(hosts.into_iter().map(|host| (host.name.clone(), host)));
    let mut out = table_head(table);
    out.virtual_hosts.extend(sorted.into_values());
    pb::RouteConfiguration {
        name: names::routes(key),
        virtual_hosts: out.virtual_hosts,
        ..table_tail()
    }
}

/// What stands before the hosts that are rows of their own, but for the name.
pub(crate) fn table_head(table: &RouteTable) -> pb::RouteConfiguration {
    pb::RouteConfiguration {
        virtual_hosts: misdirected(table).into_iter().collect(),
        ..Default::default()
    }
}

/// What stands behind them: the same for every table.
pub(crate) fn table_tail() -> pb::RouteConfiguration {
    pb::RouteConfiguration {
        ignore_port_in_host_matching: true,
        most_specific_header_mutations_wins: true,
        ..Default::default()
    }
}

/// What stands behind those of a shard.
pub(crate) fn shard_tail() -> pb::RouteConfiguration {
    pb::RouteConfiguration {
        request_headers_to_remove: vec![shard::HEADER.to_owned()],
        ..table_tail()
    }
}

/// Which shard is for requests that say that they are for it.
pub(crate) fn scope(shard: &str) -> pb::ScopedRouteConfiguration {
    use pb::scoped_route_configuration::{Key, key};
    pb::ScopedRouteConfiguration {
        name: shard.to_owned(),
        route_configuration_name: shard.to_owned(),
        key: Some(Key {
            fragments: vec![key::Fragment {
                r#type: Some(key::fragment::Type::StringKey(shard.to_owned())),
            }],
        }),
        ..Default::default()
    }
}

/// A host without routes: 404, where a wider host would have answered.
pub(crate) fn reserved(domain: &str) -> pb::VirtualHost {
    pb::VirtualHost {
        name: domain.to_owned(),
        domains: vec![domain.to_owned()],
        ..Default::default()
    }
}

/// Answers 421, so that a client which reuses a connection for another name asks again on a connection of its own.
fn misdirected(table: &RouteTable) -> Option<pb::VirtualHost> {
    (!table.misdirected.is_empty()).then(|| pb::VirtualHost {
        name: MISDIRECTED.to_owned(),
        domains: table.misdirected.clone(),
        routes: vec![pb::Route {
            r#match: Some(pb::RouteMatch {
                path_specifier: Some(pb::route_match::PathSpecifier::Prefix("/".to_owned())),
                ..Default::default()
            }),
            action: Some(respond(421)),
            ..Default::default()
        }],
        ..Default::default()
    })
}

/// An answer without a body.
pub(super) fn respond(status: u16) -> PbAction {
    PbAction::DirectResponse(pb::DirectResponseAction {
        status: status.into(),
        ..Default::default()
    })
}

/// The route as one of Envoy's, or as several that together mean it.
fn as_envoys(route: &Route, place: &Place<'_>) -> Vec<pb::Route> {
    let mut out = Vec::with_capacity(1);
    let route = &*in_order(route);
    let (action, with_port) = match &route.action {
        Action::Forward(target) => (forward::forward(target, &route.matches.path), None),
        Action::Redirect(target) => {
            let redirects = redirect(target, &route.matches.path, place);
            (
                PbAction::Redirect(redirects.action),
                redirects.with_port.map(PbAction::Redirect),
            )
        }
        Action::Respond(status) => (respond(*status), None),
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
            matches.headers.push(matches_regex(":authority", r".*:\d+"));
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
    if let Some(rules) = &route.session {
        filters.insert(hcm::STATEFUL_SESSION.to_owned(), session::session(rules));
    }
    out
}

/// A preflight is an OPTIONS request, whatever method it asks for: where a route with cross-origin rules takes one
/// method only, it must take the preflights for that method too, or nobody could call it.
fn preflight(route: &Route, main: &pb::Route) -> Option<pb::Route> {
    let method = route.matches.method.as_deref()?;
    if route.cors.is_none() || method == "OPTIONS" {
        return None;
    }
    let mut out = main.clone();
    let headers = &mut out.r#match.as_mut()?.headers;
    headers.retain(|header| header.name != ":method");
    headers.push(exact(":method", "OPTIONS"));
    headers.push(exact("access-control-request-method", method));
    headers.push(present("origin"));
    Some(out)
}
