//! Certificates in Secrets, validated so that Envoy accepts all valid ones.
//!
//! PEM has many variants (long lines, indentation, text between blocks), and Envoy accepts fewer of them than other
//! programs. So certificates are re-encoded in the strict form.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sesame_engine::{Reader, Table};
use sesame_model::{Certificate, CertificateKey};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;

use crate::shared::expiry::Validity;
use crate::shared::{der, hostname};

/// The Secret type that the Gateway API requires.
pub const SECRET_TYPE: &str = "kubernetes.io/tls";

/// The key of the certificate chain in such a Secret.
pub const CHAIN: &str = "tls.crt";

/// The key of the private key in such a Secret.
pub const PRIVATE_KEY: &str = "tls.key";

/// The maximum number of certificates in one Secret.
const MAX_CHAIN: usize = 100;

/// The maximum size of the first certificate, in bytes of DER: the limit of rustls, which compares it with its key. Enough
/// for 10,000 short names.
const MAX_CERTIFICATE: usize = 0xffff;

/// The fields of a Secret that are read. Values are shared; metadata is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretData {
    /// The Secret's type.
    pub type_: Arc<str>,
    /// The entries.
    pub data: BTreeMap<String, Arc<[u8]>>,
}

/// The state of a Secret that a listener or a Gateway refers to.
#[derive(Clone, Debug, PartialEq)]
pub enum CertificateState {
    /// It can be used.
    Valid {
        /// The certificate to present.
        certificate: Certificate,
        /// Its DNS names, in lower case, sorted by their ends.
        names: Arc<[String]>,
        /// When it is valid.
        validity: Validity,
    },
    /// The Secret doesn't exist.
    Missing,
    /// It can't be used; the reason is a clause to follow "Secret ns/name".
    Invalid(String),
}

/// Checks that a Secret has a valid certificate.
///
/// # Errors
/// Why the Secret can't be used, as a sentence.
pub(crate) fn check(
    reader: &mut Reader<'_>,
    states: Table<CertificateKey, CertificateState>,
    secret: &CertificateKey,
) -> Result<(), String> {
    match reader.get(states, secret).as_deref() {
        Some(CertificateState::Valid { .. }) => Ok(()),
        Some(CertificateState::Invalid(reason)) => Err(format!("Secret {secret} {reason}")),
        Some(CertificateState::Missing) | None => Err(format!("Secret {secret} does not exist")),
    }
}

/// Reads a certificate from a Secret.
pub fn read(secret: &SecretData) -> CertificateState {
    match try_read(secret) {
        Ok((certificate, names, validity)) => CertificateState::Valid {
            certificate,
            names: names.into(),
            validity,
        },
        Err(reason) => CertificateState::Invalid(reason),
    }
}

