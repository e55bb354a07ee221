//! XBackend.

use crate::xbackend::{
    BackendProtocol, BackendTlsMode, EndpointSelector, ExternalHostname, XBackendSpec, XBackendTls,
    XBackendType,
};

use super::{Check, at, ensure, optional, policy, reference, route, text};

pub(crate) fn spec(spec: &XBackendSpec) -> Check {
    let set = [
        spec.external_hostname.is_some(),
        spec.endpoint_selector.is_some(),
    ];
    let (valid, message) = match spec.type_ {
        XBackendType::ExternalHostname => (
            set == [true, false],
            "type ExternalHostname requires externalHostname and does not allow endpointSelector",
        ),
        XBackendType::EndpointSelector => (
            set == [false, true],
            "type EndpointSelector requires endpointSelector and does not allow externalHostname",
        ),
        XBackendType::Other(_) => (
            set == [false, false],
            "this type allows neither externalHostname nor endpointSelector",
        ),
    };
    ensure(valid, message)?;
    optional(
        "externalHostname",
        spec.external_hostname.as_ref(),
        external,
    )?;
    optional(
        "endpointSelector",
        spec.endpoint_selector.as_ref(),
        selector,
    )?;
    at("port", at("number", text::port(&spec.port.number)))?;
    at("tls", tls(&spec.tls))?;
    at("protocol", protocol(spec))?;
    optional(
        "sessionPersistence",
        spec.session_persistence.as_ref(),
        |session| {
            ensure(
                spec.type_ == XBackendType::EndpointSelector,
                "is allowed only with type EndpointSelector",
            )?;
            route::session(session)
        },
    )
}

fn external(external: &ExternalHostname) -> Check {
    let hostname = &external.hostname;
    at("hostname", text::precise_hostname(hostname))?;
    at(
        "hostname",
        ensure(
            !hostname.ends_with(".cluster.local"),
            "must not end with .cluster.local",
        ),
    )
}

fn selector(selector: &EndpointSelector) -> Check {
    at(
        "matchLabels",
        ensure(
            !selector.match_labels.is_empty(),
            "at least one entry is required",
        ),
    )?;
    reference::labels("matchLabels", &selector.match_labels, 64)
}

fn tls(tls: &XBackendTls) -> Check {
    let enabled = tls.mode != BackendTlsMode::None;
    ensure(
        tls.client_certificate_ref.is_some() == (tls.mode == BackendTlsMode::ClientAndServer),
        "clientCertificateRef is required with mode ClientAndServer, and not allowed otherwise",
    )?;
    ensure(
        tls.validation.is_some() == enabled,
        "validation is not allowed with mode None, and required otherwise",
    )?;
    optional(
        "clientCertificateRef",
        tls.client_certificate_ref.as_ref(),
        reference::secret,
    )?;
    optional("validation", tls.validation.as_ref(), policy::validation)
}

fn protocol(spec: &XBackendSpec) -> Check {
    let enabled = spec.tls.mode != BackendTlsMode::None;
    match spec.protocol {
        Some(BackendProtocol::H2c) => ensure(
            !enabled,
            "H2C does not allow tls; use HTTP2 for HTTP/2 over TLS",
        ),
        Some(BackendProtocol::Http2) => ensure(
            enabled,
            "HTTP2 requires tls; use H2C for HTTP/2 without TLS",
        ),
        Some(BackendProtocol::Wss) => ensure(enabled, "WSS requires tls"),
        _ => Ok(()),
    }
}
