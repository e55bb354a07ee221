//! TLSRoute, TCPRoute and UDPRoute: the backends of connections and of datagrams. Attachments and statuses are shared
//! with other kinds of routes.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_api::{BackendRef, L4RouteSpec, ObjectKey, RouteFilter, TCPRoute, TLSRoute, UDPRoute};
use sesame_engine::{Builder, Reader, Table};
use sesame_model::{ClusterPolicy, Protocol, WeightedBackend};

use super::route::attach::selects;
use super::route::backends::Resolver;
use super::route::status::Findings;
use super::route::{self, RouteKind, Sources, referrer};
use crate::problem::{Problem, bounded};
use crate::shared::connections::{Backends, ChainKey, ServedChain};
use crate::shared::hostname;
use crate::shared::hosts::{AttachedHost, Attachments};
use crate::shared::precedence::{Seniority, Source};

/// The tables that the stages of a kind fill.
#[derive(Clone, Copy)]
pub(crate) struct Stages {
    pub(crate) backends: Table<ObjectKey, Backends>,
    pub(crate) attachments: Table<ObjectKey, Attachments>,
}

impl RouteKind for TLSRoute {
    fn references(&self) -> impl Iterator<Item = (&[RouteFilter], &[BackendRef])> {
        references(&self.spec)
    }

    fn policy() -> Option<Arc<ClusterPolicy>> {
        only(Protocol::Opaque)
    }
}

impl RouteKind for TCPRoute {
    fn references(&self) -> impl Iterator<Item = (&[RouteFilter], &[BackendRef])> {
        references(&self.spec)
    }

    fn policy() -> Option<Arc<ClusterPolicy>> {
        only(Protocol::Opaque)
    }
}

impl RouteKind for UDPRoute {
    fn references(&self) -> impl Iterator<Item = (&[RouteFilter], &[BackendRef])> {
        references(&self.spec)
    }

    fn policy() -> Option<Arc<ClusterPolicy>> {
        only(Protocol::Datagrams)
    }
}

/// These rules have no filters.
fn references(spec: &L4RouteSpec) -> impl Iterator<Item = (&[RouteFilter], &[BackendRef])> {
    let rules = spec.rules.iter();
    rules.map(|rule| (&[][..], &rule.backend_refs[..]))
}

/// Forwards bytes unread, whatever the Service's appProtocol.
fn only(protocol: Protocol) -> Option<Arc<ClusterPolicy>> {
    Some(Arc::new(ClusterPolicy {
        protocol: Some(protocol),
        ..ClusterPolicy::default()
    }))
}

/// Declares the stages of one kind. `names` contains the table names: our routes, backends, attachments.
pub(crate) fn stages<R: RouteKind>(
    b: &mut Builder,
    names: [&'static str; 3],
    routes: Table<ObjectKey, R>,
    sources: Sources,
) -> Stages {
    let [ours, backends, attachments] = names;
    let policy = R::policy();
    let ours = route::ours(b, ours, routes, sources.attach);
    let backends = b.derive(backends, ours, move |reader, key: &ObjectKey| {
        let route = reader.get(routes, key)?;
        let mut resolver = Resolver::new(
            reader,
            sources.backends,
            referrer::<R>(key),
            policy.as_ref(),
        );
        Some(read_backends(&*route, &mut resolver))
    });
    let no_refusal = |_: &mut Reader<'_>, _: &ObjectKey| None;
    let attachments = route::attachments(b, attachments, routes, ours, sources.attach, no_refusal);
    Stages {
        backends,
        attachments,
    }
}

/// The backends of a route. Connections to invalid backends are closed, and datagrams to them are dropped
/// (BackendRef.weight, TCPRouteRule.backendRefs, UDPRouteRule.backendRefs).
fn read_backends<R: RouteKind>(route: &R, resolver: &mut Resolver<'_, '_>) -> Backends {
    let (mut targets, mut passthrough) = (Vec::new(), Vec::new());
    for (rule, (_, backend_refs)) in route.references().enumerate() {
        for (index, backend) in backend_refs.iter().enumerate() {
            let field = format!("spec.rules[{rule}].backendRefs[{index}]");
            let found = resolver.targets(&field, &backend.object_reference());
            for (list, target) in [
                (&mut targets, found.usual),
                (&mut passthrough, found.passthrough),
            ] {
                let weight = backend.weight;
                list.push(WeightedBackend { target, weight });
            }
        }
    }
    for list in [&mut targets, &mut passthrough] {
        list.retain(|backend| backend.weight > 0);
        if list.is_empty() {
            list.push(WeightedBackend::CLOSED);
        }
    }
    Backends {
        seniority: Seniority::of(Source::GatewayApi, route.meta()),
        targets,
        passthrough,
        unresolved: Problem::merge(std::mem::take(&mut resolver.problems)),
    }
}

/// The findings about a route's backends, and about connections that another route gets, for its status.
pub(crate) fn findings(
    reader: &mut Reader<'_>,
    chains: Table<ChainKey, ServedChain>,
    route: &ObjectKey,
    attachments: &Attachments,
    backends: &Backends,
) -> Findings {
    let notes = attachments.parents.iter().map(|parent| {
        let of_parent = |host: &&AttachedHost| {
            host.listener.id.owner == parent.owner && selects(&parent.parent, &host.listener)
        };
        let hosts = attachments.hosts.iter().filter(of_parent);
        // Several parentRefs may select the same listener.
        let mut notes = BTreeSet::new();
        for host in hosts {
            if let Some(chain) = reader.get(chains, &host.chain())
                && chain.route != *route
            {
                notes.insert(taken(host, &chain.route));
            }
        }
        (!notes.is_empty()).then(|| bounded(Vec::from_iter(notes).join("; ")))
    });
    Findings {
        notes: notes.collect(),
        unresolved: backends.unresolved.clone(),
        partially_invalid: None,
    }
}

fn taken(host: &AttachedHost, winner: &ObjectKey) -> String {
    let listener = &host.listener.id.name;
    let (kind, name) = (winner.kind, winner.namespaced_name());
    let precedence = format!("{kind} {name} takes precedence on listener {listener}");
    match &*host.domain {
        hostname::ANY => precedence,
        server_name => format!("{precedence} for server name {server_name}"),
    }
}
