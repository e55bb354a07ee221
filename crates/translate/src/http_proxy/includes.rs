//! The tree of HTTPProxies below a root.
//!
//! In: the inclusions of each HTTPProxy, without its routes, so that a changed route doesn't rerun the walk. Out: the
//! HTTPProxies that the walk visits, each with the conditions on the path to it, and findings about inclusions.

mod budget;
pub(super) mod roots;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use sesame_api::{HTTPProxy, HttpProxyRoute, Kind, ObjectKey};
use sesame_engine::{Reader, Table};

use self::budget::{Budget, LIMIT};
use super::conditions::{self, Conditions, Listed, Misfit, Place};
use super::findings::{About, Finding, Findings};
use super::tcp::{self, TcpLink};
use crate::shared::contour;

/// The maximum depth of inclusions.
const MAX_DEPTH: usize = 32;

/// The maximum number of findings about the inclusions of one HTTPProxy in the tree of a root.
const MAX_FINDINGS: usize = 64;

/// The valid inclusions of an HTTPProxy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Links {
    /// Whether the HTTPProxy has a host.
    has_host: bool,
    /// The number of its routes.
    routes: usize,
    /// The size of its routes in bytes, rounded up so that a changed route rarely changes it.
    bytes: usize,
    includes: Vec<Link>,
    tcp: Option<TcpLink>,
}

#[derive(Clone, Debug, PartialEq)]
struct Link {
    /// The index in `spec.includes`.
    index: usize,
    /// `None` if some conditions are invalid; then the valid conditions lead to a dead end.
    target: Option<ObjectKey>,
    conditions: Conditions,
}

/// Reads the inclusions of an HTTPProxy.
pub(super) fn links(proxy: &HTTPProxy, findings: &mut Findings) -> Links {
    let mut includes = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, include) in proxy.spec.includes.iter().enumerate() {
        let field = field(index);
        let place = Place::Include;
        let listed = conditions::read(&field, &include.conditions, place, findings);
        let Some(Listed {
            conditions,
            partial,
        }) = listed
        else {
            continue;
        };
        if !partial && !conditions.is_default() {
            let first = *seen.entry(conditions.fingerprint()).or_insert(index);
            if first != index {
                let message = format!(
                    "has the same conditions as spec.includes[{first}], which takes precedence; change or remove one of them"
                );
                findings.error(About::DUPLICATE_INCLUDE, &field, message);
                continue;
            }
        }
        includes.push(Link {
            index,
            target: (!partial).then(|| target(proxy, include.namespace.as_ref(), &include.name)),
            conditions,
        });
    }
    Links {
        has_host: proxy.spec.virtual_host.is_some(),
        routes: proxy.spec.routes.len(),
        bytes: size(&proxy.spec.routes).next_power_of_two(),
        includes,
        tcp: tcp::link(proxy, findings),
    }
}

/// The approximate size of routes in memory, in bytes: the length of their JSON.
fn size(routes: &[HttpProxyRoute]) -> usize {
    struct Length(usize);
    impl io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(0);
    serde_json::to_writer(&mut length, routes).expect("routes are JSON, and counting can't fail");
    length.0
}

/// The HTTPProxy that an inclusion refers to.
pub(super) fn target(
    proxy: &HTTPProxy,
    namespace: Option<&Arc<str>>,
    name: &Arc<str>,
) -> ObjectKey {
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    let namespace = namespace.unwrap_or(&proxy.meta.namespace);
    ObjectKey::new(Kind::HTTPProxy, Arc::clone(namespace), Arc::clone(name))
}

fn field(index: usize) -> String {
    format!("spec.includes[{index}]")
}

/// A root, and the HTTPProxies below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tree {
    /// The visited HTTPProxies in order, starting with the root; a child may occur several times.
    pub(super) visits: Vec<Visit>,
    /// The conditions of inclusions that can't be followed.
    pub(super) dead_ends: Vec<Arc<Conditions>>,
    /// Findings about inclusions, by the HTTPProxy that contains the inclusions.
    pub(super) findings: BTreeMap<ObjectKey, BTreeSet<Finding>>,
    /// The HTTPProxy whose Services get the root's connections. `None` if the root doesn't forward connections;
    /// `Some(None)` if it does, but no such HTTPProxy was found.
    pub(super) tcp: Option<Option<ObjectKey>>,
    /// The HTTPProxies whose `tcpproxy` is included.
    pub(super) tcp_visits: Vec<ObjectKey>,
}

/// A visit of an HTTPProxy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Visit {
    /// The HTTPProxy.
    pub(super) proxy: ObjectKey,
    /// The conditions of the enclosing inclusions.
    pub(super) conditions: Arc<Conditions>,
    /// The place of the HTTPProxy among all in the tree, sorted.
    pub(super) member: usize,
    /// The number of earlier visits of the HTTPProxy.
    pub(super) number: usize,
}

