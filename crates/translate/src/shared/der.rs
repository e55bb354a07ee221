//! The encoding of certificates and CRLs: Envoy's TLS library accepts only what DER permits, but `x509_parser`, which reads
//! their contents, accepts more. An Envoy that can't load one certificate of a filter chain closes all of its connections.

use std::str;

use x509_cert::certificate::{CertificateInner, Raw, Version};
use x509_cert::crl::CertificateList;
use x509_cert::der::asn1::{Any, ObjectIdentifier};
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::name::Name;
use x509_cert::spki::AlgorithmIdentifierOwned;

/// Whether this is a certificate in DER.
pub(super) fn is_certificate(der: &[u8]) -> bool {
    CertificateInner::<Raw>::from_der(der).is_ok_and(|signed| {
        let certificate = signed.tbs_certificate();
        let algorithms = [
            signed.signature_algorithm(),
            certificate.signature(),
            &certificate.subject_public_key_info().algorithm,
        ];
        let extensions = certificate.extensions();
        (certificate.version() == Version::V3 || extensions.is_none())
            && extensions.is_none_or(|all| all.iter().all(|one| is_minimal(&one.extn_id)))
            && algorithms.into_iter().all(is_algorithm)
            && is_name(certificate.issuer())
            && is_name(certificate.subject())
    })
}

/// Whether this is a CRL in DER.
pub(super) fn is_revocation_list(der: &[u8]) -> bool {
    CertificateList::<Raw>::from_der(der).is_ok_and(|signed| {
        let list = &signed.tbs_cert_list;
        is_algorithm(&signed.signature_algorithm)
            && is_algorithm(&list.signature)
            && is_name(&list.issuer)
    })
}

/// Whether the parameters of an algorithm, if it has any, are of a usual type.
fn is_algorithm(algorithm: &AlgorithmIdentifierOwned) -> bool {
    let parameters = algorithm.parameters.as_ref();
    is_minimal(&algorithm.oid)
        && parameters.is_none_or(|parameters| match parameters.tag() {
            Tag::Null => parameters.value().is_empty(),
            Tag::ObjectIdentifier => {
                let oid = parameters.decode_as::<ObjectIdentifier>();
                oid.is_ok_and(|oid| is_minimal(&oid))
            }
            Tag::Sequence => true,
            _ => false,
        })
}

/// Whether each part of an OID has the shortest encoding (X.690, section 8.19.2).
fn is_minimal(oid: &ObjectIdentifier) -> bool {
    let mut parts = oid.as_bytes().split_inclusive(|byte| byte & 0x80 == 0);
    parts.all(|part| part.first() != Some(&0x80))
}

/// Whether the values in a name are strings.
fn is_name(name: &Name) -> bool {
    name.iter()
        .all(|attribute| is_minimal(&attribute.oid) && is_string(&attribute.value))
}

fn is_string(value: &Any) -> bool {
    match value.tag() {
        Tag::Utf8String => str::from_utf8(value.value()).is_ok(),
        Tag::BmpString => {
            let (units, rest) = value.value().as_chunks();
            let units = units.iter().map(|unit| u16::from_be_bytes(*unit));
            rest.is_empty() && char::decode_utf16(units).all(|found| found.is_ok())
        }
        Tag::PrintableString | Tag::Ia5String | Tag::TeletexString | Tag::NumericString => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    /// A certificate with the common name `name`.
    fn certificate() -> Vec<u8> {
        let mut parameters = CertificateParams::new(["a.test".to_owned()]).expect("parameters");
        parameters
            .distinguished_name
            .push(DnType::CommonName, "name");
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters.self_signed(&key).expect("a certificate");
        certificate.der().to_vec()
    }

    /// The certificate with other bytes in place of the first `from`.
    fn replaced(from: &[u8], to: &[u8]) -> Vec<u8> {
        let mut bytes = certificate();
        let mut windows = bytes.windows(from.len());
        let at = windows
            .position(|window| window == from)
            .expect("the bytes");
        bytes.splice(at..at + from.len(), to.iter().copied());
        bytes
    }

    #[test]
    fn only_der_is_a_certificate() {
        assert!(is_certificate(&certificate()));
        for (what, from, to) in [
            ("a primitive sequence", &[0x30][..], &[0x10][..]),
            ("text in a name that isn't UTF-8", b"name", b"nam\xff"),
            ("a number in a name", b"\x0c\x04name", b"\x02\x04name"),
            ("another tag for an OID", &[6, 3, 0x55], &[7, 3, 0x55]),
            ("a version without extensions", &[2, 1, 2], &[2, 1, 0]),
            ("an OID of which a part is too long", b"*\x86H", b"*\x80H"),
            ("a curve that isn't an OID", &[6, 8, 0x2a], &[1, 8, 0x2a]),
        ] {
            assert!(!is_certificate(&replaced(from, to)), "{what}");
        }
        let trailing = [&certificate()[..], &[0]].concat();
        assert!(!is_certificate(&trailing));
    }
}
