//! The listener settings in SesameConfigurations: the rules of their generated CRD. Envoy accepts all settings that obey them.

use std::ops::RangeInclusive;

use crate::configuration::{
    AcceptProxyProtocol, AccessLogFilter, AccessLogStyle, CipherSuite, CompressionAlgorithm,
    EscapedSlashesAction, HeadersWithUnderscores, ListenersAccessLog, ListenersConfiguration,
    ListenersLimits, ListenersTls, ListenersTlsVersion,
};

use super::{
    Check, at, each, each_of_some, ensure, known, known_word, log_format, optional, unique,
};

/// The largest signed 32-bit integer.
const MAX: u32 = i32::MAX.unsigned_abs();

pub(super) fn settings(listeners: &ListenersConfiguration) -> Check {
    at("tls", tls(&listeners.tls))?;
    let proxy_protocol = listeners.proxy_protocol.as_ref();
    known("proxyProtocol", proxy_protocol, AcceptProxyProtocol::KNOWN)?;
    at("accessLog", access_log(&listeners.access_log))?;
    let algorithms = listeners.compression.as_deref().unwrap_or_default();
    each("compression", algorithms, 3, |algorithm| {
        known_word(algorithm.as_str(), CompressionAlgorithm::KNOWN)
    })?;
    unique("compression", algorithms, "is a duplicate", Some)?;
    at("limits", limits(&listeners.limits))?;
    within("trustedHops", listeners.trusted_hops, 0..=100)?;
    let slashes = listeners.paths.escaped_slashes.as_ref();
    at(
        "paths",
        known("escapedSlashes", slashes, EscapedSlashesAction::KNOWN),
    )?;
    let underscores = listeners.headers_with_underscores.as_ref();
    known(
        "headersWithUnderscores",
        underscores,
        HeadersWithUnderscores::KNOWN,
    )
}

fn tls(tls: &ListenersTls) -> Check {
    let (min, max) = (
        tls.minimum_protocol_version.as_ref(),
        tls.maximum_protocol_version.as_ref(),
    );
    known("minimumProtocolVersion", min, ListenersTlsVersion::KNOWN)?;
    known("maximumProtocolVersion", max, ListenersTlsVersion::KNOWN)?;
    if let Some(suites) = tls.cipher_suites.as_deref() {
        let most = CipherSuite::KNOWN.len();
        each_of_some("cipherSuites", suites, most, |suite| {
            known_word(suite.as_str(), CipherSuite::KNOWN)
        })?;
        unique("cipherSuites", suites, "is a duplicate", Some)?;
    }
    let ordered = min.zip(max).is_none_or(|(min, max)| min <= max);
    ensure(
        ordered,
        "minimumProtocolVersion must not exceed maximumProtocolVersion",
    )
}

fn access_log(log: &ListenersAccessLog) -> Check {
    known("level", log.level.as_ref(), AccessLogFilter::KNOWN)?;
    let format = log.format.as_ref();
    known("format", format, AccessLogStyle::KNOWN)?;
    optional("text", log.text.as_deref(), log_format::text)?;
    optional("json", log.json.as_ref(), log_format::fields)?;
    ensure(
        log.text.is_none() || format != Some(&AccessLogStyle::Json),
        "text requires format Text",
    )?;
    ensure(
        log.json.is_none() || format == Some(&AccessLogStyle::Json),
        "json requires format JSON",
    )
}

fn limits(limits: &ListenersLimits) -> Check {
    within("concurrentStreams", limits.concurrent_streams, 1..=MAX)?;
    within("requestHeadersKiB", limits.request_headers_kib, 1..=8192)?;
    let count = limits.request_header_count;
    within("requestHeaderCount", count, 1..=10_000)?;
    let buffer = limits.connection_buffer_bytes;
    within("connectionBufferBytes", buffer, 4096..=MAX)?;
    let stream = limits.stream_window_bytes;
    within("http2StreamWindowBytes", stream, 65_535..=MAX)?;
    let connection = limits.connection_window_bytes;
    within("http2ConnectionWindowBytes", connection, 65_535..=MAX)
}

fn within(field: &str, number: Option<u32>, range: RangeInclusive<u32>) -> Check {
    let valid = number.is_none_or(|number| range.contains(&number));
    let (min, max) = range.into_inner();
    at(
        field,
        ensure(valid, &format!("expected a number from {min} to {max}")),
    )
}
