//! Envoy's bootstrap configuration.
//!
//! In: Sesame's addresses and the Envoy's identity. Out: `Bootstrap`; everything else comes over xDS. It must not
//! depend on the model or on how Envoys run.

mod node;
mod readiness;
mod stats;
mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use envoy_types::pb::envoy::config::bootstrap::v3 as pb;
use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::config::metrics::v3 as metrics;
use envoy_types::pb::envoy::config::overload::v3 as overload;
use envoy_types::pb::envoy::extensions::resource_monitors::downstream_connections::v3::DownstreamConnectionsConfig;
use envoy_types::pb::envoy::extensions::resource_monitors::fixed_heap::v3::FixedHeapConfig;
use envoy_types::pb::envoy::extensions::upstreams::http::v3 as http;
use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind};
use envoy_types::util::pack_any;
use prost::{Message, Name};
use sesame_model::{FleetId, MAX_PROGRAM_SIZE};

use crate::cluster::HTTP_OPTIONS;
use crate::wire;

pub use node::has_module;
pub use tls::{XdsTls, xds_secrets};

/// The cluster for connections to Sesame. The model's cluster names contain a slash, so they can't conflict.
pub const XDS_CLUSTER: &str = "xds";

/// Default limit on an Envoy's client connections. Each costs tens of kilobytes.
pub const MAX_CONNECTIONS: u64 = 50_000;

/// Limit on responses to requests that Envoy itself sends, to authorization services and servers of keys, in bytes. A
/// service that repeats a client's headers, 60 KiB, must not reach it: it counts as failed then, and may fail open.
const MAX_RESPONSE: u32 = 1 << 20;

/// Options for a bootstrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapOptions {
    /// The fleet that the Envoy belongs to.
    pub fleet: FleetId,
    /// Unique within the fleet.
    pub node_id: String,
    /// Sesame's xDS server.
    pub xds: XdsAddress,
    /// Envoy's admin interface.
    pub admin: Admin,
    /// A Unix socket on which Envoy's worker threads accept connections and send a word. At most 107 bytes.
    pub readiness: Option<PathBuf>,
    /// Limit on client connections across all listeners; further connections are rejected. See [`MAX_CONNECTIONS`].
    pub max_connections: u64,
    /// Near this limit, Envoy releases memory, then resets large streams, and rejects requests and connections. `None`: no
    /// limit.
    pub heap_limit: Option<HeapLimit>,
    /// Whether [`sesame_shard::MODULE`] is in Envoy's search path for modules.
    pub module: bool,
}

/// The limit on an Envoy's heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapLimit {
    /// In bytes.
    Bytes(u64),
    /// Half of the machine's memory. Envoy's `--config-yaml` must add the resource monitor
    /// `envoy.resource_monitors.fixed_heap`, with all of that memory as its maximum.
    HalfOfMemory,
}

/// Address of Sesame's xDS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum XdsAddress {
    /// A Unix socket. At most 107 bytes.
    Unix(PathBuf),
    /// A TCP port.
    Tcp {
        /// A DNS name or an IP address.
        host: String,
        /// The port.
        port: u16,
        /// `None`: plain text.
        tls: Option<XdsTls>,
    },
}

/// Address of Envoy's admin interface. Access to it gives full control over the Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admin {
    /// A Unix socket with mode 0600. At most 107 bytes.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
    /// Disabled.
    None,
}

/// A bootstrap: LDS and CDS over one delta ADS stream.
pub fn bootstrap(options: &BootstrapOptions) -> pb::Bootstrap {
    pb::Bootstrap {
        node: Some(node::node(options)),
        static_resources: Some(pb::bootstrap::StaticResources {
            clusters: vec![xds_cluster(&options.xds)],
            listeners: options
                .readiness
                .as_deref()
                .map(readiness::listener)
                .into_iter()
                .collect(),
            ..Default::default()
        }),
        dynamic_resources: Some(pb::bootstrap::DynamicResources {
            lds_config: Some(wire::ads()),
            cds_config: Some(wire::ads()),
            ads_config: Some(ads_stream()),
            ..Default::default()
        }),
        admin: admin(&options.admin),
        overload_manager: Some(overload_manager(options)),
        layered_runtime: Some(runtime()),
        stats_config: Some(metrics::StatsConfig {
            stats_matcher: Some(stats::kept()),
            ..Default::default()
        }),
        deferred_stat_options: Some(pb::bootstrap::DeferredStatOptions {
            enable_deferred_creation_stats: true,
        }),
        // Without stats sinks, only the admin interface needs statistics.
        stats_flush: Some(pb::bootstrap::StatsFlush::StatsFlushOnAdmin(true)),
        ..Default::default()
    }
}

