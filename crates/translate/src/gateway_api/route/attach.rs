//! Attaches routes to listeners by parentRefs, allowedRoutes and hostnames, in the same way for all route kinds.

use std::borrow::Cow;
use std::sync::Arc;

use sesame_api::{DefaultScope, Gateway, Kind, ObjectKey, ParentReference, reason};
use sesame_engine::{Index, Reader, Table};

use super::RouteKind;
use crate::problem::Problem;
use crate::shared::host_ports::{CHECKED, HostPorts, MAX_PORTS};
use crate::shared::hosts::{AttachedHost, Attachments, ParentVerdict, RouteRules};
use crate::shared::listeners::{AttachPoints, ListenerPoint, ListenerRef};
use crate::shared::namespaces::{self, Labels};

/// The maximum number of parents in a route's status (RouteStatus.parents).
const MAX_PARENTS: usize = 32;

/// The maximum size of a route's configuration on all its hosts, in bytes. Sesame holds it several times while it
/// changes, and an Envoy that loads 100 such routes delays other changes by less than a second.
const MAX_BYTES: usize = 512 * 1_024;

/// Rules below this size, in bytes, may have any number of hosts.
const SMALL: usize = 4 * 1_024;

/// The fields of a route that determine its attachments.
pub(crate) struct Attaching<'a> {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its namespace.
    pub(crate) namespace: &'a Arc<str>,
    /// Its parents.
    pub(crate) parents: &'a [ParentReference],
    /// Its hostnames; if empty, all of the listener's.
    pub(crate) hostnames: &'a [Arc<str>],
    /// Why its parents may refuse it.
    pub(crate) verdict: Option<&'a Verdict>,
}

/// Why all parents refuse a route, or may refuse it. Most routes have none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// Its rules are invalid.
    refused: Option<Problem>,
    /// The size of its rules on each host, a multiple of [`SMALL`].
    bytes: usize,
}

impl Verdict {
    /// `None` if the rules are valid and small.
    pub(crate) fn of(rules: &RouteRules) -> Option<Self> {
        let refused = rules.refused.clone();
        // Rounded, so that small changes don't rerun attachment.
        let bytes = match rules.bytes() {
            0..SMALL => 0,
            bytes => bytes.next_multiple_of(SMALL),
        };
        (refused.is_some() || bytes > 0).then_some(Self { refused, bytes })
    }

    /// Why the route can't have this number of hosts.
    fn oversized(&self, hosts: usize) -> Option<Problem> {
        let total = self.bytes.saturating_mul(hosts);
        (total > MAX_BYTES).then(|| {
            let message = format!(
                "the rules take about {} KiB for each of the route's {hosts} hosts, {} KiB in total; the limit is {} KiB; \
                 use fewer hostnames, fewer matches, or shorter filters, or divide the route into several",
                self.bytes / 1_024,
                total / 1_024,
                MAX_BYTES / 1_024
            );
            Problem::new(reason::route::UNSUPPORTED_VALUE, message)
        })
    }
}

/// The tables that attachments depend on.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    /// Listeners by owner.
    pub(crate) points: Table<ObjectKey, AttachPoints>,
    /// Gateways of any controller whose default scope is All.
    pub(crate) default_gateways: Index<ObjectKey, Gateway, ()>,
    /// The labels of namespaces.
    pub(crate) namespaces: Table<Arc<str>, Labels>,
}

/// The object with listeners that a parentRef of a route in `namespace` refers to; `None` for other kinds of objects.
pub(crate) fn owner_of(parent: &ParentReference, namespace: &Arc<str>) -> Option<ObjectKey> {
    let kind = parent.known_kind()?;
    kind.has_listeners()
        .then(|| parent.resolve(namespace).of_kind(kind))
}

/// The parents of a route: its parentRefs, and all default Gateways if it uses them (GEP-3793).
pub(crate) fn parents<'a, R: RouteKind>(
    reader: &mut Reader<'_>,
    sources: Sources,
    route: &'a R,
) -> Cow<'a, [ParentReference]> {
    let explicit = route.parent_refs();
    if route.use_default_gateways() != Some(&DefaultScope::All) {
        return Cow::Borrowed(explicit);
    }
    let namespace = &route.meta().namespace;
    let mut defaults = reader.keys(sources.default_gateways, &());
    defaults.retain(|gateway| {
        let mut parents = explicit.iter();
        !parents.any(|parent| {
            let whole = parent.section_name.is_none() && parent.port.is_none();
            whole && owner_of(parent, namespace).as_ref() == Some(gateway)
        })
    });
    defaults.truncate(MAX_PARENTS.saturating_sub(explicit.len()));
    let defaults = defaults.into_iter().map(ParentReference::to_gateway);
    explicit.iter().cloned().chain(defaults).collect()
}

