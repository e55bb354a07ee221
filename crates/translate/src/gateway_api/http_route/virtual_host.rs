//! The routes of one domain of a listener, in the order in which they are tried.
//!
//! Routes stand in tiers: those with the most specific hostname of their own first, then, for requests that none of them
//! takes, the next wider ones. Within a tier the more specific match goes first, then the older route, then the alphabet,
//! then the order in the route (HTTPRouteSpec.hostnames, HTTPRouteRule.matches).

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_api::NamespacedName;
use sesame_engine::{Index, Reader, Table};
use sesame_model::{PathMatch, Route, RouteTableKey, VirtualHost, VirtualHostKey};

use super::rules::RouteRules;
use crate::gateway_api::attach::{AttachPoints, Attachments, HostKey, ListenerPoint};
use crate::shared::hostname;

/// What virtual hosts are made of.
#[derive(Clone, Copy)]
pub struct Sources {
    /// Gateways as routes see them.
    pub points: Table<NamespacedName, AttachPoints>,
    /// Routes by the domains that they answer for.
    pub by_host: Index<NamespacedName, Attachments, HostKey>,
    /// What routes say.
    pub rules: Table<NamespacedName, RouteRules>,
}

/// The table of a listener: plain ones of a port share one, since nothing but the Host tells them apart.
pub fn table_of(points: &AttachPoints, listener: &ListenerPoint) -> RouteTableKey {
    RouteTableKey {
        fleet: points.fleet.clone(),
        port: listener.port,
        listener: listener.secure.then(|| Arc::clone(&listener.name)),
    }
}

/// Makes the virtual host of a domain, unless a more specific listener has it.
pub fn virtual_host(
    reader: &mut Reader<'_>,
    sources: Sources,
    key: &HostKey,
) -> Vec<(VirtualHostKey, VirtualHost)> {
    let Some(points) = reader.get(sources.points, &key.gateway) else {
        return Vec::new();
    };
    let Some(listener) = points
        .listeners
        .iter()
        .find(|listener| listener.name == key.listener)
    else {
        return Vec::new();
    };
    if !listener.serving || isolated(&points, listener, &key.domain) {
        return Vec::new();
    }
    let host = VirtualHost {
        secure: listener.secure,
        routes: routes(reader, sources, key, listener),
    };
    // A route may have no match that can be done. Then the domain is nobody's.
    if host.routes.is_empty() {
        return Vec::new();
    }
    vec![(
        VirtualHostKey {
            table: table_of(&points, listener),
            domain: Arc::clone(&key.domain),
        },
        host,
    )]
}

/// True if all requests for the domain belong to a more specific listener of the port.
fn isolated(points: &AttachPoints, listener: &ListenerPoint, domain: &str) -> bool {
    points
        .listeners
        .iter()
        .filter(|other| {
            other.serving && other.port == listener.port && other.domain != listener.domain
        })
        .any(|other| {
            hostname::covers(&listener.domain, &other.domain)
                && hostname::covers(&other.domain, domain)
        })
}

fn routes(
    reader: &mut Reader<'_>,
    sources: Sources,
    key: &HostKey,
    listener: &ListenerPoint,
) -> Vec<Arc<Route>> {
    let mut found: Vec<(Arc<str>, Arc<RouteRules>)> = Vec::new();
    let mut seen = BTreeSet::new();
    for domain in hostname::widening(&key.domain)
        .take_while(|domain| hostname::covers(&listener.domain, domain))
    {
        let wider = HostKey {
            domain: domain.into(),
            ..key.clone()
        };
        for (name, attachments) in reader.by(sources.by_host, &wider) {
            // The narrowest domain under which a route is found has its most specific hostname: what it says again
            // further on can't be reached.
            if seen.insert(name.clone())
                && let (Some(original), Some(rules)) = (
                    attachments.original(&wider),
                    reader.get(sources.rules, &name),
                )
            {
                found.push((Arc::clone(original), rules));
            }
        }
    }
    let mut entries: Vec<_> = found
        .iter()
        .flat_map(|(original, rules)| {
            rules
                .matches
                .iter()
                .map(move |entry| (original, rules, entry))
        })
        .collect();
    entries.sort_by(|(a_original, a_rules, a), (b_original, b_rules, b)| {
        hostname::by_specificity(a_original, b_original)
            .then_with(|| a.rank.cmp(&b.rank))
            .then_with(|| a_rules.seniority.cmp(&b_rules.seniority))
            .then_with(|| a.order.cmp(&b.order))
    });
    let mut routes: Vec<Arc<Route>> = Vec::new();
    for (_, _, entry) in entries {
        routes.extend(entry.routes.iter().cloned());
        // Nothing comes after what takes everything.
        if routes.last().is_some_and(|route| takes_everything(route)) {
            break;
        }
    }
    routes
}

fn takes_everything(route: &Route) -> bool {
    let matches = &route.matches;
    matches!(&matches.path, PathMatch::Prefix(prefix) if prefix == "/")
        && matches.method.is_none()
        && matches.headers.is_empty()
        && matches.query.is_empty()
        && matches.share.is_none()
}
