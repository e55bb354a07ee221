//! Clusters as CDS resources.
//!
//! In: [`Cluster`]. Out: `Cluster`, with endpoints over EDS, so that Pod changes don't touch it. It must not
//! depend on endpoints or routes.
//!
//! A cluster costs an Envoy tens of kilobytes, mostly statistics, so this module enables no additional ones.

use envoy_types::pb::envoy::config::cluster::v3 as pb;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::envoy::extensions::upstreams::http::v3 as http;
use envoy_types::util::pack_any;
use sesame_model::{Cluster, ClusterKey, Protocol, UpstreamTls};

use crate::{names, wire};

/// Name of the TLS transport socket, downstream and upstream.
pub(crate) const TLS_SOCKET: &str = "envoy.transport_sockets.tls";
/// Key of a cluster's HTTP options.
pub(crate) const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// The cluster for a key.
///
/// Load balancing uses least request. Circuit breakers never trip: Envoy's defaults (1,024 connections and requests,
/// 3 concurrent retries) would turn load into errors that no object configures.
///
/// The endpoint's certificate is not verified: [`UpstreamTls`] has no CA.
pub fn cluster(key: &ClusterKey, cluster: &Cluster) -> pb::Cluster {
    let mut out = pb::Cluster {
        name: names::cluster(key),
        cluster_discovery_type: Some(pb::cluster::ClusterDiscoveryType::Type(
            pb::cluster::DiscoveryType::Eds.into(),
        )),
        eds_cluster_config: Some(pb::cluster::EdsClusterConfig {
            eds_config: Some(wire::ads()),
            ..Default::default()
        }),
        lb_policy: pb::cluster::LbPolicy::LeastRequest.into(),
        circuit_breakers: Some(unlimited()),
        transport_socket: cluster.tls.as_ref().map(transport_socket),
        ..Default::default()
    };
    if let Some(options) = http_options(cluster) {
        out.typed_extension_protocol_options
            .insert(HTTP_OPTIONS.to_owned(), pack_any(options));
    }
    out
}

/// Circuit breakers that never trip.
pub(crate) fn unlimited() -> pb::CircuitBreakers {
    pb::CircuitBreakers {
        thresholds: vec![pb::circuit_breakers::Thresholds {
            max_connections: wire::uint32(u32::MAX),
            max_pending_requests: wire::uint32(u32::MAX),
            max_requests: wire::uint32(u32::MAX),
            max_retries: wire::uint32(u32::MAX),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// `None` for Envoy's default, HTTP/1.1, and for bytes.
fn http_options(cluster: &Cluster) -> Option<http::HttpProtocolOptions> {
    use http::http_protocol_options::explicit_http_config::ProtocolConfig;
    use http::http_protocol_options::{
        AutoHttpConfig, ExplicitHttpConfig, UpstreamProtocolOptions,
    };

    // Without a configured name, SNI is the request's host.
    let auto_sni = matches!(&cluster.tls, Some(tls) if tls.server_name.is_none());
    let explicit = |protocol| {
        UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
            protocol_config: Some(protocol),
        })
    };
    let protocol = match cluster.protocol {
        Protocol::Opaque | Protocol::Datagrams => return None,
        Protocol::Http1 if !auto_sni => return None,
        Protocol::Http2 => explicit(ProtocolConfig::Http2ProtocolOptions(Default::default())),
        // Negotiation uses ALPN: Envoy rejects such a cluster without TLS.
        Protocol::Negotiated if cluster.tls.is_some() => {
            UpstreamProtocolOptions::AutoConfig(AutoHttpConfig::default())
        }
        Protocol::Http1 | Protocol::Negotiated => {
            explicit(ProtocolConfig::HttpProtocolOptions(Default::default()))
        }
    };
    Some(http::HttpProtocolOptions {
        upstream_http_protocol_options: auto_sni.then(|| core::UpstreamHttpProtocolOptions {
            auto_sni: true,
            ..Default::default()
        }),
        upstream_protocol_options: Some(protocol),
        ..Default::default()
    })
}

fn transport_socket(upstream: &UpstreamTls) -> core::TransportSocket {
    core::TransportSocket {
        name: TLS_SOCKET.to_owned(),
        config_type: Some(core::transport_socket::ConfigType::TypedConfig(pack_any(
            tls::UpstreamTlsContext {
                common_tls_context: Some(tls::CommonTlsContext {
                    // Envoy's default for clients is TLS 1.2.
                    tls_params: Some(tls::TlsParameters {
                        tls_maximum_protocol_version: tls::tls_parameters::TlsProtocol::TlSv13
                            .into(),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                sni: upstream.server_name.clone().unwrap_or_default(),
                ..Default::default()
            },
        ))),
    }
}
