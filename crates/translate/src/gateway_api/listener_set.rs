//! ListenerSets and XListenerSets: whether their Gateways allow them, and which of their listeners are valid.

use std::borrow::Cow;
use std::sync::Arc;

use sesame_api::{
    FromNamespaces, Gateway, Kind, Listener, ListenerNamespaces, ListenerSet, ObjectKey, reason,
};
use sesame_engine::{Reader, Table};

use super::gateway::GatewayState;
use super::listener_state::ListenerState;
use super::merge::{Claims, Merged, conflict};
use super::{assigned_ports, conflicts, listener};
use crate::problem::Problem;
use crate::shared::listeners::ListenerId;
use crate::shared::namespaces::{self, Labels};
use crate::shared::precedence::{Seniority, Source};

/// The state of a ListenerSet of one of our Gateways.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SetState {
    /// Its Gateway.
    pub(crate) gateway: ObjectKey,
    /// Why none of its listeners is served.
    pub(crate) refused: Option<Problem>,
    /// Why routes can't attach to any of its listeners.
    pub(crate) closed: Option<Problem>,
    /// In the set's order.
    pub(crate) listeners: Vec<ListenerState>,
}

impl SetState {
    /// Whether it counts as attached: the Gateway accepts it, and a listener is valid.
    pub(crate) fn attached(&self) -> bool {
        self.refused.is_none() && self.listeners.iter().any(ListenerState::serves_routes)
    }
}

/// The part of a Gateway that its sets need. Changes to its listeners don't affect this row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parent {
    refused: bool,
    /// Set if the fleet serves another Gateway.
    elsewhere: Option<Problem>,
    allowed: ListenerNamespaces,
}

impl Parent {
    /// The row of a Gateway.
    pub(crate) fn of(gateway: &Gateway, state: &GatewayState) -> Self {
        let allowed = gateway.spec.allowed_listeners.as_deref();
        Self {
            refused: state.refused.is_some(),
            elsewhere: state.elsewhere().cloned(),
            allowed: allowed
                .map(|all| all.namespaces.clone())
                .unwrap_or_default(),
        }
    }
}

/// The tables needed to find the Gateways of sets.
#[derive(Clone, Copy)]
pub(crate) struct Parents {
    pub(crate) parents: Table<ObjectKey, Parent>,
    pub(crate) namespaces: Table<Arc<str>, Labels>,
}

/// The tables needed to read sets.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    pub(crate) parents: Parents,
    /// The ports that Sesame assigned to listeners without one.
    pub(crate) assigned: Table<ListenerId, u16>,
    pub(crate) listeners: listener::Sources,
}

/// The Gateway of a set.
pub(super) struct ParentOf {
    /// Its key.
    pub(super) gateway: ObjectKey,
    /// Whether it allows the set.
    pub(super) allows: bool,
    row: Arc<Parent>,
}

/// The Gateway of a set; `None` if it isn't ours.
pub(super) fn parent(
    reader: &mut Reader<'_>,
    sources: Parents,
    set: &ListenerSet,
) -> Option<ParentOf> {
    let reference = &set.spec.parent_ref;
    if reference.known_kind() != Some(Kind::Gateway) {
        return None;
    }
    let namespace = &set.meta.namespace;
    let gateway = reference.resolve(namespace).of_kind(Kind::Gateway);
    let row = reader.get(sources.parents, &gateway)?;
    Some(ParentOf {
        allows: allows(reader, sources, &row.allowed, &gateway, namespace),
        gateway,
        row,
    })
}

