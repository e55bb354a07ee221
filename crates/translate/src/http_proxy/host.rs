//! The host of a root: which HTTPProxy serves it, how TLS is terminated, and the settings for all of its requests.

use std::sync::Arc;

use sesame_api::{HTTPProxy, HttpProxyTls, HttpProxyVirtualHost, ObjectKey};
use sesame_engine::Reader;
use sesame_model::{
    CertificateKey, Cors, HeaderChanges, RateLimit, SourceFilter, Termination, TlsVersion,
    TlsVersions,
};

use super::authorization::{self, HostAuth};
use super::findings::{About, Finding, Findings};
use super::{access, clients, cors, default_headers, fallback, global_rate, jwt, secrets};
use crate::configuration::listeners;
use crate::inputs::Inputs;
use crate::settings::Settings;
use crate::shared::certificates;
use crate::shared::default_fleet::{self, Sources};
use crate::shared::listeners::{ListenerPoint, Protocol};
use crate::shared::precedence::{Seniority, Source};

/// The field path of the host.
const FIELD: &str = "spec.virtualhost";

/// An HTTPProxy with a valid host.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Root {
    /// The hostname, in lower case.
    pub(super) fqdn: Arc<str>,
    /// Only the oldest root with a host serves the host.
    pub(super) seniority: Seniority,
}

/// The host of an HTTPProxy; `None` if it doesn't have a valid host.
pub(super) fn root(settings: &Settings, proxy: &HTTPProxy) -> Option<Root> {
    let host = proxy.spec.virtual_host.as_deref()?;
    let fqdn = permitted_fqdn(settings, proxy, host).ok()?;
    Some(Root {
        fqdn,
        seniority: Seniority::of(Source::HttpProxy, &proxy.meta),
    })
}

/// The hostname, if it is valid and the HTTPProxy may have a host.
fn permitted_fqdn(
    settings: &Settings,
    proxy: &HTTPProxy,
    host: &HttpProxyVirtualHost,
) -> Result<Arc<str>, Finding> {
    let namespace = &proxy.meta.namespace;
    if !settings.ingress.permits_roots(namespace) {
        let message = format!(
            "HTTPProxies in namespace {namespace} may not have a virtualhost (--root-namespaces); remove it, and \
             include this HTTPProxy from one in a permitted namespace"
        );
        return Err(Finding::error(About::ROOT_NAMESPACE, FIELD, message));
    }
    fqdn(host)
}

fn fqdn(host: &HttpProxyVirtualHost) -> Result<Arc<str>, Finding> {
    let lower = host.fqdn.to_ascii_lowercase();
    let error = |message: String| {
        let field = format!("{FIELD}.fqdn");
        Err(Finding::error(About::HOST, &field, message))
    };
    if !sesame_api::is_hostname(&lower) {
        let fqdn = &host.fqdn;
        return error(format!(
            "{fqdn:?} is not a hostname; use one such as example.com or *.example.com, without a port"
        ));
    }
    match lower == *host.fqdn {
        true => Ok(Arc::clone(&host.fqdn)),
        false => Ok(lower.into()),
    }
}

/// Why an HTTPProxy doesn't serve its host. `owner` is the HTTPProxy that serves the host.
pub(super) fn obstacle(
    settings: &Settings,
    proxy: &HTTPProxy,
    owner: Option<&ObjectKey>,
) -> Option<Finding> {
    let host = proxy.spec.virtual_host.as_deref()?;
    let fqdn = match permitted_fqdn(settings, proxy, host) {
        Ok(fqdn) => fqdn,
        Err(finding) => return Some(finding),
    };
    let owner = owner.map(ObjectKey::namespaced_name);
    let owner = owner.filter(|owner| *owner != proxy.meta.namespaced_name())?;
    let message = format!(
        "HTTPProxy {owner} is older and serves host {fqdn}; change the host, or remove one of the HTTPProxies"
    );
    let field = format!("{FIELD}.fqdn");
    Some(Finding::error(About::DUPLICATE_HOST, &field, message))
}

