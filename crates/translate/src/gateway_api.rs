//! Translates Gateway API objects into the model and statuses:
//!
//! - `class`: which GatewayClasses are ours and accepted; `class_in_use`: which of them have Gateways
//! - `unmanaged`: which Gateway the unmanaged fleet serves
//! - `frontend`: how a Gateway validates clients' certificates
//! - `gateway`, `listener_set`, `listener`, `conflicts`: which listeners are valid; `listener_state`: the result
//! - `assigned_ports`: the ports that Sesame assigns to listeners without one
//! - `external_auth`: external authorization of requests; `listener_filters`: the filters of a listener
//! - `certificate_ref`: references to certificates, and the client certificate of a Gateway
//! - `merge`: which listener of a Gateway and its ListenerSets gets each port and hostname
//! - `route`: where routes attach, and their rules; `http_route`, `grpc_route` and `l4_route` contain the kind-specific
//!   parts
//! - `backend_tls`: TLS to Services; `xbackend`: XBackends; `backend_validation`: the certificate validation of both
//! - `backend_traffic`: retry limits and session persistence of backends
//! - `ancestors`: the Gateways that use a backend, for the statuses of backends and their policies
//! - `telemetry`: tracing of requests to Gateways
//! - `policy_status`: shared by the statuses of policies and backends
//! - `fleet_request`: the fleet of a Gateway
//! - `gateway_status`, `listener_set_status`, `listener_status`, `route/status`: the statuses

pub(crate) mod ancestors;
pub(crate) mod assigned_ports;
pub(crate) mod backend_tls;
pub(crate) mod backend_traffic;
mod backend_validation;
pub(crate) mod certificate_ref;
pub mod class;
pub mod class_in_use;
mod conflicts;
mod external_auth;
pub(crate) mod fleet_request;
pub(crate) mod frontend;
pub mod gateway;
pub(crate) mod gateway_status;
pub(crate) mod grpc_route;
pub(crate) mod http_route;
pub(crate) mod l4_route;
pub(crate) mod listener;
mod listener_filters;
pub(crate) mod listener_set;
pub(crate) mod listener_set_status;
pub mod listener_state;
pub(crate) mod listener_status;
pub(crate) mod merge;
pub(crate) mod policy_status;
pub(crate) mod route;
pub(crate) mod telemetry;
pub(crate) mod unmanaged;
pub(crate) mod xbackend;
