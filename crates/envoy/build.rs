//! Extracts the descriptors for Envoy's messages, which rendering needs.
//!
//! envoy-types contains a descriptor set but doesn't export it. This script locates the file in the crate's source
//! with `cargo metadata` and keeps the messages that this crate uses, so the descriptors always match the types.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use prost::Message;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

/// Files with messages that are resources or are packed into an `Any`. Their imports are included.
const FILES: [&str; 52] = [
    "envoy/config/bootstrap/v3/bootstrap.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/route/v3/route.proto",
    "envoy/config/trace/v3/opentelemetry.proto",
    "envoy/extensions/access_loggers/stream/v3/stream.proto",
    "envoy/extensions/clusters/dns/v3/dns_cluster.proto",
    "envoy/extensions/compression/brotli/compressor/v3/brotli.proto",
    "envoy/extensions/compression/gzip/compressor/v3/gzip.proto",
    "envoy/extensions/compression/zstd/compressor/v3/zstd.proto",
    "envoy/extensions/filters/http/cdn_loop/v3/cdn_loop.proto",
    "envoy/extensions/filters/http/composite/v3/composite.proto",
    "envoy/extensions/filters/http/compressor/v3/compressor.proto",
    "envoy/extensions/filters/http/cors/v3/cors.proto",
    "envoy/extensions/filters/http/ext_authz/v3/ext_authz.proto",
    "envoy/extensions/filters/http/header_mutation/v3/header_mutation.proto",
    "envoy/extensions/filters/http/jwt_authn/v3/config.proto",
    "envoy/extensions/filters/http/local_ratelimit/v3/local_rate_limit.proto",
    "envoy/extensions/filters/http/lua/v3/lua.proto",
    "envoy/extensions/filters/http/ratelimit/v3/rate_limit.proto",
    "envoy/extensions/filters/http/rbac/v3/rbac.proto",
    "envoy/extensions/filters/http/router/v3/router.proto",
    "envoy/extensions/filters/http/set_filter_state/v3/set_filter_state.proto",
    "envoy/extensions/filters/http/stateful_session/v3/stateful_session.proto",
    "envoy/extensions/filters/listener/proxy_protocol/v3/proxy_protocol.proto",
    "envoy/extensions/filters/listener/tls_inspector/v3/tls_inspector.proto",
    "envoy/extensions/filters/network/direct_response/v3/config.proto",
    "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
    "envoy/extensions/filters/network/set_filter_state/v3/set_filter_state.proto",
    "envoy/extensions/filters/network/tcp_proxy/v3/tcp_proxy.proto",
    "envoy/extensions/filters/udp/udp_proxy/v3/route.proto",
    "envoy/extensions/filters/udp/udp_proxy/v3/udp_proxy.proto",
    "envoy/extensions/http/early_header_mutation/dynamic_modules/v3/dynamic_modules.proto",
    "envoy/extensions/http/early_header_mutation/header_mutation/v3/header_mutation.proto",
    "envoy/extensions/http/stateful_session/cookie/v3/cookie.proto",
    "envoy/extensions/http/stateful_session/header/v3/header.proto",
    "envoy/extensions/internal_redirect/allow_listed_routes/v3/allow_listed_routes_config.proto",
    "envoy/extensions/internal_redirect/previous_routes/v3/previous_routes_config.proto",
    "envoy/extensions/internal_redirect/safe_cross_scheme/v3/safe_cross_scheme_config.proto",
    "envoy/extensions/matching/common_inputs/network/v3/network_inputs.proto",
    "envoy/extensions/request_id/uuid/v3/uuid.proto",
    "envoy/extensions/resource_monitors/downstream_connections/v3/downstream_connections.proto",
    "envoy/extensions/resource_monitors/fixed_heap/v3/fixed_heap.proto",
    "envoy/extensions/retry/host/previous_hosts/v3/previous_hosts.proto",
    "envoy/extensions/tracers/opentelemetry/samplers/v3/parent_based_sampler.proto",
    "envoy/extensions/tracers/opentelemetry/samplers/v3/trace_id_ratio_based_sampler.proto",
    "envoy/extensions/transport_sockets/tls/cert_mappers/sni/v3/config.proto",
    "envoy/extensions/transport_sockets/tls/cert_selectors/on_demand_secret/v3/config.proto",
    "envoy/extensions/transport_sockets/tls/v3/tls.proto",
    "envoy/extensions/upstreams/http/v3/http_protocol_options.proto",
    "envoy/type/matcher/v3/http_inputs.proto",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let metadata = metadata();
    let root = text(&metadata["workspace_root"]);
    println!("cargo::rerun-if-changed={root}/Cargo.lock");

    let manifest = metadata["packages"]
        .as_array()
        .and_then(|packages| {
            packages
                .iter()
                .find(|package| package["name"] == "envoy-types")
        })
        .map(|package| text(&package["manifest_path"]))
        .expect("envoy-types is a dependency");
    let source = Path::new(manifest)
        .parent()
        .expect("a manifest path has a parent")
        .join("src/generated/types.bin");
    let bytes = std::fs::read(&source)
        .unwrap_or_else(|error| panic!("descriptors of envoy-types in {source:?}: {error}"));
    let all = FileDescriptorSet::decode(&*bytes).expect("types.bin is a descriptor set");

    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    std::fs::write(out.join("envoy.desc"), pruned(all).encode_to_vec())
        .expect("OUT_DIR is writable");
}

fn text(value: &serde_json::Value) -> &str {
    value
        .as_str()
        .expect("cargo metadata has this field as a string")
}

/// The output of `cargo metadata`.
///
/// Doesn't pass `--offline`: `cargo metadata` also resolves packages that only other crates' tests use, which may not
/// be downloaded yet.
fn metadata() -> serde_json::Value {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let output = Command::new(variable("CARGO"))
        .args(["metadata", "--format-version=1"])
        .args(["--filter-platform", &variable("TARGET")])
        .args([
            "--manifest-path",
            &(variable("CARGO_MANIFEST_DIR") + "/Cargo.toml"),
        ])
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo's metadata is JSON")
}

/// [`FILES`] and their imports, without comments, in the order of `all`.
fn pruned(all: FileDescriptorSet) -> FileDescriptorSet {
    let by_name: BTreeMap<&str, &FileDescriptorProto> =
        all.file.iter().map(|file| (file.name(), file)).collect();
    let mut wanted = BTreeSet::new();
    let mut left: Vec<&str> = FILES.to_vec();
    while let Some(name) = left.pop() {
        let file = by_name
            .get(name)
            .unwrap_or_else(|| panic!("envoy-types has no {name}"));
        if wanted.insert(name.to_owned()) {
            left.extend(file.dependency.iter().map(String::as_str));
        }
    }
    FileDescriptorSet {
        file: all
            .file
            .into_iter()
            .filter(|file| wanted.contains(file.name()))
            .map(|file| FileDescriptorProto {
                source_code_info: None,
                ..file
            })
            .collect(),
    }
}
