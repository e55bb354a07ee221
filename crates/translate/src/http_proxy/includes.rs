//! The tree of HTTPProxies below a root.
//!
//! In: the inclusions of each HTTPProxy, without its routes, so that a changed route doesn't rerun the walk. Out: the
//! HTTPProxies that the walk visits, each with the conditions on the way, and what is wrong with inclusions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_api::{HTTPProxy, Kind, ObjectKey};
use sesame_engine::{Reader, Table};

use super::conditions::{self, Conditions, Place};
use super::findings::{About, Finding, Findings};
use super::tcp::{self, TcpLink};

/// The maximum number of inclusions within each other.
const MAX_DEPTH: usize = 32;

/// The maximum number of inclusions below a root.
const MAX_VISITS: usize = 16_384;

/// The maximum number of routes of a root, with those of all inclusions.
const MAX_ROUTES: usize = 65_536;

/// The valid inclusions of an HTTPProxy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Links {
    /// Whether it has a host.
    has_host: bool,
    /// The number of its routes.
    routes: usize,
    includes: Vec<Link>,
    tcp: Option<TcpLink>,
}

#[derive(Clone, Debug, PartialEq)]
struct Link {
    /// Its index in the HTTPProxy.
    index: usize,
    target: ObjectKey,
    conditions: Conditions,
}

/// Reads the inclusions of an HTTPProxy.
pub(super) fn links(proxy: &HTTPProxy, findings: &mut Findings) -> Links {
    let mut includes = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, include) in proxy.spec.includes.iter().enumerate() {
        let field = field(index);
        let place = Place::Include;
        let Some(conditions) = conditions::read(&field, &include.conditions, place, findings)
        else {
            continue;
        };
        if !conditions.is_default() {
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
            target: target(proxy, include.namespace.as_ref(), &include.name),
            conditions,
        });
    }
    Links {
        has_host: proxy.spec.virtual_host.is_some(),
        routes: proxy.spec.routes.len(),
        includes,
        tcp: tcp::link(proxy, findings),
    }
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

/// The HTTPProxies of a root.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tree {
    /// In order, the root first; a child may be there several times.
    pub(super) visits: Vec<(ObjectKey, Arc<Conditions>)>,
    /// The conditions of inclusions that can't be followed.
    pub(super) dead_ends: Vec<Conditions>,
    /// What is wrong with inclusions, by the HTTPProxy that has them.
    pub(super) findings: BTreeMap<ObjectKey, BTreeSet<Finding>>,
    /// The HTTPProxy with the Services of connections, if connections are forwarded; `None` in it if there is none.
    pub(super) tcp: Option<Option<ObjectKey>>,
    /// The HTTPProxies whose `tcpproxy` is included.
    pub(super) tcp_visits: Vec<ObjectKey>,
}

/// Walks the tree of a root.
pub(super) fn tree(
    reader: &mut Reader<'_>,
    links: Table<ObjectKey, Links>,
    root: &ObjectKey,
) -> Tree {
    let mut walk = Walk {
        reader,
        links,
        tree: Tree::default(),
        path: Vec::new(),
        routes: 0,
    };
    walk.visit(root, Conditions::default());
    walk.connections(root);
    walk.tree
}

struct Walk<'a, 'r> {
    reader: &'a mut Reader<'r>,
    links: Table<ObjectKey, Links>,
    tree: Tree,
    /// The HTTPProxies from the root to the current one.
    path: Vec<ObjectKey>,
    routes: usize,
}

impl Walk<'_, '_> {
    /// Visits an HTTPProxy and, recursively, those that it includes. The depth is bounded.
    fn visit(&mut self, key: &ObjectKey, conditions: Conditions) {
        let Some(links) = self.reader.get(self.links, key) else {
            return;
        };
        let conditions = Arc::new(conditions);
        self.routes = self.routes.saturating_add(links.routes);
        let visit = (key.clone(), Arc::clone(&conditions));
        self.tree.visits.push(visit);
        self.path.push(key.clone());
        for link in &links.includes {
            let field = field(link.index);
            let below = match conditions.and(&link.conditions) {
                Ok(below) => below,
                Err(message) => {
                    let message = format!("together with the inclusions around it: {message}");
                    self.report(key, Finding::error(About::INCLUDE, &field, message));
                    continue;
                }
            };
            if self.tree.visits.len() + self.tree.dead_ends.len() >= MAX_VISITS {
                let message = format!("a host can have at most {MAX_VISITS} inclusions");
                self.report(key, Finding::error(About::LIMIT, &field, message));
                break;
            }
            match self.obstacle(&field, &link.target) {
                None => self.visit(&link.target, below),
                Some(finding) => {
                    self.report(key, finding);
                    self.tree.dead_ends.push(below);
                }
            }
        }
        self.path.pop();
    }

    /// Why an HTTPProxy can't be included.
    fn obstacle(&mut self, field: &str, target: &ObjectKey) -> Option<Finding> {
        let name = target.namespaced_name();
        let error = |about, message: String| Some(Finding::error(about, field, message));
        let Some(links) = self.reader.get(self.links, target) else {
            return error(About::MISSING_INCLUDE, missing(target));
        };
        if self.path.contains(target) {
            let message = format!(
                "HTTPProxy {name} includes this one, directly or indirectly; remove one of the inclusions"
            );
            return error(About::CYCLE, message);
        }
        if links.has_host {
            return error(About::INCLUDED_ROOT, included_root(target));
        }
        if self.path.len() >= MAX_DEPTH {
            let message = format!("at most {MAX_DEPTH} inclusions within each other are supported");
            return error(About::LIMIT, message);
        }
        if self.routes.saturating_add(links.routes) > MAX_ROUTES {
            let message = format!("a host can have at most {MAX_ROUTES} routes");
            return error(About::LIMIT, message);
        }
        None
    }

    /// Finds the HTTPProxy with the Services of connections.
    fn connections(&mut self, root: &ObjectKey) {
        let mut current = root.clone();
        let mut seen = BTreeSet::from([root.clone()]);
        self.tree.tcp = loop {
            let links = self.reader.get(self.links, &current);
            let tcp = links.as_ref().and_then(|links| links.tcp.as_ref());
            let (target, field) = match tcp {
                // The root forwards no connections; that of an included HTTPProxy has been checked below.
                None if current == *root => break None,
                None | Some(TcpLink::Invalid) => break Some(None),
                Some(TcpLink::Own) => break Some(Some(current)),
                Some(TcpLink::Include(target, field)) => (target.clone(), field.clone()),
            };
            let found = self.reader.get(self.links, &target);
            let message = match found.as_deref() {
                None => Some(missing(&target)),
                Some(links) if links.has_host => Some(included_root(&target)),
                Some(links) if links.tcp.is_none() => {
                    let name = target.namespaced_name();
                    Some(format!("HTTPProxy {name} has no tcpproxy"))
                }
                Some(_) if seen.contains(&target) || seen.len() > MAX_DEPTH => {
                    let message = format!(
                        "leads back to this HTTPProxy, or through more than {MAX_DEPTH} others"
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
        findings.insert(finding);
    }
}

fn missing(target: &ObjectKey) -> String {
    let name = target.namespaced_name();
    format!(
        "HTTPProxy {name} does not exist, or has another class; requests that it should serve get 502"
    )
}

fn included_root(target: &ObjectKey) -> String {
    let name = target.namespaced_name();
    format!(
        "HTTPProxy {name} has a virtualhost, so it can't be included; remove its virtualhost or this inclusion"
    )
}
