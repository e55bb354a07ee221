//! What is fed to Sesame.
//!
//! In: numbers and addresses. Out: decoded objects and their keys.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use sesame_api::{Object, ObjectKey};
use sesame_testkit::many;
use sesame_translate::fleet::{FleetAddress, FleetState};

/// The Gateway's port where nobody listens.
const PORT: u16 = 80;

/// A Gateway and so many routes, each with a Service and a slice.
pub(crate) fn site(count: usize, endpoint: impl Fn(usize) -> SocketAddr) -> Vec<Object> {
    let apps = (0..count).flat_map(|index| many::app(index, endpoint(index)));
    std::iter::once(many::gateway(PORT))
        .chain(apps)
        .map(|value| many::object(&value))
        .collect()
}

/// The keys of [`site`].
pub(crate) fn keys(count: usize) -> impl Iterator<Item = ObjectKey> {
    site(count, many::endpoint)
        .into_iter()
        .map(|object| object.key())
}

/// A fleet that serves, on loopback.
pub(crate) fn ready() -> FleetState {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    FleetState {
        addresses: vec![FleetAddress {
            value: ip.to_string(),
            ip: Some(ip),
        }],
        ready: true,
        ..FleetState::default()
    }
}
