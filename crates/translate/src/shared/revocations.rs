//! Certificate revocation lists (CRLs) in Secrets, validated so that Envoy accepts all valid ones.

use std::sync::Arc;

use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Version};
use x509_parser::revocation_list::CertificateRevocationList;

use crate::shared::certificates::{SecretData, pem, pem_error};
use crate::shared::der;

/// The key of the CRLs in a Secret.
pub(crate) const REVOKED: &str = "crl.pem";

/// The maximum number of CRLs in one Secret.
const MAX_LISTS: usize = 100;

/// The CRLs in a Secret, as PEM, or why it has none: a clause to follow "Secret ns/name".
pub(crate) type RevocationState = Result<Arc<[u8]>, String>;

/// Reads the CRLs in a Secret; `None` if it doesn't exist.
pub(crate) fn read(secret: Option<&SecretData>) -> RevocationState {
    let secret = secret.ok_or("does not exist")?;
    let text = secret.data.get(REVOKED).filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| format!("has no data in {REVOKED}"))?;
    let lists: Vec<CertificateRevocationListDer<'static>> =
        CertificateRevocationListDer::pem_slice_iter(text)
            .take(MAX_LISTS + 1)
            .collect::<Result<_, _>>()
            .map_err(|error| format!("has invalid PEM in {REVOKED}: {}", pem_error(&error)))?;
    if lists.is_empty() {
        return Err(format!("has no PEM CRL in {REVOKED}"));
    }
    if lists.len() > MAX_LISTS {
        return Err(format!("has more than {MAX_LISTS} CRLs in {REVOKED}"));
    }
    for (position, der) in lists.iter().enumerate() {
        if !is_valid(der) {
            return Err(format!(
                "has an invalid CRL in {REVOKED}, at position {}",
                position + 1
            ));
        }
    }
    let lists = lists.iter().map(|der| pem("X509 CRL", der));
    Ok(lists.collect::<String>().into_bytes().into())
}

/// Whether Envoy's TLS library accepts a CRL: it parses extensions, which only version 2 may have.
fn is_valid(bytes: &[u8]) -> bool {
    let Ok((_, list)) = CertificateRevocationList::from_der(bytes) else {
        return false;
    };
    let of_entries = || {
        let entries = list.iter_revoked_certificates();
        entries.flat_map(|revoked| revoked.extensions())
    };
    let versioned = match list.version() {
        None | Some(X509Version(0)) => {
            list.extensions().is_empty() && of_entries().next().is_none()
        }
        Some(X509Version(1)) => true,
        Some(_) => false,
    };
    let mut all = list.extensions().iter().chain(of_entries());
    der::is_revocation_list(bytes)
        && versioned
        && all.all(|found| found.parsed_extension().error().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(revoked: usize) -> String {
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key");
        let issuer = rcgen::CertifiedIssuer::self_signed(params, key).expect("a CA");
        let at = rcgen::date_time_ymd(2020, 1, 1);
        let revoked = (0..revoked).map(|serial| rcgen::RevokedCertParams {
            serial_number: (serial as u64).into(),
            revocation_time: at,
            reason_code: Some(rcgen::RevocationReason::KeyCompromise),
            invalidity_date: None,
        });
        let list = rcgen::CertificateRevocationListParams {
            this_update: at,
            next_update: rcgen::date_time_ymd(2030, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&issuer).expect("a list");
        list.pem().expect("PEM").replace('\r', "")
    }

    fn state(text: &str) -> RevocationState {
        let secret = SecretData {
            type_: "Opaque".into(),
            data: [(REVOKED.to_owned(), text.as_bytes().into())].into(),
        };
        read(Some(&secret))
    }

    #[test]
    fn lists_are_read_in_order() {
        let both = list(0) + &list(3);
        let read = state(&format!("some words\n{both}and others"));
        assert_eq!(read.as_deref(), Ok(both.as_bytes()));
    }

    #[test]
    fn text_without_valid_lists_is_refused_with_a_reason() {
        let reason = |text: &str| state(text).expect_err("an error");
        assert_eq!(read(None).expect_err("an error"), "does not exist");
        assert_eq!(reason(""), "has no data in crl.pem");
        assert!(reason("junk").starts_with("has no PEM CRL"));
        let valid = list(1);
        assert!(reason(&valid[..valid.len() / 2]).contains("crl.pem"));
        let other = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
        let expected = "has an invalid CRL in crl.pem, at position 2";
        assert_eq!(reason(&format!("{valid}{other}")), expected);
        assert!(reason(&valid.repeat(101)).starts_with("has more than 100"));
    }
}
