//! The virtual host of a domain: the routes of all sources, in order of precedence.
//!
//! The inputs are each object's rules and attachments (the hosts they apply to). Routes are in tiers: those with the
//! most specific hostname come first; requests that match none of them fall through to the next wider tier, except
//! from one HTTPProxy to another. Within a tier, the order is: more specific match, source with precedence, older
//! object, name, order within the object (HTTPRouteSpec.hostnames, HTTPRouteRule.matches).

mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_api::{Kind, ObjectKey, ParentReference};
use sesame_engine::{Index, Reader, Table};
use sesame_model::{
    DestinationKey, ExternalAuth, FleetId, JwtProvider, ListenerKey, PathMatch, Port, Rate,
    RateLimit, Route, RouteTableKey, Transport, VirtualHost, VirtualHostKey,
};

use self::order::replaced;
pub(crate) use self::order::{HostMatch, in_order};
use crate::problem::Problem;
use crate::shared::client_certificates::{self, ClientCertificates};
use crate::shared::connections::ChainKey;
use crate::shared::covering::{Covering, PointsByDomain};
use crate::shared::default_fleet;
use crate::shared::hostname;
use crate::shared::listeners::{
    ListenerChecks, ListenerId, ListenerPoint, ListenerRef, RequestChecks,
};
use crate::shared::precedence::{MatchRank, Seniority};
use crate::shared::scans::{self, Scan};
use crate::shared::wildcard_budget;

/// The rules of an object, without its attachments.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteRules {
    /// The order among objects with equal matches.
    pub seniority: Seniority,
    /// In the object's order. Shared, since the rules of a root are copied from the rows of its tree: unchanged matches
    /// are compared by address.
    pub matches: Vec<Arc<RankedMatch>>,
    /// The issuers of the JSON Web Tokens that its routes require.
    pub jwt: Option<Arc<[JwtProvider]>>,
    /// The rate limit that its routes with [`Rate::OfHost`] share.
    pub rate: Option<Arc<RateLimit>>,
    /// Why the whole object is invalid: it has no valid rule.
    pub refused: Option<Problem>,
    /// The errors in its invalid rules, if other rules are valid.
    pub partially_invalid: Option<Problem>,
    /// Its unresolved references.
    pub unresolved: Option<Problem>,
}

impl RouteRules {
    /// The approximate size of the configuration of a host with these rules, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let of = |entry: &Arc<RankedMatch>| {
            let routes = entry.routes.iter().chain(&entry.without_tls);
            routes.map(|route| route.bytes()).sum::<usize>()
        };
        self.matches.iter().map(of).sum()
    }

    /// Whether no request is left for wider hosts.
    pub(crate) fn takes_everything(&self) -> bool {
        let mut routes = self.matches.iter().flat_map(|entry| &entry.routes);
        routes.any(|route| takes_everything(route))
    }

    /// Whether a match has a condition that takes time.
    pub(crate) fn has_scans(&self) -> bool {
        self.matches.iter().any(|entry| !entry.scans.is_empty())
    }

    /// Rules that respond with a status to requests that match nothing else.
    fn refused(&self, status: u16) -> Self {
        Self {
            matches: vec![Arc::new(RankedMatch {
                rank: MatchRank::of_default(),
                place: (0, 0),
                routes: [Arc::new(Route::respond_to_all(status))].into(),
                without_tls: None,
                scans: Box::default(),
            })],
            seniority: self.seniority.clone(),
            jwt: None,
            rate: None,
            refused: None,
            partially_invalid: None,
            unresolved: None,
        }
    }
}

/// One match of a rule, and its action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankedMatch {
    /// How specific it is.
    pub rank: MatchRank,
    /// The index of the rule in the object's spec, and of the match within the rule; zeros for HTTPProxies, whose trees
    /// consist of several objects.
    pub place: (usize, usize),
    /// Usually one; several if requests are split before they are modified.
    pub routes: Box<[Arc<Route>]>,
    /// Replaces the routes on listeners without TLS, usually with a redirect to HTTPS.
    pub without_tls: Option<Arc<Route>>,
    /// The conditions that take time, in the match's order.
    pub scans: Box<[Scan]>,
}

