//! Condition types that are ours where nothing else tells whose a condition is: those that the Gateway API defines for a kind.

use sesame_api::condition::{gateway, gateway_class, listener, listener_set, policy, route};

pub(super) const GATEWAY_CLASS: &[&str] =
    &[gateway_class::ACCEPTED, gateway_class::SUPPORTED_VERSION];

pub(super) const GATEWAY: &[&str] = &[
    gateway::ACCEPTED,
    gateway::PROGRAMMED,
    gateway::RESOLVED_REFS,
    gateway::ADDRESSES_ASSIGNED,
    gateway::INSECURE_FRONTEND_VALIDATION_MODE,
    gateway::ATTACHED_LISTENER_SETS,
];

pub(super) const LISTENER_SET: &[&str] = &[listener_set::ACCEPTED, listener_set::PROGRAMMED];

pub(super) const LISTENER: &[&str] = &[
    listener::ACCEPTED,
    listener::PROGRAMMED,
    listener::RESOLVED_REFS,
    listener::CONFLICTED,
    listener::OVERLAPPING_TLS_CONFIG,
];

pub(super) const ROUTE: &[&str] = &[
    route::ACCEPTED,
    route::RESOLVED_REFS,
    route::PARTIALLY_INVALID,
];

pub(super) const POLICY: &[&str] = &[policy::ACCEPTED, policy::RESOLVED_REFS];
