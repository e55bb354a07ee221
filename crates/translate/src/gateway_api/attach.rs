//! Which routes belong to which listeners: parentRefs, allowedRoutes and hostnames, the same for every route kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_api::{Kind, LabelSelector, NamespacedName, ParentReference, reason};
use sesame_engine::Reader;
use sesame_model::FleetId;

use super::problem::Problem;
use crate::pipeline::Inputs;
use crate::shared::hostname;
use crate::shared::namespaces;

/// A Gateway as routes see it: nothing of it changes when a certificate is rotated.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachPoints {
    /// Who serves it.
    pub fleet: FleetId,
    /// Why no route may be here.
    pub closed: Option<Problem>,
    /// In the order of the Gateway.
    pub listeners: Vec<ListenerPoint>,
}

/// A listener as routes see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerPoint {
    /// Its name, unique in the Gateway.
    pub name: Arc<str>,
    /// Its port.
    pub port: u16,
    /// True for HTTPS.
    pub secure: bool,
    /// Its hostname; `*` for none.
    pub domain: Arc<str>,
    /// True if it takes traffic. Routes attach to one that doesn't, too.
    pub serving: bool,
    /// Kinds of routes that may attach.
    pub kinds: Vec<Kind>,
    /// Namespaces whose routes may attach.
    pub namespaces: AllowedNamespaces,
}

/// Namespaces whose routes may attach.
#[derive(Clone, Debug, PartialEq)]
pub enum AllowedNamespaces {
    /// Every one.
    All,
    /// The Gateway's own.
    Same,
    /// Those with these labels.
    Selected(LabelSelector),
    /// None: the listener says something that we don't know.
    Nobody,
}

/// What a route of any kind says about where it wants to be.
pub struct Attaching<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: &'a Arc<str>,
    /// Its parents.
    pub parents: &'a [ParentReference],
    /// Its hostnames; empty: all of the listener's.
    pub hostnames: &'a [Arc<str>],
    /// Why it is accepted by no parent, whatever the parent says.
    pub refused: Option<&'a Problem>,
}

/// Where a route is.
#[derive(Clone, Debug, PartialEq)]
pub struct Attachments {
    /// One for each parentRef that names a Gateway of ours, in their order.
    pub parents: Vec<ParentVerdict>,
}

/// What became of one parentRef.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentVerdict {
    /// The parentRef as written.
    pub parent: ParentReference,
    /// The Gateway that it names.
    pub gateway: NamespacedName,
    /// Why it may not be there.
    pub refused: Option<Problem>,
    /// Where it answers. A route none of whose rules can be done answers too, with errors: a wider route must not take its
    /// requests past a filter that they were meant to pass (HTTPRouteFilter.extensionRef).
    pub hosts: Vec<AttachedHost>,
}

/// A host of a listener that a route answers for.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachedHost {
    /// The listener.
    pub listener: Arc<str>,
    /// The hosts that the route's hostname and the listener's have in common.
    pub domain: Arc<str>,
    /// The route's hostname, which decides precedence among routes of that domain.
    pub original: Arc<str>,
}

/// A domain of a listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostKey {
    /// The Gateway.
    pub gateway: NamespacedName,
    /// The listener.
    pub listener: Arc<str>,
    /// The domain.
    pub domain: Arc<str>,
}

impl Attachments {
    /// The domains that the route answers for, for the index of routes by domain.
    pub fn host_keys(&self) -> Vec<HostKey> {
        self.parents
            .iter()
            .flat_map(|parent| {
                parent.hosts.iter().map(|host| HostKey {
                    gateway: parent.gateway.clone(),
                    listener: Arc::clone(&host.listener),
                    domain: Arc::clone(&host.domain),
                })
            })
            .collect()
    }

