//! CAs and their rotation.
//!
//! Pure: certificates and the time in, certificates out.
//!
//! 1. *Introduce*: when a third of the issuing CA's validity is left, the next CA is added to the bundle. It doesn't
//!    issue yet.
//! 2. *Promote*: 31 days later, the next CA starts issuing, and every leaf certificate is reissued. The previous CA's
//!    key is deleted. All leaf certificates that are still valid were issued with a bundle that contains both CAs, so a
//!    valid peer is never rejected.
//! 3. *Retire*: the previous CA is removed from the bundle when it expires. By then, every leaf certificate that it
//!    issued has expired, too.
//!
//! A CA whose key is lost becomes a previous CA. The next CA is introduced and issues missing certificates at once;
//! certificates of the lost CA stay in use until the next CA is promoted.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use super::cert::{self, Ca, CaCertificate, CertificateError, Leaf, Subject, TlsFiles};

/// The CAs that peers trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaBundle {
    /// The CA that issues; `None` only after its key is lost.
    pub issuing: Option<Ca>,
    /// The CA that will issue next.
    pub next: Option<Ca>,
    /// CAs that no longer issue, newest first.
    pub previous: Vec<CaCertificate>,
}

impl CaBundle {
    /// Reads a bundle of CAs whose keys are lost.
    pub fn without_keys(bundle: &str) -> Self {
        Self {
            previous: cert::read_bundle(bundle),
            ..Self::default()
        }
    }

    /// The certificates of all CAs.
    pub fn certificates(&self) -> impl Iterator<Item = &CaCertificate> {
        let with_keys = self.issuing.iter().chain(&self.next);
        with_keys.map(|ca| &ca.certificate).chain(&self.previous)
    }

    /// The certificates of all CAs, as PEM.
    pub fn pem(&self) -> String {
        self.certificates().map(|ca| ca.pem.as_str()).collect()
    }

    /// The CA that issues new certificates.
    pub fn issuer(&self) -> Option<&Ca> {
        self.issuing.as_ref().or(self.next.as_ref())
    }

    /// The bundle after all due rotation steps. An empty bundle gets its first CA.
    ///
    /// # Errors
    /// A CA can't be generated.
    pub fn rotated(&self, now: Timestamp) -> Result<Self, CertificateError> {
        let expired = |ca: &CaCertificate| now >= ca.not_after;
        let issuing_expired = |bundle: &Self| {
            bundle
                .issuing
                .as_ref()
                .is_some_and(|ca| expired(&ca.certificate))
        };
        let mut bundle = self.clone();
        if let Some(next) = &bundle.next
            && (now >= promotion(next) || issuing_expired(&bundle))
        {
            let previous = std::mem::replace(&mut bundle.issuing, bundle.next.take());
            bundle
                .previous
                .splice(0..0, previous.map(|ca| ca.certificate));
        }
        if issuing_expired(&bundle) {
            bundle.issuing = None;
        }
        bundle.previous.retain(|ca| !expired(ca));
        match (&bundle.issuing, &bundle.next) {
            (Some(ca), None) if now >= introduction(ca) => {
                bundle.next = Some(Ca::generate(now)?);
            }
            (None, None) if bundle.previous.is_empty() => {
                bundle.issuing = Some(Ca::generate(now)?);
            }
            (None, None) => bundle.next = Some(Ca::generate(now)?),
            _ => {}
        }
        Ok(bundle)
    }

    /// When the next rotation step is due.
    pub fn next_rotation(&self) -> Option<Timestamp> {
        let step = match (&self.issuing, &self.next) {
            (_, Some(next)) => Some(promotion(next)),
            (Some(ca), None) => Some(introduction(ca)),
            (None, None) => None,
        };
        let expiry = self.certificates().map(|ca| ca.not_after);
        expiry.chain(step).min()
    }

    /// Issues a certificate. Returns the peer's files.
    ///
    /// # Errors
    /// It can't be issued.
    pub fn issue(&self, now: Timestamp, subject: &Subject) -> Result<TlsFiles, CertificateError> {
        let issuer = self
            .issuer()
            .ok_or(CertificateError::Invalid("there is no CA"))?;
        let (certificate, private_key) = issuer.issue(now, subject)?;
        Ok(TlsFiles {
            certificate,
            private_key,
            ca_bundle: self.pem(),
        })
    }

    /// A peer's files with the current bundle, and with a new certificate if the current one is invalid or due for
    /// renewal. Also returns when the certificate must be renewed.
    ///
    /// # Errors
    /// A certificate is needed and can't be issued.
    pub fn renewed(
        &self,
        now: Timestamp,
        subject: &Subject,
        files: TlsFiles,
    ) -> Result<(TlsFiles, Timestamp), CertificateError> {
        let valid = |leaf: &Leaf| {
            let issuer = &leaf.issuer;
            leaf.names == subject.names()
                && match &self.issuing {
                    Some(ca) => ca.certificate.pem == *issuer,
                    None => self.certificates().any(|ca| ca.pem == *issuer),
                }
                && (leaf.not_before..renewal(leaf, subject)).contains(&now)
        };
        let files = match Leaf::read(&files) {
            Ok(leaf) if valid(&leaf) => TlsFiles {
                ca_bundle: self.pem(),
                ..files
            },
            _ => self.issue(now, subject)?,
        };
        let renewal = renewal(&Leaf::read(&files)?, subject);
        Ok((files, renewal))
    }
}

/// When a certificate is renewed: when a third of its validity is left, or up to a tenth earlier. The jitter is a hash
/// of the certificate's names, so that certificates issued together aren't all renewed together.
pub fn renewal(leaf: &Leaf, subject: &Subject) -> Timestamp {
    let digest = Sha256::digest(subject.names().join(" "));
    let jitter = f64::from(u16::from_be_bytes([digest[0], digest[1]])) / f64::from(u16::MAX);
    before_expiry(leaf.not_before, leaf.not_after, 1.0 / 3.0 + jitter / 10.0)
}

/// When a CA's successor is introduced.
fn introduction(ca: &Ca) -> Timestamp {
    let ca = &ca.certificate;
    before_expiry(ca.not_before, ca.not_after, 1.0 / 3.0)
}

/// When an introduced CA is promoted.
fn promotion(ca: &Ca) -> Timestamp {
    let introduced = cert::after(ca.certificate.not_before, cert::BACKDATE);
    cert::after(introduced, cert::PROMOTE_AFTER)
}

/// The time at which this share of a validity period is left.
fn before_expiry(not_before: Timestamp, not_after: Timestamp, share: f64) -> Timestamp {
    let validity = Duration::try_from(not_after.duration_since(not_before)).unwrap_or_default();
    let left = SignedDuration::try_from(validity.mul_f64(share)).unwrap_or_default();
    not_after.saturating_sub(left).unwrap_or(not_before)
}
