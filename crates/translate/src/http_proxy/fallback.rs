//! The fallback certificate, for TLS connections without SNI or for a host without TLS. These connections reach only
//! the hosts of HTTPProxies that enable the fallback certificate.
//!
//! In: the Secret in the settings, and hosts. Out: one listener for all of these connections, as long as it serves a
//! host.

use std::sync::Arc;

use sesame_api::{HTTPProxy, ObjectKey};
use sesame_engine::{Builder, Reader, Table};
use sesame_model::{CertificateKey, Termination};

use super::findings::{About, Findings};
use super::fragment::References;
use super::host::{Host, HostTls};
use super::secrets;
use crate::inputs::Inputs;
use crate::settings::Settings;
use crate::shared::certificates;
use crate::shared::default_fleet::{self, Sources};
use crate::shared::hostname;
use crate::shared::listeners::AttachPoints;
use crate::shared::ports::Terminations;

const FIELD: &str = "spec.virtualhost.tls.enableFallbackCertificate";

/// Whether the fallback certificate can be used, or why not. Hosts read this row instead of the certificate; since the
/// row stays the same when the certificate is renewed, the hosts aren't rebuilt.
pub(super) type Certificates = Table<CertificateKey, Result<(), String>>;

/// The listener for connections that use the fallback certificate.
#[derive(Clone, Copy)]
pub(super) struct FallbackListener {
    pub(super) points: Table<ObjectKey, AttachPoints>,
    pub(super) terminations: Table<ObjectKey, Terminations>,
}

/// The fallback certificate, if the HTTPProxy enables it.
pub(super) fn certificate(settings: &Settings, proxy: &HTTPProxy) -> Option<CertificateKey> {
    proxy.fallback_tls()?;
    let secret = settings.ingress.fallback_certificate.as_ref()?;
    Some(CertificateKey {
        namespace: Arc::clone(&secret.namespace),
        name: Arc::clone(&secret.name),
    })
}

/// Declares whether the certificate can be used.
pub(super) fn certificates(
    b: &mut Builder,
    ours: Table<ObjectKey, References>,
    sources: Sources,
) -> Certificates {
    let enabled = b.index(ours, "http_proxies by fallback", |_, of| {
        Vec::from_iter(of.fallback.clone())
    });
    let certificates = sources.certificates;
    b.derive("fallback certificate", enabled, move |reader, secret| {
        Some(certificates::check(reader, certificates, secret))
    })
}

/// Returns the fallback certificate if the host is also served on connections that use it. Otherwise, only the host's
/// own connections reach the host.
pub(super) fn read(
    reader: &mut Reader<'_>,
    (inputs, certificates): (Inputs, Certificates),
    proxy: &HTTPProxy,
    host: &HostTls,
    findings: &mut Findings,
) -> Option<CertificateKey> {
    let tls = proxy.fallback_tls()?;
    let mut error = |about, message: &str| findings.error(about, FIELD, message);
    for (other, used, reason) in [
        (
            "clientValidation",
            tls.client_validation.is_some(),
            "Envoy doesn't request client certificates on connections with the fallback certificate",
        ),
        (
            "passthrough",
            tls.passthrough,
            "connections are forwarded by SNI",
        ),
        (
            "spec.tcpproxy",
            proxy.spec.tcp_proxy.is_some(),
            "connections are forwarded by SNI",
        ),
    ] {
        if used {
            let message =
                format!("has no effect in combination with {other}: {reason}; remove one of them");
            error(About::TLS, &message);
            return None;
        }
    }
    let settings = reader.get(inputs.settings, &())?;
    let Some(secret) = certificate(&settings, proxy) else {
        let message = "Sesame has no fallback certificate; set httpProxy.fallbackCertificate in its configuration or start it \
                       with --fallback-certificate, or remove the field";
        error(About::TLS, message);
        return None;
    };
    let namespace = &proxy.meta.namespace;
    let about = (About::CERTIFICATE, FIELD, &secret);
    if !secrets::is_delegated(reader, inputs, namespace, about, findings) {
        return None;
    }
    let state = reader.get(certificates, &secret)?;
    if let Err(reason) = &*state {
        let message = format!("{reason} (the fallback certificate of Sesame)");
        findings.error(About::CERTIFICATE, FIELD, message);
        return None;
    }
    let HostTls::Served(termination) = host else {
        return None;
    };
    if termination.versions.is_some() {
        let message = "connections with the fallback certificate may use any TLS version, regardless of the host's \
                       minimumProtocolVersion and maximumProtocolVersion";
        findings.warn(About::TLS, FIELD, message);
    }
    Some(secret)
}

/// Declares the listener, which doesn't depend on the number of hosts.
pub(super) fn listener(
    b: &mut Builder,
    inputs: Inputs,
    hosts: Table<ObjectKey, Host>,
) -> FallbackListener {
    let settings = inputs.settings;
    let enabled = b.index(hosts, "hosts with fallback", |_, host: &Host| {
        Vec::from_iter(host.fallback.as_ref().map(secrets::object))
    });
    FallbackListener {
        points: b.derive("fallback points", enabled, move |reader, secret| {
            let settings = reader.get(settings, &())?;
            let point = default_fleet::fallback_listener(&settings, secret);
            Some(default_fleet::attach_points(&settings, vec![point]))
        }),
        terminations: b.derive("fallback terminations", enabled, |_, secret: &ObjectKey| {
            let termination = Termination {
                certificates: vec![CertificateKey {
                    namespace: Arc::clone(&secret.namespace),
                    name: Arc::clone(&secret.name),
                }],
                ..Termination::default()
            };
            let any_host = Arc::from(hostname::ANY);
            Some(Terminations::from([(any_host, Arc::new(termination))]))
        }),
    }
}
