//! The fleet that a Gateway asks for.

use std::collections::BTreeSet;

use sesame_api::Gateway;

use super::gateway::GatewayState;
use super::parameters::GatewayParameters;
use crate::fleet::FleetRequest;
use crate::settings::Settings;

/// The fleet of a Gateway of ours; `None`: there should be none.
pub(crate) fn request(
    settings: &Settings,
    gateway: &Gateway,
    state: &GatewayState,
    parameters: &GatewayParameters,
) -> Option<FleetRequest> {
    if state.refused.is_some() {
        return None;
    }
    let infrastructure = gateway.spec.infrastructure.as_deref();
    Some(FleetRequest {
        gateway: gateway.meta.namespaced_name(),
        gateway_uid: gateway.meta.uid.clone(),
        class: gateway.spec.gateway_class_name.clone(),
        labels: infrastructure
            .map(|wishes| wishes.labels.clone())
            .unwrap_or_default(),
        annotations: infrastructure
            .map(|wishes| wishes.annotations.clone())
            .unwrap_or_default(),
        addresses: gateway.spec.addresses.clone(),
        ports: ports(settings, state),
        parameters: parameters.chosen.clone(),
    })
}

/// On one's own machine only what is listened on is taken from others. In a cluster nobody is there to want it, and a port
/// that came and went with a Secret could cost the fleet its address.
fn ports(settings: &Settings, state: &GatewayState) -> BTreeSet<u16> {
    let listeners = state.listeners.iter();
    listeners
        .filter(|listener| match settings.in_cluster() {
            true => listener.accepted(),
            false => listener.serving(),
        })
        .map(|listener| listener.port)
        .collect()
}
