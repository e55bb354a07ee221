//! Issues and reads X.509 certificates in PEM.
//!
//! Pure, except that keys are random. Must not depend on Secrets.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use sesame_model::FleetId;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The maximum number of CAs read from a bundle. The rest are ignored.
const MAX_CAS: usize = 16;

const DAY: Duration = Duration::from_secs(86_400);
/// Validity of a CA. The next CA is introduced when a third of it is left.
const CA_VALIDITY: Duration = DAY.saturating_mul(5 * 365);
/// Validity of a leaf certificate. See [`super::ca::renewal`].
const LEAF_VALIDITY: Duration = DAY.saturating_mul(30);
/// How far certificates are backdated, for peers whose clocks are behind.
pub(super) const BACKDATE: Duration = Duration::from_secs(300);
/// How long a CA is in the bundle before it issues. Longer than [`LEAF_VALIDITY`], so every leaf certificate that is
/// still valid was issued with a bundle that contains the new CA.
pub(super) const PROMOTE_AFTER: Duration = DAY.saturating_mul(31);

/// The subject of a leaf certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The xDS server, with its DNS names.
    Server(Vec<String>),
    /// A fleet's Envoys.
    Fleet(FleetId),
}

impl Subject {
    /// The subject alternative names: DNS names or the fleet's URI.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Server(names) => names.clone(),
            Self::Fleet(fleet) => vec![fleet.uri()],
        }
    }
}

/// Why a certificate can't be used or issued.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// It can't be used.
    #[error("{0}")]
    Invalid(&'static str),
    /// It can't be issued.
    #[error("cannot issue a certificate: {0}")]
    Issue(#[from] rcgen::Error),
}

use CertificateError::Invalid;

/// A CA certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaCertificate {
    /// PEM.
    pub pem: String,
    /// Start of its validity.
    pub not_before: Timestamp,
    /// End of its validity.
    pub not_after: Timestamp,
}

/// A CA certificate and its private key.
#[derive(Clone, PartialEq, Eq)]
pub struct Ca {
    /// The certificate.
    pub certificate: CaCertificate,
    /// PEM (PKCS #8).
    pub private_key: String,
}

/// Omits the private key.
impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.certificate.fmt(f)
    }
}

impl Ca {
    /// Generates a self-signed CA.
    ///
    /// # Errors
    /// The system's random number generator fails.
    pub fn generate(now: Timestamp) -> Result<Self, CertificateError> {
        let key = KeyPair::generate()?;
        // Peers look up issuers by name, so each CA's name is unique.
        let name = format!("Sesame CA {now}");
        let mut params = params(&name, now, after(now, CA_VALIDITY));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        Self::read(&certificate, key.serialize_pem())
    }

    /// Reads a CA from PEM.
    ///
    /// # Errors
    /// It isn't a CA certificate, or the key doesn't match.
    pub fn read(certificate: &str, private_key: String) -> Result<Self, CertificateError> {
        let der = decode(certificate)?;
        check_key(&parse(&der)?, &private_key)?;
        Ok(Self {
            certificate: ca_certificate(&der)?,
            private_key,
        })
    }

    /// Issues a leaf certificate, which never outlives the CA. Returns it and its private key, in PEM.
    ///
    /// # Errors
    /// The CA has expired, a name is not valid in a certificate, or the system's random number generator fails.
    pub fn issue(
        &self,
        now: Timestamp,
        subject: &Subject,
    ) -> Result<(String, String), CertificateError> {
        if now >= self.certificate.not_after {
            return Err(Invalid("the CA has expired"));
        }
        let issuer_key = KeyPair::from_pem(&self.private_key)?;
        let issuer = Issuer::from_ca_cert_pem(&self.certificate.pem, issuer_key)?;
        let (name, usage) = match subject {
            Subject::Server(_) => ("Sesame xDS server", ExtendedKeyUsagePurpose::ServerAuth),
            Subject::Fleet(_) => ("Sesame fleet", ExtendedKeyUsagePurpose::ClientAuth),
        };
        let not_after = after(now, LEAF_VALIDITY).min(self.certificate.not_after);
        let mut params = params(name, now, not_after);
        for name in subject.names() {
            params.subject_alt_names.push(match subject {
                Subject::Server(_) => SanType::DnsName(name.try_into()?),
                Subject::Fleet(_) => SanType::URI(name.try_into()?),
            });
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?.pem();
        Ok((certificate, key.serialize_pem()))
    }
}

/// A peer's files: `tls.crt`, `tls.key`, `ca.crt`, all in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The leaf certificate.
    pub certificate: String,
    /// Its private key.
    pub private_key: String,
    /// The CAs that the peer trusts.
    pub ca_bundle: String,
}

