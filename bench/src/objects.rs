//! Objects for Sesame.
//!
//! In: numbers and addresses. Out: objects and changes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use sesame_api::Object;
use sesame_control::core::Input;
use sesame_model::{FleetAddress, FleetId, FleetState};
use sesame_sources::change::Change;
use sesame_testkit::many;

/// The Gateway's address.
pub(crate) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A Gateway at [`ADDRESS`] with `count` routes, each with a Service and an EndpointSlice.
pub(crate) fn values(
    port: u16,
    count: usize,
    endpoint: impl Fn(usize) -> SocketAddr,
) -> Vec<Value> {
    let mut gateway = many::gateway(port);
    gateway["spec"]["addresses"] = json!([{"type": "IPAddress", "value": ADDRESS.to_string()}]);
    let apps = (0..count).flat_map(|index| many::app(index, endpoint(index)));
    std::iter::once(gateway).chain(apps).collect()
}

/// The same objects, decoded.
pub(crate) fn site(port: u16, count: usize, endpoint: impl Fn(usize) -> SocketAddr) -> Vec<Object> {
    let values = values(port, count, endpoint);
    values.iter().map(many::object).collect()
}

/// The fleet of the Gateway.
pub(crate) fn fleet() -> FleetId {
    FleetId::of_gateway(many::NAMESPACE, many::GATEWAY)
}

/// Changes that create or update objects.
pub(crate) fn upserts(values: &[Value]) -> Vec<Change> {
    values
        .iter()
        .map(|value| Change::Upsert(many::object(value)))
        .collect()
}

/// Changes that remove objects.
pub(crate) fn removals(values: &[Value]) -> Vec<Change> {
    values
        .iter()
        .map(|value| Change::Remove(many::object(value).key()))
        .collect()
}

/// Wraps a change as translation input.
pub(crate) fn input(change: Change) -> Input {
    match change {
        Change::Upsert(object) => Input::Upsert(object),
        Change::Remove(key) => Input::Remove(key),
    }
}

/// Input that reports the fleet as ready.
pub(crate) fn ready() -> Input {
    let state = FleetState {
        addresses: vec![FleetAddress::Ip(ADDRESS)],
        ready: true,
        ..FleetState::default()
    };
    Input::Fleet(fleet(), Some(state))
}
