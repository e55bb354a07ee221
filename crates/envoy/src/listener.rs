//! Listeners as LDS resources.
//!
//! In: [`Listener`]. Out: `Listener`. It must not depend on HTTP routes or certificates beyond their names: they
//! change often, and changing a chain closes its connections.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::listener::v3 as pb;
use envoy_types::pb::envoy::extensions::filters::listener::proxy_protocol::v3 as proxy_protocol;
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::certificate_validation_context::TrustChainVerification;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CombinedCertificateValidationContext, ValidationContextType,
};
use envoy_types::util::pack_any;
use sesame_model::{
    Chain, ChainTarget, ClientValidation, DestinationKey, ForwardedCertificate, Listener,
    ListenerKey, ListenerSettings, ProxyProtocol, RouteTableKey, Termination, TlsMode, TlsVersion,
    TlsVersions, Transport,
};

use crate::cluster::TLS_SOCKET;
use crate::hcm::{self, Routes};
use crate::shard::ShardLookup;
use crate::{connections, datagrams, names, on_demand, secret, wire};

/// TLS handshake timeout. Without it, a silent client can hold a connection for an hour.
const HANDSHAKE: Duration = Duration::from_secs(15);

/// Size of a connection's buffers, from Envoy's best practices for edge proxies. Envoy's default of 1 MiB would let slow
/// clients take a lot of memory.
const BUFFER: u32 = 32 * 1024;

/// The protocols of HTTP over TLS, for ALPN.
const HTTP_PROTOCOLS: &[&str] = &["h2", "http/1.1"];

/// The listener for a port, on all of the port's addresses. If `shards` returns a number for a route table, the
/// listener uses that many shards of it, selected by `lookup`. If `on_demand` is set, one chain replaces the chains that
/// [`on_demand::shared`] returns.
///
/// On a TLS port, connections that match no filter chain (unknown or missing server name) are closed before the
/// handshake, except that a chain with certificates on demand fails the handshake.
pub fn listener(
    key: &ListenerKey,
    listener: &Listener,
    shards: impl Fn(&RouteTableKey) -> Option<u32>,
    lookup: ShardLookup,
    on_demand: bool,
) -> pb::Listener {
    let settings = &*listener.settings;
    let serve = |table: &RouteTableKey, server_name: Option<&str>, forwarded| {
        let routes = match shards(table) {
            None => Routes::Whole(table),
            Some(shards) => Routes::Shards(table, shards, lookup),
        };
        let tracing = listener.tracing.as_deref();
        let manager = hcm::connection_manager(
            names::listener(key),
            routes,
            server_name,
            forwarded,
            tracing,
            settings,
        );
        vec![http(manager)]
    };
    let filters = |chain: &Chain| match &chain.target {
        ChainTarget::Http(table) => {
            let server_name = chain.tls.as_ref().map(|tls| tls.server_name.as_deref());
            let forwarded = forwarded(chain);
            serve(
                table,
                server_name.map(|name| name.unwrap_or("*")),
                forwarded,
            )
        }
        ChainTarget::Destination => {
            let destination = DestinationKey {
                listener: key.clone(),
                domain: chain.server_name().unwrap_or("*").into(),
            };
            connections::to_cluster(key, settings, names::destination(&destination))
        }
        ChainTarget::DestinationByServerName => connections::by_server_name(key, settings),
        ChainTarget::Weighted(backends) => connections::weighted(key, settings, backends),
    };
    let shared = if on_demand {
        on_demand::shared(listener)
    } else {
        None
    };
    let (filter_chains, filter_chain_matcher) = match shared {
        None => {
            let chains = listener.chains.iter();
            let chains = chains.map(|chain| filter_chain(chain, settings, filters(chain)));
            (chains.collect(), None)
        }
        Some(shared) => {
            let others = shared.others.iter().copied();
            let matcher = on_demand::matcher(others.clone().filter_map(Chain::server_name));
            let others = others.map(|chain| pb::FilterChain {
                filter_chain_match: None,
                ..filter_chain(chain, settings, filters(chain))
            });
            let shared_chain = pb::FilterChain {
                name: on_demand::CHAIN.to_owned(),
                filters: serve(shared.table, Some("%REQUESTED_SERVER_NAME%"), None),
                transport_socket: Some(transport_socket(on_demand::context(
                    HTTP_PROTOCOLS,
                    parameters(settings, None),
                ))),
                transport_socket_connect_timeout: Some(wire::duration(HANDSHAKE)),
                ..Default::default()
            };
            (others.chain([shared_chain]).collect(), Some(matcher))
        }
    };
    let reads_tls = listener.chains.iter().any(|chain| chain.tls.is_some());
    let transport = key.port.transport;
    let (first, second) = match transport {
        Transport::Tcp => (proxy_protocol(settings), reads_tls.then(tls_inspector)),
        Transport::Udp => (Some(datagrams::filter(key)), None),
    };
    let mut addresses = listener
        .bind
        .iter()
        .copied()
        .map(|address| match transport {
            Transport::Tcp => wire::socket_address(address),
            Transport::Udp => wire::udp_address(address),
        });
    pb::Listener {
        name: names::listener(key),
        address: addresses.next(),
        additional_addresses: addresses.map(additional).collect(),
        filter_chains,
        filter_chain_matcher,
        listener_filters: first.into_iter().chain(second).collect(),
        per_connection_buffer_limit_bytes: match transport {
            Transport::Tcp => wire::uint32(settings.limits.buffer.unwrap_or(BUFFER)),
            Transport::Udp => None,
        },
        // One set of statistics per port instead of one per address.
        stat_prefix: names::listener(key),
        ..Default::default()
    }
}