/// The certificate of an HTTPProxy's host, whether or not the HTTPProxy may use it.
pub(super) fn certificate(proxy: &HTTPProxy) -> Option<CertificateKey> {
    let tls = proxy.spec.virtual_host.as_deref()?.tls.as_deref()?;
    secrets::named(&proxy.meta.namespace, tls.secret_name.as_deref()?)
}

/// A host, with the settings of the HTTPProxy that serves it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Host {
    pub(super) fqdn: Arc<str>,
    /// Whether a field that applies to all requests is invalid or not supported, so that nothing is served.
    pub(super) refused: bool,
    pub(super) tls: HostTls,
    /// The fallback certificate, if the host is also served on connections that use it.
    pub(super) fallback: Option<CertificateKey>,
    pub(super) cors: Option<Arc<Cors>>,
    pub(super) sources: Option<SourceFilter>,
    /// The rate limit shared by all routes without their own limit.
    pub(super) rate: Option<Arc<RateLimit>>,
    pub(super) global_rate: global_rate::Limits,
    /// The JWT providers.
    pub(super) jwt: jwt::Providers,
    pub(super) auth: Option<HostAuth>,
    /// The changes to responses that don't come from a route of an HTTPProxy, such as redirects to HTTPS.
    pub(super) response_headers: HeaderChanges,
    /// Findings about the host's fields.
    pub(super) findings: Box<[Finding]>,
}

/// What happens to TLS connections.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum HostTls {
    /// The host doesn't use TLS.
    None,
    /// Connections are closed, since the settings are invalid and a wildcard host must not serve them. Requests without
    /// TLS are still redirected.
    Invalid,
    /// Requests on TLS connections are served.
    Served(Arc<Termination>),
    /// Connections are forwarded: decrypted if there is a termination, unchanged otherwise.
    Forwarded(Option<Arc<Termination>>),
}

impl Host {
    /// Whether requests without TLS are redirected.
    pub(super) fn redirects(&self) -> bool {
        self.tls != HostTls::None
    }

    /// The protocols of the Gateway listeners that may serve the host. HTTPS listeners use the Gateway's TLS settings,
    /// so they don't serve hosts that need client certificates.
    pub(super) fn protocols_of_gateways(&self) -> &'static [Protocol] {
        match &self.tls {
            HostTls::Served(termination) if termination.clients.is_none() => {
                &[Protocol::Http, Protocol::Https]
            }
            HostTls::None => &[Protocol::Http, Protocol::Https],
            HostTls::Served(_) | HostTls::Invalid | HostTls::Forwarded(_) => &[Protocol::Http],
        }
    }

    /// The listener for the host's TLS connections.
    pub(super) fn listener(&self, settings: &Settings, owner: &ObjectKey) -> Option<ListenerPoint> {
        let (protocol, passthrough) = match &self.tls {
            HostTls::None => return None,
            HostTls::Invalid => (Protocol::Tls, true),
            HostTls::Served(_) => (Protocol::Https, false),
            HostTls::Forwarded(termination) => (Protocol::Tls, termination.is_none()),
        };
        let point = default_fleet::tls_listener(settings, owner, &self.fqdn, protocol, passthrough);
        Some(ListenerPoint {
            fallback: self.fallback.is_some(),
            ..point
        })
    }

    /// How TLS is terminated.
    pub(super) fn termination(&self) -> Option<&Arc<Termination>> {
        match &self.tls {
            HostTls::None | HostTls::Invalid | HostTls::Forwarded(None) => None,
            HostTls::Served(termination) | HostTls::Forwarded(Some(termination)) => {
                Some(termination)
            }
        }
    }
}

