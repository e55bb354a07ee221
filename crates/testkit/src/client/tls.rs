//! A TLS client that accepts any certificate, so that tests can check it themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme,
    SupportedProtocolVersion,
};

use crate::certs::Identity;

/// A client's configuration, with its TLS sessions.
#[derive(Clone, Debug)]
pub(super) struct TlsClient {
    pub(super) config: Arc<ClientConfig>,
    presenting: Arc<Presenting>,
}

const ONLY_TLS12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];

/// A ClientHello with this server name.
///
/// # Errors
/// If the name is invalid.
pub fn client_hello(server_name: &str) -> Result<Vec<u8>> {
    let client = TlsClient::new(None, "http/1.1", true, false)?;
    let name = ServerName::try_from(server_name.to_owned())?;
    let mut hello = Vec::new();
    ClientConnection::new(client.config, name)?.write_tls(&mut hello)?;
    Ok(hello)
}

impl TlsClient {
    /// A client that presents `identity` if asked.
    ///
    /// # Errors
    /// If the identity is invalid.
    pub(super) fn new(
        identity: Option<&Identity>,
        alpn: &str,
        with_sni: bool,
        only_tls12: bool,
    ) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let schemes = provider
            .signature_verification_algorithms
            .supported_schemes();
        let certified = |identity: &Identity| -> Result<_> {
            let chain = CertificateDer::pem_slice_iter(identity.chain.as_bytes());
            let chain = chain.collect::<Result<_, _>>().context("no certificate")?;
            let key = PrivateKeyDer::from_pem_slice(identity.private_key.as_bytes())?;
            Ok(Arc::new(CertifiedKey::from_der(chain, key, &provider)?))
        };
        let presenting = Arc::new(Presenting {
            identity: identity.map(certified).transpose()?,
            asked: AtomicBool::new(false),
        });
        let resolver: Arc<dyn ResolvesClientCert> = presenting.clone();
        let versions = match only_tls12 {
            true => ONLY_TLS12,
            false => rustls::ALL_VERSIONS,
        };
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusting(schemes)))
            .with_client_cert_resolver(resolver);
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        config.enable_sni = with_sni;
        Ok(Self {
            config: Arc::new(config),
            presenting,
        })
    }

    /// Whether a server has asked for a certificate since the last call.
    pub(super) fn take_asked(&self) -> bool {
        self.presenting.asked.swap(false, Ordering::Relaxed)
    }
}

/// Presents a certificate, if there is one, and records that the server asked for it.
#[derive(Debug)]
struct Presenting {
    identity: Option<Arc<CertifiedKey>>,
    asked: AtomicBool,
}

impl ResolvesClientCert for Presenting {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.asked.store(true, Ordering::Relaxed);
        self.identity.clone()
    }

    fn has_certs(&self) -> bool {
        self.identity.is_some()
    }
}

#[derive(Debug)]
struct Trusting(Vec<SignatureScheme>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}