/// The attachments of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Attachments {
    /// One for each parentRef to one of our objects, in the object's order.
    pub parents: Vec<ParentVerdict>,
    /// The hosts that it has routes for. A route without a valid rule keeps its hosts and responds with errors:
    /// otherwise a wider route would serve its requests without the required filters (HTTPRouteFilter.extensionRef).
    pub hosts: Vec<AttachedHost>,
    /// Whether its rules would take too much memory on all of its hosts. If so, each host responds with errors to requests
    /// that match nothing else.
    pub oversized: bool,
    /// Whether some ports don't serve one of its hosts, since it has reached the [limit](crate::shared::host_ports) on ports.
    pub limited: bool,
}

/// The result for one parentRef.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentVerdict {
    /// The parentRef as written.
    pub parent: ParentReference,
    /// The object that it refers to.
    pub owner: ObjectKey,
    /// Why the route isn't accepted there.
    pub refused: Option<Problem>,
}

/// A host of a listener that an object has routes for.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachedHost {
    /// The listener.
    pub listener: Arc<ListenerRef>,
    /// The intersection of the object's hostname and the listener's.
    pub domain: Arc<str>,
    /// The object's hostname, which determines its precedence within the domain.
    pub original: Arc<str>,
}

impl AttachedHost {
    /// The intersections of an object's hostnames with a listener's; for an object without hostnames, the listener's
    /// own. If several hostnames have the same intersection, the most specific one is used.
    pub(crate) fn on(listener: &ListenerPoint, hostnames: &[Arc<str>]) -> Vec<Self> {
        let mut best: BTreeMap<&str, &str> = BTreeMap::new();
        let any = [Arc::from(hostname::ANY)];
        let hostnames = if hostnames.is_empty() {
            &any
        } else {
            hostnames
        };
        for original in hostnames {
            if let Some(common) = hostname::intersection(&listener.domain, original) {
                let present = best.entry(common).or_insert(original);
                if hostname::by_specificity(original, present).is_lt() {
                    *present = original;
                }
            }
        }
        best.into_iter()
            .map(|(domain, original)| {
                let domain: Arc<str> = domain.into();
                // Usually equal: share the allocation.
                let original = if *domain == *original {
                    Arc::clone(&domain)
                } else {
                    original.into()
                };
                Self {
                    listener: Arc::clone(&listener.listener),
                    domain,
                    original,
                }
            })
            .collect()
    }

    /// The chain for its connections.
    pub fn chain(&self) -> ChainKey {
        ChainKey {
            listener: self.listener.id.clone(),
            domain: Arc::clone(&self.domain),
        }
    }
}

impl Attachments {
    /// The virtual hosts to which it adds routes, for the index by host.
    pub fn host_keys(&self) -> Vec<VirtualHostKey> {
        let hosts = self.hosts.iter();
        let keys = hosts.filter_map(|host| {
            Some(VirtualHostKey {
                table: host.listener.table.clone()?,
                domain: Arc::clone(&host.domain),
            })
        });
        keys.collect()
    }

    /// The chains that may lead to its backends, for the index by chain.
    pub fn chain_keys(&self) -> Vec<ChainKey> {
        let hosts = self.hosts.iter();
        let connections = hosts.filter(|host| host.listener.table.is_none());
        connections.map(AttachedHost::chain).collect()
    }

    /// The destinations that may lead to its backends, for the index by destination.
    pub fn destinations(&self) -> impl Iterator<Item = DestinationKey> {
        let hosts = self.hosts.iter();
        let connections = hosts.filter(|host| {
            host.listener.table.is_none() && host.listener.port.port.transport == Transport::Tcp
        });
        connections.map(|host| DestinationKey {
            listener: host.listener.port.clone(),
            domain: Arc::clone(&host.domain),
        })
    }