/// Attaches a route; `None` if none of its parents is ours.
pub(crate) fn attach(
    reader: &mut Reader<'_>,
    sources: Sources,
    route: &Attaching<'_>,
) -> Option<Attachments> {
    // Allocated with exact capacity, since there is one such list per route.
    let mut parents = Vec::with_capacity(route.parents.len());
    let mut hosts = Vec::new();
    let mut ports = HostPorts::default();
    for parent in route.parents {
        let Some(owner) = owner_of(parent, route.namespace) else {
            continue;
        };
        let Some(points) = reader.get(sources.points, &owner) else {
            continue;
        };
        let refused = match hosts_at(reader, sources, &owner, &points, parent, route) {
            Ok(found) => {
                let limited = !matches!(route.kind, Kind::TCPRoute | Kind::UDPRoute);
                let before = hosts.len();
                let found = found.into_iter();
                let admitted =
                    found.filter(|(host, checked)| !limited || ports.admit(host, *checked));
                hosts.extend(admitted.map(|(host, _)| host));
                let refused = route.verdict.and_then(|verdict| verdict.refused.clone());
                refused.or_else(|| (hosts.len() == before).then(|| on_other_ports(&owner)))
            }
            Err(problem) => Some(problem),
        };
        parents.push(ParentVerdict {
            parent: parent.clone(),
            owner,
            refused,
        });
    }
    hosts.shrink_to_fit();
    let oversized = route
        .verdict
        .and_then(|verdict| verdict.oversized(hosts.len()));
    if let Some(problem) = &oversized {
        for parent in &mut parents {
            parent.refused.get_or_insert_with(|| problem.clone());
        }
    }
    let oversized = oversized.is_some();
    (!parents.is_empty()).then_some(Attachments {
        parents,
        hosts,
        oversized,
        limited: ports.exceeded,
    })
}

/// A route's hosts for one parent, and whether a listener of their port has checks, or why there are none: each check narrows
/// the remaining listeners, and the first check that leaves none gives the reason.
fn hosts_at(
    reader: &mut Reader<'_>,
    sources: Sources,
    owner: &ObjectKey,
    points: &AttachPoints,
    parent: &ParentReference,
    route: &Attaching<'_>,
) -> Result<Vec<(AttachedHost, bool)>, Problem> {
    if let Some(problem) = &points.closed {
        return Err(problem.clone());
    }
    let named: Vec<&ListenerPoint> = points
        .listeners
        .iter()
        .filter(|point| selects(parent, &point.listener))
        .collect();
    if named.is_empty() {
        return Err(Problem::new(
            reason::route::NO_MATCHING_PARENT,
            no_matching_parent(owner, points, parent),
        ));
    }
    let mut allowed = Vec::new();
    for listener in named {
        if listener.kinds.contains(&route.kind)
            && namespaces::permits(reader, sources.namespaces, listener, route.namespace)
        {
            allowed.push(listener);
        }
    }
    if allowed.is_empty() {
        return Err(Problem::new(
            reason::route::NOT_ALLOWED_BY_LISTENERS,
            format!(
                "no listener of {} selected by this parentRef allows {}s from namespace {}; check the listeners' \
                 allowedRoutes",
                display(owner),
                route.kind,
                route.namespace
            ),
        ));
    }
    let hosts: Vec<_> = allowed
        .iter()
        .flat_map(|listener| {
            let mut checking = points.listeners.iter().filter(|point| point.checks);
            let checked = checking.any(|point| point.port() == listener.port());
            let hosts = AttachedHost::on(listener, route.hostnames).into_iter();
            hosts.map(move |host| (host, checked))
        })
        .collect();
    if hosts.is_empty() {
        return Err(Problem::new(
            reason::route::NO_MATCHING_LISTENER_HOSTNAME,
            format!(
                "none of the route's hostnames ({}) matches a hostname of the listeners selected by this \
                 parentRef ({})",
                route.hostnames.join(", "),
                allowed
                    .iter()
                    .map(|listener| &*listener.domain)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        ));
    }
    Ok(hosts)
}

/// Whether a parentRef selects this listener of its parent.
pub(crate) fn selects(parent: &ParentReference, listener: &ListenerRef) -> bool {
    let name = parent.section_name.as_deref();
    name.is_none_or(|name| *name == *listener.id.name)
        && parent
            .port
            .is_none_or(|port| port == listener.port.port.number)
}

fn no_matching_parent(
    owner: &ObjectKey,
    points: &AttachPoints,
    parent: &ParentReference,
) -> String {
    let wanted = match (&parent.section_name, parent.port) {
        (Some(name), Some(port)) => format!("listener {name} on port {port}"),
        (Some(name), None) => format!("listener {name}"),
        (None, Some(port)) => format!("listener on port {port}"),
        (None, None) => "listener".to_owned(),
    };
    let available: Vec<String> = points
        .listeners
        .iter()
        .map(|listener| format!("{} on port {}", listener.name(), listener.port()))
        .collect();
    format!(
        "{} has no {wanted}; available listeners: {}",
        display(owner),
        available.join(", ")
    )
}

/// The problem if other ports already serve each of the route's hosts.
fn on_other_ports(owner: &ObjectKey) -> Problem {
    let message = format!(
        "other ports of {} already serve each of the route's hosts; the maximum for one route is {MAX_PORTS} ports, where \
         a port with filters counts as {CHECKED}; use another route for further ports",
        display(owner)
    );
    Problem::new(reason::route::UNSUPPORTED_VALUE, message)
}

/// `Gateway namespace/name`.
fn display(owner: &ObjectKey) -> String {
    format!("{} {}", owner.kind, owner.namespaced_name())
}
