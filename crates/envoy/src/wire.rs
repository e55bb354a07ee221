//! Deterministic encoding of protobuf messages.
//!
//! In: protobuf messages. Out: their bytes. It must not depend on their meaning.
//!
//! The generated types store map fields in hash maps, whose order differs between processes. If equal content had
//! different bytes, every Envoy would get an update, so maps that can have several entries are encoded here, sorted
//! by key. On the wire, a map is a repeated field of entries, which may appear anywhere among the other fields.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{HeaderMutation, header_mutation};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::{Route, RouteAction, VirtualHost, WeightedCluster};
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::StdoutAccessLog;
use envoy_types::pb::envoy::extensions::filters::common::set_filter_state::v3::{
    FilterStateValue, filter_state_value,
};
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::{
    CheckSettings, ExtAuthzPerRoute,
};
use envoy_types::pb::envoy::extensions::http::early_header_mutation::header_mutation::v3::HeaderMutation as EarlyHeaderMutation;
use envoy_types::pb::google::protobuf as wkt;
use envoy_types::pb::xds::core::v3 as xds;
use envoy_types::pb::xds::r#type::matcher::v3::Matcher;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_tree::TreeType;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::{MatcherTree, MatcherType, OnMatch};
use envoy_types::util::pack_any;
use prost::bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{
    WireType, decode_varint, encode_key, encode_varint, encoded_len_varint, key_len,
};
use prost::{Message, Name};

use crate::HostBytes;

/// Field number of `VirtualHost.routes`.
const VIRTUAL_HOST_ROUTES: u32 = 3;
/// Field number of `VirtualHost.typed_per_filter_config`.
const VIRTUAL_HOST_FILTERS: u32 = 15;
/// Field number of `VirtualHost.matcher`.
const VIRTUAL_HOST_MATCHER: u32 = 21;
/// Field number of `RouteList.routes`.
const LIST_ROUTES: u32 = 1;
/// Field number of `Matcher.matcher_tree`.
const MATCHER_TREE: u32 = 2;
/// Field number of `MatcherTree.prefix_match_map`.
const TREE_PREFIXES: u32 = 3;
/// Field number of `MatchMap.map`.
const MAP_ENTRIES: u32 = 1;
/// Field number of `Route.route`.
const ROUTE_ACTION: u32 = 2;
/// Field number of `Route.typed_per_filter_config`.
const ROUTE_FILTERS: u32 = 13;
/// Field number of `RouteAction.weighted_clusters`.
const ACTION_WEIGHTED: u32 = 3;
/// Field number of `WeightedCluster.clusters`.
const WEIGHTED_CLUSTERS: u32 = 1;
/// Field number of `WeightedCluster.ClusterWeight.typed_per_filter_config`.
const CLUSTER_FILTERS: u32 = 10;
/// Field number of `ExtAuthzPerRoute.check_settings`.
const CHECK_OF_ROUTE: u32 = 2;
/// Field number of `CheckSettings.context_extensions`.
const CHECK_CONTEXT: u32 = 1;
/// Field number of `SubstitutionFormatString.json_format`.
const FORMAT_JSON: u32 = 2;
/// Field number of `StdoutAccessLog.log_format`.
const LOG_FORMAT: u32 = 1;
/// Field number of `Struct.fields`.
const STRUCT_FIELDS: u32 = 1;
/// Field number of `Secret.name`.
const SECRET_NAME: u32 = 1;
/// Field number of `RouteConfiguration.name`.
const TABLE_NAME: u32 = 1;
/// Field number of `RouteConfiguration.virtual_hosts`.
const TABLE_VIRTUAL_HOSTS: u32 = 2;

/// A message as the bytes of a `google.protobuf.Any`, as resources are sent.
pub(crate) fn resource<M: Message + Name>(message: &M) -> Bytes {
    any_bytes(&M::type_url(), &[&message.encode_to_vec()])
}

/// The bytes of a `google.protobuf.Any` whose value is the concatenation of the parts.
pub(crate) fn any_bytes(type_url: &str, parts: &[&[u8]]) -> Bytes {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = BytesMut::with_capacity(any_len(type_url, len));
    any_head(type_url, len, &mut out);
    for part in parts {
        out.put_slice(part);
    }
    out.freeze()
}

/// Length of [`any_head`] with a value of `value` bytes.
fn any_len(type_url: &str, value: usize) -> usize {
    delimited_len(1, type_url.len()) + delimited_len(2, value)
}

