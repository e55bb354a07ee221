//! ListenerSets: whether their Gateways allow them, and which of their listeners are valid.

use std::sync::Arc;

use sesame_api::{
    FromNamespaces, Gateway, Kind, ListenerNamespaces, ListenerSet, ObjectKey, reason,
};
use sesame_engine::{Reader, Table};

use super::gateway::GatewayState;
use super::listener_state::ListenerState;
use super::merge::{Claims, Merged, conflict};
use super::{conflicts, listener};
use crate::problem::Problem;
use crate::shared::namespaces::{self, Labels};
use crate::shared::precedence::{Seniority, Source};

/// The state of a ListenerSet of one of our Gateways.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SetState {
    /// Its Gateway.
    pub(crate) gateway: ObjectKey,
    /// Why none of its listeners is served.
    pub(crate) refused: Option<Problem>,
    /// Why no route can attach to any of them.
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

/// What sets need of their Gateway. Changes of its listeners don't affect this row.
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

/// The tables needed to read sets.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    pub(crate) parents: Table<ObjectKey, Parent>,
    pub(crate) namespaces: Table<Arc<str>, Labels>,
    pub(crate) listeners: listener::Sources,
}

/// Reads a set, without conflicts; `None` if its Gateway isn't ours.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    sources: Sources,
    set: &ListenerSet,
) -> Option<SetState> {
    let reference = &set.spec.parent_ref;
    if reference.known_kind() != Some(Kind::Gateway) {
        return None;
    }
    let namespace = &set.meta.namespace;
    let gateway = reference.resolve(namespace).of_kind(Kind::Gateway);
    let parent = reader.get(sources.parents, &gateway)?;
    let refused = if !allows(reader, sources, &parent.allowed, &gateway, namespace) {
        Some(Problem::new(
            reason::listener_set::NOT_ALLOWED,
            format!(
                "spec.allowedListeners of Gateway {} does not allow ListenerSets from namespace {namespace}",
                gateway.namespaced_name()
            ),
        ))
    } else {
        parent.refused.then(|| parent_not_accepted(&gateway))
    };
    let owner = listener::Owner {
        kind: Kind::ListenerSet,
        namespace,
        listeners: &set.spec.listeners,
        gateway: &gateway,
    };
    let mut listeners = listener::read_all(reader, sources.listeners, owner);
    conflicts::mark_overlaps(reader, sources.listeners.certificates, &mut listeners);
    Some(SetState {
        gateway,
        refused,
        closed: parent.elsewhere.clone(),
        listeners,
    })
}

/// The problem of a set whose Gateway isn't accepted.
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
    sources: Sources,
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

/// The listeners with which a set competes for ports and hostnames; `None` if none of its listeners is served.
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
