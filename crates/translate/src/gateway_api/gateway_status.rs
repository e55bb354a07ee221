//! The status of a Gateway.

use sesame_api::{
    self as api, AddressType, Condition, DefaultScope, Gateway, GatewaySpecAddress, GatewayStatus,
    GatewayStatusAddress, ObjectKey, condition, reason,
};
use sesame_engine::{Index, Reader};
use sesame_model::{FleetAddress, FleetProblem, Routability};

use super::frontend;
use super::gateway::GatewayState;
use super::listener_set::SetState;
use super::listener_status::{self, Verdict};
use crate::problem::{Problem, bounded};
use crate::settings::Mode;

/// The inputs to a Gateway's status, besides the Gateway itself.
pub(crate) struct Sources<'a> {
    pub(crate) listeners: listener_status::Sources<'a>,
    /// The requested addresses.
    pub(crate) asked: &'a [GatewaySpecAddress],
    /// Whether to report the routability of addresses.
    pub(crate) routability: bool,
    pub(crate) state: &'a GatewayState,
    /// ListenerSets by Gateway.
    pub(crate) sets: Index<ObjectKey, SetState, ObjectKey>,
    /// Attached ListenerSets by Gateway.
    pub(crate) attached_sets: Index<ObjectKey, SetState, ObjectKey>,
}

/// The status of a Gateway.
pub(crate) fn status(
    reader: &mut Reader<'_>,
    sources: &Sources<'_>,
    owner: &ObjectKey,
    gateway: &Gateway,
) -> GatewayStatus {
    let generation = gateway.meta.generation;
    let state = sources.state;
    let listeners = &state.listeners;
    let refused = state.refused.is_some();
    let refused = refused.then_some("the Gateway is not accepted; see its Accepted condition");
    let verdicts = listener_status::judge_all(reader, &sources.listeners, listeners, refused);
    let any_sets = reader.count(sources.sets, owner) > 0;
    let mut conditions = conditions(sources, &verdicts, generation);
    let accepted = conditions
        .iter()
        .any(|c| *c.type_ == *condition::gateway::ACCEPTED && c.is_true());
    // A set is accepted only if its Gateway is, and only accepted sets count as attached.
    let attached = match accepted {
        true => reader.count(sources.attached_sets, owner),
        false => 0,
    };
    conditions.extend(insecure(gateway));
    if gateway.spec.default_scope == Some(DefaultScope::All) {
        conditions.push(Condition::new(
            condition::gateway::DEFAULT_GATEWAY,
            true,
            reason::gateway::DEFAULT_GATEWAY,
            "routes that set useDefaultGateways to All attach to the Gateway",
            generation,
        ));
    }
    let allows_sets = gateway.spec.allowed_listeners.is_some();
    if allows_sets {
        conditions.push(attached_sets(attached, generation));
    }
    GatewayStatus {
        addresses: addresses(sources),
        conditions,
        listeners: listener_status::statuses(
            reader,
            &sources.listeners,
            owner,
            listeners,
            verdicts,
            generation,
        ),
        attached_listener_sets: (allows_sets || any_sets)
            .then(|| i32::try_from(attached).unwrap_or(i32::MAX)),
    }
}

/// Warns that clients without a valid certificate are accepted.
fn insecure(gateway: &Gateway) -> Option<Condition> {
    let fields = frontend::insecure(gateway);
    if fields.is_empty() {
        return None;
    }
    let problem = Problem::new(
        reason::gateway::CONFIGURATION_CHANGED,
        bounded(format!(
            "clients are accepted without a valid certificate; to reject them, set {} to AllowValidOnly",
            fields.join(" and ")
        )),
    );
    let type_ = condition::gateway::INSECURE_FRONTEND_VALIDATION_MODE;
    Some(problem.condition(type_, true, gateway.meta.generation))
}

/// The condition from early drafts of GEP-1713, which v1.7 replaces with `attachedListenerSets`.
fn attached_sets(attached: usize, generation: i64) -> Condition {
    let (reason, message) = match attached {
        0 => (
            reason::gateway::NO_LISTENER_SETS_ATTACHED,
            "no ListenerSet is attached",
        ),
        _ => (
            reason::gateway::LISTENER_SETS_ATTACHED,
            "ListenerSets are attached",
        ),
    };
    let type_ = condition::gateway::ATTACHED_LISTENER_SETS;
    Condition::new(type_, attached > 0, reason, message, generation)
}

