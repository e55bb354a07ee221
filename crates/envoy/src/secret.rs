//! Certificates as SDS resources.
//!
//! In: [`Certificate`]. Out: `Secret`. It must not depend on listeners.

use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use sesame_model::{Certificate, CertificateKey};

use crate::names;

/// The secret for a certificate. Chain and key are inline, since Envoys share no files with Sesame.
pub fn secret(key: &CertificateKey, certificate: &Certificate) -> tls::Secret {
    tls::Secret {
        name: names::secret(key),
        r#type: Some(tls::secret::Type::TlsCertificate(tls::TlsCertificate {
            certificate_chain: Some(inline(&certificate.chain)),
            private_key: Some(inline(&certificate.private_key)),
            ..Default::default()
        })),
    }
}

fn inline(bytes: &[u8]) -> DataSource {
    DataSource {
        specifier: Some(Specifier::InlineBytes(bytes.to_vec())),
        ..Default::default()
    }
}