/// Reads a host from the HTTPProxy that serves it.
pub(super) fn read(
    reader: &mut Reader<'_>,
    of: (Inputs, Sources),
    fallbacks: fallback::Certificates,
    proxy: &HTTPProxy,
    root: &Root,
) -> Option<Host> {
    let host = proxy.spec.virtual_host.as_deref()?;
    let settings = reader.get(of.0.settings, &())?;
    let mut findings = Findings::default();
    let cors = host.cors_policy.as_deref();
    let cors = cors.map(|policy| cors::read(FIELD, policy, &mut findings));
    let (allow, deny) = (&host.ip_allow_policy, &host.ip_deny_policy);
    let sources = access::sources(FIELD, allow, deny, &mut findings);
    let rates = host.rate_limit_policy.as_deref();
    let global = rates.and_then(|policy| policy.global.as_deref());
    let about = ("VirtualHostError", FIELD);
    let global_rate = global_rate::of_host(reader, of, about, global, &mut findings);
    let rate = rates.and_then(|policy| policy.local.as_deref());
    let rate = rate.and_then(|policy| access::rate(About::HOST_RATE, FIELD, policy, &mut findings));
    let field = format!("{FIELD}.authorization");
    let own = host.authorization.as_deref();
    let all = settings.ingress.auth.as_ref();
    let all = all.filter(|_| own.is_none_or(|own| own.extension_ref.is_none()));
    let auth = match (all, own) {
        (Some(all), own) => {
            let policies = (all, own);
            let auth = authorization::of_all_hosts(reader, of.1, &field, policies, &mut findings);
            Some(auth)
        }
        (None, Some(own)) => {
            let namespace = &proxy.meta.namespace;
            let auth = authorization::read(reader, of.1, namespace, &field, own, &mut findings);
            Some(auth)
        }
        (None, None) => None,
    };
    let tls = tls(reader, of, proxy, host.tls.as_deref(), &mut findings);
    if matches!(tls, HostTls::Forwarded(_)) {
        if rates.is_some() {
            let message = "limits only requests, not forwarded connections; remove either it or spec.tcpproxy";
            let field = format!("{FIELD}.rateLimitPolicy");
            findings.warn(About::HOST_RATE, &field, message);
        }
        if own.is_some() && all.is_none() {
            let message = "can't be applied to forwarded connections, so they are closed; \
                           remove either it or spec.tcpproxy";
            findings.refuse(About::AUTH, &format!("{FIELD}.authorization"), message);
        }
        for (part, filters) in [("ipAllowPolicy", allow), ("ipDenyPolicy", deny)] {
            if !filters.is_empty() {
                let message = "can't be applied to forwarded connections, so they are closed; \
                               remove either it or spec.tcpproxy";
                findings.refuse(About::SOURCES, &format!("{FIELD}.{part}"), message);
            }
        }
    }
    let fallback = fallback::read(reader, (of.0, fallbacks), proxy, &tls, &mut findings);
    let verifies = matches!(tls, HostTls::Served(_))
        || (tls == HostTls::Invalid && proxy.spec.tcp_proxy.is_none());
    let jwt = jwt::read(reader, of, proxy, verifies, &mut findings);
    Some(Host {
        fqdn: Arc::clone(&root.fqdn),
        refused: findings.refusals() > 0,
        tls,
        fallback,
        cors,
        sources,
        rate: rate.map(Arc::new),
        global_rate,
        jwt,
        auth,
        response_headers: default_headers::of_object(
            &settings.ingress.headers,
            &proxy.meta.namespace,
        )
        .responses,
        findings: findings.list.into(),
    })
}

