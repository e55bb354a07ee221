//! Clusters as CDS resources.
//!
//! In: [`Cluster`]. Out: `Cluster`, with endpoints over DNS or EDS; with EDS, Pod changes don't touch the cluster. It
//! must not depend on endpoints or routes.
//!
//! A cluster costs an Envoy tens of kilobytes, mostly statistics, so this module doesn't enable additional ones.

mod settings;

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3 as pb;
use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::thresholds::RetryBudget;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints};
use envoy_types::pb::envoy::extensions::clusters::common::dns::v3::DnsLookupFamily;
use envoy_types::pb::envoy::extensions::clusters::dns::v3::DnsCluster;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CombinedCertificateValidationContext, ValidationContextType,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use envoy_types::pb::envoy::extensions::upstreams::http::v3 as http;
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::pb::google::protobuf::BoolValue;
use envoy_types::util::pack_any;
use sesame_model::{
    AddressFamilies, Authorities, BackendName, CertificateName, Cluster, ClusterKey,
    ConnectionLimits, DestinationKey, Discovery, ExternalHost, Protocol, RetryLimit, UpstreamTls,
    Verification,
};

use crate::{endpoint, names, secret, wire};

/// Name of the TLS transport socket, downstream and upstream.
pub(crate) const TLS_SOCKET: &str = "envoy.transport_sockets.tls";
/// Key of a cluster's HTTP options.
pub(crate) const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
/// The path of the operating system's CA bundle in the Envoy image, on Debian and on Alpine. If it doesn't exist, Envoy
/// rejects the cluster, so requests fail.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The minimum time between DNS lookups, regardless of the answer's TTL.
const MIN_REFRESH: Duration = Duration::from_secs(5);

/// Limits for a best-effort cluster. They bound the memory for requests to a slow backend.
const BEST_EFFORT_REQUESTS: u32 = 128;
const BEST_EFFORT_DURATION: Duration = Duration::from_secs(10);

/// The cluster for a key.
///
/// Without settings, load balancing uses least request, and circuit breakers trip only on best-effort clusters and at a
/// retry limit: Envoy's defaults (1,024 connections and requests, 3 concurrent retries) would turn load into errors
/// that no object configures.
pub fn cluster(key: &ClusterKey, cluster: &Cluster) -> pb::Cluster {
    let best_effort = key.is_best_effort();
    let settings = cluster.connections.as_deref();
    let mut limits = settings
        .and_then(|settings| settings.limits)
        .unwrap_or_default();
    if best_effort {
        limits.requests = Some(BEST_EFFORT_REQUESTS);
        limits.pending = Some(BEST_EFFORT_REQUESTS);
    }
    let shared = matches!(key.backend, BackendName::ExtensionService { .. });
    let mut out = pb::Cluster {
        circuit_breakers: Some(circuit_breakers(&limits, cluster.retries)),
        common_lb_config: shared.then(by_locality),
        lb_policy: pb::cluster::LbPolicy::LeastRequest.into(),
        transport_socket: cluster.tls.as_deref().map(transport_socket),
        ..match &cluster.discovery {
            Discovery::Endpoints => with_eds(names::cluster(key)),
            Discovery::Dns(host) => with_dns(names::cluster(key), host),
        }
    };
    if let Some(settings) = settings {
        settings::apply(settings, key, cluster.protocol, &mut out);
    }
    let idle = settings.and_then(|settings| settings.idle_timeout);
    if let Some(mut options) = http_options(cluster, idle.is_some()) {
        let common = best_effort || idle.is_some();
        options.common_http_protocol_options = common.then(|| core::HttpProtocolOptions {
            idle_timeout: idle.map(wire::duration),
            max_stream_duration: best_effort.then(|| wire::duration(BEST_EFFORT_DURATION)),
            ..Default::default()
        });
        out.typed_extension_protocol_options
            .insert(HTTP_OPTIONS.to_owned(), pack_any(options));
    }
    out
}

/// The cluster for forwarded connections: the cluster `to`, with the same endpoints, under another name.
pub fn destination(key: &DestinationKey, to: &ClusterKey, cluster: &Cluster) -> pb::Cluster {
    let mut out = self::cluster(to, cluster);
    let service = std::mem::replace(&mut out.name, names::destination(key));
    if let Some(eds) = &mut out.eds_cluster_config {
        eds.service_name = service;
    }
    if let Some(dns) = &mut out.load_assignment {
        dns.cluster_name.clone_from(&out.name);
    }
    out
}

/// A cluster with endpoints over EDS, and circuit breakers that never trip.
pub(crate) fn with_eds(name: String) -> pb::Cluster {
    pb::Cluster {
        name,
        cluster_discovery_type: Some(pb::cluster::ClusterDiscoveryType::Type(
            pb::cluster::DiscoveryType::Eds.into(),
        )),
        eds_cluster_config: Some(pb::cluster::EdsClusterConfig {
            eds_config: Some(wire::ads()),
            ..Default::default()
        }),
        circuit_breakers: Some(circuit_breakers(&ConnectionLimits::default(), None)),
        ..Default::default()
    }
}

/// Load balancing first chooses a locality, by weight, and then one of its endpoints.
pub(crate) fn by_locality() -> pb::cluster::CommonLbConfig {
    use pb::cluster::common_lb_config::{LocalityConfigSpecifier, LocalityWeightedLbConfig};
    pb::cluster::CommonLbConfig {
        locality_config_specifier: Some(LocalityConfigSpecifier::LocalityWeightedLbConfig(
            LocalityWeightedLbConfig::default(),
        )),
        ..Default::default()
    }
}