    /// The listeners that the route is on, for the count of attached routes.
    pub fn listener_keys(&self) -> Vec<(NamespacedName, Arc<str>)> {
        let mut keys: Vec<_> = self
            .parents
            .iter()
            .filter(|parent| parent.refused.is_none())
            .flat_map(|parent| {
                parent
                    .hosts
                    .iter()
                    .map(|host| (parent.gateway.clone(), Arc::clone(&host.listener)))
            })
            .collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// The most specific hostname by which the route answers for a domain.
    pub fn original(&self, key: &HostKey) -> Option<&Arc<str>> {
        self.parents
            .iter()
            .filter(|parent| parent.gateway == key.gateway)
            .flat_map(|parent| &parent.hosts)
            .filter(|host| host.listener == key.listener && host.domain == key.domain)
            .map(|host| &host.original)
            .min_by(|a, b| hostname::by_specificity(a, b))
    }
}

/// The Gateway that a parentRef of a route in `namespace` names, if it names one.
pub fn gateway_of(parent: &ParentReference, namespace: &Arc<str>) -> Option<NamespacedName> {
    (parent.known_kind() == Some(Kind::Gateway)).then(|| parent.resolve(namespace))
}

/// Finds where a route is; `None` if none of its parents is ours.
pub fn attach(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    points: sesame_engine::Table<NamespacedName, AttachPoints>,
    route: &Attaching<'_>,
) -> Option<Attachments> {
    // Room for all and no more: there are as many of these lists as routes.
    let mut parents = Vec::with_capacity(route.parents.len());
    for parent in route.parents {
        let Some(gateway) = gateway_of(parent, route.namespace) else {
            continue;
        };
        let Some(points) = reader.get(points, &gateway) else {
            continue;
        };
        let (refused, hosts) = match judge(reader, inputs, &gateway, &points, parent, route) {
            Ok(hosts) => (route.refused.cloned(), hosts),
            Err(problem) => (Some(problem), Vec::new()),
        };
        parents.push(ParentVerdict {
            parent: parent.clone(),
            gateway,
            refused,
            hosts,
        });
    }
    (!parents.is_empty()).then_some(Attachments { parents })
}

/// The hosts of one parent that the route answers for, or why there are none: each test narrows the listeners left, and the
/// first that leaves none gives the reason.
fn judge(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    gateway: &NamespacedName,
    points: &AttachPoints,
    parent: &ParentReference,
    route: &Attaching<'_>,
) -> Result<Vec<AttachedHost>, Problem> {
    if let Some(problem) = &points.closed {
        return Err(problem.clone());
    }
    let named: Vec<&ListenerPoint> = points
        .listeners
        .iter()
        .filter(|listener| {
            parent
                .section_name
                .as_deref()
                .is_none_or(|name| name == &*listener.name)
        })
        .filter(|listener| parent.port.is_none_or(|port| port == listener.port))
        .collect();
    if named.is_empty() {
        return Err(Problem::new(
            reason::route::NO_MATCHING_PARENT,
            no_matching_parent(gateway, points, parent),
        ));
    }
    let mut allowed = Vec::new();
    for listener in named {
        if listener.kinds.contains(&route.kind)
            && namespace_allowed(reader, inputs, gateway, &listener.namespaces, route)
        {
            allowed.push(listener);
        }
    }
    if allowed.is_empty() {
        return Err(Problem::new(
            reason::route::NOT_ALLOWED_BY_LISTENERS,
            format!(
                "no listener of Gateway {gateway} that this parentRef names allows {} objects from namespace {}; see its \
                 allowedRoutes",
                route.kind, route.namespace
            ),
        ));
    }
    let mut hosts: Vec<AttachedHost> = allowed
        .iter()
        .flat_map(|listener| hosts_on(listener, route.hostnames))
        .collect();
    hosts.shrink_to_fit();
    if hosts.is_empty() {
        return Err(Problem::new(
            reason::route::NO_MATCHING_LISTENER_HOSTNAME,
            format!(
                "none of the hostnames {} is one of a listener's that this parentRef names ({})",
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

fn no_matching_parent(
    gateway: &NamespacedName,
    points: &AttachPoints,
    parent: &ParentReference,
) -> String {
    let wanted = match (&parent.section_name, parent.port) {
        (Some(name), Some(port)) => format!("listener called {name} on port {port}"),
        (Some(name), None) => format!("listener called {name}"),
        (None, Some(port)) => format!("listener on port {port}"),
        (None, None) => "listener".to_owned(),
    };
    let there: Vec<String> = points
        .listeners
        .iter()
        .map(|listener| format!("{} on {}", listener.name, listener.port))
        .collect();
    format!(
        "Gateway {gateway} has no {wanted}; it has {}",
        there.join(", ")
    )
}

fn namespace_allowed(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    gateway: &NamespacedName,
    allowed: &AllowedNamespaces,
    route: &Attaching<'_>,
) -> bool {
    match allowed {
        AllowedNamespaces::All => true,
        AllowedNamespaces::Same => *route.namespace == gateway.namespace,
        AllowedNamespaces::Selected(selector) => {
            namespaces::selected(reader, inputs, route.namespace, selector)
        }
        AllowedNamespaces::Nobody => false,
    }
}

/// What a route's hostnames and a listener's have in common. Of several hostnames with the same common domain the most
/// specific one stands.
fn hosts_on(listener: &ListenerPoint, hostnames: &[Arc<str>]) -> Vec<AttachedHost> {
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
            // Mostly the same text, which ten thousand routes need not hold twice.
            let original = if *domain == *original {
                Arc::clone(&domain)
            } else {
                original.into()
            };
            AttachedHost {
                listener: Arc::clone(&listener.name),
                domain,
                original,
            }
        })
        .collect()
}