fn tls(
    reader: &mut Reader<'_>,
    of: (Inputs, Sources),
    proxy: &HTTPProxy,
    tls: Option<&HttpProxyTls>,
    findings: &mut Findings,
) -> HostTls {
    let forwards = proxy.spec.tcp_proxy.is_some();
    let Some(tls) = tls else {
        if forwards {
            let message = "needs TLS, since the SNI selects the host of a connection; set spec.virtualhost.tls";
            findings.error(About::TCP, "spec.tcpproxy", message);
        }
        return HostTls::None;
    };
    let field = format!("{FIELD}.tls");
    if tls.passthrough {
        let excluded = [
            ("secretName", tls.secret_name.is_some()),
            ("clientValidation", tls.client_validation.is_some()),
        ];
        if let Some((other, _)) = excluded.into_iter().find(|(_, used)| *used) {
            let message =
                format!("passthrough and {other} are mutually exclusive; remove one of them");
            findings.error(About::TLS, &field, message);
            return HostTls::Invalid;
        }
        if !forwards {
            let message = "needs spec.tcpproxy, which defines where connections go";
            findings.error(About::TLS, &format!("{field}.passthrough"), message);
            return HostTls::Invalid;
        }
        return HostTls::Forwarded(None);
    }
    let versions = versions(&field, tls, findings);
    if let Ok(Some(versions)) = versions
        && let Some(settings) = reader.get(of.0.settings, &())
        && let Some(message) = listeners::other_version(&settings, versions)
    {
        findings.warn(About::TLS, &field, message);
    }
    let certificate = usable(reader, of, proxy, &field, findings);
    let clients = tls.client_validation.as_deref();
    let clients = clients.map(|validation| {
        let field = format!("{field}.clientValidation");
        clients::read(reader, of, proxy, (&field, validation), findings)
    });
    let clients = clients.transpose();
    let (Ok(versions), Some(certificate), Ok(clients)) = (versions, certificate, clients) else {
        return HostTls::Invalid;
    };
    let termination = Arc::new(Termination {
        certificates: vec![certificate],
        clients,
        versions,
    });
    match forwards {
        true => HostTls::Forwarded(Some(termination)),
        false => HostTls::Served(termination),
    }
}

/// The host's certificate, if it can be used.
fn usable(
    reader: &mut Reader<'_>,
    (inputs, sources): (Inputs, Sources),
    proxy: &HTTPProxy,
    field: &str,
    findings: &mut Findings,
) -> Option<CertificateKey> {
    let field = format!("{field}.secretName");
    let tls = proxy.spec.virtual_host.as_deref()?.tls.as_deref()?;
    let Some(name) = tls.secret_name.as_deref() else {
        let message = "expected the name of a Secret with a certificate, or namespace/name";
        findings.error(About::TLS, &field, message);
        return None;
    };
    let about = (About::CERTIFICATE, field.as_str(), name);
    let certificate = secrets::permitted(reader, inputs, &proxy.meta.namespace, about, findings)?;
    match certificates::check(reader, sources.certificates, &certificate) {
        Ok(()) => {
            if let Some(message) = reader.get(sources.expiring, &certificate) {
                findings.warn(About::CERTIFICATE, &field, &**message);
            }
            Some(certificate)
        }
        Err(message) => {
            findings.error(About::CERTIFICATE, &field, message);
            None
        }
    }
}

/// Reads the TLS versions; `None` for the default.
fn versions(
    field: &str,
    tls: &HttpProxyTls,
    findings: &mut Findings,
) -> Result<Option<TlsVersions>, ()> {
    let mut version = |part: &str, text: Option<&str>, default: TlsVersion| match text {
        None | Some("") => default,
        Some("1.2") => TlsVersion::V1_2,
        Some("1.3") => TlsVersion::V1_3,
        Some(other) => {
            let name = match default {
                TlsVersion::V1_2 => "1.2",
                TlsVersion::V1_3 => "1.3",
            };
            let message = format!("unsupported version {other:?}; {name} applies. Use 1.2 or 1.3");
            findings.warn(About::TLS, &format!("{field}.{part}"), message);
            default
        }
    };
    let min = tls.minimum_protocol_version.as_deref();
    let min = version("minimumProtocolVersion", min, TlsVersion::V1_2);
    let max = tls.maximum_protocol_version.as_deref();
    let max = version("maximumProtocolVersion", max, TlsVersion::V1_3);
    if min > max {
        let message =
            "minimumProtocolVersion is newer than maximumProtocolVersion; change one of them";
        findings.error(About::TLS, field, message);
        return Err(());
    }
    let default = (min, max) == (TlsVersion::V1_2, TlsVersion::V1_3);
    Ok((!default).then_some(TlsVersions { min, max }))
}
