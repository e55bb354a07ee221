//! The status of a Gateway.

use sesame_api::{
    AddressType, Condition, Gateway, GatewaySpecAddress, GatewayStatus, GatewayStatusAddress,
    ListenerStatus, ObjectKey, condition, reason,
};
use sesame_engine::{Index, Reader};
use sesame_model::{FleetAddress, FleetProblem, FleetState};
use std::sync::Arc;

use super::gateway::{GatewayState, ListenerState};
use crate::fleet::{Rejected, RejectedKind};
use crate::inputs::Inputs;
use crate::problem::{Problem, bounded};
use crate::settings::Mode;
use crate::shared::hosts::Attachments;
use crate::shared::listeners::{AttachPoints, ListenerId};

/// The inputs of a Gateway's status, besides the Gateway itself.
pub(crate) struct Sources<'a> {
    pub(crate) inputs: &'a Inputs,
    pub(crate) mode: &'a Mode,
    /// The requested addresses.
    pub(crate) asked: &'a [GatewaySpecAddress],
    pub(crate) state: &'a GatewayState,
    pub(crate) points: &'a AttachPoints,
    pub(crate) fleet: Option<&'a FleetState>,
    pub(crate) attached: Index<ObjectKey, Attachments, ListenerId>,
}

/// The status of a Gateway.
pub(crate) fn status(
    reader: &mut Reader<'_>,
    sources: &Sources<'_>,
    owner: &ObjectKey,
    gateway: &Gateway,
) -> GatewayStatus {
    let generation = gateway.meta.generation;
    let listeners: Vec<Verdict> = sources
        .state
        .listeners
        .iter()
        .map(|listener| judge(reader, sources, listener))
        .collect();
    let mut status = GatewayStatus {
        addresses: addresses(sources.fleet),
        conditions: conditions(sources, &listeners, generation),
        listeners: Vec::new(),
        attached_listener_sets: None,
    };
    for (listener, verdict) in sources.state.listeners.iter().zip(listeners) {
        let id = ListenerId {
            owner: owner.clone(),
            name: Arc::clone(&listener.name),
        };
        let attached = reader.count(sources.attached, &id);
        status.listeners.push(ListenerStatus {
            name: Arc::clone(&listener.name),
            supported_kinds: listener.supported_kinds(),
            attached_routes: i32::try_from(attached).unwrap_or(i32::MAX),
            conditions: verdict.conditions(listener, generation),
        });
    }
    status
}

/// The addresses that clients can use.
fn addresses(fleet: Option<&FleetState>) -> Vec<GatewayStatusAddress> {
    fleet
        .into_iter()
        .flat_map(|fleet| &fleet.addresses)
        .map(|address| GatewayStatusAddress {
            type_: match address {
                FleetAddress::Ip(_) => AddressType::IpAddress,
                FleetAddress::Hostname(_) => AddressType::Hostname,
            },
            value: address.to_string(),
            routability: None,
        })
        .collect()
}

/// The state of a listener, including that of its port.
struct Verdict {
    /// Why it isn't accepted.
    refused: Option<Problem>,
    /// Why it isn't programmed.
    idle: Option<Problem>,
}

fn judge(reader: &mut Reader<'_>, sources: &Sources<'_>, listener: &ListenerState) -> Verdict {
    let unavailable = sources
        .fleet
        .and_then(|fleet| fleet.ports.get(&listener.bound_port()));
    let refused = listener
        .refused
        .clone()
        .or_else(|| listener.conflicted.clone())
        .or_else(|| {
            unavailable.map(|why| Problem::new(reason::listener::PORT_UNAVAILABLE, why.clone()))
        });
    let idle = if refused.is_some() || !listener.serving() {
        Some(Problem::new(
            reason::listener::INVALID,
            "the listener is not accepted or has no valid certificate; see its other conditions",
        ))
    } else if sources.state.refused.is_some() {
        Some(Problem::new(
            reason::listener::INVALID,
            "the Gateway is not accepted; see its Accepted condition",
        ))
    } else {
        rejected(reader, sources, listener).or_else(|| pending(sources))
    };
    Verdict { refused, idle }
}

/// Why Envoy rejected the listener's port, routes or certificates.
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
    let table = point.listener.table.as_ref();
    let message = reader
        .get(inputs.rejections, &port)
        .or_else(|| {
            let table = (fleet.clone(), table?.name().into());
            let routes = reader.by(inputs.rejected_routes_by_table, &table);
            routes.into_iter().next().map(|(_, message)| message)
        })
        .or_else(|| {
            let mut names = listener.certificates.iter();
            names.find_map(|name| {
                let certificate = key(RejectedKind::Secret, name.to_string());
                reader.get(inputs.rejections, &certificate)
            })
        })?;
    Some(Problem::new(
        reason::listener::INVALID,
        bounded(format!(
            "Envoy rejected the configuration ({message}) and keeps its last good version"
        )),
    ))
}