fn try_read(secret: &SecretData) -> Result<(Certificate, Vec<String>, Validity), String> {
    if &*secret.type_ != SECRET_TYPE {
        return Err(format!(
            "has type {:?}; certificates require type {SECRET_TYPE}",
            &*secret.type_
        ));
    }
    let field = |name: &str| {
        secret
            .data
            .get(name)
            .filter(|bytes| !bytes.is_empty())
            .ok_or_else(|| format!("has no data in {name}"))
    };
    let (chain, key) = (field(CHAIN)?, field(PRIVATE_KEY)?);

    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .take(MAX_CHAIN + 1)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("has invalid PEM in {CHAIN}: {}", pem_error(&error)))?;
    if certificates.is_empty() {
        return Err(format!("has no PEM certificate in {CHAIN}"));
    }
    if certificates.len() > MAX_CHAIN {
        return Err(format!("has more than {MAX_CHAIN} certificates in {CHAIN}"));
    }
    let mut names = Vec::new();
    let mut validity = Validity {
        from: i64::MIN,
        until: i64::MAX,
    };
    for (position, bytes) in certificates.iter().enumerate() {
        let parsed = X509Certificate::from_der(bytes).ok();
        let parsed = parsed.filter(|_| der::is_certificate(bytes));
        let (_, certificate) = parsed.ok_or_else(|| {
            format!(
                "has an invalid X.509 certificate in {CHAIN}, at position {}",
                position + 1
            )
        })?;
        // The chain is valid as long as all its certificates are.
        let own = certificate.validity();
        validity.from = validity.from.max(own.not_before.timestamp());
        validity.until = validity.until.min(own.not_after.timestamp());
        if position == 0 {
            if bytes.len() > MAX_CERTIFICATE {
                return Err(format!(
                    "has a certificate of {} KiB in {CHAIN}; the limit is {} KiB; use fewer names",
                    bytes.len().div_ceil(1024),
                    MAX_CERTIFICATE.div_ceil(1024)
                ));
            }
            check_public_key(&certificate)?;
            names = dns_names(&certificate);
        }
    }
    let private_key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
        rustls_pki_types::pem::Error::NoItemsFound => {
            format!("has no PEM private key in {PRIVATE_KEY}")
        }
        error => format!("has invalid PEM in {PRIVATE_KEY}: {}", pem_error(&error)),
    })?;
    let signer = any_supported_type(&private_key).map_err(|_| {
        format!(
            "has an unsupported private key in {PRIVATE_KEY}; use RSA with 2048 to 4096 bits, or ECDSA P-256 or P-384"
        )
    })?;
    let served = Certificate {
        chain: certificates
            .iter()
            .map(|der| pem("CERTIFICATE", der))
            .collect::<String>()
            .into_bytes()
            .into(),
        private_key: pem(key_label(&private_key), private_key.secret_der())
            .into_bytes()
            .into(),
    };
    CertifiedKey::new(certificates, signer)
        .keys_match()
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => format!(
                "has a private key in {PRIVATE_KEY} that does not match the certificate in {CHAIN}"
            ),
            // rustls accepts fewer certificates than the parser above.
            _ => format!(
                "has an unsupported certificate in {CHAIN}; use X.509 version 3 without unknown critical extensions"
            ),
        })?;
    Ok((served, names, validity))
}

/// The label of a key's PEM block (RFC 7468, section 10; the older labels are OpenSSL's).
fn key_label(key: &PrivateKeyDer<'_>) -> &'static str {
    match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    }
}

/// What is wrong with PEM, without its text, which may be secret.
pub(super) fn pem_error(error: &rustls_pki_types::pem::Error) -> &'static str {
    use rustls_pki_types::pem::Error;
    match error {
        Error::MissingSectionEnd { .. } => "it is truncated: a BEGIN line has no END line",
        Error::IllegalSectionStart { .. } => "a BEGIN line is malformed",
        Error::Base64Decode(_) => "a block is not valid base64",
        Error::SectionTooLarge => "a block is too large",
        _ => "it has no valid block",
    }
}

/// Encodes DER as strict PEM: lines of 64 characters (RFC 7468, section 3).
pub(super) fn pem(label: &str, der: &[u8]) -> String {
    const LINE: usize = 64;
    let body = BASE64.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(LINE));
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

/// Rejects keys that Envoy's TLS library doesn't support.
fn check_public_key(certificate: &X509Certificate<'_>) -> Result<(), String> {
    let bits = match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(rsa)) if !(2048..=4096).contains(&rsa.key_size()) => rsa.key_size(),
        Ok(PublicKey::RSA(_)) => return Ok(()),
        Ok(PublicKey::EC(_)) => return check_usage(certificate),
        _ => {
            return Err(format!(
                "has a certificate in {CHAIN} whose key is neither RSA nor ECDSA"
            ));
        }
    };
    Err(format!(
        "has a {bits}-bit RSA key in {CHAIN}; use 2048 to 4096 bits, or ECDSA P-256 or P-384"
    ))
}

/// Rejects ECDSA certificates whose key usage excludes signatures: Envoy's TLS library can't use them.
fn check_usage(certificate: &X509Certificate<'_>) -> Result<(), String> {
    let usage = certificate.key_usage().ok().flatten();
    if usage.is_none_or(|usage| usage.value.digital_signature()) {
        return Ok(());
    }
    Err(format!(
        "has an ECDSA certificate in {CHAIN} whose keyUsage lacks digitalSignature, which TLS requires"
    ))
}

