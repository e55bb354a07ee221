//! HTTP filters that compress responses.
//!
//! In: algorithms. Out: a `Compressor` filter for each. Envoy selects one of them by the request's `accept-encoding`.

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::compression::brotli::compressor::v3::Brotli;
use envoy_types::pb::envoy::extensions::compression::gzip::compressor::v3::Gzip;
use envoy_types::pb::envoy::extensions::compression::zstd::compressor::v3::Zstd;
use envoy_types::pb::envoy::extensions::filters::http::compressor::v3::Compressor;
use sesame_model::Compression;

use crate::wire;

/// The filter's name and configuration.
pub(crate) fn compressor(algorithm: Compression) -> (&'static str, Compressor) {
    let (name, library) = match algorithm {
        Compression::Brotli => ("compressor.brotli", brotli()),
        Compression::Gzip => ("compressor.gzip", gzip()),
        Compression::Zstd => ("compressor.zstd", zstd()),
    };
    let config = Compressor {
        compressor_library: Some(library),
        ..Default::default()
    };
    (name, config)
}

fn brotli() -> TypedExtensionConfig {
    wire::extension("envoy.compression.brotli.compressor", Brotli::default())
}

fn gzip() -> TypedExtensionConfig {
    wire::extension("envoy.compression.gzip.compressor", Gzip::default())
}

fn zstd() -> TypedExtensionConfig {
    wire::extension("envoy.compression.zstd.compressor", Zstd::default())
}
