//! What a client's certificate has to be like: of an authority of ours, valid now, and naming one fleet.
//!
//! In: a certificate. Out: the fleet and the time until which it may be believed, or why not. It must not
//! know sockets.

use std::fmt::Write as _;
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

/// How the URI begins by which a certificate names its fleet.
const FLEET: &str = "spiffe://sesame/fleet/";

/// The URI by which a certificate names a fleet: `spiffe://sesame/fleet/` and the fleet's name, in which all
/// but letters, digits, `-._~` and `/` is percent-encoded (RFC 3986, section 2.1), with capital hex digits.
pub fn fleet_uri(fleet: &FleetId) -> String {
    let mut uri = FLEET.to_owned();
    for byte in fleet.as_str().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(char::from(byte));
            }
            _ => {
                let _: std::fmt::Result = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri
}

/// The fleet that a URI names, if it is exactly the one that [`fleet_uri`] gives.
fn fleet_of(uri: &str) -> Option<FleetId> {
    let mut rest = uri.strip_prefix(FLEET)?.bytes();
    let mut name = Vec::new();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            name.push(byte);
            continue;
        }
        let mut digit = || Some(char::from(rest.next()?).to_digit(16)? as u8);
        name.push(digit()? << 4 | digit()?);
    }
    let fleet = FleetId::new(String::from_utf8(name).ok()?);
    // One name, one URI: else two spellings would pass for two fleets, or one for another.
    (!fleet.as_str().is_empty() && fleet_uri(&fleet) == uri).then_some(fleet)
}

/// Why a certificate that its authority vouches for is of no use here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the certificate does not name exactly one fleet by a URI that begins with {FLEET}")]
pub(super) struct NoFleet;

/// What a client's certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) fleet: FleetId,
    pub(super) expires: SystemTime,
}

/// The one fleet that a certificate names. A certificate of two would be of whichever its owner likes.
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
    Ok(Claim {
        fleet: fleet_of(uri).ok_or(NoFleet)?,
        expires: not_after(&parsed).ok_or(NoFleet)?,
    })
}

/// When a certificate ends to be valid, if it is one.
pub(super) fn expiry(certificate: &CertificateDer<'static>) -> Option<SystemTime> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    not_after(&parsed)
}

fn not_after(certificate: &X509Certificate<'_>) -> Option<SystemTime> {
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Asks another verifier first, then for the fleet: so that a client without one is told during the
/// handshake.
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

    #[test]
    fn a_fleet_has_one_uri() {
        let uri = fleet_uri(&FleetId::new("ns/gate-way.1"));
        assert_eq!(uri, "spiffe://sesame/fleet/ns/gate-way.1");
        assert_eq!(
            fleet_uri(&FleetId::new("a b%/ü")),
            "spiffe://sesame/fleet/a%20b%25/%C3%BC"
        );
        for other in [
            "",
            "spiffe://sesame/fleet/",
            "spiffe://sesame/fleet",
            "spiffe://other/fleet/ns/gw",
            "spiffe://sesame/fleet/ns%2Fgw",
            "spiffe://sesame/fleet/ns/%67w",
            "spiffe://sesame/fleet/%c3%bc",
            "spiffe://sesame/fleet/%FF",
            "spiffe://sesame/fleet/%2",
            "spiffe://sesame/fleet/%",
            "spiffe://sesame/fleet/a b",
            "SPIFFE://sesame/fleet/ns/gw",
        ] {
            assert_eq!(fleet_of(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name in ".{1,40}") {
            let fleet = FleetId::new(name);
            prop_assert_eq!(fleet_of(&fleet_uri(&fleet)), Some(fleet));
        }

        #[test]
        fn any_bytes_are_a_certificate_or_not_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(claim(&CertificateDer::from(bytes)).is_err());
        }
    }
}
