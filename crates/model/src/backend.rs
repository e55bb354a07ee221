use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::{CertificateKey, ConnectionSettings, TlsPolicyKey, Transport, TrustBundleKey};

/// Identifies a cluster: one backend with one policy. Routes share clusters, so connections, health and statistics are
/// per backend, not per route. A backend used with two policies or client certificates is two clusters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    /// Namespace of the backend.
    pub namespace: Arc<str>,
    /// The backend.
    pub backend: BackendName,
    /// Overrides from routes and policies; usually `None`.
    pub policy: Option<Arc<ClusterPolicy>>,
}

/// A backend within a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendName {
    /// A port of a Service.
    ServicePort {
        /// Name of the Service.
        service: Arc<str>,
        /// The Service's port, not the Pod's.
        port: u16,
    },
    /// An XBackend.
    XBackend {
        /// Name of the XBackend.
        name: Arc<str>,
    },
    /// A host outside the cluster, which no object represents.
    Host(Arc<ExternalHost>),
    /// An ExtensionService: a weighted list of Services.
    ExtensionService {
        /// Name of the ExtensionService.
        name: Arc<str>,
    },
}

impl BackendName {
    /// The name of the object, or of the host.
    pub fn object(&self) -> &Arc<str> {
        match self {
            Self::ServicePort { service, .. } => service,
            Self::XBackend { name } | Self::ExtensionService { name } => name,
            Self::Host(host) => &host.hostname,
        }
    }
}

impl ClusterKey {
    /// The transport of the Service's port: a Service may have a TCP port and a UDP port with the same number.
    pub fn transport(&self) -> Transport {
        match self.policy.as_ref().and_then(|policy| policy.protocol) {
            Some(Protocol::Datagrams) => Transport::Udp,
            _ => Transport::Tcp,
        }
    }

    /// Where the TLS settings are from, if they are known.
    pub fn tls(&self) -> Option<&TlsSettings> {
        self.policy.as_ref()?.tls.as_ref()
    }

    /// The key of the CA certificates that verify the backend. They exist only if the backend's TLS settings refer to
    /// any.
    pub fn trust_bundle(&self) -> Option<TrustBundleKey> {
        Some(match (self.tls()?, &self.backend) {
            (TlsSettings::Policy(policy), _) => TrustBundleKey::Policy(policy.clone()),
            (TlsSettings::Own, BackendName::XBackend { name }) => TrustBundleKey::XBackend {
                namespace: Arc::clone(&self.namespace),
                name: Arc::clone(name),
            },
            (TlsSettings::Verified(validation), _) => {
                TrustBundleKey::Secret(validation.authorities.clone())
            }
            (
                TlsSettings::Own
                | TlsSettings::Unverified
                | TlsSettings::Service
                | TlsSettings::Plaintext,
                _,
            ) => return None,
        })
    }

    /// Whether requests may be lost.
    pub fn is_best_effort(&self) -> bool {
        let policy = self.policy.as_ref();
        policy.is_some_and(|policy| policy.best_effort)
    }

    /// The port for health checks, if it differs from the port for requests.
    pub fn health_port(&self) -> Option<u16> {
        let settings = self.policy.as_ref()?.connections.as_ref()?;
        settings.health.as_ref()?.port
    }

    /// The client certificate.
    pub fn client_certificate(&self) -> Option<&CertificateKey> {
        self.policy.as_ref()?.client_certificate.as_ref()
    }

    /// The same backend with TLS settings.
    pub fn with_tls(&self, tls: TlsSettings) -> Self {
        self.with(|policy| policy.tls = Some(tls))
    }

    /// The same backend with another client certificate, or without one.
    pub fn with_client_certificate(&self, certificate: Option<CertificateKey>) -> Self {
        self.with(|policy| policy.client_certificate = certificate)
    }

    /// The same backend for requests that may be lost.
    pub fn as_best_effort(&self) -> Self {
        self.with(|policy| policy.best_effort = true)
    }

    fn with(&self, change: impl FnOnce(&mut ClusterPolicy)) -> Self {
        let mut key = self.clone();
        let mut policy = ClusterPolicy::clone(&key.policy.unwrap_or_default());
        change(&mut policy);
        key.policy = Some(Arc::new(policy));
        key
    }
}

/// Overrides from routes, policies or Gateways for connections to a Service. Part of the cluster's key: a different
/// policy means a different cluster, and neither cluster drains the other's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterPolicy {
    /// Overrides the protocol from the Service's `appProtocol`.
    pub protocol: Option<Protocol>,
    /// Where the TLS settings are from. `None` in a route's reference, to which those of a policy or of the Service are
    /// added.
    pub tls: Option<TlsSettings>,
    /// The client certificate of the fleet or XBackend. Only with [`ClusterPolicy::tls`].
    pub client_certificate: Option<CertificateKey>,
    /// For requests that may be lost, such as telemetry exports: their number and duration are limited, so a slow
    /// backend uses a bounded amount of memory.
    pub best_effort: bool,
    /// How endpoints are selected and checked; `None` for the default.
    pub connections: Option<Arc<ConnectionSettings>>,
}