/// The addresses that clients can use.
fn addresses(sources: &Sources<'_>) -> Vec<GatewayStatusAddress> {
    let Some(fleet) = sources.listeners.fleet else {
        return Vec::new();
    };
    let routability = |address| match fleet.routability.get(address) {
        None | Some(Routability::Default) => api::Routability::Default,
        Some(Routability::Cluster) => api::Routability::Cluster,
        Some(Routability::Other(name)) => api::Routability::Other(name.as_str().into()),
    };
    let addresses = fleet.addresses.iter();
    addresses
        .map(|address| GatewayStatusAddress {
            type_: match address {
                FleetAddress::Ip(_) => AddressType::IpAddress,
                FleetAddress::Hostname(_) => AddressType::Hostname,
            },
            value: address.to_string(),
            routability: sources.routability.then(|| routability(address)),
        })
        .collect()
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
    let mut conditions = vec![accepted, programmed];
    conditions.extend(resolved_refs(sources.state, generation));
    if sources.routability {
        conditions.extend(assigned(sources, generation));
    }
    conditions
}

/// Whether the requested addresses are assigned (GEP-5093); `None` before the fleet is observed.
fn assigned(sources: &Sources<'_>, generation: i64) -> Option<Condition> {
    let fleet = sources.listeners.fleet?;
    let missing = || match &*fleet.unassigned {
        [] => "no address has been assigned yet".to_owned(),
        unassigned => unassigned.join("; "),
    };
    let (reason, message) = match (fleet.addresses.is_empty(), fleet.unassigned.is_empty()) {
        (true, _) => (reason::gateway::NOT_ASSIGNED, missing()),
        (false, false) => (reason::gateway::PARTIALLY_ASSIGNED, missing()),
        (false, true) => (
            reason::gateway::ADDRESSES_ASSIGNED,
            "all addresses are assigned".to_owned(),
        ),
    };
    Some(Condition::new(
        condition::gateway::ADDRESSES_ASSIGNED,
        reason == reason::gateway::ADDRESSES_ASSIGNED,
        reason,
        bounded(message),
        generation,
    ))
}

/// Whether the client certificate and the listeners' references are resolved. Reported only with a client certificate:
/// without one, the condition would repeat the listeners' conditions.
fn resolved_refs(state: &GatewayState, generation: i64) -> Option<Condition> {
    let own = state.client_certificate.as_ref()?.as_ref().err();
    let of_listeners = || {
        let listeners = state.listeners.iter();
        let unresolved = listeners.filter(|listener| listener.unresolved.is_some());
        let names: Vec<&str> = unresolved.map(|listener| &*listener.name).collect();
        (!names.is_empty()).then(|| {
            let message = format!(
                "listeners with unresolved references: {}; see their conditions",
                names.join(", ")
            );
            Problem::new(reason::gateway::LISTENERS_NOT_RESOLVED, bounded(message))
        })
    };
    Some(Problem::or_true(
        own.cloned().or_else(of_listeners).as_ref(),
        condition::gateway::RESOLVED_REFS,
        (
            reason::gateway::RESOLVED_REFS,
            "the client certificate and all listeners' references are resolved",
        ),
        generation,
    ))
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
        return make(false, problem.reason(), problem.message().to_owned());
    }
    if let Some(message) = unsupported_address(sources) {
        return make(false, reason::gateway::UNSUPPORTED_ADDRESS, message);
    }
    match listener_status::invalid(&state.listeners, listeners) {
        None => make(
            true,
            reason::gateway::ACCEPTED,
            "the Gateway is valid".to_owned(),
        ),
        Some((others_valid, message)) => {
            make(others_valid, reason::gateway::LISTENERS_NOT_VALID, message)
        }
    }
}

/// The first unsupported address in the spec. In a cluster, address types are checked here, before the fleet exists, so
/// that the Gateway isn't briefly accepted.
fn unsupported_address(sources: &Sources<'_>) -> Option<String> {
    let of_fleet = match sources
        .listeners
        .fleet
        .and_then(|fleet| fleet.problem.as_ref())
    {
        Some(FleetProblem::UnsupportedAddress(message)) => Some(message.clone()),
        _ => None,
    };
    let asked = match sources.listeners.mode {
        Mode::Managed => sources.asked,
        // Locally, the fleet's state reports them; addresses of unmanaged Envoys aren't assigned by Sesame.
        Mode::Local | Mode::Unmanaged { .. } => &[],
    };
    let mut asked = asked.iter().enumerate();
    let other = asked.find(|(_, address)| match address.type_ {
        AddressType::IpAddress => false,
        // An empty value requests any hostname, which is supported.
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
    match sources
        .listeners
        .fleet
        .and_then(|fleet| fleet.problem.as_ref())
    {
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
    if let Some(problem) = listener_status::pending(&sources.listeners) {
        return no(reason::gateway::PENDING, problem.message());
    }
    let addressed = sources
        .listeners
        .fleet
        .is_some_and(|fleet| !fleet.addresses.is_empty());
    // The addresses of unmanaged Envoys may be unknown.
    if *sources.listeners.mode == Mode::Managed && !addressed {
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
