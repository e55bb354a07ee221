//! The fleet of a Gateway.

use sesame_api::{self as api, AddressType, Gateway, GatewaySpecAddress};
use sesame_model::{
    AddressRequest, AddressValue, FleetId, FleetRequest, GatewayOwner, Port, Routability,
};

use super::gateway::GatewayState;
use super::merge::PortClaim;
use crate::configuration::references::GatewayParameters;
use crate::settings::Settings;

/// The fleet that a Gateway needs; `None` if the Gateway is not accepted.
///
/// In a cluster, it includes the ports of all accepted listeners: if a missing Secret removed a port, the Service could
/// lose its address. Locally, it includes only the ports that Envoy binds, so that other programs can use the rest.
pub(crate) fn request<'a>(
    settings: &Settings,
    gateway: &Gateway,
    state: &GatewayState,
    parameters: &GatewayParameters,
    ports: impl Iterator<Item = (Port, &'a PortClaim)>,
) -> Option<(FleetId, FleetRequest)> {
    if state.refused.is_some() {
        return None;
    }
    let fleet = settings.fleet_of(&gateway.meta.namespaced_name());
    let owner = GatewayOwner {
        name: gateway.meta.name.clone(),
        uid: gateway.meta.uid.clone(),
        class: gateway.spec.gateway_class_name.clone(),
    };
    let infrastructure = gateway.spec.infrastructure.as_deref();
    let chosen = parameters.chosen.as_ref();
    let request = FleetRequest {
        owner: matches!(fleet, FleetId::Gateway { .. }).then_some(owner),
        labels: infrastructure
            .map(|infrastructure| infrastructure.labels.clone())
            .unwrap_or_default(),
        annotations: infrastructure
            .map(|infrastructure| infrastructure.annotations.clone())
            .unwrap_or_default(),
        addresses: gateway.spec.addresses.iter().map(address).collect(),
        ports: ports
            .filter(|(_, claim)| settings.in_cluster() || claim.serving)
            .map(|(port, _)| port)
            .collect(),
        parameters: chosen.map(|chosen| chosen.parameters.clone()),
    };
    Some((fleet, request))
}

fn address(requested: &GatewaySpecAddress) -> AddressRequest {
    let value = &requested.value;
    let address = match &requested.type_ {
        AddressType::IpAddress if value.is_empty() => AddressValue::Any,
        AddressType::IpAddress => match value.parse() {
            Ok(ip) => AddressValue::Ip(ip),
            Err(_) => AddressValue::InvalidIp(value.clone()),
        },
        AddressType::Hostname => AddressValue::Hostname(value.clone()),
        other => AddressValue::Other(other.as_str().to_owned()),
    };
    let routability = match &requested.routability {
        None | Some(api::Routability::Default) => Routability::Default,
        Some(api::Routability::Cluster) => Routability::Cluster,
        Some(api::Routability::Other(name)) => Routability::Other(name.to_string()),
    };
    AddressRequest {
        address,
        routability,
    }
}
