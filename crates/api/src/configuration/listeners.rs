//! Settings for all listeners of a fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::open_enum::open_enum;
use crate::skip::is_default;

/// Settings for all listeners of a fleet. An omitted field takes its value from the SesameConfiguration of the Gateway's
/// class, then from the instance's SesameConfiguration; failing both, the default applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenersConfiguration {
    /// TLS settings for client connections.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tls: ListenersTls,
    /// Whether TCP connections start with a PROXY protocol header (version 1 or 2), as some load balancers send it;
    /// `Disabled` by default. The header's source is the client's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<AcceptProxyProtocol>,
    /// The access log, on Envoy's standard output.
    #[serde(default, skip_serializing_if = "is_default")]
    pub access_log: ListenersAccessLog,
    /// The algorithms for compressing responses; none by default. A client's `accept-encoding` selects one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 3), extend("x-kubernetes-list-type" = "set"))
    )]
    pub compression: Option<Vec<CompressionAlgorithm>>,
    /// Timeouts. `0s` disables a timeout.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: ListenersTimeouts,
    /// Limits on connections and requests.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: ListenersLimits,
    /// The number of trusted proxies in front of the Envoys that append to `x-forwarded-for`; 0 by default. If it is 1, the
    /// client's address is the last one in that header; if it is 2, the one before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 100)))]
    pub trusted_hops: Option<u32>,
    /// Slashes in the paths of requests.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paths: ListenersPaths,
    /// What happens to requests with an underscore in a header's name; `Reject` by default. Some backends treat `x_user` and
    /// `x-user` as the same header, which lets clients set headers that only the gateway should set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_with_underscores: Option<HeadersWithUnderscores>,
}

/// TLS settings for client connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.minimumProtocolVersion) || !has(self.maximumProtocolVersion) || self.minimumProtocolVersion <= self.maximumProtocolVersion", "message": "minimumProtocolVersion must not exceed maximumProtocolVersion"},
])))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenersTls {
    /// The oldest TLS version; `1.2` by default. If only one of the two versions is set, the other keeps its default.
    /// HTTPProxies and Ingresses can only narrow the versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_protocol_version: Option<ListenersTlsVersion>,
    /// The newest TLS version; `1.3` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_protocol_version: Option<ListenersTlsVersion>,
    /// The cipher suites for TLS 1.2; Envoy's own list by default. Those of TLS 1.3 can't be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 14), extend("x-kubernetes-list-type" = "set"))
    )]
    pub cipher_suites: Option<Vec<CipherSuite>>,
}

open_enum! {
    /// A TLS version.
    pub enum ListenersTlsVersion {
        /// TLS 1.2.
        V1_2 = "1.2",
        /// TLS 1.3.
        V1_3 = "1.3",
    }
}

open_enum! {
    /// A cipher suite for TLS 1.2.
    pub enum CipherSuite {
        /// Forward secrecy, an ECDSA certificate and AES-128-GCM.
        EcdheEcdsaAes128Gcm = "ECDHE-ECDSA-AES128-GCM-SHA256",
        /// Forward secrecy, an ECDSA certificate and ChaCha20-Poly1305.
        EcdheEcdsaChacha20 = "ECDHE-ECDSA-CHACHA20-POLY1305",
        /// Forward secrecy, an RSA certificate and AES-128-GCM.
        EcdheRsaAes128Gcm = "ECDHE-RSA-AES128-GCM-SHA256",
        /// Forward secrecy, an RSA certificate and ChaCha20-Poly1305.
        EcdheRsaChacha20 = "ECDHE-RSA-CHACHA20-POLY1305",
        /// Forward secrecy, an ECDSA certificate and AES-256-GCM.
        EcdheEcdsaAes256Gcm = "ECDHE-ECDSA-AES256-GCM-SHA384",
        /// Forward secrecy, an RSA certificate and AES-256-GCM.
        EcdheRsaAes256Gcm = "ECDHE-RSA-AES256-GCM-SHA384",
        /// Forward secrecy, an ECDSA certificate and AES-128-CBC.
        EcdheEcdsaAes128Cbc = "ECDHE-ECDSA-AES128-SHA",
        /// Forward secrecy, an RSA certificate and AES-128-CBC.
        EcdheRsaAes128Cbc = "ECDHE-RSA-AES128-SHA",
        /// Forward secrecy, an ECDSA certificate and AES-256-CBC.
        EcdheEcdsaAes256Cbc = "ECDHE-ECDSA-AES256-SHA",
        /// Forward secrecy, an RSA certificate and AES-256-CBC.
        EcdheRsaAes256Cbc = "ECDHE-RSA-AES256-SHA",
        /// An RSA certificate and AES-128-GCM.
        Aes128Gcm = "AES128-GCM-SHA256",
        /// An RSA certificate and AES-128-CBC.
        Aes128Cbc = "AES128-SHA",
        /// An RSA certificate and AES-256-GCM.
        Aes256Gcm = "AES256-GCM-SHA384",
        /// An RSA certificate and AES-256-CBC.
        Aes256Cbc = "AES256-SHA",
    }
}

open_enum! {
    /// Whether connections start with a PROXY protocol header.
    pub enum AcceptProxyProtocol {
        /// The header isn't read.
        Disabled = "Disabled",
        /// Connections without it are closed.
        Required = "Required",
        /// Connections without it are accepted, so any client can send one and spoof its address.
        Optional = "Optional",
    }
}

