//! Shared by the tests: a Sesame process, objects, and requests.
//!
//! - [`binary`]: the `sesame` to test, built if necessary.
//! - [`default_fleet`]: a `sesame local` without Gateways.
//! - [`dice`]: reproducible random numbers.
//! - [`folder`]: objects in files.
//! - [`sesame`]: `sesame local` as a child process, with its events and statuses.
//! - [`names`]: names that Envoy resolves.
//! - [`objects`]: objects as text.
//! - [`requests`]: requests and summaries of their responses.
//! - [`wrapper`]: an Envoy with additional configuration, or without some of its extensions.

mod binary;
mod default_fleet;
mod dice;
mod folder;
mod names;
mod objects;
mod process;
mod requests;
mod sesame;
mod wrapper;

pub(crate) use sesame_testkit::loopback::new_ip;

pub(crate) use self::default_fleet::DefaultFleet;
pub(crate) use self::dice::Dice;
pub(crate) use self::folder::Folder;
pub(crate) use self::names::Names;
pub(crate) use self::objects::{
    HTTP, Https, at, backend, backends, certificate, created, gateway, grant, grpc_route, https,
    namespace, on, route, service, tcp_route, tls_route, to, udp_route,
};
pub(crate) use self::process::{children, ended, is_running, send_signal};
pub(crate) use self::requests::{
    Summary, assert_share, becomes, check, check_requests, eventually, has_certificate, listening,
    shares,
};
pub(crate) use self::sesame::{Sesame, turns};
pub(crate) use self::wrapper::Wrapper;
