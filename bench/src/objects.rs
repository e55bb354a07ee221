//! What is fed to Sesame.
//!
//! In: numbers and addresses. Out: decoded objects and their keys.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::Value;
use sesame_api::Object;
use sesame_control::core::Input;
use sesame_model::FleetId;
use sesame_testkit::many;
use sesame_translate::fleet::{FleetAddress, FleetState};

/// A Gateway and so many routes, each with a Service and a slice.
pub(crate) fn site(port: u16, count: usize, endpoint: impl Fn(usize) -> SocketAddr) -> Vec<Object> {
    let apps = (0..count).flat_map(|index| many::app(index, endpoint(index)));
    std::iter::once(many::gateway(port))
        .chain(apps)
        .map(|value| many::object(&value))
        .collect()
}

/// The fleet of the Gateway.
pub(crate) fn fleet() -> FleetId {
    FleetId::of_gateway(many::NAMESPACE, many::GATEWAY)
}

/// Objects that there are from now on.
pub(crate) fn upserts(values: &[Value]) -> Vec<Input> {
    values
        .iter()
        .map(|value| Input::Upsert(many::object(value)))
        .collect()
}

/// The same objects, gone.
pub(crate) fn removals(values: &[Value]) -> Vec<Input> {
    values
        .iter()
        .map(|value| Input::Remove(many::object(value).key()))
        .collect()
}

/// A fleet that serves, on loopback.
pub(crate) fn ready() -> Input {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let state = FleetState {
        addresses: vec![FleetAddress {
            value: ip.to_string(),
            ip: Some(ip),
        }],
        ready: true,
        ..FleetState::default()
    };
    Input::Fleet(fleet(), Some(state))
}
