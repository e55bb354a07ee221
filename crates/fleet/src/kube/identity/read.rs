//! What a certificate says, and whether it and its key are fit for what they are kept for.
//!
//! In: PEM, written by anybody who may write Secrets. Out: the few facts that decisions need, or what is wrong.
//! It must not know where the PEM was kept.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::issue::{Certified, Subject};

/// The most bytes of PEM that are looked at: a Secret holds no more.
const LONGEST: usize = 1 << 20;
/// The most authorities in one bundle. Two or three are there in the course of a rotation.
const AUTHORITIES: usize = 16;

/// Tells certificates apart: the SHA-256 of one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.0[..4] {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Why what is kept somewhere is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// A part is missing, or not PEM of a certificate.
    #[error("{0} holds no certificate that can be read")]
    Certificate(&'static str),
    /// The private key is missing, or can't be read.
    #[error("the private key can't be read")]
    Key,
    /// The private key belongs to another certificate.
    #[error("the private key is another certificate's")]
    OtherKey,
    /// The certificate is for somebody else.
    #[error("the certificate is not for {0:?}")]
    Names(Vec<String>),
    /// None of the authorities beside the certificate vouches for it.
    #[error("no authority that is kept beside the certificate vouches for it")]
    Issuer,
    /// The certificate of an authority does not allow it to be one.
    #[error("the authority's certificate does not vouch for itself, or may not vouch for others")]
    Authority,
}

/// An authority's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trusted {
    /// PEM.
    pub pem: String,
    /// Tells it from others.
    pub fingerprint: Fingerprint,
    /// When it begins to be valid.
    pub begin: Timestamp,
    /// When it ends to be.
    pub end: Timestamp,
}

/// What is kept for a server or a fleet, as far as decisions need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Which authority vouches for the certificate.
    pub issuer: Fingerprint,
    /// When it begins to be valid.
    pub begin: Timestamp,
    /// When it ends to be.
    pub end: Timestamp,
    /// The authorities that its owner is to trust.
    pub trusts: BTreeSet<Fingerprint>,
}

/// The three files of a Secret: `tls.crt`, `tls.key`, `ca.crt`.
#[derive(Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate and its key.
    pub certified: Certified,
    /// PEM: the authorities.
    pub authorities: String,
}

/// Without the private key.
impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("certified", &self.certified)
            .field("authorities", &self.authorities)
            .finish()
    }
}

/// Looks at what is kept for somebody.
///
/// # Errors
/// It is of no use.
pub fn leaf(files: &Files, subject: &Subject) -> Result<Leaf, Flaw> {
    let leaf = usable(files)?;
    let der = certificate(&files.certified.certificate, "tls.crt")?;
    let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| Flaw::Certificate("tls.crt"))?;
    let wanted = subject.names();
    if names(&parsed, subject) != wanted.iter().cloned().collect() {
        return Err(Flaw::Names(wanted));
    }
    Ok(leaf)
}

/// Looks at what is kept for somebody, whoever that is.
///
/// # Errors
/// It is of no use.
pub fn usable(files: &Files) -> Result<Leaf, Flaw> {
    let der = certificate(&files.certified.certificate, "tls.crt")?;
    let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| Flaw::Certificate("tls.crt"))?;
    key_of(&parsed, &files.certified.private_key)?;
    let mut issuer = None;
    let mut trusts = BTreeSet::new();
    for authority in certificates(&files.authorities)? {
        let fingerprint = fingerprint(&authority);
        trusts.insert(fingerprint);
        let (_, authority) =
            X509Certificate::from_der(&authority).map_err(|_| Flaw::Certificate("ca.crt"))?;
        if parsed
            .verify_signature(Some(authority.public_key()))
            .is_ok()
        {
            issuer = Some(fingerprint);
        }
    }
    let (begin, end) = validity(&parsed).ok_or(Flaw::Certificate("tls.crt"))?;
    Ok(Leaf {
        issuer: issuer.ok_or(Flaw::Issuer)?,
        begin,
        end,
        trusts,
    })
}

/// Looks at an authority and its key.
///
/// # Errors
/// It is of no use.
pub fn authority(certified: &Certified) -> Result<Trusted, Flaw> {
    let der = certificate(&certified.certificate, "tls.crt")?;
    let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| Flaw::Certificate("tls.crt"))?;
    key_of(&parsed, &certified.private_key)?;
    trusted(&der)
}

/// Those authorities of a bundle that can be read; what can't is left out.
pub fn authorities(bundle: &str) -> Vec<Trusted> {
    let all = certificates(bundle).unwrap_or_default();
    let mut out: Vec<Trusted> = Vec::new();
    for der in &all {
        if let Ok(trusted) = trusted(der)
            && !out
                .iter()
                .any(|seen| seen.fingerprint == trusted.fingerprint)
        {
            out.push(trusted);
        }
    }
    out
}

fn trusted(der: &CertificateDer<'_>) -> Result<Trusted, Flaw> {
    let (_, parsed) = X509Certificate::from_der(der).map_err(|_| Flaw::Authority)?;
    if !parsed.is_ca() || parsed.verify_signature(None).is_err() {
        return Err(Flaw::Authority);
    }
    let (begin, end) = validity(&parsed).ok_or(Flaw::Authority)?;
    Ok(Trusted {
        pem: pem(der),
        fingerprint: fingerprint(der),
        begin,
        end,
    })
}

/// The names of a certificate, of the kind that is its subject's; empty if there are others beside them.
fn names(parsed: &X509Certificate<'_>, subject: &Subject) -> BTreeSet<String> {
    let all = parsed.subject_alternative_name().ok().flatten();
    let all = all.map(|names| names.value.general_names.as_slice());
    let names = all
        .unwrap_or_default()
        .iter()
        .map(|name| match (name, subject) {
            (GeneralName::DNSName(name), Subject::Server(_))
            | (GeneralName::URI(name), Subject::Fleet(_)) => Some((*name).to_owned()),
            _ => None,
        });
    names.collect::<Option<_>>().unwrap_or_default()
}

fn key_of(parsed: &X509Certificate<'_>, private_key: &str) -> Result<(), Flaw> {
    if private_key.len() > LONGEST {
        return Err(Flaw::Key);
    }
    let key = KeyPair::from_pem(private_key).map_err(|_| Flaw::Key)?;
    if key.subject_public_key_info() != parsed.public_key().raw {
        return Err(Flaw::OtherKey);
    }
    Ok(())
}

fn certificate(pem: &str, part: &'static str) -> Result<CertificateDer<'static>, Flaw> {
    if pem.len() > LONGEST {
        return Err(Flaw::Certificate(part));
    }
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| Flaw::Certificate(part))
}

fn certificates(bundle: &str) -> Result<Vec<CertificateDer<'static>>, Flaw> {
    let flaw = Flaw::Certificate("ca.crt");
    if bundle.len() > LONGEST {
        return Err(flaw);
    }
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bundle.as_bytes())
        .take(AUTHORITIES)
        .collect();
    match read {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(flaw),
    }
}

fn fingerprint(der: &CertificateDer<'_>) -> Fingerprint {
    Fingerprint(Sha256::digest(der.as_ref()).into())
}

fn validity(parsed: &X509Certificate<'_>) -> Option<(Timestamp, Timestamp)> {
    let validity = parsed.validity();
    let begin = Timestamp::from_second(validity.not_before.timestamp()).ok()?;
    let end = Timestamp::from_second(validity.not_after.timestamp()).ok()?;
    Some((begin, end))
}

fn pem(der: &CertificateDer<'_>) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}
