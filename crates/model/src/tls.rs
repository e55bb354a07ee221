use std::fmt;
use std::sync::Arc;

/// Identifies a certificate: the Secret that holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CertificateKey {
    /// Namespace of the Secret.
    pub namespace: Arc<str>,
    /// Name of the Secret.
    pub name: Arc<str>,
}

impl fmt::Display for CertificateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A validated certificate chain and private key: both parse, and the key matches the leaf certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// PEM, leaf first.
    pub chain: Arc<[u8]>,
    /// PEM.
    pub private_key: Arc<[u8]>,
}

impl fmt::Debug for Certificate {
    /// Omits the private key, because values can end up in dumps and logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("chain", &format_args!("{} bytes", self.chain.len()))
            .field("private_key", &"(hidden)")
            .finish()
    }
}

/// Identifies a TLS policy for backends: the object that defines it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TlsPolicyKey {
    /// Namespace of the object.
    pub namespace: Arc<str>,
    /// Name of the object.
    pub name: Arc<str>,
}

impl fmt::Display for TlsPolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Identifies a trust bundle: the object that refers to its CA certificates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrustBundleKey {
    /// Verifies the backends of a TLS policy.
    Policy(TlsPolicyKey),
    /// Verifies an XBackend.
    XBackend {
        /// Namespace of the XBackend.
        namespace: Arc<str>,
        /// Name of the XBackend.
        name: Arc<str>,
    },
    /// The CA certificates in a Secret.
    Secret(CertificateKey),
    /// The CA certificates in a Secret, with the CRLs in another.
    Revocable {
        /// The Secret with the CA certificates.
        authorities: CertificateKey,
        /// The Secret with the CRLs.
        revoked: CertificateKey,
    },
    /// Verifies a gateway's clients.
    Clients {
        /// Namespace of the gateway.
        namespace: Arc<str>,
        /// Name of the gateway.
        gateway: Arc<str>,
        /// The first port that has these CAs; `None` if they are those of all ports without CAs of their own.
        port: Option<u16>,
    },
}

/// `ca:namespace/name`, `ca:xbackend:namespace/name`, `ca:secret:namespace/name`,
/// `ca:secret:namespace/name,crl:namespace/name`, `clients:namespace/gateway` or `clients:namespace/gateway:port`.
impl fmt::Display for TrustBundleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(policy) => write!(f, "ca:{policy}"),
            Self::XBackend { namespace, name } => write!(f, "ca:xbackend:{namespace}/{name}"),
            Self::Secret(secret) => write!(f, "ca:secret:{secret}"),
            Self::Revocable {
                authorities,
                revoked,
            } => write!(f, "ca:secret:{authorities},crl:{revoked}"),
            Self::Clients {
                namespace,
                gateway,
                port,
            } => {
                write!(f, "clients:{namespace}/{gateway}")?;
                port.map_or(Ok(()), |port| write!(f, ":{port}"))
            }
        }
    }
}

/// CA certificates to trust, all of which parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustBundle {
    /// PEM, without duplicates. Never empty.
    pub certificates: Arc<[u8]>,
    /// The CRLs in PEM, all of which parse; `None` disables revocation checks.
    pub revoked: Option<Arc<[u8]>>,
}

/// The TLS versions that clients may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsVersions {
    /// The oldest.
    pub min: TlsVersion,
    /// The newest; at least the oldest.
    pub max: TlsVersion,
}

/// A TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}