fn additional(address: core::Address) -> pb::AdditionalAddress {
    pb::AdditionalAddress {
        address: Some(address),
        ..Default::default()
    }
}

fn filter_chain(
    chain: &Chain,
    settings: &ListenerSettings,
    filters: Vec<pb::Filter>,
) -> pb::FilterChain {
    // The protocols that a TCP backend speaks are unknown.
    let alpn: &[&str] = match chain.target {
        ChainTarget::Http(_) => HTTP_PROTOCOLS,
        ChainTarget::Destination
        | ChainTarget::DestinationByServerName
        | ChainTarget::Weighted(_) => &[],
    };
    let mut out = pb::FilterChain {
        filters,
        ..Default::default()
    };
    if let Some(chain) = &chain.tls {
        out.name = chain.server_name.as_deref().unwrap_or("*").to_owned();
        out.filter_chain_match = chain.server_name.as_ref().map(|name| pb::FilterChainMatch {
            server_names: vec![name.to_string()],
            ..Default::default()
        });
        match &chain.mode {
            TlsMode::Terminate(termination) => {
                out.transport_socket = Some(transport_socket(context(termination, settings, alpn)));
                out.transport_socket_connect_timeout = Some(wire::duration(HANDSHAKE));
            }
            // Without a transport socket, only the match rejects connections without TLS.
            TlsMode::Passthrough => {
                out.filter_chain_match
                    .get_or_insert_default()
                    .transport_protocol = "tls".to_owned();
            }
        }
    }
    out
}

/// The parts of a chain's client certificates that are forwarded to backends.
fn forwarded(chain: &Chain) -> Option<ForwardedCertificate> {
    match &chain.tls.as_ref()?.mode {
        TlsMode::Terminate(termination) => termination.clients.as_ref()?.forwarded,
        TlsMode::Passthrough => None,
    }
}

fn http(manager: HttpConnectionManager) -> pb::Filter {
    pb::Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(pb::filter::ConfigType::TypedConfig(pack_any(manager))),
    }
}

