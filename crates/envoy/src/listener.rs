//! Ports as LDS resources.
//!
//! In: [`Listener`]. Out: `Listener`. It must not know routes or certificates beyond their names: those change often and
//! travel on their own, because a change of a listener closes connections.

use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::listener::v3 as pb;
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::util::pack_any;
use sesame_model::{CertificateKey, Listener, ListenerKey, ListenerKind, RouteTableKey, TlsChain};

use crate::cluster::TLS_SOCKET;
use crate::hcm::{self, Routes};
use crate::shard::Means;
use crate::{names, wire};

/// How long a client may take for its TLS handshake. Without it a silent client holds the connection for an hour.
const HANDSHAKE: Duration = Duration::from_secs(15);

/// The listener of that port, on all its addresses. Where `sharded` says so, it answers from the shards of a route table, which
/// it finds by `means`.
///
/// On a TLS port a connection that no chain wants (another server name, or none where each chain has one) is closed
/// without a word of TLS.
pub fn listener(
    key: &ListenerKey,
    listener: &Listener,
    sharded: impl Fn(&RouteTableKey) -> bool,
    means: Means,
) -> pb::Listener {
    let routes = |table| match sharded(table) {
        false => Routes::Whole(table),
        true => Routes::Shards(table, means),
    };
    let mut addresses = listener.bind.iter().copied();
    let (filter_chains, listener_filters) = match &listener.kind {
        ListenerKind::Http { routes: table } => (vec![plain(key, routes(table))], vec![]),
        ListenerKind::Https { chains } => (
            chains
                .iter()
                .map(|chain| encrypted(key, chain, routes(&chain.routes)))
                .collect(),
            vec![tls_inspector()],
        ),
    };
    pb::Listener {
        name: names::listener(key),
        address: addresses.next().map(wire::socket_address),
        additional_addresses: addresses.map(additional).collect(),
        filter_chains,
        listener_filters,
        // Statistics are named after the port, not after each address.
        stat_prefix: names::listener(key),
        ..Default::default()
    }
}

fn additional(address: SocketAddr) -> pb::AdditionalAddress {
    pb::AdditionalAddress {
        address: Some(wire::socket_address(address)),
        ..Default::default()
    }
}

fn plain(key: &ListenerKey, routes: Routes<'_>) -> pb::FilterChain {
    pb::FilterChain {
        filters: vec![http(key, routes)],
        ..Default::default()
    }
}

fn encrypted(key: &ListenerKey, chain: &TlsChain, routes: Routes<'_>) -> pb::FilterChain {
    pb::FilterChain {
        name: chain.server_name.clone().unwrap_or_else(|| "*".to_owned()),
        filter_chain_match: chain.server_name.as_ref().map(|name| pb::FilterChainMatch {
            server_names: vec![name.clone()],
            ..Default::default()
        }),
        filters: vec![http(key, routes)],
        transport_socket: Some(transport_socket(&chain.certificates)),
        transport_socket_connect_timeout: Some(wire::duration(HANDSHAKE)),
        ..Default::default()
    }
}

fn http(key: &ListenerKey, routes: Routes<'_>) -> pb::Filter {
    pb::Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(pb::filter::ConfigType::TypedConfig(pack_any(
            hcm::connection_manager(names::listener(key), routes),
        ))),
    }
}

fn tls_inspector() -> pb::ListenerFilter {
    pb::ListenerFilter {
        name: "envoy.filters.listener.tls_inspector".to_owned(),
        config_type: Some(pb::listener_filter::ConfigType::TypedConfig(pack_any(
            TlsInspector::default(),
        ))),
        ..Default::default()
    }
}

fn transport_socket(certificates: &[CertificateKey]) -> core::TransportSocket {
    let context = tls::DownstreamTlsContext {
        common_tls_context: Some(tls::CommonTlsContext {
            tls_certificate_sds_secret_configs: certificates
                .iter()
                .map(|key| tls::SdsSecretConfig {
                    name: names::secret(key),
                    sds_config: Some(wire::ads()),
                })
                .collect(),
            alpn_protocols: vec!["h2".to_owned(), "http/1.1".to_owned()],
            ..Default::default()
        }),
        ..Default::default()
    };
    core::TransportSocket {
        name: TLS_SOCKET.to_owned(),
        config_type: Some(core::transport_socket::ConfigType::TypedConfig(pack_any(
            context,
        ))),
    }
}