/// Reads a set, without conflicts; `None` if its Gateway isn't ours.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    sources: Sources,
    key: &ObjectKey,
    set: &ListenerSet,
) -> Option<SetState> {
    let parent = parent(reader, sources.parents, set)?;
    let (gateway, namespace) = (parent.gateway, &set.meta.namespace);
    let refused = if !parent.allows {
        Some(Problem::new(
            reason::listener_set::NOT_ALLOWED,
            format!(
                "spec.allowedListeners of Gateway {} does not allow ListenerSets from namespace {namespace}",
                gateway.namespaced_name()
            ),
        ))
    } else {
        let refused = parent.row.refused;
        refused.then(|| parent_not_accepted(&gateway))
    };
    let owner = listener::Owner {
        kind: key.kind,
        namespace,
        listeners: &with_ports(reader, sources.assigned, key, &set.spec.listeners),
        gateway: &gateway,
    };
    let mut listeners = listener::read_all(reader, sources.listeners, owner);
    for (index, listener) in listeners.iter_mut().enumerate() {
        if listener.port == 0 {
            listener.refused = Some(no_port(index, &gateway));
        }
    }
    conflicts::mark_overlaps(reader, sources.listeners.certificates, &mut listeners);
    Some(SetState {
        gateway,
        refused,
        closed: parent.row.elsewhere.clone(),
        listeners,
    })
}

/// A set's listeners with their assigned ports; port 0 if none is assigned.
fn with_ports<'a>(
    reader: &mut Reader<'_>,
    assigned: Table<ListenerId, u16>,
    owner: &ObjectKey,
    listeners: &'a [Listener],
) -> Cow<'a, [Listener]> {
    let mut listeners = Cow::Borrowed(listeners);
    if listeners.iter().any(|listener| listener.port == 0) {
        let asking = listeners.to_mut().iter_mut().filter(|l| l.port == 0);
        for listener in asking {
            let id = ListenerId {
                owner: owner.clone(),
                name: Arc::clone(&listener.name),
            };
            listener.port = reader.get(assigned, &id).map_or(0, |port| *port);
        }
    }
    listeners
}

/// The problem with a listener without a port.
fn no_port(index: usize, gateway: &ObjectKey) -> Problem {
    let (first, last) = assigned_ports::PORTS.into_inner();
    Problem::new(
        reason::listener::PORT_UNAVAILABLE,
        format!(
            "spec.listeners[{index}].port: Gateway {} has no free port from {first} to {last}; set a port",
            gateway.namespaced_name()
        ),
    )
}

/// The problem with a set whose Gateway isn't accepted.
pub(super) fn parent_not_accepted(gateway: &ObjectKey) -> Problem {
    Problem::new(
        reason::listener_set::PARENT_NOT_ACCEPTED,
        format!(
            "Gateway {} is not accepted; see its conditions",
            gateway.namespaced_name()
        ),
    )
}

fn allows(
    reader: &mut Reader<'_>,
    sources: Parents,
    allowed: &ListenerNamespaces,
    gateway: &ObjectKey,
    namespace: &Arc<str>,
) -> bool {
    match (&allowed.from, &allowed.selector) {
        (FromNamespaces::All, _) => true,
        (FromNamespaces::Same, _) => gateway.namespace == *namespace,
        (FromNamespaces::Selector, Some(selector)) => {
            namespaces::selected(reader, sources.namespaces, namespace, selector)
        }
        (FromNamespaces::Selector | FromNamespaces::None | FromNamespaces::Other(_), _) => false,
    }
}

/// A set's listeners, which compete for ports and hostnames; `None` if none of them is served.
pub(crate) fn claims(set: &ListenerSet, state: &SetState) -> Option<Claims> {
    let seniority = Seniority::of(Source::GatewayApi, &set.meta);
    let gateway = state.gateway.clone();
    (state.refused.is_none()).then(|| Claims::of(gateway, Some(seniority), &state.listeners))
}

/// The state of a set with its conflicts.
pub(crate) fn merged(
    reader: &mut Reader<'_>,
    merged: Merged,
    key: &ObjectKey,
    own: &SetState,
) -> SetState {
    let mut state = own.clone();
    if state.refused.is_none() {
        for listener in state.listeners.iter_mut().filter(|each| each.accepted()) {
            listener.conflicted = conflict(reader, merged, &state.gateway, key, listener);
            if listener.conflicted.is_some() {
                listener.overlapping = None;
            }
        }
    }
    state
}
