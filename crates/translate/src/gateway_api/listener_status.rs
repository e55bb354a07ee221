//! The statuses of the listeners of Gateways and ListenerSets.

use std::sync::Arc;

use sesame_api::{Condition, Kind, ListenerStatus, ObjectKey, condition, reason};
use sesame_engine::{Index, Reader, Table};
use sesame_model::{CertificateKey, FleetState};

use super::listener_state::ListenerState;
use crate::fleet::{Rejected, RejectedKind};
use crate::inputs::Inputs;
use crate::problem::{Notices, Problem, bounded};
use crate::settings::Mode;
use crate::shared::client_certificates::{self, ClientCertificates};
use crate::shared::hosts::Attachments;
use crate::shared::listeners::{AttachPoints, ListenerId, RequestChecks};

/// The inputs to the statuses of an object's listeners, besides the object itself.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) inputs: &'a Inputs,
    pub(crate) mode: &'a Mode,
    pub(crate) points: &'a AttachPoints,
    pub(crate) fleet: Option<&'a FleetState>,
    pub(crate) client_certificates: ClientCertificates,
    pub(crate) attached: Index<ObjectKey, Attachments, ListenerId>,
    /// Messages about certificates that expire soon.
    pub(crate) expiring: Table<CertificateKey, String>,
}

/// The statuses of an object's listeners.
pub(super) fn statuses(
    reader: &mut Reader<'_>,
    sources: &Sources<'_>,
    owner: &ObjectKey,
    listeners: &[ListenerState],
    verdicts: Vec<Verdict>,
    generation: i64,
) -> Vec<ListenerStatus> {
    let mut status = |listener: &ListenerState, verdict: Verdict| {
        let id = ListenerId {
            owner: owner.clone(),
            name: Arc::clone(&listener.name),
        };
        let attached = reader.count(sources.attached, &id);
        ListenerStatus {
            name: Arc::clone(&listener.name),
            port: (owner.kind == Kind::XListenerSet).then_some(listener.port),
            supported_kinds: listener.supported_kinds(),
            attached_routes: i32::try_from(attached).unwrap_or(i32::MAX),
            conditions: verdict.conditions(listener, generation),
        }
    };
    let listeners = listeners.iter().zip(verdicts);
    listeners
        .map(|(listener, verdict)| status(listener, verdict))
        .collect()
}

/// Which listeners are invalid, and whether others are valid; `None` if all are valid.
pub(super) fn invalid(listeners: &[ListenerState], verdicts: &[Verdict]) -> Option<(bool, String)> {
    let (mut bad, mut good) = (Vec::new(), Vec::new());
    for (listener, verdict) in listeners.iter().zip(verdicts) {
        match verdict.refused.is_some() || listener.lacks_certificate() {
            true => bad.push(&*listener.name),
            false => good.push(&*listener.name),
        }
    }
    let (bad, good) = (bad.join(", "), good.join(", "));
    match (bad.is_empty(), good.is_empty()) {
        (true, _) => None,
        (false, true) => Some((
            false,
            format!("no valid listeners; see the conditions of {bad}"),
        )),
        (false, false) => Some((
            true,
            format!("invalid listeners: {bad}; valid listeners: {good}"),
        )),
    }
}

/// Warnings about certificates that expire soon. The conditions that name them are true, so they cause no Event.
pub(crate) fn notices(
    reader: &mut Reader<'_>,
    listeners: &[ListenerState],
    expiring: Table<CertificateKey, String>,
) -> Option<Notices> {
    let mut notices = Notices::default();
    for (position, listener) in listeners.iter().enumerate() {
        for certificate in &listener.certificates {
            if let Some(message) = reader.get(expiring, certificate) {
                let field = format!("spec.listeners[{position}].tls.certificateRefs");
                notices.warning(field, String::clone(&message));
            }
        }
    }
    notices.non_empty()
}

/// The state of a listener, including the state of its port.
pub(super) struct Verdict {
    /// Why it isn't accepted.
    refused: Option<Problem>,
    /// Why it isn't programmed.
    pub(super) idle: Option<Problem>,
    /// Messages about its certificates.
    expiring: Vec<String>,
}

/// Determines the states of an object's listeners. `refused` is the reason why none of them is served, if any.
pub(super) fn judge_all(
    reader: &mut Reader<'_>,
    sources: &Sources<'_>,
    listeners: &[ListenerState],
    refused: Option<&str>,
) -> Vec<Verdict> {
    let listeners = listeners.iter();
    listeners
        .map(|listener| judge(reader, sources, listener, refused))
        .collect()
}

fn judge(
    reader: &mut Reader<'_>,
    sources: &Sources<'_>,
    listener: &ListenerState,
    owner_refused: Option<&str>,
) -> Verdict {
    let unavailable = sources
        .fleet
        .and_then(|fleet| fleet.ports.get(&listener.bound_port()));
    let refused = listener
        .refused
        .clone()
        .or_else(|| listener.conflicted.clone())
        .or_else(|| listener.invalid_filters.clone())
        .or_else(|| {
            unavailable.map(|why| Problem::new(reason::listener::PORT_UNAVAILABLE, why.clone()))
        });
    let idle = if let Some(conflict) = &listener.conflicted {
        Some(conflict.clone())
    } else if refused.is_some() || !listener.serving() {
        Some(Problem::new(
            reason::listener::INVALID,
            "the listener is not accepted or has no valid certificate; see its other conditions",
        ))
    } else if let Some(message) = owner_refused {
        Some(Problem::new(reason::listener::INVALID, message))
    } else {
        rejected(reader, sources, listener).or_else(|| pending(sources))
    };
    let expiring = listener.certificates.iter();
    let expiring = expiring.filter_map(|key| reader.get(sources.expiring, key));
    Verdict {
        refused,
        idle,
        expiring: expiring.map(|message| String::clone(&message)).collect(),
    }
}

