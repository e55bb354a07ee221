use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::{CertificateKey, TlsPolicyKey, Transport, TrustBundleKey};

/// Identifies a cluster: one port of one Service, with one policy. Routes share clusters, so connections, health and
/// statistics are per Service, not per route. A port used with two policies or client certificates is two clusters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    /// Namespace of the Service.
    pub namespace: Arc<str>,
    /// Name of the Service.
    pub service: Arc<str>,
    /// The Service's port, not the Pod's.
    pub port: u16,
    /// Overrides by routes and policies; usually `None`.
    pub policy: Option<Arc<ClusterPolicy>>,
}

impl ClusterKey {
    /// The transport of the Service's port: a Service may have a TCP port and a UDP port with the same number.
    pub fn transport(&self) -> Transport {
        match self.policy.as_ref().and_then(|policy| policy.protocol) {
            Some(Protocol::Datagrams) => Transport::Udp,
            _ => Transport::Tcp,
        }
    }

    /// The TLS policy.
    pub fn tls(&self) -> Option<&TlsPolicyKey> {
        self.policy.as_ref()?.tls.as_ref()
    }

    /// Whether requests may be lost.
    pub fn is_best_effort(&self) -> bool {
        let policy = self.policy.as_ref();
        policy.is_some_and(|policy| policy.best_effort)
    }

    /// The client certificate.
    pub fn client_certificate(&self) -> Option<&CertificateKey> {
        self.policy.as_ref()?.client_certificate.as_ref()
    }

    /// The same port with a TLS policy.
    pub fn with_tls(&self, tls: TlsPolicyKey) -> Self {
        self.with(|policy| policy.tls = Some(tls))
    }

    /// The same port with another client certificate, or with none.
    pub fn with_client_certificate(&self, certificate: Option<CertificateKey>) -> Self {
        self.with(|policy| policy.client_certificate = certificate)
    }

    fn with(&self, change: impl FnOnce(&mut ClusterPolicy)) -> Self {
        let mut key = self.clone();
        let mut policy = ClusterPolicy::clone(&key.policy.unwrap_or_default());
        change(&mut policy);
        key.policy = Some(Arc::new(policy));
        key
    }
}

/// How routes, policies or Gateways override connections to a Service. It is part of the cluster's key: a different policy
/// means a different cluster, and neither cluster drains the other's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterPolicy {
    /// Overrides the protocol of the Service's `appProtocol`.
    pub protocol: Option<Protocol>,
    /// Overrides the TLS of the Service's `appProtocol`.
    pub tls: Option<TlsPolicyKey>,
    /// The client certificate of the Gateway. Only with [`ClusterPolicy::tls`].
    pub client_certificate: Option<CertificateKey>,
    /// For requests that may be lost, such as exports of telemetry: their number and duration are limited, so that a
    /// slow backend costs a bounded amount of memory.
    pub best_effort: bool,
}

/// `namespace/service:port`, followed by the policy, if any: `shop/api:80?protocol=h2`.
impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.service, self.port)?;
        match &self.policy {
            Some(policy) => write!(f, "?{policy}"),
            None => Ok(()),
        }
    }
}

/// Different policies have different texts.
impl fmt::Display for ClusterPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = self.protocol.map(|protocol| match protocol {
            Protocol::Http1 => "protocol=http1".to_owned(),
            Protocol::Http2 => "protocol=h2".to_owned(),
            Protocol::Negotiated => "protocol=alpn".to_owned(),
            Protocol::Opaque => "protocol=tcp".to_owned(),
            Protocol::Datagrams => "protocol=udp".to_owned(),
        });
        let tls = self.tls.as_ref().map(|policy| format!("tls={policy}"));
        let client = self.client_certificate.as_ref();
        let client = client.map(|certificate| format!("client={certificate}"));
        let best_effort = self.best_effort.then(|| "best-effort".to_owned());
        let parts = [protocol, tls, client, best_effort];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join("&"))
    }
}

/// How to connect to the endpoints of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The protocol.
    pub protocol: Protocol,
    /// TLS settings; `None` for plaintext connections.
    pub tls: Option<Arc<UpstreamTls>>,
}

impl Cluster {
    /// Forwards bytes without TLS.
    pub const OPAQUE: Cluster = Cluster {
        protocol: Protocol::Opaque,
        tls: None,
    };

    /// The same cluster with a client certificate, if it uses TLS.
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

/// TLS for connections to endpoints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamTls {
    /// The SNI; `None` for the request's host.
    pub server_name: Option<Arc<str>>,
    /// How the endpoint's certificate is verified; `None`: not at all.
    pub verification: Option<Verification>,
    /// The certificate to present if the endpoint requests one. It may be rotated at any time.
    pub client_certificate: Option<CertificateKey>,
}

/// How an endpoint's certificate is verified.
#[derive(Clone, Debug, PartialEq)]
pub struct Verification {
    /// The CAs, one of which must have issued the certificate.
    pub authorities: Authorities,
    /// The names, one of which the certificate must have. Never empty.
    pub names: Vec<CertificateName>,
}

/// CAs to trust.
#[derive(Clone, Debug, PartialEq)]
pub enum Authorities {
    /// Those in this [`TrustBundle`](crate::TrustBundle), which may change at any time.
    Bundle(TrustBundleKey),
    /// Those of the operating system that Envoy runs on.
    System,
}

/// A subject alternative name of a certificate.
#[derive(Clone, Debug, PartialEq)]
pub enum CertificateName {
    /// A DNS name. The certificate has it, or a wildcard that covers it; `*.example.com` is only that wildcard.
    Dns(Arc<str>),
    /// A URI.
    Uri(Arc<str>),
}

/// The endpoints of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Endpoints {
    /// Sorted, without duplicates. If empty, requests get 503.
    pub endpoints: Vec<Endpoint>,
}

/// The address and port of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// IPv4 or IPv6.
    pub address: IpAddr,
    /// The port of the Pod, not of the Service.
    pub port: u16,
}