/// Encodes a `google.protobuf.Any` up to the bytes of its value.
fn any_head(type_url: &str, value: usize, out: &mut BytesMut) {
    delimited(1, type_url.as_bytes(), out);
    delimited_head(2, value, out);
}

/// The value inside the bytes that [`any_bytes`] or [`join_table`] returned, without copying.
pub(crate) fn any_value(type_url: &str, any: &Bytes) -> Bytes {
    let mut rest = any.slice(delimited_len(1, type_url.len()) + key_len(2)..);
    let len = decode_varint(&mut rest).expect("an Any's head contains the length of its value");
    debug_assert_eq!(len, rest.len() as u64);
    rest
}

/// A copy of a secret with another name, as the bytes of a `google.protobuf.Any`. If a field occurs twice, the last one
/// wins.
pub(crate) fn renamed_secret(secret: &Bytes, name: &str) -> Bytes {
    let mut field = Vec::new();
    delimited(SECRET_NAME, name.as_bytes(), &mut field);
    let secret = any_value(crate::names::SECRET, secret);
    any_bytes(crate::names::SECRET, &[&secret, &field])
}

/// A route table as the bytes of a `google.protobuf.Any`, joined from encoded parts with one allocation and one copy.
pub(crate) fn join_table<'a>(
    name: &str,
    hosts: impl Iterator<Item = &'a HostBytes> + Clone,
    tail: &[u8],
) -> Bytes {
    let value: usize = delimited_len(TABLE_NAME, name.len())
        + tail.len()
        + hosts
            .clone()
            .map(|host| delimited_len(TABLE_VIRTUAL_HOSTS, host.len()))
            .sum::<usize>();
    let mut out = BytesMut::with_capacity(any_len(crate::names::ROUTES, value));
    any_head(crate::names::ROUTES, value, &mut out);
    delimited(TABLE_NAME, name.as_bytes(), &mut out);
    for host in hosts {
        delimited_head(TABLE_VIRTUAL_HOSTS, host.len(), &mut out);
        host.pieces().iter().for_each(|piece| out.put_slice(piece));
    }
    out.put_slice(tail);
    out.freeze()
}

/// The bytes of a virtual host.
pub(crate) fn virtual_host(mut host: VirtualHost) -> Vec<u8> {
    let routes = std::mem::take(&mut host.routes);
    let matcher = host.matcher.take();
    let filters = std::mem::take(&mut host.typed_per_filter_config);
    let mut out = host.encode_to_vec();
    map(VIRTUAL_HOST_FILTERS, filters, &mut out);
    for route in routes {
        delimited(VIRTUAL_HOST_ROUTES, &self::route(route), &mut out);
    }
    if let Some(matcher) = matcher {
        delimited(VIRTUAL_HOST_MATCHER, &self::matcher(matcher), &mut out);
    }
    out
}

/// The bytes of a `RouteList`.
pub(crate) fn route_list(routes: Vec<Route>) -> Vec<u8> {
    let mut out = Vec::new();
    for route in routes {
        delimited(LIST_ROUTES, &self::route(route), &mut out);
    }
    out
}

fn route(mut route: Route) -> Vec<u8> {
    let filters = std::mem::take(&mut route.typed_per_filter_config);
    let action = match route.action.take() {
        Some(Action::Route(action)) => Some(route_action(action)),
        other => {
            route.action = other;
            None
        }
    };
    let mut out = route.encode_to_vec();
    if let Some(action) = action {
        delimited(ROUTE_ACTION, &action, &mut out);
    }
    map(ROUTE_FILTERS, filters, &mut out);
    out
}

fn route_action(mut action: RouteAction) -> Vec<u8> {
    let weighted = match action.cluster_specifier.take() {
        Some(ClusterSpecifier::WeightedClusters(weighted)) => Some(weighted_clusters(weighted)),
        other => {
            action.cluster_specifier = other;
            None
        }
    };
    let mut out = action.encode_to_vec();
    if let Some(weighted) = weighted {
        delimited(ACTION_WEIGHTED, &weighted, &mut out);
    }
    out
}

fn weighted_clusters(mut weighted: WeightedCluster) -> Vec<u8> {
    let clusters = std::mem::take(&mut weighted.clusters);
    let mut out = weighted.encode_to_vec();
    for mut cluster in clusters {
        let filters = std::mem::take(&mut cluster.typed_per_filter_config);
        let mut bytes = cluster.encode_to_vec();
        map(CLUSTER_FILTERS, filters, &mut bytes);
        delimited(WEIGHTED_CLUSTERS, &bytes, &mut out);
    }
    out
}

