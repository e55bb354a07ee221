use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Names a cluster: one port of one Service. Routes share it, so that its connections, its health and its
/// statistics are those of the Service and not of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    /// Namespace of the Service.
    pub namespace: Arc<str>,
    /// Name of the Service.
    pub service: Arc<str>,
    /// The Service's port, not the Pod's.
    pub port: u16,
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.service, self.port)
    }
}

/// How to speak to the endpoints of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The version of HTTP.
    pub protocol: Protocol,
    /// Present: connections to the endpoints are encrypted.
    pub tls: Option<UpstreamTls>,
}

/// The version of HTTP spoken to endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, known beforehand (`kubernetes.io/h2c` on plain connections).
    Http2,
    /// What TLS negotiates by ALPN. Only with [`Cluster::tls`].
    Negotiated,
}

/// TLS towards endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamTls {
    /// The server name to ask for; `None`: the host that the client asked for.
    pub server_name: Option<String>,
}

/// Where a cluster's requests go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Endpoints {
    /// Sorted, without duplicates. Empty: the Service has nobody to answer, requests get 503.
    pub endpoints: Vec<Endpoint>,
}

/// One address that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// IPv4 or IPv6.
    pub address: IpAddr,
    /// The port of the Pod, not of the Service.
    pub port: u16,
}