/// Where a backend's TLS settings are defined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsSettings {
    /// In a policy.
    Policy(TlsPolicyKey),
    /// In the XBackend itself.
    Own,
    /// In the route: the backend's certificate is verified.
    Verified(Arc<NamedAuthorities>),
    /// In the route: the backend's certificate isn't verified.
    Unverified,
    /// In the Service: the backend's certificate isn't verified.
    Service,
    /// In the route: no TLS.
    Plaintext,
}

/// How a backend's certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedAuthorities {
    /// The Secret with the CA certificates.
    pub authorities: CertificateKey,
    /// The accepted DNS names: the certificate must have at least one of them. The first is the SNI. Never empty.
    pub names: Vec<Arc<str>>,
}

/// The maximum length of a policy in the text form of a [`ClusterKey`], in bytes. Every route repeats this text, and the
/// xDS server limits the names of resources to 2 KiB.
const MAX_POLICY_TEXT: usize = 512;

/// `namespace/service:port`, `xbackend:namespace/name`, `extension:namespace/name` or `host:namespace/host:port`,
/// followed by the policy, if any: `shop/api:80?protocol=h2`. A longer policy is replaced with its hash:
/// `shop/api:80?sha256=` and 64 digits.
impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = &self.namespace;
        match &self.backend {
            BackendName::ServicePort { service, port } => {
                write!(f, "{namespace}/{service}:{port}")?;
            }
            BackendName::XBackend { name } => write!(f, "xbackend:{namespace}/{name}")?,
            BackendName::Host(host) => write!(f, "host:{namespace}/{host}")?,
            BackendName::ExtensionService { name } => write!(f, "extension:{namespace}/{name}")?,
        }
        let Some(policy) = &self.policy else {
            return Ok(());
        };
        let policy = policy.to_string();
        if policy.len() <= MAX_POLICY_TEXT {
            return write!(f, "?{policy}");
        }
        f.write_str("?sha256=")?;
        let mut digits = Sha256::digest(policy).into_iter();
        digits.try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Distinct policies have distinct text forms.
impl fmt::Display for ClusterPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = self.protocol.map(|protocol| match protocol {
            Protocol::Http1 => "protocol=http1".to_owned(),
            Protocol::Http2 => "protocol=h2".to_owned(),
            Protocol::Negotiated => "protocol=alpn".to_owned(),
            Protocol::Opaque => "protocol=tcp".to_owned(),
            Protocol::Datagrams => "protocol=udp".to_owned(),
        });
        let tls = self.tls.as_ref().map(|settings| match settings {
            TlsSettings::Policy(policy) => format!("tls={policy}"),
            TlsSettings::Own => "tls=own".to_owned(),
            TlsSettings::Verified(validation) => {
                let names = validation.names.join(",");
                format!("tls=secret:{},{names}", validation.authorities)
            }
            TlsSettings::Unverified => "tls=unverified".to_owned(),
            TlsSettings::Service => "tls=service".to_owned(),
            TlsSettings::Plaintext => "tls=none".to_owned(),
        });
        let client = self.client_certificate.as_ref();
        let client = client.map(|certificate| format!("client={certificate}"));
        let best_effort = self.best_effort.then(|| "best-effort".to_owned());
        let connections = self.connections.as_ref().map(ToString::to_string);
        let parts = [protocol, tls, client, best_effort, connections];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join("&"))
    }
}

/// How to find and connect to the endpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// How to find the endpoints.
    pub discovery: Discovery,
    /// The protocol.
    pub protocol: Protocol,
    /// TLS settings; `None` for plaintext connections.
    pub tls: Option<Arc<UpstreamTls>>,
    /// The limit on retries; `None` if only routes limit them.
    pub retries: Option<RetryLimit>,
    /// How endpoints are selected and checked; `None` for the default.
    pub connections: Option<Arc<ConnectionSettings>>,
}

impl Cluster {
    /// The same cluster for TLS passthrough, where connections are already encrypted.
    pub fn passthrough(&self) -> Self {
        Self {
            discovery: self.discovery.clone(),
            protocol: Protocol::Opaque,
            tls: None,
            retries: None,
            connections: self.connections.clone(),
        }
    }

    /// The same cluster, presenting this client certificate if it uses TLS.
    pub fn presenting(&self, certificate: Option<&CertificateKey>) -> Self {
        let tls = self.tls.as_deref().map(|tls| {
            Arc::new(UpstreamTls {
                client_certificate: certificate.cloned(),
                ..tls.clone()
            })
        });
        Self {
            tls,
            ..self.clone()
        }
    }
}