fn ads_stream() -> core::ApiConfigSource {
    use core::api_config_source::ApiType;
    use core::grpc_service::{EnvoyGrpc, TargetSpecifier};
    core::ApiConfigSource {
        api_type: ApiType::DeltaGrpc.into(),
        transport_api_version: core::ApiVersion::V3.into(),
        grpc_services: vec![core::GrpcService {
            target_specifier: Some(TargetSpecifier::EnvoyGrpc(EnvoyGrpc {
                cluster_name: XDS_CLUSTER.to_owned(),
                retry_policy: Some(core::RetryPolicy {
                    // By default, Envoy waits up to 30 s before reconnecting to a restarted Sesame.
                    retry_back_off: Some(core::BackoffStrategy {
                        base_interval: Some(wire::duration(Duration::from_millis(250))),
                        max_interval: Some(wire::duration(Duration::from_secs(5))),
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            })),
            ..Default::default()
        }],
        // The node lists all built-in extensions (60 kB), which every ACK would otherwise carry.
        set_node_on_first_message_only: true,
        ..Default::default()
    }
}

fn xds_cluster(address: &XdsAddress) -> cluster::Cluster {
    use cluster::cluster::{ClusterDiscoveryType, DiscoveryType};
    let (discovery, address, socket) = match address {
        XdsAddress::Unix(path) => (DiscoveryType::Static, pipe(path, 0), None),
        XdsAddress::Tcp { host, port, tls } => (
            DiscoveryType::StrictDns,
            core::Address {
                address: Some(core::address::Address::SocketAddress(core::SocketAddress {
                    address: host.clone(),
                    port_specifier: Some(core::socket_address::PortSpecifier::PortValue(
                        (*port).into(),
                    )),
                    ..Default::default()
                })),
            },
            tls.as_ref().map(tls::transport_socket),
        ),
    };
    let mut out = cluster::Cluster {
        name: XDS_CLUSTER.to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(discovery.into())),
        load_assignment: Some(endpoint::ClusterLoadAssignment {
            cluster_name: XDS_CLUSTER.to_owned(),
            endpoints: vec![endpoint::LocalityLbEndpoints {
                lb_endpoints: vec![endpoint::LbEndpoint {
                    host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(
                        endpoint::Endpoint {
                            address: Some(address),
                            ..Default::default()
                        },
                    )),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }),
        transport_socket: socket,
        ..Default::default()
    };
    out.typed_extension_protocol_options
        .insert(HTTP_OPTIONS.to_owned(), pack_any(http2()));
    out
}

/// HTTP/2 with keepalive: a stream may be idle for days.
fn http2() -> http::HttpProtocolOptions {
    use http::http_protocol_options::explicit_http_config::ProtocolConfig;
    use http::http_protocol_options::{ExplicitHttpConfig, UpstreamProtocolOptions};
    http::HttpProtocolOptions {
        upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(
            ExplicitHttpConfig {
                protocol_config: Some(ProtocolConfig::Http2ProtocolOptions(
                    core::Http2ProtocolOptions {
                        connection_keepalive: Some(core::KeepaliveSettings {
                            interval: Some(wire::duration(Duration::from_secs(30))),
                            timeout: Some(wire::duration(Duration::from_secs(10))),
                            ..Default::default()
                        }),
                        ..Default::default()
                    },
                )),
            },
        )),
        ..Default::default()
    }
}

fn admin(admin: &Admin) -> Option<pb::Admin> {
    let address = match admin {
        Admin::Unix(path) => pipe(path, 0o600),
        Admin::Tcp(address) => wire::socket_address(*address),
        Admin::None => return None,
    };
    Some(pb::Admin {
        address: Some(address),
        // The admin interface must stay reachable when clients use up all connections.
        ignore_global_conn_limit: true,
        ..Default::default()
    })
}

/// The minimum of buffered bytes for which overload resets a stream, as a power of two: 1 MiB.
const LARGE_BUFFERS: u32 = 20;

/// How often an Envoy measures its heap. Clients shouldn't fill the rest of a container's memory in between.
const HEAP_INTERVAL: Duration = Duration::from_millis(250);

/// The resource monitor for the heap.
const HEAP_MONITOR: &str = "envoy.resource_monitors.fixed_heap";

/// Sheds load before the process runs out of memory.
fn overload_manager(options: &BootstrapOptions) -> overload::OverloadManager {
    use overload::trigger::TriggerOneof;
    let mut out = overload::OverloadManager {
        resource_monitors: vec![monitor(
            "envoy.resource_monitors.global_downstream_max_connections",
            DownstreamConnectionsConfig {
                max_active_downstream_connections: i64::try_from(options.max_connections)
                    .unwrap_or(i64::MAX)
                    .max(1),
            },
        )],
        ..Default::default()
    };
    if let Some(limit) = options.heap_limit {
        out.refresh_interval = Some(wire::duration(HEAP_INTERVAL));
        let share = match limit {
            HeapLimit::Bytes(limit) => {
                out.resource_monitors.push(monitor(
                    HEAP_MONITOR,
                    FixedHeapConfig {
                        max_heap_size_bytes: limit.max(1),
                        ..Default::default()
                    },
                ));
                1.0
            }
            HeapLimit::HalfOfMemory => 0.5,
        };
        let at = |value: f64| {
            TriggerOneof::Threshold(overload::ThresholdTrigger {
                value: value * share,
            })
        };
        let between = |scaling: f64, saturation: f64| {
            TriggerOneof::Scaled(overload::ScaledTrigger {
                scaling_threshold: scaling * share,
                saturation_threshold: saturation * share,
            })
        };
        let action = |name: &str, trigger| overload::OverloadAction {
            name: format!("envoy.overload_actions.{name}"),
            triggers: vec![overload::Trigger {
                name: HEAP_MONITOR.to_owned(),
                trigger_oneof: Some(trigger),
            }],
            ..Default::default()
        };
        out.actions = vec![
            action("shrink_heap", at(0.90)),
            action("disable_http_keepalive", at(0.92)),
            action("reset_high_memory_stream", between(0.92, 0.98)),
            action("stop_accepting_requests", at(0.95)),
            action("stop_accepting_connections", at(0.98)),
        ];
        out.buffer_factory_config = Some(overload::BufferFactoryConfig {
            minimum_account_to_track_power_of_two: LARGE_BUFFERS,
        });
    }
    out
}

fn monitor<M: Message + Name>(name: &str, config: M) -> overload::ResourceMonitor {
    overload::ResourceMonitor {
        name: name.to_owned(),
        config_type: Some(overload::resource_monitor::ConfigType::TypedConfig(
            pack_any(config),
        )),
    }
}

/// By default, Envoy rejects route tables that contain a regular expression of more than 100 instructions. Translation
/// permits larger ones, with the same limit as here. The limit also bounds the memory of each expression in Envoy.
///
/// By default, Envoy reads up to 32 MiB of a response to its own requests: enough keys to take minutes for each token.
fn runtime() -> pb::LayeredRuntime {
    use pb::runtime_layer::{AdminLayer, LayerSpecifier};
    let layer = |name: &str, specifier| pb::RuntimeLayer {
        name: name.to_owned(),
        layer_specifier: Some(specifier),
    };
    // A layer for each: the fields of a `Struct` have no order.
    let limit = |name, key: &str, limit| {
        let value = Value {
            kind: Some(Kind::NumberValue(f64::from(limit))),
        };
        let fields = [(key.to_owned(), value)].into();
        layer(name, LayerSpecifier::StaticLayer(Struct { fields }))
    };
    pb::LayeredRuntime {
        layers: vec![
            limit(
                "expressions",
                "re2.max_program_size.error_level",
                MAX_PROGRAM_SIZE,
            ),
            limit(
                "responses",
                "http.async_response_buffer_limit",
                MAX_RESPONSE,
            ),
            layer("admin", LayerSpecifier::AdminLayer(AdminLayer {})),
        ],
    }
}

fn pipe(path: &Path, mode: u32) -> core::Address {
    core::Address {
        address: Some(core::address::Address::Pipe(core::Pipe {
            path: path.to_string_lossy().into_owned(),
            mode,
        })),
    }
}

#[cfg(test)]
mod tests;
