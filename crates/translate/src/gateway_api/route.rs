//! Shared by all kinds of HTTP routes: attachments, rules and statuses.
//!
//! Each kind implements [`RouteKind`] in its own folder.

pub(crate) mod attach;
pub(crate) mod backends;
mod filters;
pub(crate) mod matches;
pub(crate) mod rules;
mod session;
mod split;
pub(crate) mod status;

use std::sync::Arc;

use sesame_api::{BackendRef, ObjectKey, Route, RouteFilter};
use sesame_engine::{Builder, Table, Value};
use sesame_model::{ClusterKey, ClusterPolicy};

use self::attach::Attaching;
use self::backends::Resolver;
use self::rules::Rule;
use crate::problem::Problem;
use crate::shared::grants::Referrer;
use crate::shared::hosts::{Attachments, RouteRules};

/// A kind of HTTP route.
pub(crate) trait RouteKind: Route + Value {
    /// The HTTP status for requests to invalid rules and to backends that can't be resolved.
    const INVALID_RULE: u16;

    /// The rules, in their order.
    fn rules(&self) -> impl Iterator<Item = Rule<'_>>;

    /// The filters and backends of each rule.
    fn references(&self) -> impl Iterator<Item = (&[RouteFilter], &[BackendRef])>;

    /// The policy for clusters of this kind of route.
    fn policy() -> Option<Arc<ClusterPolicy>> {
        None
    }
}

/// The tables that the stages of a kind read.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    pub(crate) attach: attach::Sources,
    pub(crate) backends: backends::Sources,
}

/// The tables that the stages of a kind fill.
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

/// Declares the stages of one kind. `names` are the table names: our routes, rules, refusals, attachments.
pub(crate) fn stages<R: RouteKind>(
    b: &mut Builder,
    names: [&'static str; 4],
    routes: Table<ObjectKey, R>,
    sources: Sources,
) -> Stages {
    let [ours, rules, refused, attachments] = names;
    let policy = R::policy();
    // For routes of other controllers, only this check runs.
    let ours: Table<ObjectKey, ()> = b.derive(ours, routes, move |reader, key| {
        let route = reader.get(routes, key)?;
        let parents = route.parent_refs().iter();
        let mut owners = parents.filter_map(|parent| attach::owner_of(parent, &key.namespace));
        owners
            .any(|owner| reader.exists(sources.attach.points, &owner))
            .then_some(())
    });
    let rules: Table<ObjectKey, RouteRules> = b.derive(rules, ours, move |reader, key| {
        let route = reader.get(routes, key)?;
        let mut resolver = Resolver {
            reader,
            sources: sources.backends,
            referrer: Referrer {
                kind: R::KIND,
                namespace: &key.namespace,
            },
            policy: policy.as_ref(),
            problems: Vec::new(),
        };
        let invalid = R::INVALID_RULE;
        Some(rules::read(
            route.meta(),
            route.rules(),
            invalid,
            &mut resolver,
        ))
    });
    // A separate table, so that other changes to rules don't rerun attachment.
    let refusals: Table<ObjectKey, Problem> = b.derive(refused, rules, move |reader, key| {
        reader.get(rules, key)?.refused.clone()
    });
    let attachments = b.derive(attachments, ours, move |reader, key| {
        let route = reader.get(routes, key)?;
        let refused = reader.get(refusals, key);
        let attaching = Attaching {
            kind: R::KIND,
            namespace: &key.namespace,
            parents: route.parent_refs(),
            hostnames: route.hostnames(),
            refused: refused.as_deref(),
        };
        attach::attach(reader, sources.attach, &attaching)
    });
    Stages { rules, attachments }
}
