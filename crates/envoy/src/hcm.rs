//! The HTTP connection manager.
//!
//! In: a route table's name, whether it is sharded, a listener's hostname, the parts of client certificates to forward,
//! tracing settings, and the fleet's listener settings. Out: `HttpConnectionManager`. It must not depend on routes or certificates.
//!
//! **These bytes are frozen**: apart from three names, the shards, tracing, settings and the forwarded parts of client
//! certificates, they are the same in all listeners, because changing a listener closes its connections. So every
//! filter that a route may need is present but disabled, and routes enable the filters they use.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::filters::http::cdn_loop::v3::CdnLoopConfig;
use envoy_types::pb::envoy::extensions::filters::http::composite::v3::Composite;
use envoy_types::pb::envoy::extensions::filters::http::cors::v3::Cors;
use envoy_types::pb::envoy::extensions::filters::http::lua::v3::Lua;
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::http::set_filter_state::v3 as set_filter_state;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::StatefulSession;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as pb;
use envoy_types::util::pack_any;
use pb::http_connection_manager::{
    ForwardClientCertDetails, PathWithEscapedSlashesAction, RouteSpecifier,
    SetCurrentClientCertDetails,
};
use prost::{Message, Name};
use sesame_model::{
    EscapedSlashes, ForwardedCertificate, ListenerSettings, MAX_HOST_AUTH, RouteTableKey, Tracing,
    UnderscoreHeaders,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::shard::{self, ShardLookup};
use crate::{access_log, compression, names, route, tracing, wire};

/// The CORS filter; routes enable it.
pub(crate) const CORS: &str = "envoy.filters.http.cors";
/// The authorization filter for a route's check without context entries; routes enable it.
pub(crate) const ROUTE_AUTH: &str = "auth.route";
/// The filter that restricts client addresses; routes enable it.
pub(crate) const SOURCES: &str = "envoy.filters.http.rbac";
/// The local rate limit filter; routes enable it.
pub(crate) const RATE: &str = "envoy.filters.http.local_ratelimit";
/// The filter that sets which token a route requires; routes enable it.
pub(crate) const JWT_PROVIDER: &str = "jwt.provider";
/// The filter for JSON Web Tokens; hosts enable it.
pub(crate) const JWT: &str = "jwt";
/// The filter for rate limits that a service enforces; routes enable it.
pub(crate) const GLOBAL_RATE: &str = "rate.global";
/// The session persistence filter; routes enable it.
pub(crate) const STATEFUL_SESSION: &str = "envoy.filters.http.stateful_session";
/// The filter that selects the response cookies to change; targets enable it.
pub(crate) const COOKIE_CHANGES: &str = "cookies.changes";
/// The filter that changes cookies; route tables enable it.
pub(crate) const COOKIES: &str = "cookies";

/// Idle timeout of a stream. Envoy's default of five minutes would cut off idle WebSockets, and slow responses on
/// routes without a timeout.
pub(crate) const STREAM_IDLE: Duration = Duration::from_secs(60 * 60);

/// Timeout for receiving a request's headers.
const REQUEST_HEADERS: Duration = Duration::from_secs(10);

/// The identifier of Sesame's Envoys in the header `cdn-loop`.
pub(crate) const CDN: &str = "sesame";

/// The number of Envoys, of this fleet and others, that a request may have passed when it arrives; with more, the Envoy
/// responds with 502. Backends may lead back to the fleet, and with mirrors a request would multiply at each pass. A redirect
/// that Envoy follows counts as a pass.
const MAX_EARLIER_PASSES: u32 = sesame_model::MAX_INTERNAL_REDIRECTS;

/// HTTP/2 limits per connection, from Envoy's best practices for edge proxies.
const STREAMS: u32 = 100;
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// The routes of a connection manager.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Routes<'a> {
    /// A whole table.
    Whole(&'a RouteTableKey),
    /// A table that is divided into this many shards, and how to select a request's shard.
    Shards(&'a RouteTableKey, u32, ShardLookup),
}

/// The header that names the listener of a request's TLS connection. Envoy overwrites any value from a client, and
/// removes the header before forwarding.
pub(crate) const LISTENER_HEADER: &str = "x-sesame-listener";

/// The connection manager for `routes` and, on a TLS port, for connections of `listener`.
///
/// HTTP/1.0 is accepted for old probes and load balancers, but a Host header is still required. A trailing dot in the
/// host is ignored. The client's address is the connection's: Envoy appends it to `x-forwarded-for` and removes
/// `x-envoy-*` headers sent by clients. A backend's `server` header passes through unchanged, and Envoy doesn't add
/// one.
///
/// A path with escaped slashes or adjacent slashes, and a header with an underscore, could mean something else to a backend
/// than to the gateway, so by default none of them reaches backends.
///
/// Envoy removes any `x-forwarded-client-cert` header sent by a client, and replaces it with the `forwarded` parts of
/// the connection's certificate.
pub(crate) fn connection_manager(
    stat_prefix: String,
    routes: Routes<'_>,
    listener: Option<&str>,
    forwarded: Option<ForwardedCertificate>,
    traced: Option<&Tracing>,
    settings: &ListenerSettings,
) -> pb::HttpConnectionManager {
    let shard = match routes {
        Routes::Whole(_) => None,
        Routes::Shards(table, shards, lookup) => Some(shard::extension(table, shards, lookup)),
    };
    let listener = listener.map(|name| wire::early_header(LISTENER_HEADER, name.to_owned()));
    let ListenerSettings {
        timeouts, limits, ..
    } = settings;
    let time = |time: Option<Duration>| time.map(wire::duration);
    pb::HttpConnectionManager {
        stat_prefix,
        route_specifier: Some(match routes {
            Routes::Whole(table) => RouteSpecifier::Rds(pb::Rds {
                config_source: Some(wire::ads()),
                route_config_name: names::routes(table),
            }),
            Routes::Shards(table, shards, _) => {
                RouteSpecifier::ScopedRoutes(by_header(table, shards))
            }
        }),
        early_header_mutation_extensions: shard.into_iter().chain(listener).collect(),
        tracing: traced.map(tracing::tracing),
        request_id_extension: traced.map(tracing::request_id),
        http_filters: filters(settings),
        use_remote_address: wire::boolean(true),
        forward_client_cert_details: match forwarded {
            Some(_) => ForwardClientCertDetails::SanitizeSet,
            None => ForwardClientCertDetails::Sanitize,
        }
        .into(),
        set_current_client_cert_details: forwarded.map(details),
        normalize_path: wire::boolean(true),
        merge_slashes: settings.merge_slashes.unwrap_or(true),
        path_with_escaped_slashes_action: escaped_slashes(settings).into(),
        xff_num_trusted_hops: settings.trusted_hops.unwrap_or(0),
        strip_trailing_host_dot: true,
        server_header_transformation:
            pb::http_connection_manager::ServerHeaderTransformation::PassThrough.into(),
        upgrade_configs: vec![pb::http_connection_manager::UpgradeConfig {
            upgrade_type: "websocket".to_owned(),
            ..Default::default()
        }],
        stream_idle_timeout: time(timeouts.stream_idle.or(Some(STREAM_IDLE))),
        request_headers_timeout: time(timeouts.request_headers.or(Some(REQUEST_HEADERS))),
        request_timeout: time(timeouts.request),
        delayed_close_timeout: time(timeouts.delayed_close),
        drain_timeout: time(timeouts.drain),
        max_request_headers_kb: limits.headers_kib.and_then(wire::uint32),
        common_http_protocol_options: Some(protocol_options(settings)),
        access_log: access_log::access_log(settings),
        http_protocol_options: Some(core::Http1ProtocolOptions {
            accept_http_10: true,
            ..Default::default()
        }),
        http2_protocol_options: Some(core::Http2ProtocolOptions {
            max_concurrent_streams: wire::uint32(limits.streams.unwrap_or(STREAMS)),
            initial_stream_window_size: wire::uint32(limits.stream_window.unwrap_or(STREAM_WINDOW)),
            initial_connection_window_size: wire::uint32(
                limits.connection_window.unwrap_or(CONNECTION_WINDOW),
            ),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn protocol_options(settings: &ListenerSettings) -> core::HttpProtocolOptions {
    use core::http_protocol_options::HeadersWithUnderscoresAction as Action;
    let ListenerSettings {
        timeouts, limits, ..
    } = settings;
    // Envoy would close connections at once.
    let duration = timeouts.connection_duration.filter(|time| !time.is_zero());
    core::HttpProtocolOptions {
        idle_timeout: timeouts.connection_idle.map(wire::duration),
        max_connection_duration: duration.map(wire::duration),
        max_headers_count: limits.header_count.and_then(wire::uint32),
        max_requests_per_connection: limits
            .requests
            .filter(|&most| most > 0)
            .and_then(wire::uint32),
        headers_with_underscores_action: match settings.underscores {
            Some(UnderscoreHeaders::Allow) => Action::Allow,
            Some(UnderscoreHeaders::Drop) => Action::DropHeader,
            Some(UnderscoreHeaders::Reject) | None => Action::RejectRequest,
        }
        .into(),
        ..Default::default()
    }
}

fn escaped_slashes(settings: &ListenerSettings) -> PathWithEscapedSlashesAction {
    use PathWithEscapedSlashesAction as Action;
    match settings.escaped_slashes {
        Some(EscapedSlashes::KeepUnchanged) => Action::KeepUnchanged,
        Some(EscapedSlashes::Reject) => Action::RejectRequest,
        Some(EscapedSlashes::UnescapeAndForward) => Action::UnescapeAndForward,
        Some(EscapedSlashes::UnescapeAndRedirect) | None => Action::UnescapeAndRedirect,
    }
}

fn details(of: ForwardedCertificate) -> SetCurrentClientCertDetails {
    SetCurrentClientCertDetails {
        subject: wire::boolean(of.subject),
        cert: of.certificate,
        chain: of.chain,
        dns: of.dns,
        uri: of.uri,
        ..Default::default()
    }
}

/// Scoped routes, with the shard named in [`shard::HEADER`].
///
/// Connection managers with equal `ScopedRds` share a subscription, and later ones don't wait for their shards: they
/// would respond with 404 until the shards arrive. So each table, and each version and number of its shards, has
/// its own `ScopedRds`, made unique by an initial fetch timeout that is too long to matter.
fn by_header(table: &RouteTableKey, shards: u32) -> pb::ScopedRoutes {
    use pb::scoped_routes::scope_key_builder::fragment_builder as fragment;
    use pb::scoped_routes::{ConfigSpecifier, ScopeKeyBuilder};
    let extractor = fragment::HeaderValueExtractor {
        name: shard::HEADER.to_owned(),
        // Without a separator, element 0 is the whole value.
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
                initial_fetch_timeout: Some(wire::duration(fetch_timeout(table, shards))),
                ..wire::ads()
            }),
            ..Default::default()
        })),
    }
}

/// A timeout of at least an hour, different for each of an Envoy's tables, and each version and number of its shards.
fn fetch_timeout(table: &RouteTableKey, shards: u32) -> Duration {
    let hash = xxh3_64(names::shard(table, shards, "").as_bytes());
    Duration::from_secs(60 * 60) + Duration::from_nanos(hash >> 32)
}

/// The authorization filter for a check on all requests to a host, named by the check's position; hosts enable it.
pub(crate) fn host_auth(place: usize) -> String {
    format!("auth.listener.{place}")
}

/// HTTP filters, in order. CORS comes before rate limits: browsers would report a rejected preflight request as a CORS
/// error. Local rate limits come before routes' authorization, which costs more; a service's rate limits come after
/// authorization, since they may depend on headers that it sets. Responses pass through the filters in reverse order:
/// backends' cookies are changed before the gateway adds its own, and compression is last.
fn filters(settings: &ListenerSettings) -> Vec<pb::HttpFilter> {
    let compression = settings.compression.iter().flatten();
    let compression = compression.map(|&algorithm| {
        let (name, config) = compression::compressor(algorithm);
        filter(name, config, false)
    });
    let of_hosts = (0..MAX_HOST_AUTH).map(host_auth);
    let of_hosts = of_hosts.map(|name| filter(&name, Composite::default(), true));
    let of_routes = [
        filter(CORS, Cors::default(), true),
        filter(SOURCES, Rbac::default(), true),
        filter(RATE, route::no_rate(), true),
        filter(JWT_PROVIDER, set_filter_state::Config::default(), true),
        filter(JWT, Composite::default(), true),
        filter(ROUTE_AUTH, Composite::default(), true),
    ];
    let with_context = route::ContextFilter::all();
    let with_context = with_context.map(|of| filter(&of.name(), of.config(), true));
    let last = [
        filter(GLOBAL_RATE, Composite::default(), true),
        filter(STATEFUL_SESSION, StatefulSession::default(), true),
        filter(COOKIE_CHANGES, set_filter_state::Config::default(), true),
        filter(COOKIES, Lua::default(), true),
        filter(
            "envoy.filters.http.router",
            Router {
                suppress_envoy_headers: true,
                ..Default::default()
            },
            false,
        ),
    ];
    let of_routes = of_routes.into_iter().chain(with_context).chain(last);
    let loops = CdnLoopConfig {
        cdn_id: CDN.to_owned(),
        max_allowed_occurrences: MAX_EARLIER_PASSES,
    };
    [filter("envoy.filters.http.cdn_loop", loops, false)]
        .into_iter()
        .chain(compression)
        .chain(of_hosts)
        .chain(of_routes)
        .collect()
}

fn filter<M: Message + Name>(name: &str, config: M, disabled: bool) -> pb::HttpFilter {
    pb::HttpFilter {
        name: name.to_owned(),
        disabled,
        config_type: Some(pb::http_filter::ConfigType::TypedConfig(pack_any(config))),
        ..Default::default()
    }
}