    /// The fleets that serve it; no duplicates if its hosts are grouped by fleet.
    pub fn fleets(&self) -> impl Iterator<Item = &FleetId> {
        let fleets = self.hosts.iter().map(|host| &host.listener.port.fleet);
        let mut last = None;
        fleets.filter(move |fleet| last.replace(*fleet) != Some(*fleet))
    }

    /// The listeners that accept it, for the count of attached routes.
    pub fn listener_ids(&self) -> Vec<ListenerId> {
        // An invalid route is refused by all its parents; otherwise, it doesn't have hosts for the parents that refuse
        // it.
        if self.parents.iter().all(|parent| parent.refused.is_some()) {
            return Vec::new();
        }
        let mut ids: Vec<ListenerId> = self
            .hosts
            .iter()
            .map(|host| host.listener.id.clone())
            .collect();
        ids.sort();
        ids.dedup();
        ids
    }

    /// The object's most specific hostname that covers a host, through one of the listeners.
    fn original(&self, key: &VirtualHostKey, listeners: &[&ListenerPoint]) -> Option<&Arc<str>> {
        self.hosts
            .iter()
            .filter(|host| {
                host.domain == key.domain && host.listener.table.as_ref() == Some(&key.table)
            })
            .filter(|host| {
                listeners
                    .iter()
                    .any(|point| point.listener.id == host.listener.id)
            })
            .map(|host| &host.original)
            .min_by(|a, b| hostname::by_specificity(a, b))
    }
}

/// The tables needed to build virtual hosts.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    /// Listeners by port and hostname.
    pub(crate) points_by_domain: PointsByDomain,
    /// Objects by the hosts that they have routes for.
    pub(crate) by_host: Index<ObjectKey, Attachments, VirtualHostKey>,
    /// The rules of the objects.
    pub(crate) rules: Table<ObjectKey, RouteRules>,
    /// The objects whose rules aren't served on wildcard hosts.
    pub(crate) left_out: wildcard_budget::ByTable,
    /// The checks for listeners' requests.
    pub(crate) checks: Table<ListenerId, ListenerChecks>,
    /// The client certificates of fleets.
    pub(crate) client_certificates: ClientCertificates,
}

/// Builds a virtual host; `None` if the domain belongs to a more specific listener, or if no object has a valid match
/// for it and it isn't the hostname of a listener with checks.
pub(crate) fn virtual_host(
    reader: &mut Reader<'_>,
    sources: Sources,
    key: &VirtualHostKey,
) -> Option<VirtualHost> {
    let port = port(&key.table);
    let covering = Covering::read(reader, sources.points_by_domain, &port, &key.domain);
    let listeners = with_table(&covering, &key.table);
    let listener = listeners.first()?;
    let certificates = sources.client_certificates;
    let objects = objects(reader, sources, key, &listeners);
    let (routes, overloaded) = routes(&objects, &listeners);
    let mut host = VirtualHost {
        listener: (listener.protocol.is_tls()).then(|| Arc::clone(&listener.domain)),
        fallback: listener.fallback && covering.any_host().is_some_and(default_fleet::is_fallback),
        auth: Box::default(),
        jwt: providers(&objects, &routes).into(),
        rate: rate(&objects, &routes),
        routes: client_certificates::of_routes(reader, certificates, &port.fleet, routes),
        overloaded,
    };
    let checks = match listener.checks {
        true => reader.get(sources.checks, &listener.listener.id),
        false => None,
    };
    if let Some(ListenerChecks { host: own, checks }) = checks.as_deref()
        && (!host.routes.is_empty() || own == key)
    {
        let auth = match checks {
            RequestChecks::By(checks) => {
                client_certificates::of_checks(reader, certificates, &port.fleet, checks)
            }
            RequestChecks::Invalid => None,
        };
        check_all(&mut host, auth);
    }
    (!host.routes.is_empty()).then_some(host)
}