fn dns_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let mut names: Vec<String> = match alternatives {
        Some(extension) => extension
            .value
            .general_names
            .iter()
            .filter_map(|name| match name {
                GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
                _ => None,
            })
            .collect(),
        None => certificate
            .subject()
            .iter_common_name()
            .filter_map(|name| name.as_str().ok().map(str::to_ascii_lowercase))
            .collect(),
    };
    names.sort_by(|a, b| hostname::by_end(a, b));
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(chain: &str, key: &str) -> SecretData {
        SecretData {
            type_: SECRET_TYPE.into(),
            data: [(CHAIN, chain), (PRIVATE_KEY, key)]
                .into_iter()
                .map(|(name, text)| (name.to_owned(), text.as_bytes().into()))
                .collect(),
        }
    }

    fn pair(names: &[&str], algorithm: &'static rcgen::SignatureAlgorithm) -> (String, String) {
        let key = rcgen::KeyPair::generate_for(algorithm).expect("a key");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let certificate = rcgen::CertificateParams::new(names)
            .expect("parameters")
            .self_signed(&key)
            .expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    fn reason(secret: &SecretData) -> String {
        match read(secret) {
            CertificateState::Invalid(reason) => reason,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    #[test]
    fn a_matching_pair_is_served_with_its_names() {
        let (chain, key) = pair(
            &["B.example.com", "a.example.com"],
            &rcgen::PKCS_ECDSA_P256_SHA256,
        );
        match read(&secret(&chain, &key)) {
            CertificateState::Valid { names, .. } => {
                assert_eq!(&*names, ["a.example.com", "b.example.com"])
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unservable_certificates_are_refused_with_a_reason() {
        let (chain, key) = pair(&["a.example.com"], &rcgen::PKCS_ECDSA_P256_SHA256);
        let (_, other_key) = pair(&["a.example.com"], &rcgen::PKCS_ECDSA_P256_SHA256);
        let (ed_chain, ed_key) = pair(&["a.example.com"], &rcgen::PKCS_ED25519);
        assert!(reason(&secret(&chain, &other_key)).contains("does not match"));
        assert!(reason(&secret(&ed_chain, &ed_key)).contains("neither RSA nor ECDSA"));
        let agreement = |usages: &[rcgen::KeyUsagePurpose]| {
            let key = rcgen::KeyPair::generate().expect("a key");
            let mut parameters =
                rcgen::CertificateParams::new(["a.example.com".to_owned()]).expect("parameters");
            parameters.key_usages = usages.to_vec();
            let certificate = parameters.self_signed(&key).expect("a certificate");
            secret(&certificate.pem(), &key.serialize_pem())
        };
        let usages = [
            rcgen::KeyUsagePurpose::KeyAgreement,
            rcgen::KeyUsagePurpose::DigitalSignature,
        ];
        assert!(reason(&agreement(&usages[..1])).contains("lacks digitalSignature"));
        assert!(matches!(
            read(&agreement(&usages)),
            CertificateState::Valid { .. }
        ));
        assert!(reason(&secret("", &key)).contains("no data in tls.crt"));
        assert!(reason(&secret("Hello world\n", &key)).contains("no PEM certificate"));
        assert!(reason(&secret(&chain, "Hello world\n")).contains("no PEM private key"));
        let truncated = &chain[..chain.len() / 2];
        assert!(matches!(
            read(&secret(truncated, &key)),
            CertificateState::Invalid(_)
        ));
        let opaque = SecretData {
            type_: "Opaque".into(),
            ..secret(&chain, &key)
        };
        assert!(reason(&opaque).contains("kubernetes.io/tls"));
    }

    #[test]
    fn all_pem_variants_are_served_in_one_form() {
        let (chain, key) = pair(&["a.example.com"], &rcgen::PKCS_ECDSA_P384_SHA384);
        let served = |chain: &str, key: &str| match read(&secret(chain, key)) {
            CertificateState::Valid { certificate, .. } => certificate,
            other => panic!("{other:?}"),
        };
        let plain = served(&chain, &key);
        assert_eq!(&*plain.chain, chain.replace('\r', "").as_bytes());
        assert_eq!(&*plain.private_key, key.replace('\r', "").as_bytes());
        let one_line = |pem: &str| {
            let lines = || pem.lines();
            let body: String = lines().filter(|line| !line.starts_with('-')).collect();
            let (first, last) = (lines().next(), lines().next_back());
            format!(
                "{}\n{body}\n{}\n",
                first.expect("a BEGIN line"),
                last.expect("an END line")
            )
        };
        let trailing = |pem: &str| format!("some words\n{pem}and others");
        for write in [&one_line as &dyn Fn(&str) -> String, &trailing] {
            assert!(served(&write(&chain), &write(&key)) == plain);
        }
        let both = format!("{key}{chain}");
        assert!(served(&both, &both) == plain);
    }

    #[test]
    fn messages_about_invalid_pem_do_not_contain_it() {
        let (chain, key) = pair(&["a.example.com"], &rcgen::PKCS_ECDSA_P256_SHA256);
        let truncated = |pem: &str| pem[..pem.len() - 30].to_owned();
        for (chain, key, expected) in [
            (truncated(&chain), key.clone(), "tls.crt: it is truncated"),
            (chain.clone(), truncated(&key), "tls.key: it is truncated"),
            (
                chain.clone(),
                key.replacen("\nM", "\n!", 1),
                "tls.key: a block is not valid base64",
            ),
        ] {
            let message = reason(&secret(&chain, &key));
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains('[') && message.len() < 100, "{message}");
        }
    }

    /// A certificate for this number of names.
    fn with_names(count: u32) -> SecretData {
        let names: Vec<String> = (0..count).map(|number| format!("{number:x}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (chain, key) = pair(&names, &rcgen::PKCS_ECDSA_P256_SHA256);
        secret(&chain, &key)
    }

    #[test]
    fn a_certificate_may_have_ten_thousand_names() {
        match read(&with_names(10_000)) {
            CertificateState::Valid { names, .. } => assert_eq!(names.len(), 10_000),
            other => panic!("{other:?}"),
        }
        let message = reason(&with_names(20_000));
        assert!(
            message.ends_with("in tls.crt; the limit is 64 KiB; use fewer names"),
            "{message}"
        );
    }

    /// Made by `openssl x509 -req`, without extensions.
    const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBKzCB0wIUYDXnbaMI/CLX/GmGkaMS3j9s2uYwCgYIKoZIzj0EAwIwGDEWMBQG
A1UEAwwNZy5leGFtcGxlLm9yZzAgFw0yNjExMjcyMjM4MTVaGA8yMTI2MTEwMzIy
MzgxNVowGDEWMBQGA1UEAwwNZy5leGFtcGxlLm9yZzBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABNs0BWL+PvWz2Io1TrBB9/gl0nFCebIVVoCm5wMXkmsUnRr7vvk3
69aXHK9VDEMe/qW0C3MveAlA2dltHA5u/sIwCgYIKoZIzj0EAwIDRwAwRAIgRYtJ
H5dMZc3px+pE4zmRkRirtE07duiB5OuKaE6/Zp0CIAzpcyLPBjs6hr2LiANoyKFy
nhPiIEnZCjEVrlTgrPJ6
-----END CERTIFICATE-----
";

    #[test]
    fn a_certificate_of_version_1_is_refused_with_a_reason() {
        let (_, key) = pair(&["a.example.com"], &rcgen::PKCS_ECDSA_P256_SHA256);
        assert_eq!(
            reason(&secret(VERSION_1, &key)),
            "has an unsupported certificate in tls.crt; use X.509 version 3 without unknown critical extensions"
        );
    }

    #[test]
    fn a_private_key_is_never_printed() {
        let (chain, key) = pair(&["a.example.com"], &rcgen::PKCS_ECDSA_P256_SHA256);
        let printed = format!("{:?}", read(&secret(&chain, &key)));
        assert!(printed.contains("hidden") && !printed.contains("PRIVATE"));
    }
}