/// Why Envoy rejected the listener's port, routes, certificates, CAs or authorization services.
fn rejected(
    reader: &mut Reader<'_>,
    sources: &Sources<'_>,
    listener: &ListenerState,
) -> Option<Problem> {
    let point = sources
        .points
        .listeners
        .iter()
        .find(|point| *point.name() == listener.name)?;
    let (fleet, inputs) = (&sources.points.fleet, sources.inputs);
    let key = |what, name: String| Rejected {
        fleet: fleet.clone(),
        what,
        name: name.into(),
    };
    let port = Rejected::listener(fleet.clone(), listener.bound_port());
    let chain = Rejected::chain(fleet.clone(), listener.bound_port(), &listener.domain);
    let table = point.listener.table.as_ref();
    let port_or_routes = reader
        .get(inputs.rejections, &port)
        .or_else(|| reader.get(inputs.rejections, &chain))
        .or_else(|| {
            let table = (fleet.clone(), table?.name().into());
            let routes = reader.by(inputs.rejected_routes_by_table, &table);
            routes.into_iter().next().map(|(_, message)| message)
        })
        .map(|message| ("the configuration".to_owned(), message));
    let (what, message) = port_or_routes
        .or_else(|| {
            listener.certificates.iter().find_map(|certificate| {
                let key = key(RejectedKind::Secret, certificate.to_string());
                let message = reader.get(inputs.rejections, &key)?;
                Some((format!("Secret {certificate}"), message))
            })
        })
        .or_else(|| {
            let bundle = listener.clients.as_ref()?.authorities.as_ref()?;
            let key = key(RejectedKind::Secret, bundle.to_string());
            let message = reader.get(inputs.rejections, &key)?;
            Some(("the CA certificates for clients".to_owned(), message))
        })
        .or_else(|| {
            let Some(RequestChecks::By(checks)) = &listener.checks else {
                return None;
            };
            let certificates = sources.client_certificates;
            let checks = client_certificates::of_checks(reader, certificates, fleet, checks)?;
            let mut resources = checks
                .iter()
                .flat_map(|auth| Rejected::of_cluster(fleet, &auth.cluster));
            let message = resources.find_map(|key| reader.get(inputs.rejections, &key))?;
            Some(("the authorization service".to_owned(), message))
        })?;
    Some(Problem::new(
        reason::listener::INVALID,
        bounded(format!(
            "Envoy rejected {what} ({message}) and keeps its last good version"
        )),
    ))
}

/// Why a valid listener isn't programmed yet. In a cluster, Envoys listen before their Service has an address.
pub(super) fn pending(sources: &Sources<'_>) -> Option<Problem> {
    match sources.fleet {
        Some(fleet) if *sources.mode == Mode::Local && fleet.addresses.is_empty() => {
            Some(Problem::new(
                reason::listener::PENDING,
                "waiting for an address to listen on",
            ))
        }
        Some(fleet) if fleet.ready => None,
        _ => Some(Problem::new(
            reason::listener::PENDING,
            "waiting for Envoy to accept the configuration",
        )),
    }
}

impl Verdict {
    fn conditions(self, listener: &ListenerState, generation: i64) -> Vec<Condition> {
        let of = |type_, problem: &Option<Problem>, (reason, good): (_, &str)| {
            let good = (reason, good.to_owned());
            Problem::or_true(problem.as_ref(), type_, good, generation)
        };
        let resolved = match self.expiring.is_empty() {
            true => "all references are resolved".to_owned(),
            false => bounded(format!(
                "all references are resolved, but {}",
                self.expiring.join("; ")
            )),
        };
        let mut conditions = vec![
            of(
                condition::listener::ACCEPTED,
                &self.refused,
                (reason::listener::ACCEPTED, "the listener is valid"),
            ),
            of(
                condition::listener::PROGRAMMED,
                &self.idle,
                (
                    reason::listener::PROGRAMMED,
                    "the listener is programmed in Envoy",
                ),
            ),
            of(
                condition::listener::RESOLVED_REFS,
                &listener.unresolved,
                (reason::listener::RESOLVED_REFS, &resolved),
            ),
        ];
        conditions.push(match &listener.conflicted {
            Some(problem) => problem.condition(condition::listener::CONFLICTED, true, generation),
            None => Condition::new(
                condition::listener::CONFLICTED,
                false,
                reason::listener::NO_CONFLICTS,
                "no conflicting listeners",
                generation,
            ),
        });
        conditions.extend(listener.overlapping.as_ref().map(|problem| {
            problem.condition(
                condition::listener::OVERLAPPING_TLS_CONFIG,
                true,
                generation,
            )
        }));
        conditions
    }
}