/// The bytes of a `Matcher`.
pub(crate) fn matcher(mut matcher: Matcher) -> Vec<u8> {
    let tree = match matcher.matcher_type.take() {
        Some(MatcherType::MatcherTree(tree)) => Some(tree),
        other => {
            matcher.matcher_type = other;
            None
        }
    };
    let mut out = matcher.encode_to_vec();
    if let Some(mut tree) = tree {
        let mut entries = Vec::new();
        match tree.tree_type.take() {
            Some(TreeType::PrefixMatchMap(keys)) => map(MAP_ENTRIES, keys.map, &mut entries),
            other => tree.tree_type = other,
        }
        let mut bytes = tree.encode_to_vec();
        if !entries.is_empty() {
            delimited(TREE_PREFIXES, &entries, &mut bytes);
        }
        delimited(MATCHER_TREE, &bytes, &mut out);
    }
    out
}

/// The bytes of a key in a matcher's map, with its field number.
pub(crate) fn matcher_key(key: &str, value: &OnMatch) -> Vec<u8> {
    let mut out = Vec::new();
    entry(MAP_ENTRIES, key, value, &mut out);
    out
}

/// The bytes of a virtual host, like [`virtual_host`]. The first part is a `Matcher` for paths that match no key; the other
/// parts come from [`matcher_key`], sorted by key.
pub(crate) fn host_of_parts(host: VirtualHost, tree: &MatcherTree, parts: &[Bytes]) -> HostBytes {
    let (rest, keys) = parts.split_first().expect("a matcher has a first part");
    let tree = tree.encode_to_vec();
    let keys_len: usize = keys.iter().map(Bytes::len).sum();
    let tree_len = tree.len() + delimited_len(TREE_PREFIXES, keys_len);
    let matcher_len = rest.len() + delimited_len(MATCHER_TREE, tree_len);
    let mut before = virtual_host(host);
    delimited_head(VIRTUAL_HOST_MATCHER, matcher_len, &mut before);
    let mut between = Vec::new();
    delimited_head(MATCHER_TREE, tree_len, &mut between);
    between.extend(tree);
    delimited_head(TREE_PREFIXES, keys_len, &mut between);
    let exact = |bytes: Vec<u8>| Bytes::from(bytes.into_boxed_slice());
    let head = [exact(before), rest.clone(), exact(between)];
    head.into_iter().chain(keys.iter().cloned()).collect()
}

/// A `StdoutAccessLog` whose entries are JSON objects with these fields.
pub(crate) fn json_access_log(fields: &BTreeMap<String, String>) -> wkt::Any {
    let mut names = Vec::new();
    for (name, format) in fields {
        let value = wkt::Value {
            kind: Some(wkt::value::Kind::StringValue(format.clone())),
        };
        entry(STRUCT_FIELDS, name, &value, &mut names);
    }
    let mut format = Vec::new();
    delimited(FORMAT_JSON, &names, &mut format);
    let mut value = Vec::new();
    delimited(LOG_FORMAT, &format, &mut value);
    wkt::Any {
        type_url: StdoutAccessLog::type_url(),
        value,
    }
}

/// Entries of a map field, sorted by key.
fn map(field: u32, entries: HashMap<String, impl Message>, out: &mut Vec<u8>) {
    let mut entries: Vec<_> = entries.into_iter().collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    for (key, value) in entries {
        entry(field, &key, &value, out);
    }
}

/// One entry of a map field.
fn entry(field: u32, key: &str, value: &impl Message, out: &mut Vec<u8>) {
    let value = value.encode_to_vec();
    let mut entry = Vec::with_capacity(key.len() + value.len() + 8);
    delimited(1, key.as_bytes(), &mut entry);
    delimited(2, &value, &mut entry);
    delimited(field, &entry, out);
}

/// The configuration of a route's check with these settings and context entries.
pub(crate) fn check_of_route(
    settings: &CheckSettings,
    context: &BTreeMap<String, String>,
) -> wkt::Any {
    let mut fields = settings.encode_to_vec();
    for (name, value) in context {
        let mut entry = Vec::with_capacity(name.len() + value.len() + 8);
        delimited(1, name.as_bytes(), &mut entry);
        delimited(2, value.as_bytes(), &mut entry);
        delimited(CHECK_CONTEXT, &entry, &mut fields);
    }
    let mut value = Vec::with_capacity(fields.len() + 8);
    delimited(CHECK_OF_ROUTE, &fields, &mut value);
    wkt::Any {
        type_url: ExtAuthzPerRoute::type_url(),
        value,
    }
}

