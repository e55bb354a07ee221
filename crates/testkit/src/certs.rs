//! Certificates for tests and the demo, for loopback addresses only.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct Identity {
    /// PEM, leaf first.
    pub chain: String,
    /// PEM (PKCS #8).
    pub private_key: String,
}

/// The clients that a server accepts. Certificates must be issued by these CAs (PEM).
#[derive(Clone, Copy, Debug)]
pub enum Clients<'a> {
    /// All. Certificates aren't requested.
    Any,
    /// Those with a valid certificate or none.
    Optional(&'a str),
    /// Those with a valid certificate.
    Required(&'a str),
}

impl Identity {
    /// A self-signed certificate for these host names (including wildcards) or IP addresses.
    ///
    /// # Errors
    /// If a name is invalid.
    pub fn self_signed(names: &[&str]) -> Result<Self> {
        let key = KeyPair::generate()?;
        let certificate = params(names)?.self_signed(&key)?;
        Ok(Self {
            chain: certificate.pem(),
            private_key: key.serialize_pem(),
        })
    }

    /// The leaf certificate, as base64-encoded DER.
    pub fn leaf(&self) -> String {
        let body = self.chain.lines().skip(1);
        body.take_while(|line| !line.starts_with("-----")).collect()
    }

    /// A server configuration with this certificate, for HTTP/2 and HTTP/1.1.
    ///
    /// # Errors
    /// If the PEM is invalid, or the key doesn't match.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>> {
        self.server_config_for(Clients::Any)
    }

    /// Like [`Identity::server_config`], accepting these clients.
    ///
    /// # Errors
    /// If any PEM is invalid, or the key doesn't match.
    pub fn server_config_for(&self, clients: Clients<'_>) -> Result<Arc<ServerConfig>> {
        let chain = certificates(&self.chain)?;
        let key = PrivateKeyDer::from_pem_slice(self.private_key.as_bytes())
            .context("no private key in the PEM")?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = |roots| {
            let roots = Arc::new(root_store(roots)?);
            let provider = Arc::clone(&provider);
            anyhow::Ok(WebPkiClientVerifier::builder_with_provider(roots, provider))
        };
        let verifier = match clients {
            Clients::Any => WebPkiClientVerifier::no_client_auth(),
            Clients::Optional(roots) => verifier(roots)?.allow_unauthenticated().build()?,
            Clients::Required(roots) => verifier(roots)?.build()?,
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// A CA.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// PEM of this CA and of the intermediate CAs between it and the root; empty for a root.
    intermediates: String,
}

impl Authority {
    /// A new root CA.
    ///
    /// # Errors
    /// If a key can't be generated.
    pub fn new() -> Result<Self> {
        Self::root(authority_params("Sesame test authority")?)
    }

    /// A root CA that expired years ago.
    ///
    /// # Errors
    /// If a key can't be generated.
    pub fn expired() -> Result<Self> {
        let mut params = authority_params("Sesame test authority")?;
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        Self::root(params)
    }

    fn root(params: CertificateParams) -> Result<Self> {
        Ok(Self {
            issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)?,
            intermediates: String::new(),
        })
    }

    /// An intermediate CA with this name, issued by this CA. Chains from its [`Authority::issue`] include it.
    ///
    /// # Errors
    /// If a key can't be generated.
    pub fn intermediate(&self, name: &str) -> Result<Self> {
        let mut params = authority_params(name)?;
        params.use_authority_key_identifier_extension = true;
        let issuer = CertifiedIssuer::signed_by(params, KeyPair::generate()?, &self.issuer)?;
        Ok(Self {
            intermediates: issuer.pem() + &self.intermediates,
            issuer,
        })
    }

    /// The CA certificate, PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for these host names (including wildcards), IP addresses or URIs, valid for servers and clients.
    ///
    /// # Errors
    /// If a name is invalid.
    pub fn issue(&self, names: &[&str]) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let mut params = params(names)?;
        // Root CAs share a name, so clients need the key identifier to find the issuer.
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            chain: certificate.pem() + &self.intermediates,
            private_key: key.serialize_pem(),
        })
    }
}