/// Why a valid listener isn't programmed yet. In a cluster, Envoys listen before their Service has an address.
fn pending(sources: &Sources<'_>) -> Option<Problem> {
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
        let of = |type_, problem: &Option<Problem>, good| {
            Problem::or_true(problem.as_ref(), type_, good, generation)
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
                (
                    reason::listener::RESOLVED_REFS,
                    "all references are resolved",
                ),
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

/// The conditions of the Gateway itself.
fn conditions(sources: &Sources<'_>, listeners: &[Verdict], generation: i64) -> Vec<Condition> {
    let accepted = accepted(sources, listeners, generation);
    let programmed = Problem::or_true(
        unprogrammed(sources, listeners, &accepted).as_ref(),
        condition::gateway::PROGRAMMED,
        (
            reason::gateway::PROGRAMMED,
            "the Gateway is programmed in Envoy",
        ),
        generation,
    );
    vec![accepted, programmed]
}

fn accepted(sources: &Sources<'_>, listeners: &[Verdict], generation: i64) -> Condition {
    let make = |status: bool, reason, message: String| {
        Condition::new(
            condition::gateway::ACCEPTED,
            status,
            reason,
            bounded(message),
            generation,
        )
    };
    let state = sources.state;
    if let Some(problem) = state.refused.as_ref().or(state.frozen.as_ref()) {
        return make(false, problem.reason, problem.message.clone());
    }
    if let Some(message) = unsupported_address(sources) {
        return make(false, reason::gateway::UNSUPPORTED_ADDRESS, message);
    }
    let bad: Vec<&str> = sources
        .state
        .listeners
        .iter()
        .zip(listeners)
        .filter(|(listener, verdict)| verdict.refused.is_some() || listener.lacks_certificate())
        .map(|(listener, _)| &*listener.name)
        .collect();
    if bad.is_empty() {
        return make(
            true,
            reason::gateway::ACCEPTED,
            "the Gateway is valid".to_owned(),
        );
    }
    let good: Vec<&str> = sources
        .state
        .listeners
        .iter()
        .map(|listener| &*listener.name)
        .filter(|name| !bad.contains(name))
        .collect();
    let message = match good.is_empty() {
        true => format!(
            "no valid listeners; see the conditions of {}",
            bad.join(", ")
        ),
        false => format!(
            "invalid listeners: {}; valid listeners: {}",
            bad.join(", "),
            good.join(", ")
        ),
    };
    make(
        !good.is_empty(),
        reason::gateway::LISTENERS_NOT_VALID,
        message,
    )
}

/// The first unsupported address in the spec. In a cluster, types are checked here, before the fleet exists, so that
/// the Gateway isn't briefly accepted.
fn unsupported_address(sources: &Sources<'_>) -> Option<String> {
    let of_fleet = match sources.fleet.and_then(|fleet| fleet.problem.as_ref()) {
        Some(FleetProblem::UnsupportedAddress(message)) => Some(message.clone()),
        _ => None,
    };
    let asked = match sources.mode {
        Mode::Managed => sources.asked,
        // Reported in the fleet's state, or not assigned by Sesame.
        Mode::Local | Mode::Unmanaged { .. } => &[],
    };
    let mut asked = asked.iter().enumerate();
    let other = asked.find(|(_, address)| match address.type_ {
        AddressType::IpAddress => false,
        // Any hostname is possible.
        AddressType::Hostname => !address.value.is_empty(),
        AddressType::NamedAddress | AddressType::Other(_) => true,
    });
    let message = other.map(|(index, address)| {
        format!(
            "spec.addresses[{index}].type: {} is not supported; use IPAddress, or remove spec.addresses",
            address.type_
        )
    });
    message.or(of_fleet)
}

/// Why the Gateway isn't programmed.
fn unprogrammed(
    sources: &Sources<'_>,
    listeners: &[Verdict],
    accepted: &Condition,
) -> Option<Problem> {
    let no = |reason, message: &str| Some(Problem::new(reason, bounded(message.to_owned())));
    if !accepted.is_true() {
        return no(
            reason::gateway::INVALID,
            "the Gateway is not accepted; see its Accepted condition",
        );
    }
    match sources.fleet.and_then(|fleet| fleet.problem.as_ref()) {
        Some(FleetProblem::AddressNotUsable(message)) => {
            return no(reason::gateway::ADDRESS_NOT_USABLE, message);
        }
        Some(FleetProblem::AddressNotAssigned(message)) => {
            return no(reason::gateway::ADDRESS_NOT_ASSIGNED, message);
        }
        Some(FleetProblem::NoResources(message)) => {
            return no(reason::gateway::NO_RESOURCES, message);
        }
        Some(FleetProblem::UnsupportedAddress(_)) | None => {}
    }
    if let Some(problem) = pending(sources) {
        return no(reason::gateway::PENDING, &problem.message);
    }
    let addressed = sources
        .fleet
        .is_some_and(|fleet| !fleet.addresses.is_empty());
    // The addresses of unmanaged Envoys may be unknown.
    if *sources.mode == Mode::Managed && !addressed {
        return no(
            reason::gateway::ADDRESS_NOT_ASSIGNED,
            "no address has been assigned yet",
        );
    }
    if listeners.iter().all(|verdict| verdict.idle.is_some()) {
        return no(
            reason::gateway::INVALID,
            "no listener is programmed; see the listeners' conditions",
        );
    }
    None
}
