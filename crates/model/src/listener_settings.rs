//! Settings of all listeners of a fleet.
//!
//! The code that encodes listeners supplies defaults. A setting that a listener doesn't use has no effect on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::{TlsVersion, TlsVersions};

/// Settings of a fleet's TCP listeners; `None` means the default of the code that encodes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerSettings {
    /// The TLS versions that clients may use. Those of a listener narrow them.
    pub tls_versions: Option<TlsVersions>,
    /// The cipher suites for TLS 1.2, by Envoy's names. Never empty.
    pub cipher_suites: Option<Vec<Arc<str>>>,
    /// Whether connections start with a PROXY protocol header.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Which requests and connections are logged.
    pub access_log: Option<AccessLogLevel>,
    /// The format of the access log.
    pub access_log_format: Option<AccessLogFormat>,
    /// The algorithms for compressing responses, without duplicates; empty for none. Clients choose one of them.
    pub compression: Option<Vec<Compression>>,
    /// Timeouts.
    pub timeouts: ListenerTimeouts,
    /// Limits.
    pub limits: ListenerLimits,
    /// The number of trusted proxies in front of the Envoys, which append to `x-forwarded-for`.
    pub trusted_hops: Option<u32>,
    /// What happens to requests with an escaped slash or backslash in the path.
    pub escaped_slashes: Option<EscapedSlashes>,
    /// Whether adjacent slashes in a path are merged.
    pub merge_slashes: Option<bool>,
    /// What happens to requests with an underscore in a header's name.
    pub underscores: Option<UnderscoreHeaders>,
}

/// Timeouts of listeners. Zero means no timeout, except for [`ListenerTimeouts::delayed_close`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerTimeouts {
    /// How long an HTTP connection may be without requests.
    pub connection_idle: Option<Duration>,
    /// How long receiving a request's headers may take.
    pub request_headers: Option<Duration>,
    /// How long receiving a whole request may take.
    pub request: Option<Duration>,
    /// How long a request may be without data in either direction.
    pub stream_idle: Option<Duration>,
    /// The age at which an HTTP connection is drained.
    pub connection_duration: Option<Duration>,
    /// How long a connection that Envoy closes stays open for the client to read. Zero closes it at once.
    pub delayed_close: Option<Duration>,
    /// How long an HTTP/2 connection accepts new requests after the first notice that it will be closed.
    pub drain: Option<Duration>,
}

/// Limits of listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Concurrent requests on an HTTP/2 connection, 1 to 2³¹-1.
    pub streams: Option<u32>,
    /// Size of a request's headers in KiB, 1 to 8,192.
    pub headers_kib: Option<u32>,
    /// Number of a request's headers; at least 1.
    pub header_count: Option<u32>,
    /// Number of requests on a connection; 0 for no limit.
    pub requests: Option<u32>,
    /// Buffer size of a connection in bytes; at least 1.
    pub buffer: Option<u32>,
    /// Initial window size of an HTTP/2 stream in bytes, 65,535 to 2³¹-1.
    pub stream_window: Option<u32>,
    /// Initial window size of an HTTP/2 connection in bytes, 65,535 to 2³¹-1.
    pub connection_window: Option<u32>,
}

/// Whether connections start with a PROXY protocol header, version 1 or 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// The header isn't read.
    Disabled,
    /// Connections without the header are closed.
    Required,
    /// Connections without the header are accepted.
    Optional,
}

/// Which requests and connections are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLogLevel {
    /// All.
    All,
    /// Requests with a status of 400 or above.
    Errors,
    /// Requests with a status of 500 or above.
    Critical,
    /// None.
    Disabled,
}

/// The format of an access log, in Envoy's syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// This text for each entry; `None` for a default.
    Text(Option<Arc<str>>),
    /// A JSON object with these fields; `None` for a default.
    Json(Option<BTreeMap<String, String>>),
}

/// An algorithm for compressing responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compression {
    /// Brotli.
    Brotli,
    /// Gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

/// What happens to requests with `%2F` or `%5C` in the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EscapedSlashes {
    /// The path stays as it is.
    KeepUnchanged,
    /// They get a 400 response.
    Reject,
    /// They are redirected to the path with slashes.
    UnescapeAndRedirect,
    /// They are forwarded with slashes.
    UnescapeAndForward,
}

/// What happens to requests with an underscore in a header's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderscoreHeaders {
    /// The header is forwarded.
    Allow,
    /// They get a 400 response.
    Reject,
    /// The header is removed.
    Drop,
}