impl Authority {
    /// Like [`Authority::issue`], with this serial number.
    ///
    /// # Errors
    /// If a name is invalid.
    pub fn issue_numbered(&self, serial: u64, names: &[&str]) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let mut params = params(names)?;
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(serial.into());
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            chain: certificate.pem() + &self.intermediates,
            private_key: key.serialize_pem(),
        })
    }

    /// A CRL that revokes the certificates with these serial numbers, PEM.
    ///
    /// # Errors
    /// If the CRL can't be signed.
    pub fn revocations(&self, serials: &[u64]) -> Result<String> {
        let at = rcgen::date_time_ymd(2020, 1, 1);
        let revoked = serials.iter().map(|&serial| RevokedCertParams {
            serial_number: serial.into(),
            revocation_time: at,
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: at,
            next_update: rcgen::date_time_ymd(3000, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(list.signed_by(&self.issuer)?.pem()?)
    }
}

impl Authority {
    /// A client certificate with these URIs and validity period (to the second).
    ///
    /// # Errors
    /// If a name is invalid, or a time is before 1970.
    pub fn issue_client(
        &self,
        uris: &[&str],
        not_before: SystemTime,
        not_after: SystemTime,
    ) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let mut params = params(&[])?;
        for uri in uris {
            params
                .subject_alt_names
                .push(SanType::URI((*uri).try_into()?));
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let seconds = |at: SystemTime| -> Result<Duration> {
            let since = at.duration_since(SystemTime::UNIX_EPOCH)?;
            Ok(Duration::from_secs(since.as_secs()))
        };
        params.not_before = epoch + seconds(not_before)?;
        params.not_after = epoch + seconds(not_after)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            chain: certificate.pem(),
            private_key: key.serialize_pem(),
        })
    }
}

impl Authority {
    /// A client certificate whose subject identifies this user and group to an API server.
    ///
    /// # Errors
    /// If a name is invalid.
    pub fn issue_user(&self, user: &str, group: &str) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, user);
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            chain: certificate.pem(),
            private_key: key.serialize_pem(),
        })
    }
}

/// A client configuration that trusts `roots` (PEM) and offers `alpn`, most preferred first.
///
/// # Errors
/// If the PEM doesn't contain a valid root.
pub fn client_config(roots: &str, alpn: &[&str]) -> Result<Arc<ClientConfig>> {
    client_config_as(None, roots, alpn)
}

/// Like [`client_config`], with a client certificate.
///
/// # Errors
/// If any PEM is invalid.
pub fn client_config_as(
    identity: Option<&Identity>,
    roots: &str,
    alpn: &[&str],
) -> Result<Arc<ClientConfig>> {
    let store = root_store(roots)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder.with_client_auth_cert(
            certificates(&identity.chain)?,
            PrivateKeyDer::from_pem_slice(identity.private_key.as_bytes())?,
        )?,
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(Arc::new(config))
}

fn root_store(pem: &str) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(pem)? {
        store.add(certificate)?;
    }
    Ok(store)
}

fn authority_params(name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn params(names: &[&str]) -> Result<CertificateParams> {
    let (uris, names): (Vec<String>, Vec<String>) = names
        .iter()
        .map(|&name| name.to_owned())
        .partition(|name| name.contains("://"));
    let mut params = CertificateParams::new(names)?;
    for uri in uris {
        params.subject_alt_names.push(SanType::URI(uri.try_into()?));
    }
    // A common name is limited to 64 characters (RFC 5280, appendix A.1); servers are identified by their SANs.
    params
        .distinguished_name
        .push(DnType::CommonName, "Sesame test certificate");
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    Ok(params)
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .context("no certificates in the PEM")
}
