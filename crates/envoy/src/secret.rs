//! Certificates and trust bundles as SDS resources.
//!
//! In: [`Certificate`], [`TrustBundle`]. Out: `Secret`. It must not depend on listeners or clusters.

use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use sesame_model::{Certificate, CertificateKey, TrustBundle, TrustBundleKey};

use crate::{names, wire};

/// The secret for a certificate. Chain and key are inline, since Envoys and Sesame don't share files.
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

/// The secret for a trust bundle. Other requirements for certificates are in the cluster or listener.
pub fn trust_bundle(key: &TrustBundleKey, bundle: &TrustBundle) -> tls::Secret {
    tls::Secret {
        name: names::trust_bundle(key),
        r#type: Some(tls::secret::Type::ValidationContext(
            tls::CertificateValidationContext {
                trusted_ca: Some(inline(&bundle.certificates)),
                crl: bundle.revoked.as_deref().map(inline),
                ..Default::default()
            },
        )),
    }
}

/// A reference to a secret, which Envoy subscribes to.
pub(crate) fn reference(name: String) -> tls::SdsSecretConfig {
    tls::SdsSecretConfig {
        name,
        sds_config: Some(wire::ads()),
    }
}

fn inline(bytes: &[u8]) -> DataSource {
    DataSource {
        specifier: Some(Specifier::InlineBytes(bytes.to_vec())),
        ..Default::default()
    }
}
