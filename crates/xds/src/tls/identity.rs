//! What we show to clients, and whom of them we trust.
//!
//! In: PEM. Out: a configuration of rustls, the newest one for each new connection. It must not know
//! sockets.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::refusal::Refusals;
use super::verify::{self, FleetVerifier};

/// What an identity is made of.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// Our certificate and those between it and its authority, leaf first.
    pub chain: String,
    /// The private key of the first certificate.
    pub private_key: String,
    /// The authorities that vouch for clients; several while one follows another.
    pub authorities: String,
}

/// Without the private key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pem")
            .field("chain", &self.chain)
            .field("authorities", &self.authorities)
            .finish_non_exhaustive()
    }
}

/// Why an identity can't be made of some PEM.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A part has no certificate, or one that can't be read.
    #[error("no certificate can be read from the {part}")]
    Certificate {
        /// `certificate chain` or `authorities`.
        part: &'static str,
    },
    /// There is no private key.
    #[error("no private key can be read")]
    PrivateKey,
    /// The parts don't fit each other: most often the key is another certificate's.
    #[error("the certificate and the key can't be used: {0}")]
    Unusable(#[source] rustls::Error),
    /// An authority's certificate is not one that can vouch for others.
    #[error("an authority can't be used: {0}")]
    Authority(#[source] rustls::Error),
    /// No verifier can be made of the authorities.
    #[error("the authorities can't be used: {0}")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    expires: SystemTime,
}

#[derive(Debug, Default)]
struct Inner {
    current: RwLock<Option<Current>>,
    refusals: Refusals,
}

/// Who we are, for a server of discovery. A handle: clones are the same identity.
///
/// New connections get what was put in last; open ones stay as they are.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    inner: Arc<Inner>,
}

impl Identity {
    /// An identity that has nothing to show yet: connections are refused until [`Identity::replace`].
    pub fn pending() -> Identity {
        Identity::default()
    }

    /// An identity of these certificates.
    ///
    /// # Errors
    ///
    /// They can't be used.
    pub fn new(pem: &Pem) -> Result<Identity, IdentityError> {
        let identity = Identity::pending();
        identity.replace(pem)?;
        Ok(identity)
    }

    /// Shows and trusts these from the next connection on.
    ///
    /// # Errors
    ///
    /// They can't be used; the identity stays what it was.
    pub fn replace(&self, pem: &Pem) -> Result<(), IdentityError> {
        let next = build(pem)?;
        *self
            .inner
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(next);
        Ok(())
    }

    /// How the next connection will be answered; `None` while nothing was put in.
    pub fn config(&self) -> Option<Arc<ServerConfig>> {
        let current = self
            .inner
            .current
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map(|current| Arc::clone(&current.config))
    }

    /// When the certificate that we show ends to be valid; `None` while nothing was put in.
    pub fn expires(&self) -> Option<SystemTime> {
        let current = self
            .inner
            .current
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map(|current| current.expires)
    }

    /// Who was turned away.
    pub fn refusals(&self) -> &Refusals {
        &self.inner.refusals
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
    for authority in certificates(&pem.authorities, "authorities")? {
        roots.add(authority).map_err(IdentityError::Authority)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(IdentityError::Verifier)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(IdentityError::Unusable)?
        .with_client_cert_verifier(Arc::new(FleetVerifier::new(verifier)))
        .with_single_cert(chain, key)
        .map_err(IdentityError::Unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would be believed by what was true of its certificate when it began.
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
