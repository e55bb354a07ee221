//! The listener that shows whether Envoy serves.
//!
//! In: a Unix socket. Out: a listener that sends a word on each connection. Envoy's worker threads serve it, as they
//! serve clients, once Envoy has its first listeners and clusters. The admin interface doesn't show it: Envoy's
//! main thread serves that interface, and doesn't respond while it loads a large configuration.

use std::path::Path;

use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
use envoy_types::pb::envoy::config::listener::v3 as pb;
use envoy_types::pb::envoy::extensions::filters::network::direct_response::v3 as direct_response;
use envoy_types::util::pack_any;

use super::pipe;

/// The listener, whose statistics start with `listener.readiness.`.
pub(super) fn listener(socket: &Path) -> pb::Listener {
    let response = direct_response::Config {
        response: Some(DataSource {
            specifier: Some(Specifier::InlineString("ready".to_owned())),
            ..Default::default()
        }),
    };
    pb::Listener {
        name: "readiness".to_owned(),
        stat_prefix: "readiness".to_owned(),
        address: Some(pipe(socket, 0o600)),
        filter_chains: vec![pb::FilterChain {
            filters: vec![pb::Filter {
                name: "envoy.filters.network.direct_response".to_owned(),
                config_type: Some(pb::filter::ConfigType::TypedConfig(pack_any(response))),
            }],
            ..Default::default()
        }],
        // An overloaded Envoy is ready: if it weren't, the others would get its clients, and be overloaded next.
        bypass_overload_manager: true,
        ignore_global_conn_limit: true,
        ..Default::default()
    }
}
