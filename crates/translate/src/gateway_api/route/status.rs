//! The status of a route: an entry for each of its parents.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use sesame_api::{RouteParentStatus, RouteStatus, condition, reason};
use sesame_engine::{Reader, Table};
use sesame_model::{ClusterKey, DestinationKey, FleetId, ListenerKey};

use crate::fleet::{Rejected, RejectedKind};
use crate::problem::{Problem, bounded};
use crate::shared::client_certificates::ClientCertificates;
use crate::shared::host_ports::{CHECKED, MAX_PORTS};
use crate::shared::hosts::{Attachments, RouteRules};
use crate::shared::services::{Backend, RoutedBackend};

/// The resources that Envoys rejected.
#[derive(Clone, Copy)]
pub(crate) struct Rejections {
    pub(crate) rejections: Table<Rejected, String>,
    /// Fleets that reject hosts, filter chains, clusters, endpoints, or secrets of clusters. Usually empty, which saves a lookup
    /// per backend.
    pub(crate) fleets: Table<FleetId, ()>,
    /// The clusters of backends.
    pub(crate) backends: Table<ClusterKey, RoutedBackend>,
    /// The client certificates of fleets: each certificate has its own clusters.
    pub(crate) client_certificates: ClientCertificates,
}

/// The contribution of a route's rules to its status.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// For each parent, an optional note to add if it accepts the route. May be empty.
    pub(crate) notes: Vec<Option<String>>,
    /// Unresolved references.
    pub(crate) unresolved: Option<Problem>,
    /// Errors in some of the rules.
    pub(crate) partially_invalid: Option<Problem>,
}

impl Findings {
    /// The findings of an HTTP route.
    pub(crate) fn of(rules: &RouteRules) -> Self {
        Self {
            notes: Vec::new(),
            unresolved: rules.unresolved.clone(),
            partially_invalid: rules.partially_invalid.clone(),
        }
    }
}

/// A route's status: an entry for each parentRef to one of our objects. `rejected` is a backend that Envoy rejected.
pub(crate) fn status(
    controller: &Arc<str>,
    attachments: &Attachments,
    findings: &Findings,
    rejected: Option<&Problem>,
    generation: i64,
) -> RouteStatus {
    let unresolved = findings.unresolved.as_ref().or(rejected);
    let parents = attachments
        .parents
        .iter()
        .enumerate()
        .map(|(index, parent)| {
            let note = findings.notes.get(index).and_then(Option::as_ref);
            let limited = attachments.limited.then(|| {
                format!(
                    "a host is served on at most {MAX_PORTS} ports of a Gateway, the first of its listeners that the \
                     parentRefs select; a port with filters counts as {CHECKED}; use another route for further ports"
                )
            });
            let notes: Vec<&str> = note.into_iter().chain(&limited).map(|note| &**note).collect();
            let attached = match notes.is_empty() {
                true => Cow::Borrowed("the route is attached"),
                false => Cow::Owned(format!("the route is attached, but {}", notes.join("; "))),
            };
            let mut conditions = vec![
                Problem::or_true(
                    parent.refused.as_ref(),
                    condition::route::ACCEPTED,
                    (reason::route::ACCEPTED, attached),
                    generation,
                ),
                Problem::or_true(
                    unresolved,
                    condition::route::RESOLVED_REFS,
                    (reason::route::RESOLVED_REFS, "all references are resolved"),
                    generation,
                ),
            ];
            // Only for accepted routes (RouteConditionPartiallyInvalid).
            let partially_invalid = findings
                .partially_invalid
                .as_ref()
                .filter(|_| parent.refused.is_none());
            conditions.extend(partially_invalid.map(|problem| {
                problem.condition(condition::route::PARTIALLY_INVALID, true, generation)
            }));
            RouteParentStatus {
                parent_ref: parent.parent.clone(),
                controller_name: Arc::clone(controller),
                conditions: conditions.into(),
            }
        })
        .collect();
    RouteStatus { parents }
}

/// Reason for ResolvedRefs=False if Envoy rejected a backend, and for PartiallyInvalid=True if Envoy rejected a host. The
/// spec has no such reason: the defect is in Sesame, not in the object.
pub(crate) const REJECTED: &str = "RejectedByEnvoy";

/// A filter chain for connections to the route that an Envoy has rejected.
pub(crate) fn rejected_chain(
    reader: &mut Reader<'_>,
    sources: Rejections,
    attachments: &Attachments,
) -> Option<Problem> {
    attachments.hosts.iter().find_map(|host| {
        let ListenerKey { fleet, port } = &host.listener.port;
        if !reader.exists(sources.fleets, fleet) {
            return None;
        }
        let chain = Rejected::chain(fleet.clone(), *port, &host.domain);
        let message = reader.get(sources.rejections, &chain)?;
        let message = format!(
            "Envoy rejected the configuration of server name {} ({message}); until it changes, its last accepted version is \
             served, or, if there isn't one, connections are closed",
            host.domain
        );
        Some(Problem::new(REJECTED, bounded(message)))
    })
}

/// A backend of the route that an Envoy has rejected.
pub(crate) fn rejected_backend(
    reader: &mut Reader<'_>,
    sources: Rejections,
    attachments: &Attachments,
    clusters: impl Fn() -> Vec<ClusterKey>,
) -> Option<Problem> {
    for fleet in attachments.fleets() {
        if !reader.exists(sources.fleets, fleet) {
            continue;
        }
        let of_fleet = |key: &DestinationKey| key.listener.fleet == *fleet;
        for destination in attachments.destinations().filter(of_fleet) {
            let key = Rejected {
                fleet: fleet.clone(),
                what: RejectedKind::Cluster,
                name: destination.to_string().into(),
            };
            let problem = rejected(reader, sources, &key, &destination);
            if problem.is_some() {
                return problem;
            }
        }
        for cluster in clusters() {
            let found = reader.get(sources.backends, &cluster);
            let cluster = match found.as_deref().map(|found| &found.backend) {
                Some(Backend::Secured(secured)) => {
                    let certificate = reader.get(sources.client_certificates, fleet);
                    let presenting = certificate.and_then(|found| found.cluster(&secured.0));
                    presenting.unwrap_or_else(|| secured.0.clone())
                }
                _ => cluster,
            };
            let mut resources = Rejected::of_cluster(fleet, &cluster);
            let problem = resources.find_map(|key| rejected(reader, sources, &key, &cluster));
            if problem.is_some() {
                return problem;
            }
        }
    }
    None
}

fn rejected(
    reader: &mut Reader<'_>,
    sources: Rejections,
    key: &Rejected,
    backend: &impl fmt::Display,
) -> Option<Problem> {
    let message = reader.get(sources.rejections, key)?;
    let what = match key.what {
        RejectedKind::Secret => format!("secret {} of backend {backend}", key.name),
        _ => format!("backend {backend}"),
    };
    Some(Problem::new(
        REJECTED,
        format!("Envoy rejected {what} ({message}) and keeps its last good version"),
    ))
}