impl Tree {
    /// The HTTPProxies in the tree, sorted.
    fn members(&self) -> BTreeSet<&ObjectKey> {
        let visited = self.visits.iter().map(|visit| &visit.proxy);
        let reported = self.findings.keys();
        visited.chain(&self.tcp_visits).chain(reported).collect()
    }

    /// Sets the members and numbers of all visits.
    fn number(&mut self) {
        let members = self.members().into_iter().cloned().enumerate();
        let mut members: BTreeMap<ObjectKey, (usize, usize)> =
            members.map(|(member, key)| (key, (member, 0))).collect();
        for visit in &mut self.visits {
            if let Some((member, visits)) = members.get_mut(&visit.proxy) {
                (visit.member, visit.number) = (*member, *visits);
                *visits += 1;
            }
        }
    }
}

/// Walks the tree of a root. If the tree exceeds the limits, each of the root's inclusions gets a share of them, so
/// that one inclusion can't starve the others.
///
/// `each` is the size of the host's settings on each route, in bytes.
pub(super) fn tree(
    reader: &mut Reader<'_>,
    links: Table<ObjectKey, Links>,
    root: &ObjectKey,
    each: usize,
) -> Tree {
    let mut walk = Walk {
        reader,
        links,
        each,
        tree: Tree::default(),
        path: Vec::new(),
        visited: BTreeSet::new(),
        left: LIMIT,
        shared: false,
        exceeded: false,
    };
    walk.start(root);
    if walk.exceeded {
        walk.tree = Tree::default();
        walk.visited.clear();
        walk.left = LIMIT;
        walk.shared = true;
        walk.start(root);
    }
    walk.connections(root);
    walk.tree.number();
    walk.tree
}

struct Walk<'a, 'r> {
    reader: &'a mut Reader<'r>,
    links: Table<ObjectKey, Links>,
    /// The size of the host's settings on each route, in bytes.
    each: usize,
    tree: Tree,
    /// The HTTPProxies from the root to the current one.
    path: Vec<ObjectKey>,
    /// The HTTPProxies visited so far.
    visited: BTreeSet<ObjectKey>,
    left: Budget,
    /// Whether each of the root's inclusions gets a share of the remaining budget.
    shared: bool,
    exceeded: bool,
}

impl Walk<'_, '_> {
    /// Walks from the root.
    fn start(&mut self, root: &ObjectKey) {
        if let Some(links) = self.reader.get(self.links, root) {
            let own = Budget {
                routes: links.routes,
                bytes: links.bytes + links.routes * self.each,
                ..Budget::default()
            };
            self.left = self.left.without(own);
            self.visit(root, &links, Conditions::default());
        }
    }

    /// Visits an HTTPProxy and, recursively, the HTTPProxies that it includes. The depth is bounded.
    fn visit(&mut self, key: &ObjectKey, links: &Links, conditions: Conditions) {
        let conditions = Arc::new(conditions);
        self.tree.visits.push(Visit {
            proxy: key.clone(),
            conditions: Arc::clone(&conditions),
            member: 0,
            number: 0,
        });
        self.path.push(key.clone());
        let divided = self.shared && self.path.len() == 1;
        for (position, link) in links.includes.iter().enumerate() {
            let left = self.left;
            if divided {
                self.left = left.share(links.includes.len() - position);
            }
            let share = self.left;
            let flow = self.follow(key, link, &conditions);
            self.left = left.without(share.without(self.left));
            if flow.is_break() {
                break;
            }
        }
        self.path.pop();
    }