/// The filter that reads a connection's PROXY protocol header. It must come before others that read the connection.
fn proxy_protocol(settings: &ListenerSettings) -> Option<pb::ListenerFilter> {
    let optional = match settings.proxy_protocol? {
        ProxyProtocol::Disabled => return None,
        ProxyProtocol::Required => false,
        ProxyProtocol::Optional => true,
    };
    let config = proxy_protocol::ProxyProtocol {
        allow_requests_without_proxy_protocol: optional,
        ..Default::default()
    };
    Some(pb::ListenerFilter {
        name: "envoy.filters.listener.proxy_protocol".to_owned(),
        config_type: Some(pb::listener_filter::ConfigType::TypedConfig(pack_any(
            config,
        ))),
        ..Default::default()
    })
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

fn context(
    termination: &Termination,
    settings: &ListenerSettings,
    alpn: &[&str],
) -> tls::DownstreamTlsContext {
    let certificates = termination.certificates.iter();
    let clients = termination.clients.as_deref();
    tls::DownstreamTlsContext {
        common_tls_context: Some(tls::CommonTlsContext {
            tls_certificate_sds_secret_configs: certificates
                .map(|key| secret::reference(names::secret(key)))
                .collect(),
            alpn_protocols: alpn.iter().map(|&protocol| protocol.to_owned()).collect(),
            validation_context_type: clients.map(validation),
            tls_params: parameters(settings, termination.versions),
            ..Default::default()
        }),
        require_client_certificate: match clients {
            Some(clients) if !clients.optional => wire::boolean(true),
            _ => None,
        },
        ..Default::default()
    }
}

/// The TLS versions and cipher suites of a chain with its own `versions`; `None` for Envoy's defaults.
fn parameters(
    settings: &ListenerSettings,
    versions: Option<TlsVersions>,
) -> Option<tls::TlsParameters> {
    let versions = settings.tls_versions(versions);
    let suites = settings.cipher_suites.as_deref();
    if versions.is_none() && suites.is_none() {
        return None;
    }
    let mut out = tls::TlsParameters::default();
    if let Some(versions) = versions {
        out.tls_minimum_protocol_version = version(versions.min).into();
        out.tls_maximum_protocol_version = version(versions.max).into();
    }
    out.cipher_suites = suites
        .iter()
        .copied()
        .flatten()
        .map(ToString::to_string)
        .collect();
    Some(out)
}

fn version(version: TlsVersion) -> tls::tls_parameters::TlsProtocol {
    match version {
        TlsVersion::V1_2 => tls::tls_parameters::TlsProtocol::TlSv12,
        TlsVersion::V1_3 => tls::tls_parameters::TlsProtocol::TlSv13,
    }
}

fn transport_socket(context: tls::DownstreamTlsContext) -> core::TransportSocket {
    core::TransportSocket {
        name: TLS_SOCKET.to_owned(),
        config_type: Some(core::transport_socket::ConfigType::TypedConfig(pack_any(
            context,
        ))),
    }
}

/// The CAs are a resource of their own, so that a rotated CA doesn't replace the chain. Until Envoy has the CAs, it
/// closes all connections.
fn validation(clients: &ClientValidation) -> ValidationContextType {
    let verification = match clients.untrusted {
        true => TrustChainVerification::AcceptUntrusted,
        false => TrustChainVerification::VerifyTrustChain,
    };
    let settings = tls::CertificateValidationContext {
        trust_chain_verification: verification.into(),
        only_verify_leaf_cert_crl: clients.revocable_leaf,
        ..Default::default()
    };
    let Some(authorities) = &clients.authorities else {
        return ValidationContextType::ValidationContext(settings);
    };
    let authorities = secret::reference(names::trust_bundle(authorities));
    if settings == tls::CertificateValidationContext::default() {
        return ValidationContextType::ValidationContextSdsSecretConfig(authorities);
    }
    ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
        default_validation_context: Some(settings),
        validation_context_sds_secret_config: Some(authorities),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests;