fn delimited(field: u32, bytes: &[u8], out: &mut impl BufMut) {
    delimited_head(field, bytes.len(), out);
    out.put_slice(bytes);
}

/// Encodes the start of a field of `len` bytes, up to the bytes themselves.
fn delimited_head(field: u32, len: usize, out: &mut impl BufMut) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
}

fn delimited_len(field: u32, len: usize) -> usize {
    key_len(field) + encoded_len_varint(len as u64) + len
}

/// Maximum duration, about 31 years: far above any practical value and far below Envoy's limit.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// A protobuf duration, at most [`LONGEST`].
pub(crate) fn duration(duration: Duration) -> wkt::Duration {
    let duration = duration.min(LONGEST);
    wkt::Duration {
        seconds: duration.as_secs() as i64,
        nanos: duration.subsec_nanos() as i32,
    }
}

/// A wrapped number.
pub(crate) fn uint32(value: u32) -> Option<wkt::UInt32Value> {
    Some(wkt::UInt32Value { value })
}

/// A wrapped boolean.
pub(crate) fn boolean(value: bool) -> Option<wkt::BoolValue> {
    Some(wkt::BoolValue { value })
}

/// A named extension.
pub(crate) fn extension<M: Message + Name>(name: &str, config: M) -> core::TypedExtensionConfig {
    core::TypedExtensionConfig {
        name: name.to_owned(),
        typed_config: Some(pack_any(config)),
    }
}

/// A named extension in a matcher.
pub(crate) fn xds_extension(name: &str, config: wkt::Any) -> xds::TypedExtensionConfig {
    xds::TypedExtensionConfig {
        name: name.to_owned(),
        typed_config: Some(config),
    }
}

/// A value for a filter state key, as a format string.
pub(crate) fn filter_state(key: &str, format: String) -> FilterStateValue {
    let text = core::DataSource {
        specifier: Some(core::data_source::Specifier::InlineString(format)),
        ..Default::default()
    };
    let format = core::substitution_format_string::Format::TextFormatSource(text);
    FilterStateValue {
        key: Some(filter_state_value::Key::ObjectKey(key.to_owned())),
        value: Some(filter_state_value::Value::FormatString(
            core::SubstitutionFormatString {
                format: Some(format),
                ..Default::default()
            },
        )),
        ..Default::default()
    }
}

/// An extension that sets a header on each request, before routing. `value` may contain Envoy's format strings.
pub(crate) fn early_header(name: &str, value: String) -> core::TypedExtensionConfig {
    let append = core::HeaderValueOption {
        header: Some(core::HeaderValue {
            key: name.to_owned(),
            value,
            ..Default::default()
        }),
        append_action: core::header_value_option::HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..Default::default()
    };
    extension(
        "envoy.http.early_header_mutation.header_mutation",
        EarlyHeaderMutation {
            mutations: vec![HeaderMutation {
                action: Some(header_mutation::Action::Append(append)),
            }],
        },
    )
}

/// The config source for resources on the ADS stream. Envoy waits for the first one without a timeout: by default, a new
/// version of a listener would replace the old one after 15 s even without its routes, and respond with 404, if Envoy is
/// busy. The same applies to a cluster without its endpoints, and to an Envoy that starts without its listeners.
pub(crate) fn ads() -> core::ConfigSource {
    core::ConfigSource {
        initial_fetch_timeout: Some(duration(Duration::ZERO)),
        resource_api_version: core::ApiVersion::V3.into(),
        config_source_specifier: Some(core::config_source::ConfigSourceSpecifier::Ads(
            core::AggregatedConfigSource {},
        )),
        ..Default::default()
    }
}

/// An IP address with a TCP port.
pub(crate) fn socket_address(address: SocketAddr) -> core::Address {
    address_of(address, core::socket_address::Protocol::Tcp)
}

/// An IP address with a UDP port.
pub(crate) fn udp_address(address: SocketAddr) -> core::Address {
    address_of(address, core::socket_address::Protocol::Udp)
}

fn address_of(address: SocketAddr, protocol: core::socket_address::Protocol) -> core::Address {
    core::Address {
        address: Some(core::address::Address::SocketAddress(core::SocketAddress {
            protocol: protocol.into(),
            address: address.ip().to_string(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(
                address.port().into(),
            )),
            ..Default::default()
        })),
    }
}
