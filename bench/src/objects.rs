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

/// The host of [`root`].
pub(crate) const ROOT_HOST: &str = "root.example.com";

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

/// The root HTTPProxy of `children`, each of which has its own prefix.
pub(crate) fn root(children: usize) -> Value {
    let include =
        |index| json!({"name": many::name(index), "conditions": [{"prefix": prefix(index)}]});
    let includes: Vec<Value> = (0..children).map(include).collect();
    json!({
        "apiVersion": "projectsesame.io/v1",
        "kind": "HTTPProxy",
        "metadata": {"namespace": many::NAMESPACE, "name": "root"},
        "spec": {
            "ingressClassName": "sesame",
            "virtualhost": {"fqdn": ROOT_HOST},
            "includes": includes,
        },
    })
}

/// An HTTPProxy without a host that sends all requests to a Service.
pub(crate) fn child(name: &str, service: &str) -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1",
        "kind": "HTTPProxy",
        "metadata": {"namespace": many::NAMESPACE, "name": name},
        "spec": {
            "ingressClassName": "sesame",
            "routes": [{"services": [{"name": service, "port": many::SERVICE_PORT}]}],
        },
    })
}

/// The paths of the child `index` of [`root`].
pub(crate) fn prefix(index: usize) -> String {
    format!("/{}", many::name(index))
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

/// Input that reports the Gateway's fleet as ready.
pub(crate) fn ready() -> Input {
    ready_fleet(fleet())
}

/// Input that reports a fleet as ready.
pub(crate) fn ready_fleet(fleet: FleetId) -> Input {
    let state = FleetState {
        addresses: vec![FleetAddress::Ip(ADDRESS)],
        ready: true,
        ..FleetState::default()
    };
    Input::Fleet(fleet, Some(state))
}
