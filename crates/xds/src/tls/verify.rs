//! Verification of client certificates: issued by a known CA, currently valid, and naming exactly one fleet.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::resource::FleetId;

/// A client certificate doesn't name exactly one fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the certificate must have exactly one URI SAN, starting with spiffe://sesame/fleet/")]
pub(super) struct NoFleet;

/// The claim in a client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) fleet: FleetId,
    pub(super) expires: SystemTime,
}

/// The claim in a certificate. It must name exactly one fleet: with two, the certificate's owner could choose.
pub(super) fn claim(certificate: &CertificateDer<'_>) -> Result<Claim, NoFleet> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| NoFleet)?;
    let names = parsed.subject_alternative_name().map_err(|_| NoFleet)?;
    let names = names.map(|names| names.value.general_names.as_slice());
    let mut uris = names
        .unwrap_or_default()
        .iter()
        .filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        });
    let (Some(uri), None) = (uris.next(), uris.next()) else {
        return Err(NoFleet);
    };
    let id = sesame_model::FleetId::from_uri(uri).ok_or(NoFleet)?;
    Ok(Claim {
        fleet: FleetId::new(id.to_string()),
        expires: not_after(&parsed).ok_or(NoFleet)?,
    })
}

/// When a certificate expires; `None` if it is invalid.
pub(super) fn expiry(certificate: &CertificateDer<'static>) -> Option<SystemTime> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    not_after(&parsed)
}

fn not_after(certificate: &X509Certificate<'_>) -> Option<SystemTime> {
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Wraps another verifier and also requires a fleet, so that a client without one gets a TLS alert.
#[derive(Debug)]
pub(super) struct FleetVerifier(Arc<dyn ClientCertVerifier>);

impl FleetVerifier {
    pub(super) fn new(inner: Arc<dyn ClientCertVerifier>) -> FleetVerifier {
        FleetVerifier(inner)
    }
}

impl ClientCertVerifier for FleetVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.0.verify_client_cert(end_entity, intermediates, now)?;
        claim(end_entity).map_err(|error| CertificateError::Other(OtherError(Arc::new(error))))?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(claim(&CertificateDer::from(bytes)).is_err());
        }
    }
}