/// The port of a table.
pub(crate) fn port(table: &RouteTableKey) -> ListenerKey {
    ListenerKey {
        fleet: table.fleet.clone(),
        port: Port::tcp(table.port),
    }
}

/// The listeners that serve a domain from this table.
pub(crate) fn with_table<'a>(
    covering: &'a Covering<'_>,
    table: &RouteTableKey,
) -> Vec<&'a ListenerPoint> {
    let serving = covering.serving();
    serving
        .filter(|point| point.listener.table.as_ref() == Some(table))
        .collect()
}

/// Applies these checks to all requests, even those that match no route; `None` if requests can't be checked.
fn check_all(host: &mut VirtualHost, auth: Option<Vec<Arc<ExternalAuth>>>) {
    let status = match auth {
        Some(auth) => {
            host.auth = auth.into();
            404
        }
        None => {
            host.routes.clear();
            500
        }
    };
    let last = host.routes.last();
    if !last.is_some_and(|route| takes_everything(route)) {
        host.routes.push(Arc::new(Route::respond_to_all(status)));
    }
}

/// The token issuers, if a route requires a token.
fn providers(objects: &[HostObject], routes: &[Arc<Route>]) -> Vec<Arc<[JwtProvider]>> {
    let required = |route: &Arc<Route>| {
        let policy = route.policy.as_deref();
        policy.is_some_and(|policy| policy.jwt.is_some())
    };
    match routes.iter().any(required) {
        // Include all issuers: a route's requirement is ignored if the host lacks its issuer.
        true => objects
            .iter()
            .filter_map(|object| object.rules.jwt.clone())
            .collect(),
        false => Vec::new(),
    }
}

/// The host's rate limit, if it applies to a route. Only HTTPProxies have one, and each host belongs to one HTTPProxy.
fn rate(objects: &[HostObject], routes: &[Arc<Route>]) -> Option<Arc<RateLimit>> {
    let limited = |route: &Arc<Route>| {
        let policy = route.policy.as_deref();
        policy.is_some_and(|policy| policy.rate == Some(Rate::OfHost))
    };
    match routes.iter().any(limited) {
        true => objects.iter().find_map(|object| object.rules.rate.clone()),
        false => None,
    }
}

/// The routes, and whether some matches aren't served as written, since their conditions take too much time.
fn routes(objects: &[HostObject], listeners: &[&ListenerPoint]) -> (Vec<Arc<Route>>, bool) {
    let secure = listeners.iter().any(|point| point.protocol.is_tls());
    let mut routes: Vec<Arc<Route>> = Vec::new();
    let entries = in_order(objects);
    let excess = scans::excess(&entries);
    let replacements = excess.replacements(&entries);
    let overloaded = !replacements.is_empty();
    for HostMatch { entry, .. } in replaced(entries, &replacements) {
        match &entry.without_tls {
            Some(route) if !secure => routes.push(Arc::clone(route)),
            _ => routes.extend(entry.routes.iter().cloned()),
        }
        // Routes after a catch-all are unreachable.
        if routes.last().is_some_and(|route| takes_everything(route)) {
            break;
        }
    }
    if routes.is_empty() && (overloaded || owned(objects)) {
        // Without a virtual host of its own, the host would be served by that of a wider domain, and the matches that are
        // left out wouldn't be reported.
        routes.push(Arc::new(Route::respond_to_all(404)));
    }
    routes.shrink_to_fit();
    (routes, overloaded)
}

/// Whether the host belongs to an HTTPProxy. If so, requests without a route must not fall through to the HTTPProxy of
/// a wider host, which may belong to another team.
fn owned(objects: &[HostObject]) -> bool {
    objects.iter().any(|object| object.key.kind.is_http_proxy())
}

/// The status for requests to an invalid rule of an object.
pub(crate) fn invalid_rule(object: &ObjectKey) -> u16 {
    match object.kind {
        Kind::HTTPRoute => 500,
        _ => 503,
    }
}