impl ListenerSettings {
    /// These settings, with those of `wider` as defaults, such as a Gateway's over its class's.
    #[must_use]
    pub fn over(self, wider: Self) -> Self {
        Self {
            tls_versions: self.tls_versions.or(wider.tls_versions),
            cipher_suites: self.cipher_suites.or(wider.cipher_suites),
            proxy_protocol: self.proxy_protocol.or(wider.proxy_protocol),
            access_log: self.access_log.or(wider.access_log),
            access_log_format: self.access_log_format.or(wider.access_log_format),
            compression: self.compression.or(wider.compression),
            timeouts: self.timeouts.over(wider.timeouts),
            limits: self.limits.over(wider.limits),
            trusted_hops: self.trusted_hops.or(wider.trusted_hops),
            escaped_slashes: self.escaped_slashes.or(wider.escaped_slashes),
            merge_slashes: self.merge_slashes.or(wider.merge_slashes),
            underscores: self.underscores.or(wider.underscores),
        }
    }

    /// The TLS versions of a listener with its own `versions`; `None` for the default.
    pub fn tls_versions(&self, versions: Option<TlsVersions>) -> Option<TlsVersions> {
        let Some(bounds) = self.tls_versions else {
            return versions;
        };
        let within = |version: TlsVersion| version.clamp(bounds.min, bounds.max);
        Some(versions.map_or(bounds, |versions| TlsVersions {
            min: within(versions.min),
            max: within(versions.max),
        }))
    }
}

impl ListenerTimeouts {
    fn over(self, wider: Self) -> Self {
        Self {
            connection_idle: self.connection_idle.or(wider.connection_idle),
            request_headers: self.request_headers.or(wider.request_headers),
            request: self.request.or(wider.request),
            stream_idle: self.stream_idle.or(wider.stream_idle),
            connection_duration: self.connection_duration.or(wider.connection_duration),
            delayed_close: self.delayed_close.or(wider.delayed_close),
            drain: self.drain.or(wider.drain),
        }
    }
}

impl ListenerLimits {
    fn over(self, wider: Self) -> Self {
        Self {
            streams: self.streams.or(wider.streams),
            headers_kib: self.headers_kib.or(wider.headers_kib),
            header_count: self.header_count.or(wider.header_count),
            requests: self.requests.or(wider.requests),
            buffer: self.buffer.or(wider.buffer),
            stream_window: self.stream_window.or(wider.stream_window),
            connection_window: self.connection_window.or(wider.connection_window),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrower_settings_override_wider_ones() {
        let second = Some(Duration::from_secs(1));
        let class = ListenerSettings {
            tls_versions: Some(TlsVersions {
                min: TlsVersion::V1_3,
                max: TlsVersion::V1_3,
            }),
            cipher_suites: Some(vec!["AES128-SHA".into()]),
            proxy_protocol: Some(ProxyProtocol::Required),
            access_log: Some(AccessLogLevel::All),
            access_log_format: Some(AccessLogFormat::Json(None)),
            compression: Some(vec![Compression::Gzip]),
            timeouts: ListenerTimeouts {
                connection_idle: second,
                request_headers: second,
                request: second,
                stream_idle: second,
                connection_duration: second,
                delayed_close: second,
                drain: second,
            },
            limits: ListenerLimits {
                streams: Some(1),
                headers_kib: Some(1),
                header_count: Some(1),
                requests: Some(1),
                buffer: Some(1),
                stream_window: Some(1),
                connection_window: Some(1),
            },
            trusted_hops: Some(1),
            escaped_slashes: Some(EscapedSlashes::Reject),
            merge_slashes: Some(false),
            underscores: Some(UnderscoreHeaders::Drop),
        };
        // Covers every field: a Gateway without settings gets all of its class's.
        assert_eq!(ListenerSettings::default().over(class.clone()), class);
        assert_eq!(class.clone().over(ListenerSettings::default()), class);
        let gateway = ListenerSettings {
            compression: Some(Vec::new()),
            trusted_hops: Some(0),
            ..ListenerSettings::default()
        };
        let both = ListenerSettings {
            compression: Some(Vec::new()),
            trusted_hops: Some(0),
            ..class.clone()
        };
        assert_eq!(gateway.over(class), both);
    }

    #[test]
    fn listeners_only_narrow_the_tls_versions() {
        use TlsVersion::{V1_2, V1_3};
        let versions = |min, max| Some(TlsVersions { min, max });
        for (of_fleet, of_listener, both) in [
            (None, None, None),
            (None, versions(V1_3, V1_3), versions(V1_3, V1_3)),
            (versions(V1_3, V1_3), None, versions(V1_3, V1_3)),
            (
                versions(V1_2, V1_3),
                versions(V1_3, V1_3),
                versions(V1_3, V1_3),
            ),
            (
                versions(V1_3, V1_3),
                versions(V1_2, V1_2),
                versions(V1_3, V1_3),
            ),
            (
                versions(V1_2, V1_2),
                versions(V1_3, V1_3),
                versions(V1_2, V1_2),
            ),
        ] {
            let settings = ListenerSettings {
                tls_versions: of_fleet,
                ..ListenerSettings::default()
            };
            assert_eq!(settings.tls_versions(of_listener), both);
        }
    }
}
