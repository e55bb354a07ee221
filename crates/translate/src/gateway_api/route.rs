//! Shared by all kinds of routes (references, attachments, statuses) and by all kinds of HTTP routes (rules).
//!
//! Each kind implements [`RouteKind`], and each kind of HTTP route [`HttpRouteKind`], in its own module.

pub(crate) mod attach;
pub(crate) mod backends;
mod filters;
pub(crate) mod matches;
pub(crate) mod rules;
pub(crate) mod session;
mod split;
pub(crate) mod status;

use std::sync::Arc;

use sesame_api::{BackendRef, ObjectKey, Route, RouteFilter};
use sesame_engine::{Builder, Reader, Table, Value};
use sesame_model::{ClusterKey, ClusterPolicy};

use self::attach::{Attaching, Verdict};
use self::backends::Resolver;
use self::rules::Rule;
use crate::shared::grants::Referrer;
use crate::shared::hosts::{Attachments, RouteRules};

/// A kind of route.
pub(crate) trait RouteKind: Route + Value {
    /// The filters and backends of each rule.
    fn references(&self) -> impl Iterator<Item = (&[RouteFilter], &[BackendRef])>;

    /// The policy for clusters of this kind of route.
    fn policy() -> Option<Arc<ClusterPolicy>> {
        None
    }
}

/// A kind of HTTP route.
pub(crate) trait HttpRouteKind: RouteKind {
    /// The HTTP status for requests to invalid rules and to backends that can't be resolved.
    const INVALID_RULE: u16;

    /// The rules, in their order.
    fn rules(&self) -> impl Iterator<Item = Rule<'_>>;
}

/// The tables that the stages of a kind read.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    pub(crate) attach: attach::Sources,
    pub(crate) backends: backends::Sources,
}

/// The tables that the stages of a kind of HTTP route fill.
#[derive(Clone, Copy)]
pub(crate) struct Stages {
    pub(crate) rules: Table<ObjectKey, RouteRules>,
    pub(crate) attachments: Table<ObjectKey, Attachments>,
}

/// The clusters that a route refers to, permitted or not.
pub(crate) fn referenced<R: RouteKind>(route: &R) -> Vec<ClusterKey> {
    let (namespace, policy) = (&route.meta().namespace, R::policy());
    let mut keys: Vec<ClusterKey> = route
        .references()
        .flat_map(|(filters, backend_refs)| {
            backends::referenced(filters, backend_refs, namespace, policy.as_ref())
        })
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

/// The referrer for a route's references to backends.
pub(crate) fn referrer<R: RouteKind>(route: &ObjectKey) -> Referrer<'_> {
    Referrer {
        kind: R::KIND,
        namespace: &route.namespace,
    }
}

/// Declares the stages of a kind of HTTP route. `names` contains the table names: our routes, rules, refusals,
/// attachments.
pub(crate) fn stages<R: HttpRouteKind>(
    b: &mut Builder,
    names: [&'static str; 4],
    routes: Table<ObjectKey, R>,
    sources: Sources,
) -> Stages {
    let [ours, rules, refused, attachments] = names;
    let policy = R::policy();
    let ours = self::ours(b, ours, routes, sources.attach);
    let rules: Table<ObjectKey, RouteRules> = b.derive(rules, ours, move |reader, key| {
        let route = reader.get(routes, key)?;
        let invalid = R::INVALID_RULE;
        let mut resolver = Resolver::new(
            reader,
            sources.backends,
            referrer::<R>(key),
            policy.as_ref(),
        );
        Some(rules::read(
            route.meta(),
            route.rules(),
            invalid,
            &mut resolver,
        ))
    });
    // A separate table, so that other changes to rules don't rerun attachment.
    let refusals: Table<ObjectKey, Verdict> = b.derive(refused, rules, move |reader, key| {
        Verdict::of(&*reader.get(rules, key)?)
    });
    let refusal = move |reader: &mut Reader<'_>, key: &ObjectKey| reader.get(refusals, key);
    let attachments = self::attachments(b, attachments, routes, ours, sources.attach, refusal);
    Stages { rules, attachments }
}

/// Declares the table of routes that refer to one of our objects. For all other routes, only this check runs.
pub(crate) fn ours<R: RouteKind>(
    b: &mut Builder,
    name: &'static str,
    routes: Table<ObjectKey, R>,
    sources: attach::Sources,
) -> Table<ObjectKey, ()> {
    b.derive(name, routes, move |reader, key: &ObjectKey| {
        let route = reader.get(routes, key)?;
        let parents = attach::parents(reader, sources, &*route);
        let mut owners = parents
            .iter()
            .filter_map(|parent| attach::owner_of(parent, &key.namespace));
        owners
            .any(|owner| reader.exists(sources.points, &owner))
            .then_some(())
    })
}

/// Declares the table of attachments. `verdict` returns why parents may refuse a route, if they may.
pub(crate) fn attachments<R: RouteKind>(
    b: &mut Builder,
    name: &'static str,
    routes: Table<ObjectKey, R>,
    ours: Table<ObjectKey, ()>,
    sources: attach::Sources,
    verdict: impl Fn(&mut Reader<'_>, &ObjectKey) -> Option<Arc<Verdict>> + Send + Sync + 'static,
) -> Table<ObjectKey, Attachments> {
    b.derive(name, ours, move |reader, key| {
        let route = reader.get(routes, key)?;
        let verdict = verdict(reader, key);
        let parents = attach::parents(reader, sources, &*route);
        let attaching = Attaching {
            kind: R::KIND,
            namespace: &key.namespace,
            parents: &parents,
            hostnames: route.hostnames(),
            verdict: verdict.as_deref(),
        };
        attach::attach(reader, sources, &attaching)
    })
}
