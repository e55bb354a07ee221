//! The section `listeners`: settings of a fleet's listeners. The schema has all rules, so reading them can't fail.

use sesame_api::{
    AcceptProxyProtocol, AccessLogFilter, AccessLogStyle, CompressionAlgorithm, Duration,
    EscapedSlashesAction, HeadersWithUnderscores, ListenersAccessLog, ListenersConfiguration,
    ListenersLimits, ListenersTimeouts, ListenersTls, ListenersTlsVersion,
};
use sesame_model::{
    AccessLogFormat, AccessLogLevel, Compression, EscapedSlashes, ListenerLimits, ListenerSettings,
    ListenerTimeouts, ProxyProtocol, TlsVersion, TlsVersions, UnderscoreHeaders,
};

use crate::settings::Settings;

/// Reads the settings. Unknown values, which the schema rejects, have no effect.
pub(crate) fn listeners(listeners: &ListenersConfiguration) -> ListenerSettings {
    let log = &listeners.access_log;
    let algorithms = listeners.compression.as_ref();
    ListenerSettings {
        tls_versions: versions(&listeners.tls),
        cipher_suites: listeners.tls.cipher_suites.as_ref().map(|suites| {
            let names = suites.iter().map(|suite| suite.as_str().into());
            names.collect()
        }),
        proxy_protocol: listeners.proxy_protocol.as_ref().and_then(proxy_protocol),
        access_log: log.level.as_ref().and_then(level),
        access_log_format: format(log),
        compression: algorithms.map(|list| list.iter().filter_map(compression).collect()),
        timeouts: timeouts(&listeners.timeouts),
        limits: limits(&listeners.limits),
        trusted_hops: listeners.trusted_hops,
        escaped_slashes: listeners.paths.escaped_slashes.as_ref().and_then(slashes),
        merge_slashes: listeners.paths.merge_slashes,
        underscores: listeners
            .headers_with_underscores
            .as_ref()
            .and_then(underscores),
    }
}

/// The versions, if one of them is set.
fn versions(tls: &ListenersTls) -> Option<TlsVersions> {
    let (min, max) = (&tls.minimum_protocol_version, &tls.maximum_protocol_version);
    if min.is_none() && max.is_none() {
        return None;
    }
    let version = |version: &ListenersTlsVersion| match version {
        ListenersTlsVersion::V1_2 => Some(TlsVersion::V1_2),
        ListenersTlsVersion::V1_3 => Some(TlsVersion::V1_3),
        ListenersTlsVersion::Other(_) => None,
    };
    let min = min.as_ref().and_then(version).unwrap_or(TlsVersion::V1_2);
    let max = max.as_ref().and_then(version).unwrap_or(TlsVersion::V1_3);
    Some(TlsVersions {
        min,
        max: max.max(min),
    })
}

fn proxy_protocol(accept: &AcceptProxyProtocol) -> Option<ProxyProtocol> {
    Some(match accept {
        AcceptProxyProtocol::Disabled => ProxyProtocol::Disabled,
        AcceptProxyProtocol::Required => ProxyProtocol::Required,
        AcceptProxyProtocol::Optional => ProxyProtocol::Optional,
        AcceptProxyProtocol::Other(_) => return None,
    })
}

fn level(filter: &AccessLogFilter) -> Option<AccessLogLevel> {
    Some(match filter {
        AccessLogFilter::All => AccessLogLevel::All,
        AccessLogFilter::Errors => AccessLogLevel::Errors,
        AccessLogFilter::Critical => AccessLogLevel::Critical,
        AccessLogFilter::Disabled => AccessLogLevel::Disabled,
        AccessLogFilter::Other(_) => return None,
    })
}

/// The format, if one of its fields is set.
fn format(log: &ListenersAccessLog) -> Option<AccessLogFormat> {
    match (&log.format, &log.text) {
        (Some(AccessLogStyle::Json), _) => Some(AccessLogFormat::Json(log.json.clone())),
        (None, None) => None,
        (_, text) => Some(AccessLogFormat::Text(text.clone())),
    }
}

fn compression(algorithm: &CompressionAlgorithm) -> Option<Compression> {
    Some(match algorithm {
        CompressionAlgorithm::Brotli => Compression::Brotli,
        CompressionAlgorithm::Gzip => Compression::Gzip,
        CompressionAlgorithm::Zstd => Compression::Zstd,
        CompressionAlgorithm::Other(_) => return None,
    })
}

fn timeouts(timeouts: &ListenersTimeouts) -> ListenerTimeouts {
    let time = |time: &Option<Duration>| time.as_ref().map(Duration::as_std);
    ListenerTimeouts {
        connection_idle: time(&timeouts.connection_idle),
        request_headers: time(&timeouts.request_headers),
        request: time(&timeouts.request),
        stream_idle: time(&timeouts.stream_idle),
        connection_duration: time(&timeouts.connection_duration),
        delayed_close: time(&timeouts.delayed_close),
        drain: time(&timeouts.connection_shutdown_grace),
    }
}

fn limits(limits: &ListenersLimits) -> ListenerLimits {
    ListenerLimits {
        streams: limits.concurrent_streams,
        headers_kib: limits.request_headers_kib,
        header_count: limits.request_header_count,
        requests: limits.requests_per_connection,
        buffer: limits.connection_buffer_bytes,
        stream_window: limits.stream_window_bytes,
        connection_window: limits.connection_window_bytes,
    }
}

fn slashes(action: &EscapedSlashesAction) -> Option<EscapedSlashes> {
    Some(match action {
        EscapedSlashesAction::KeepUnchanged => EscapedSlashes::KeepUnchanged,
        EscapedSlashesAction::Reject => EscapedSlashes::Reject,
        EscapedSlashesAction::UnescapeAndRedirect => EscapedSlashes::UnescapeAndRedirect,
        EscapedSlashesAction::UnescapeAndForward => EscapedSlashes::UnescapeAndForward,
        EscapedSlashesAction::Other(_) => return None,
    })
}

fn underscores(action: &HeadersWithUnderscores) -> Option<UnderscoreHeaders> {
    Some(match action {
        HeadersWithUnderscores::Allow => UnderscoreHeaders::Allow,
        HeadersWithUnderscores::Reject => UnderscoreHeaders::Reject,
        HeadersWithUnderscores::Drop => UnderscoreHeaders::Drop,
        HeadersWithUnderscores::Other(_) => return None,
    })
}

/// Which version applies to a host of the default fleet if the settings permit none of its TLS `versions`.
pub(crate) fn other_version(settings: &Settings, versions: TlsVersions) -> Option<String> {
    let bounds = settings.fleet.listeners.tls_versions?;
    let version = match versions {
        versions if versions.min > bounds.max => bounds.max,
        versions if versions.max < bounds.min => bounds.min,
        _ => return None,
    };
    let name = match version {
        TlsVersion::V1_2 => "1.2",
        TlsVersion::V1_3 => "1.3",
    };
    Some(format!(
        "TLS {name} applies, since listeners.tls of Sesame's configuration doesn't permit the host's versions; change either"
    ))
}