/// The access log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.text) || !has(self.format) || self.format == 'Text'", "message": "text requires format Text"},
    {"rule": "!has(self.json) || has(self.format) && self.format == 'JSON'", "message": "json requires format JSON"},
])))]
#[serde(deny_unknown_fields)]
pub struct ListenersAccessLog {
    /// Which requests are logged; `Disabled` by default. `All` includes connections that are forwarded without reading
    /// requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<AccessLogFilter>,
    /// Whether an entry is a line of text or a JSON object; `Text` by default. A configuration that sets `format`, `text` or
    /// `json` replaces all three.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<AccessLogStyle>,
    /// The text of an entry, with Envoy's command operators, such as `%REQ(:METHOD)% %RESPONSE_CODE%`; Envoy's own format by
    /// default. A literal percent sign is doubled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(min = 1, max = 4096),
            extend("pattern" = crate::check::log_format::pattern())
        )
    )]
    pub text: Option<Arc<str>>,
    /// The fields of an entry: their names, and their values as in `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(schema_with = "crate::check::log_format::fields_schema")
    )]
    pub json: Option<BTreeMap<String, String>>,
}

open_enum! {
    /// Which requests are logged.
    pub enum AccessLogFilter {
        /// All requests and connections.
        All = "All",
        /// Requests whose response has a status of 400 or above.
        Errors = "Errors",
        /// Requests whose response has a status of 500 or above.
        Critical = "Critical",
        /// None.
        Disabled = "Disabled",
    }
}

open_enum! {
    /// The form of an entry in the access log.
    pub enum AccessLogStyle {
        /// A line of text.
        Text = "Text",
        /// A JSON object.
        Json = "JSON",
    }
}

open_enum! {
    /// An algorithm for compressing responses.
    pub enum CompressionAlgorithm {
        /// Gzip.
        Gzip = "Gzip",
        /// Brotli.
        Brotli = "Brotli",
        /// Zstandard.
        Zstd = "Zstd",
    }
}

/// Timeouts, such as `30s`. `0s` disables a timeout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenersTimeouts {
    /// How long an HTTP connection may be without requests; `1h` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::duration"))]
    pub connection_idle: Option<Duration>,
    /// How long receiving a request's headers may take; `10s` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::duration"))]
    pub request_headers: Option<Duration>,
    /// How long receiving a whole request may take; unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::duration"))]
    pub request: Option<Duration>,
    /// How long a stream, such as a request or a WebSocket, may go without data in either direction; `1h` by default. The
    /// timeout also ends requests whose response takes longer than this to start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::duration"))]
    pub stream_idle: Option<Duration>,
    /// The age at which an HTTP connection is closed once its requests have ended; unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::duration"))]
    pub connection_duration: Option<Duration>,
    /// How long Envoy waits before it fully closes a connection, so that the client can read the last response; `1s` by
    /// default. `0s` closes it immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::duration"))]
    pub delayed_close: Option<Duration>,
    /// How long an HTTP/2 connection still accepts requests after its client was notified that it will be closed; `5s` by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::duration"))]
    pub connection_shutdown_grace: Option<Duration>,
}

/// Limits on connections and requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenersLimits {
    /// The maximum number of concurrent requests on an HTTP/2 connection; 100 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 2_147_483_647_u32)))]
    pub concurrent_streams: Option<u32>,
    /// The maximum size of a request's headers in KiB; 60 by default. Larger ones get a 431 response.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "requestHeadersKiB"
    )]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 8192)))]
    pub request_headers_kib: Option<u32>,
    /// The maximum number of a request's headers; 100 by default. Requests with more headers get a 431 response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
    pub request_header_count: Option<u32>,
    /// The maximum number of requests on a connection, which is then closed; 0, the default, means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_connection: Option<u32>,
    /// The size of a connection's buffers in bytes; 32768 by default. It also limits the size of request bodies that can be
    /// sent again to another backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(range(min = 4096, max = 2_147_483_647_u32))
    )]
    pub connection_buffer_bytes: Option<u32>,
    /// The initial window of an HTTP/2 stream in bytes; 65536 by default.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "http2StreamWindowBytes"
    )]
    #[cfg_attr(
        feature = "schema",
        schemars(range(min = 65_535, max = 2_147_483_647_u32))
    )]
    pub stream_window_bytes: Option<u32>,
    /// The initial window of an HTTP/2 connection in bytes; 1048576 by default.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "http2ConnectionWindowBytes"
    )]
    #[cfg_attr(
        feature = "schema",
        schemars(range(min = 65_535, max = 2_147_483_647_u32))
    )]
    pub connection_window_bytes: Option<u32>,
}

/// Slashes in the paths of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenersPaths {
    /// What happens to requests with `%2F` or `%5C`, an escaped slash or backslash, in the path; `UnescapeAndRedirect` by
    /// default. With `KeepUnchanged`, a request for `/public/..%2Fadmin` reaches the backend of `/public`, which may serve
    /// `/admin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escaped_slashes: Option<EscapedSlashesAction>,
    /// Whether adjacent slashes are merged before routes are matched, so that `//admin` is treated as `/admin`; true by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_slashes: Option<bool>,
}

open_enum! {
    /// What happens to requests with an escaped slash or backslash in the path.
    pub enum EscapedSlashesAction {
        /// They are forwarded unchanged.
        KeepUnchanged = "KeepUnchanged",
        /// They get a 400 response.
        Reject = "Reject",
        /// They get a redirect to the path with slashes; gRPC calls are rejected.
        UnescapeAndRedirect = "UnescapeAndRedirect",
        /// They are forwarded with slashes.
        UnescapeAndForward = "UnescapeAndForward",
    }
}

open_enum! {
    /// What happens to requests with an underscore in a header's name.
    pub enum HeadersWithUnderscores {
        /// The header is forwarded.
        Allow = "Allow",
        /// They get a 400 response.
        Reject = "Reject",
        /// The header is removed.
        Drop = "Drop",
    }
}