/// A cluster that connects to the addresses of a DNS name.
///
/// - All addresses are one endpoint: Envoy tries them in turn for each connection, and open connections stay when the
///   answer changes, as it does with every lookup of a large service.
/// - The name is absolute: with search domains, a name such as `db.shop` could resolve to another namespace's Service.
/// - Until the first answer, requests get 503. If the cluster waited for it, a name whose servers don't respond would
///   delay all of the fleet's changes.
fn with_dns(name: String, host: &ExternalHost) -> pb::Cluster {
    let address = core::Address {
        address: Some(core::address::Address::SocketAddress(core::SocketAddress {
            address: format!("{}.", host.hostname),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(
                host.port.into(),
            )),
            ..Default::default()
        })),
    };
    let dns = DnsCluster {
        dns_lookup_family: match host.families {
            AddressFamilies::All => DnsLookupFamily::All,
            AddressFamilies::Auto => DnsLookupFamily::Auto,
            AddressFamilies::V4 => DnsLookupFamily::V4Only,
            AddressFamilies::V6 => DnsLookupFamily::V6Only,
        }
        .into(),
        respect_dns_ttl: true,
        dns_min_refresh_rate: Some(wire::duration(MIN_REFRESH)),
        all_addresses_in_single_endpoint: true,
        ..Default::default()
    };
    pb::Cluster {
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: name.clone(),
            endpoints: vec![LocalityLbEndpoints {
                lb_endpoints: vec![endpoint::host_at(address)],
                ..Default::default()
            }],
            ..Default::default()
        }),
        name,
        cluster_discovery_type: Some(pb::cluster::ClusterDiscoveryType::ClusterType(
            pb::cluster::CustomClusterType {
                name: "envoy.clusters.dns".to_owned(),
                typed_config: Some(pack_any(dns)),
            },
        )),
        wait_for_warm_on_init: Some(BoolValue { value: false }),
        ..Default::default()
    }
}

/// The default limit on concurrent retries to a cluster that has neither its own limit nor a retry budget. It bounds what
/// retries add to the load of a Service that fails.
const MAX_RETRIES: u32 = 1_024;

/// The default limit on an Envoy's connections to a cluster, on requests in progress and on those that wait for a
/// connection. Over HTTP/2, each client can send a hundred requests at a time to a Service that doesn't respond.
const MAX_REQUESTS: u32 = 50_000;

/// Circuit breakers that trip only at these limits, or the defaults.
///
/// The retry budget has no interval: with one, Envoy compares the retries in progress with all requests in the
/// interval, so fast retries never exceed it.
fn circuit_breakers(limits: &ConnectionLimits, retries: Option<RetryLimit>) -> pb::CircuitBreakers {
    let or_default = |limit: Option<u32>| wire::uint32(limit.unwrap_or(MAX_REQUESTS));
    let per_endpoint = limits.connections_per_endpoint;
    pb::CircuitBreakers {
        per_host_thresholds: per_endpoint
            .map(|limit| pb::circuit_breakers::Thresholds {
                max_connections: wire::uint32(limit),
                ..Default::default()
            })
            .into_iter()
            .collect(),
        thresholds: vec![pb::circuit_breakers::Thresholds {
            max_connections: or_default(limits.connections),
            max_pending_requests: or_default(limits.pending),
            max_requests: or_default(limits.requests),
            max_retries: wire::uint32(limits.retries.unwrap_or(MAX_RETRIES)),
            retry_budget: retries.map(|limit| RetryBudget {
                budget_percent: Some(Percent {
                    value: limit.percent.into(),
                }),
                min_retry_concurrency: wire::uint32(limit.always),
                ..Default::default()
            }),
            ..Default::default()
        }],
    }
}

/// `None` for protocols other than HTTP, and for HTTP/1.1 (Envoy's default) unless options are `needed`.
fn http_options(cluster: &Cluster, needed: bool) -> Option<http::HttpProtocolOptions> {
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
        Protocol::Http1 if !auto_sni && !needed => return None,
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

/// Certificates are resources of their own, so that a rotation doesn't replace the cluster.
fn transport_socket(upstream: &UpstreamTls) -> core::TransportSocket {
    let certificates = upstream.client_certificate.iter();
    let certificates = certificates.map(|key| secret::reference(names::secret(key)));
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
                    tls_certificate_sds_secret_configs: certificates.collect(),
                    validation_context_type: upstream.verification.as_ref().map(validation),
                    ..Default::default()
                }),
                sni: upstream
                    .server_name
                    .as_deref()
                    .unwrap_or_default()
                    .to_owned(),
                ..Default::default()
            },
        ))),
    }
}

fn validation(verification: &Verification) -> ValidationContextType {
    let mut context = tls::CertificateValidationContext {
        match_typed_subject_alt_names: verification.names.iter().map(name_matcher).collect(),
        ..Default::default()
    };
    match &verification.authorities {
        Authorities::System => {
            context.trusted_ca = Some(core::DataSource {
                specifier: Some(Specifier::Filename(SYSTEM_AUTHORITIES.to_owned())),
                ..Default::default()
            });
            ValidationContextType::ValidationContext(context)
        }
        Authorities::Bundle(bundle) => {
            ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
                default_validation_context: Some(context),
                validation_context_sds_secret_config: Some(secret::reference(names::trust_bundle(
                    bundle,
                ))),
                ..Default::default()
            })
        }
    }
}

fn name_matcher(name: &CertificateName) -> tls::SubjectAltNameMatcher {
    let (san_type, name) = match name {
        CertificateName::Dns(name) => (SanType::Dns, name),
        CertificateName::Uri(uri) => (SanType::Uri, uri),
    };
    tls::SubjectAltNameMatcher {
        san_type: san_type.into(),
        matcher: Some(StringMatcher {
            match_pattern: Some(MatchPattern::Exact(name.as_ref().to_owned())),
            ..Default::default()
        }),
        ..Default::default()
    }
}
