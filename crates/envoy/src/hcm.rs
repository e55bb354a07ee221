//! What an Envoy does with every HTTP connection, whichever listener accepted it.
//!
//! In: the name of a route table, and whether it is in shards. Out: an `HttpConnectionManager`. It must not know routes or
//! certificates.
//!
//! **These bytes are frozen**: they are the same in every listener but for two names and the shards, and nothing else
//! changes them, because a change of a listener closes its connections. Whatever a route may need is therefore always there,
//! switched off, and each route switches on what it uses.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::filters::http::cors::v3::Cors;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::StatefulSession;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as pb;
use envoy_types::util::pack_any;
use pb::http_connection_manager::RouteSpecifier;
use prost::{Message, Name};
use sesame_model::RouteTableKey;
use xxhash_rust::xxh3::xxh3_64;

use crate::shard::{self, Means};
use crate::{names, wire};

/// The filter that answers preflights; routes switch it on.
pub(crate) const CORS: &str = "envoy.filters.http.cors";
/// The filter that keeps clients at their endpoints; routes switch it on.
pub(crate) const STATEFUL_SESSION: &str = "envoy.filters.http.stateful_session";

/// A stream on which nothing has moved for so long is taken for dead. Envoy's own five minutes would cut idle
/// WebSockets and slow answers of routes that ask for no limit.
pub(crate) const STREAM_IDLE: Duration = Duration::from_secs(60 * 60);

/// How long a client may take to send a request's headers.
const REQUEST_HEADERS: Duration = Duration::from_secs(30);

/// HTTP/2 limits per connection, as Envoy's own advice for the edge has them.
const STREAMS: u32 = 100;
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// Where a connection manager finds its routes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Routes<'a> {
    /// In that table.
    Whole(&'a RouteTableKey),
    /// In its shards, of which the request's is found by those means.
    Shards(&'a RouteTableKey, Means),
}

/// The connection manager that answers from `routes`.
///
/// HTTP/1.0 is accepted: old probes and load balancers speak it, and a request still needs a Host. A host with a
/// trailing dot means the same host. The client's address is that of the connection, so `x-forwarded-for` gets it
/// appended and `x-envoy-*` from outside is dropped. A backend's `server` header passes, and none is added.
pub(crate) fn connection_manager(
    stat_prefix: String,
    routes: Routes<'_>,
) -> pb::HttpConnectionManager {
    pb::HttpConnectionManager {
        stat_prefix,
        route_specifier: Some(match routes {
            Routes::Whole(table) => RouteSpecifier::Rds(pb::Rds {
                config_source: Some(wire::ads()),
                route_config_name: names::routes(table),
            }),
            Routes::Shards(table, _) => RouteSpecifier::ScopedRoutes(by_header(table)),
        }),
        early_header_mutation_extensions: match routes {
            Routes::Whole(_) => vec![],
            Routes::Shards(table, means) => vec![shard::note(table, means)],
        },
        http_filters: filters(),
        use_remote_address: wire::boolean(true),
        normalize_path: wire::boolean(true),
        strip_trailing_host_dot: true,
        server_header_transformation:
            pb::http_connection_manager::ServerHeaderTransformation::PassThrough.into(),
        upgrade_configs: vec![pb::http_connection_manager::UpgradeConfig {
            upgrade_type: "websocket".to_owned(),
            ..Default::default()
        }],
        stream_idle_timeout: Some(wire::duration(STREAM_IDLE)),
        request_headers_timeout: Some(wire::duration(REQUEST_HEADERS)),
        http_protocol_options: Some(core::Http1ProtocolOptions {
            accept_http_10: true,
            ..Default::default()
        }),
        http2_protocol_options: Some(core::Http2ProtocolOptions {
            max_concurrent_streams: wire::uint32(STREAMS),
            initial_stream_window_size: wire::uint32(STREAM_WINDOW),
            initial_connection_window_size: wire::uint32(CONNECTION_WINDOW),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Routes from the shard that [`shard::HEADER`] names.
///
/// Connection managers whose `ScopedRds` are alike share what they know of scopes, and one that comes later than the first
/// doesn't wait for its shards: it would answer 404 until they are there. So each table has one of its own, told
/// apart by how long it would wait, which is long enough never to matter.
fn by_header(table: &RouteTableKey) -> pb::ScopedRoutes {
    use pb::scoped_routes::scope_key_builder::fragment_builder as fragment;
    use pb::scoped_routes::{ConfigSpecifier, ScopeKeyBuilder};
    let extractor = fragment::HeaderValueExtractor {
        name: shard::HEADER.to_owned(),
        // Without a separator that is the whole value.
        element_separator: String::new(),
        extract_type: Some(fragment::header_value_extractor::ExtractType::Index(0)),
    };
    pb::ScopedRoutes {
        name: "shards".to_owned(),
        scope_key_builder: Some(ScopeKeyBuilder {
            fragments: vec![pb::scoped_routes::scope_key_builder::FragmentBuilder {
                r#type: Some(fragment::Type::HeaderValueExtractor(extractor)),
            }],
        }),
        rds_config_source: Some(wire::ads()),
        config_specifier: Some(ConfigSpecifier::ScopedRds(pb::ScopedRds {
            scoped_rds_config_source: Some(core::ConfigSource {
                initial_fetch_timeout: Some(wire::duration(patience(table))),
                ..wire::ads()
            }),
            ..Default::default()
        })),
    }
}

/// At least an hour, and another time for each table of an Envoy.
fn patience(table: &RouteTableKey) -> Duration {
    let hash = xxh3_64(names::routes(table).as_bytes());
    Duration::from_secs(60 * 60) + Duration::from_nanos(hash >> 32)
}

/// Requests pass them in this order: a preflight is answered before anybody looks for an endpoint.
fn filters() -> Vec<pb::HttpFilter> {
    vec![
        filter(CORS, Cors::default(), true),
        filter(STATEFUL_SESSION, StatefulSession::default(), true),
        filter(
            "envoy.filters.http.router",
            Router {
                suppress_envoy_headers: true,
                ..Default::default()
            },
            false,
        ),
    ]
}

fn filter<M: Message + Name>(name: &str, config: M, disabled: bool) -> pb::HttpFilter {
    pb::HttpFilter {
        name: name.to_owned(),
        disabled,
        config_type: Some(pb::http_filter::ConfigType::TypedConfig(pack_any(config))),
        ..Default::default()
    }
}