/// How to find the endpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// From the [`Endpoints`] with the cluster's key.
    Endpoints,
    /// By DNS: Envoy resolves the hostname.
    Dns(Arc<ExternalHost>),
}

/// A host outside the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExternalHost {
    /// A fully qualified domain name, without a trailing dot.
    pub hostname: Arc<str>,
    /// The port of all addresses.
    pub port: u16,
    /// Which of its addresses to use.
    pub families: AddressFamilies,
}

/// `example.com:443`, or `example.com:443,v4` if not all addresses are used.
impl fmt::Display for ExternalHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let families = match self.families {
            AddressFamilies::All => "",
            AddressFamilies::Auto => ",auto",
            AddressFamilies::V4 => ",v4",
            AddressFamilies::V6 => ",v6",
        };
        write!(f, "{}:{}{families}", self.hostname, self.port)
    }
}

/// Which of a host's addresses to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressFamilies {
    /// IPv4 and IPv6.
    #[default]
    All,
    /// IPv6, or IPv4 if there are no IPv6 addresses.
    Auto,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The protocol used with endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 with prior knowledge (`kubernetes.io/h2c` on plaintext connections).
    Http2,
    /// HTTP/1.1 or HTTP/2, negotiated by ALPN. Only with [`Cluster::tls`].
    Negotiated,
    /// Bytes, forwarded unchanged.
    Opaque,
    /// UDP datagrams, forwarded unchanged.
    Datagrams,
}

impl Protocol {
    /// Whether the gateway forwards requests, not bytes or datagrams.
    pub fn is_http(self) -> bool {
        match self {
            Self::Http1 | Self::Http2 | Self::Negotiated => true,
            Self::Opaque | Self::Datagrams => false,
        }
    }
}

/// A limit on the retries in progress across all routes: the larger of the two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimit {
    /// The maximum share of the requests in progress, in percent: 0..=100.
    pub percent: u8,
    /// The number that is always permitted.
    pub always: u32,
}

/// TLS for connections to endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The SNI; `None` uses the request's host.
    pub server_name: Option<Arc<str>>,
    /// How the endpoint's certificate is verified; `None` disables verification.
    pub verification: Option<Verification>,
    /// The certificate to present if the endpoint requests one. It may be rotated at any time.
    pub client_certificate: Option<CertificateKey>,
}

/// How an endpoint's certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// The CAs; one of them must have issued the certificate.
    pub authorities: Authorities,
    /// The accepted names: the certificate must have at least one of them. Never empty.
    pub names: Vec<CertificateName>,
}

/// CAs to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorities {
    /// The CAs in this [`TrustBundle`](crate::TrustBundle), which may change at any time.
    Bundle(TrustBundleKey),
    /// The CAs of the operating system that Envoy runs on.
    System,
}

/// A subject alternative name of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// A DNS name. The certificate must have it or a wildcard that covers it; `*.example.com` matches only that
    /// wildcard.
    Dns(Arc<str>),
    /// A URI.
    Uri(Arc<str>),
}

/// The endpoints of a cluster. If there are none, requests get 503.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Sorted, without duplicates.
    pub endpoints: Vec<Endpoint>,
    /// For an ExtensionService, the endpoints of its Services, in place of `endpoints`. Sorted by cluster, without
    /// duplicates.
    pub shares: Box<[EndpointShare]>,
}

/// The endpoints of one of several backends, and their share of requests or sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointShare {
    /// The backend.
    pub cluster: ClusterKey,
    /// The weight, relative to the sum of all weights; at least 1.
    pub weight: u32,
    /// Never empty.
    pub endpoints: Vec<Endpoint>,
}

/// The address and port of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// IPv4 or IPv6.
    pub address: IpAddr,
    /// The Pod's port, not the Service's.
    pub port: u16,
    /// The port for health checks, if it differs from `port`.
    pub health_port: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(names: usize) -> String {
        let names = (0..names).map(|number| format!("{number}.{}", "a".repeat(248)).into());
        let validation = NamedAuthorities {
            authorities: CertificateKey {
                namespace: "shop".into(),
                name: "ca".into(),
            },
            names: names.collect(),
        };
        let key = ClusterKey {
            namespace: "shop".into(),
            backend: BackendName::ServicePort {
                service: "api".into(),
                port: 80,
            },
            policy: None,
        };
        let tls = TlsSettings::Verified(Arc::new(validation));
        key.with_tls(tls).to_string()
    }

    #[test]
    fn long_policies_have_short_and_distinct_texts() {
        assert!(verified(1).starts_with("shop/api:80?tls=secret:shop/ca,0.aaa"));
        let (seven, eight) = (verified(7), verified(8));
        let digits = seven.strip_prefix("shop/api:80?sha256=");
        assert_eq!(digits.map(str::len), Some(64), "{seven}");
        assert_ne!(seven, eight);
    }
}