    /// Follows an inclusion. Breaks if no budget is left for later inclusions.
    fn follow(&mut self, key: &ObjectKey, link: &Link, outer: &Arc<Conditions>) -> ControlFlow<()> {
        let field = field(link.index);
        // Twice: the conditions of the HTTPProxy or dead end, and the conditions of a possible dead end below it.
        let cost = Budget {
            links: 1,
            bytes: 2 * (outer.bytes() + link.conditions.bytes()),
            ..Budget::default()
        };
        if !self.spend(key, &field, cost) {
            let (dead_end, flow) = match self.path.len() {
                1 => (Arc::new(link.conditions.clone()), ControlFlow::Continue(())),
                _ => (Arc::clone(outer), ControlFlow::Break(())),
            };
            self.tree.dead_ends.push(dead_end);
            return flow;
        }
        let below = match outer.and(&link.conditions) {
            Ok(below) => below,
            Err(Misfit { message, rest }) => {
                let message = format!(
                    "{message} (in combination with the conditions of the enclosing includes)"
                );
                self.report(key, Finding::error(About::INCLUDE, &field, message));
                self.tree.dead_ends.extend(rest.map(Arc::from));
                return ControlFlow::Continue(());
            }
        };
        match &link.target {
            None => self.tree.dead_ends.push(Arc::new(below)),
            Some(target) => match self.obstacle(&field, target) {
                Err(finding) => {
                    self.report(key, finding);
                    self.tree.dead_ends.push(Arc::new(below));
                }
                Ok((target, links)) => {
                    let (routes, bytes) = (links.routes, links.bytes);
                    let bytes = bytes + routes * (below.bytes() + self.each);
                    let (repeated_routes, repeated_bytes) = match self.visited.contains(&target) {
                        true => (routes, bytes),
                        false => (0, 0),
                    };
                    let cost = Budget {
                        links: 0,
                        routes,
                        bytes,
                        repeated_routes,
                        repeated_bytes,
                    };
                    match self.spend(key, &field, cost) {
                        true => {
                            self.visited.insert(target.clone());
                            self.visit(&target, &links, below);
                        }
                        false => self.tree.dead_ends.push(Arc::new(below)),
                    }
                }
            },
        }
        match self.exceeded && !self.shared {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Deducts the cost of an inclusion from the remaining budget; if it isn't sufficient, reports the limit instead.
    fn spend(&mut self, key: &ObjectKey, field: &str, cost: Budget) -> bool {
        let Err(limit) = self.left.covers(cost) else {
            self.left = self.left.without(cost);
            return true;
        };
        self.exceeded = true;
        let message = format!(
            "exceeds the limit of {limit} per host, across all includes; requests for this include get 502 \
             until other includes or routes are removed"
        );
        self.report(key, Finding::error(About::LIMIT, field, message));
        false
    }

    /// Finds an included HTTPProxy: its key and its own inclusions, or why it can't be included.
    fn obstacle(
        &mut self,
        field: &str,
        target: &ObjectKey,
    ) -> Result<(ObjectKey, Arc<Links>), Finding> {
        let name = target.namespaced_name();
        let error = |about, message: String| Err(Finding::error(about, field, message));
        let Some((key, links)) = contour::find(self.reader, self.links, target) else {
            return error(About::MISSING_INCLUDE, missing(target));
        };
        if self.path.contains(&key) {
            let message = format!(
                "HTTPProxy {name} includes this one, directly or indirectly; remove one of the inclusions"
            );
            return error(About::CYCLE, message);
        }
        if links.has_host {
            return error(About::INCLUDED_ROOT, included_root(target));
        }
        if self.path.len() >= MAX_DEPTH {
            let message = format!("includes can be nested at most {MAX_DEPTH} levels deep");
            return error(About::LIMIT, message);
        }
        Ok((key, links))
    }

    /// Finds the HTTPProxy whose Services get the root's connections.
    fn connections(&mut self, root: &ObjectKey) {
        let mut current = root.clone();
        let mut seen = BTreeSet::from([root.clone()]);
        self.tree.tcp = loop {
            let links = self.reader.get(self.links, &current);
            let tcp = links.as_ref().and_then(|links| links.tcp.as_ref());
            let (target, field) = match tcp {
                // The root doesn't forward connections. An included HTTPProxy without a `tcpproxy` is reported below.
                None if current == *root => break None,
                None | Some(TcpLink::Invalid) => break Some(None),
                Some(TcpLink::Own) => break Some(Some(current)),
                Some(TcpLink::Include(target, field)) => (target.clone(), field.clone()),
            };
            let found = contour::find(self.reader, self.links, &target);
            let (target, found) = match found {
                Some((target, links)) => (target, Some(links)),
                None => (target, None),
            };
            let message = match found.as_deref() {
                None => Some(missing(&target)),
                Some(links) if links.has_host => Some(included_root(&target)),
                Some(links) if links.tcp.is_none() => {
                    let name = target.namespaced_name();
                    Some(format!("HTTPProxy {name} has no tcpproxy"))
                }
                Some(_) if seen.contains(&target) || seen.len() > MAX_DEPTH => {
                    let message = format!(
                        "the chain of inclusions is a cycle, or has more than {MAX_DEPTH} levels"
                    );
                    Some(message)
                }
                Some(_) => None,
            };
            if let Some(message) = message {
                self.report(
                    &current,
                    Finding::error(About::TCP_INCLUDE, &field, message),
                );
                break Some(None);
            }
            seen.insert(target.clone());
            self.tree.tcp_visits.push(target.clone());
            current = target;
        };
    }

    fn report(&mut self, key: &ObjectKey, finding: Finding) {
        let findings = self.tree.findings.entry(key.clone()).or_default();
        if findings.len() < MAX_FINDINGS || finding.reason == About::LIMIT.1 {
            findings.insert(finding);
        }
    }
}

fn missing(target: &ObjectKey) -> String {
    let name = target.namespaced_name();
    format!(
        "HTTPProxy {name} does not exist, or has another class; requests that it would serve get 502"
    )
}

fn included_root(target: &ObjectKey) -> String {
    let name = target.namespaced_name();
    format!(
        "HTTPProxy {name} has a virtualhost, so it can't be included; remove its virtualhost or this inclusion"
    )
}