/// Omits the private key.
impl fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsFiles")
            .field("certificate", &self.certificate)
            .field("ca_bundle", &self.ca_bundle)
            .finish_non_exhaustive()
    }
}

/// The leaf certificate in [`TlsFiles`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The subject alternative names, DNS names and URIs.
    pub names: Vec<String>,
    /// The certificate of the CA that issued it, in PEM.
    pub issuer: String,
    /// Start of its validity.
    pub not_before: Timestamp,
    /// End of its validity.
    pub not_after: Timestamp,
}

impl Leaf {
    /// Reads a peer's files.
    ///
    /// # Errors
    /// A file is invalid, or they don't match.
    pub fn read(files: &TlsFiles) -> Result<Self, CertificateError> {
        let der = decode(&files.certificate)?;
        let parsed = parse(&der)?;
        check_key(&parsed, &files.private_key)?;
        let issued = |ca: &Vec<u8>| {
            parse(ca).is_ok_and(|ca| parsed.verify_signature(Some(ca.public_key())).is_ok())
        };
        let mut cas = decode_all(&files.ca_bundle).into_iter();
        let issuer = cas.find(issued);
        let names = parsed.subject_alternative_name().ok().flatten();
        let names = names.iter().flat_map(|names| &names.value.general_names);
        let (not_before, not_after) = validity(&parsed)?;
        Ok(Self {
            names: names
                .map(|name| match name {
                    GeneralName::DNSName(name) | GeneralName::URI(name) => (*name).to_owned(),
                    other => other.to_string(),
                })
                .collect(),
            issuer: encode(issuer.ok_or(Invalid("tls.crt was not issued by a CA in ca.crt"))?),
            not_before,
            not_after,
        })
    }
}

/// The CAs in a bundle. Other certificates and duplicates are ignored.
pub fn read_bundle(bundle: &str) -> Vec<CaCertificate> {
    let mut cas: Vec<CaCertificate> = Vec::new();
    for der in decode_all(bundle) {
        if let Ok(ca) = ca_certificate(&der)
            && !cas.contains(&ca)
        {
            cas.push(ca);
        }
    }
    cas
}

/// Adds a duration, saturating.
pub(super) fn after(at: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    at.saturating_add(duration).unwrap_or(at)
}

fn params(name: &str, now: Timestamp, not_after: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let date = |at: Timestamp, earlier: Duration| {
        let seconds = u64::try_from(at.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds) - earlier
    };
    params.not_before = date(now, BACKDATE);
    params.not_after = date(not_after, Duration::ZERO);
    params
}

fn ca_certificate(der: &[u8]) -> Result<CaCertificate, CertificateError> {
    let parsed = parse(der)?;
    if !parsed.is_ca() || parsed.verify_signature(None).is_err() {
        return Err(Invalid("not a self-signed CA certificate"));
    }
    let (not_before, not_after) = validity(&parsed)?;
    Ok(CaCertificate {
        pem: encode(der),
        not_before,
        not_after,
    })
}

fn check_key(parsed: &X509Certificate<'_>, private_key: &str) -> Result<(), CertificateError> {
    match KeyPair::from_pem(private_key) {
        Ok(key) if key.subject_public_key_info() == parsed.public_key().raw => Ok(()),
        _ => Err(Invalid("the private key does not match the certificate")),
    }
}

fn validity(parsed: &X509Certificate<'_>) -> Result<(Timestamp, Timestamp), CertificateError> {
    let validity = parsed.validity();
    let time = |time: x509_parser::time::ASN1Time| {
        Timestamp::from_second(time.timestamp()).map_err(|_| Invalid("invalid validity period"))
    };
    Ok((time(validity.not_before)?, time(validity.not_after)?))
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, CertificateError> {
    let parsed = X509Certificate::from_der(der);
    parsed
        .map(|(_, parsed)| parsed)
        .map_err(|_| NOT_A_CERTIFICATE)
}

/// The first certificate in a PEM file, as DER.
fn decode(text: &str) -> Result<Vec<u8>, CertificateError> {
    decode_all(text).into_iter().next().ok_or(NOT_A_CERTIFICATE)
}

/// All certificates in a PEM file, as DER; empty if any part of it is invalid.
fn decode_all(text: &str) -> Vec<Vec<u8>> {
    let all = pem::parse_many(text).unwrap_or_default().into_iter();
    let certificates = all.filter(|pem| pem.tag() == PEM_TAG).take(MAX_CAS);
    certificates.map(pem::Pem::into_contents).collect()
}

fn encode(der: impl Into<Vec<u8>>) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(PEM_TAG, der), config)
}

const PEM_TAG: &str = "CERTIFICATE";
const NOT_A_CERTIFICATE: CertificateError = Invalid("not a PEM certificate");
