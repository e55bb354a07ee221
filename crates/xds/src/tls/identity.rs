//! The server's certificate and the CA bundle for client certificates.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::refusal::Refusals;
use super::verify::{self, FleetVerifier};

/// An identity as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The server's certificate chain, leaf first.
    pub chain: String,
    /// The private key of the leaf certificate.
    pub private_key: String,
    /// The CAs that verify client certificates; several during a CA rotation.
    pub ca_bundle: String,
}

/// Omits the private key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pem")
            .field("chain", &self.chain)
            .field("ca_bundle", &self.ca_bundle)
            .finish_non_exhaustive()
    }
}

/// Why a [`Pem`] is not a valid identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The certificate chain or CA bundle doesn't contain a certificate, or contains an invalid one.
    #[error("no valid certificate in the {part}")]
    Certificate {
        /// `certificate chain` or `CA bundle`.
        part: &'static str,
    },
    /// The private key is missing or invalid.
    #[error("no valid private key")]
    PrivateKey,
    /// Most likely the key doesn't match the certificate.
    #[error("the certificate and private key are not a valid pair: {0}")]
    KeyPair(#[source] rustls::Error),
    /// A certificate in the CA bundle is not a CA.
    #[error("invalid CA certificate: {0}")]
    Ca(#[source] rustls::Error),
    /// No verifier can be built from the CA bundle.
    #[error("invalid CA bundle: {0}")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

#[derive(Debug, Clone)]
struct Current {
    config: Arc<ServerConfig>,
    expires: SystemTime,
}

/// The TLS identity of the server. Clones share the same state.
///
/// [`Identity::replace`] affects new connections only.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    current: Arc<RwLock<Option<Current>>>,
    refusals: Refusals,
}

impl Identity {
    /// An identity without a certificate: connections are refused until [`Identity::replace`].
    pub fn pending() -> Identity {
        Identity::default()
    }

    /// An identity with these certificates.
    ///
    /// # Errors
    ///
    /// Returns an error if the PEM is invalid.
    pub fn new(pem: &Pem) -> Result<Identity, IdentityError> {
        let identity = Identity::pending();
        identity.replace(pem)?;
        Ok(identity)
    }

    /// Uses these certificates for new connections.
    ///
    /// # Errors
    ///
    /// Returns an error if the PEM is invalid; the identity is unchanged.
    pub fn replace(&self, pem: &Pem) -> Result<(), IdentityError> {
        let next = build(pem)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(next);
        Ok(())
    }

    fn current(&self) -> Option<Current> {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The TLS configuration for the next connection; `None` without a certificate.
    pub fn config(&self) -> Option<Arc<ServerConfig>> {
        self.current().map(|current| current.config)
    }

    /// When the server's certificate expires; `None` without a certificate.
    pub fn expires(&self) -> Option<SystemTime> {
        self.current().map(|current| current.expires)
    }

    /// The refused connections and streams.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

fn build(pem: &Pem) -> Result<Current, IdentityError> {
    let chain = certificates(&pem.chain, "certificate chain")?;
    let key = PrivateKeyDer::from_pem_slice(pem.private_key.as_bytes())
        .map_err(|_| IdentityError::PrivateKey)?;
    let expires = chain
        .first()
        .and_then(verify::expiry)
        .ok_or(IdentityError::Certificate {
            part: "certificate chain",
        })?;
    let mut roots = RootCertStore::empty();
    for ca in certificates(&pem.ca_bundle, "CA bundle")? {
        roots.add(ca).map_err(IdentityError::Ca)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(IdentityError::Verifier)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(IdentityError::KeyPair)?
        .with_client_cert_verifier(Arc::new(FleetVerifier::new(verifier)))
        .with_single_cert(chain, key)
        .map_err(IdentityError::KeyPair)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Resuming a session would skip certificate verification.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Current {
        config: Arc::new(config),
        expires,
    })
}

fn certificates(
    pem: &str,
    part: &'static str,
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(IdentityError::Certificate { part }),
    }
}