/// An object with routes for a host.
pub(crate) struct HostObject {
    /// The object.
    pub(crate) key: ObjectKey,
    /// Its most specific hostname that covers the host.
    pub(crate) original: Arc<str>,
    rules: Arc<RouteRules>,
}

impl HostObject {
    /// Its order among other objects.
    pub(crate) fn seniority(&self) -> &Seniority {
        &self.rules.seniority
    }
}

/// The key of an object's rows for one of its hosts, if the object has different rules for each host. No object has
/// this key, since names can't contain spaces.
pub(crate) fn row_key(object: &ObjectKey, host: &str) -> ObjectKey {
    let name = format!("{} {host}", object.name);
    ObjectKey::new(object.kind, Arc::clone(&object.namespace), name)
}

/// The object that a row belongs to.
pub(crate) fn object_of(row: &ObjectKey) -> ObjectKey {
    match row.name.split_once(' ') {
        Some((name, _)) => ObjectKey::new(row.kind, Arc::clone(&row.namespace), name),
        None => row.clone(),
    }
}

/// Looking for a match that takes all requests among more matches costs more than reading the wider domains.
const FEW: usize = 16;

/// The objects with routes for a host; empty if no object attaches to the domain itself.
pub(crate) fn objects(
    reader: &mut Reader<'_>,
    sources: Sources,
    key: &VirtualHostKey,
    listeners: &[&ListenerPoint],
) -> Vec<HostObject> {
    let mut found: Vec<HostObject> = Vec::new();
    let mut seen = BTreeSet::new();
    for domain in hostname::widening(&key.domain).take_while(|domain| {
        listeners
            .iter()
            .any(|listener| hostname::covers(&listener.domain, domain))
    }) {
        let wider = VirtualHostKey {
            table: key.table.clone(),
            domain: domain.into(),
        };
        let owned = owned(&found);
        let attached = reader.by(sources.by_host, &wider);
        let left_out = (!attached.is_empty() && wider.domain.starts_with('*'))
            .then(|| reader.get(sources.left_out, &key.table))
            .flatten();
        for (name, attachments) in attached {
            if owned && name.kind.is_http_proxy() {
                continue;
            }
            // An object's most specific hostname is found first; its routes for wider hostnames are unreachable.
            if !seen.contains(&name)
                && let Some(original) = attachments.original(&wider, listeners)
                && let Some(mut rules) = reader.get(sources.rules, &name)
            {
                let left_out = left_out.as_deref();
                if attachments.oversized
                    || left_out.is_some_and(|all| all.contains(&name, &key.domain))
                {
                    rules = Arc::new(rules.refused(invalid_rule(&name)));
                }
                found.push(HostObject {
                    key: name.clone(),
                    original: Arc::clone(original),
                    rules,
                });
                seen.insert(name);
            }
        }
        // Nothing attaches to the domain itself through these listeners: the next wider virtual host serves it.
        if found.is_empty() {
            return Vec::new();
        }
        // No request is left for wider domains.
        let takes_everything = |object: &HostObject| {
            let rules = &object.rules;
            object.original == wider.domain
                && rules.matches.len() <= FEW
                && rules.takes_everything()
        };
        if found.iter().any(takes_everything) {
            break;
        }
    }
    // HTTPProxies with different hosts may attach to a Gateway's listener hostname; keep the most specific host's.
    let proxies = found
        .iter()
        .filter(|object| object.key.kind.is_http_proxy());
    let hosts = proxies.map(|object| Arc::clone(&object.original));
    if let Some(host) = hosts.min_by(|a, b| hostname::by_specificity(a, b)) {
        found.retain(|object| !object.key.kind.is_http_proxy() || object.original == host);
    }
    found
}

fn takes_everything(route: &Route) -> bool {
    let matches = &route.matches;
    matches!(&matches.path, PathMatch::Prefix(prefix) if prefix == "/")
        && matches.method.is_none()
        && matches.headers.is_empty()
        && matches.query.is_empty()
        && !matches.grpc
        && matches.share.is_none()
}
