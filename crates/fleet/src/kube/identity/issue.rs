//! Making keys and certificates.
//!
//! In: the time, and what a certificate is for. Out: PEM. It must not know where that is kept; it is pure but
//! for the machine's randomness, of which keys are made.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use sesame_model::FleetId;
use sha2::{Digest, Sha256};

/// How long things last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periods {
    /// Validity of an authority. The next one is made when a third of it is left.
    pub authority: Duration,
    /// Validity of every other certificate. The next one is made when a third of it is left, or somewhat
    /// earlier, so that those made together aren't all renewed together.
    pub leaf: Duration,
    /// How much earlier than now a certificate begins, for machines whose clocks are slow.
    pub backdate: Duration,
    /// How long everybody must have been given a new authority's certificate before it is used: the kubelet
    /// takes up to two minutes to bring it to an Envoy, a replica that has lost the API server longer to notice.
    pub settle: Duration,
}

const DAY: Duration = Duration::from_secs(86_400);

impl Default for Periods {
    /// Five years, thirty days, five minutes, one day.
    fn default() -> Self {
        Self {
            authority: DAY.saturating_mul(5 * 365),
            leaf: DAY.saturating_mul(30),
            backdate: Duration::from_secs(300),
            settle: DAY,
        }
    }
}

/// A certificate and its private key.
#[derive(Clone, PartialEq, Eq)]
pub struct Certified {
    /// PEM.
    pub certificate: String,
    /// PEM (PKCS #8).
    pub private_key: String,
}

/// Without the private key.
impl fmt::Debug for Certified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certified")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// What a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// For Sesame: these DNS names.
    Server(Vec<String>),
    /// For the Envoys of a fleet.
    Fleet(FleetId),
}

impl Subject {
    /// The names that the certificate bears besides its common one: DNS names or the fleet's URI.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Server(names) => names.clone(),
            Self::Fleet(fleet) => vec![fleet_uri(fleet)],
        }
    }
}

/// A certificate can't be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a certificate: {0}")]
pub struct IssueError(#[from] rcgen::Error);

/// The URI by which a certificate names its fleet: `spiffe://sesame/fleet/` and the fleet's name, in which all
/// but letters, digits, `-._~` and `/` is percent-encoded. The discovery server takes this spelling and no other.
pub fn fleet_uri(fleet: &FleetId) -> String {
    use fmt::Write as _;
    let mut uri = "spiffe://sesame/fleet/".to_owned();
    for byte in fleet.as_str().bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _: fmt::Result = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

/// A new authority, which vouches for itself.
///
/// # Errors
/// If the machine has no randomness.
pub fn authority(now: Timestamp, periods: &Periods) -> Result<Certified, IssueError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    // Two authorities of one name would be hard to tell apart for whoever looks for an issuer.
    let digest = Sha256::digest(key.subject_public_key_info());
    let mut name = "Sesame authority ".to_owned();
    for byte in digest.iter().take(4) {
        use fmt::Write as _;
        let _: fmt::Result = write!(name, "{byte:02x}");
    }
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let until = now.as_second().saturating_add(whole(periods.authority));
    valid(&mut params, now, periods, until);
    Ok(Certified {
        certificate: params.self_signed(&key)?.pem(),
        private_key: key.serialize_pem(),
    })
}

/// A new certificate that an authority, valid until `end`, vouches for. It never outlives its authority.
///
/// # Errors
/// If the authority's PEM isn't, or a name can't stand in a certificate, or the machine has no randomness.
pub fn leaf(
    now: Timestamp,
    periods: &Periods,
    subject: &Subject,
    authority: &Certified,
    end: Timestamp,
) -> Result<Certified, IssueError> {
    let issuer = Issuer::from_ca_cert_pem(
        &authority.certificate,
        KeyPair::from_pem(&authority.private_key)?,
    )?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    let (name, purpose) = match subject {
        Subject::Server(_) => (
            "Sesame discovery server",
            ExtendedKeyUsagePurpose::ServerAuth,
        ),
        Subject::Fleet(_) => ("Sesame fleet", ExtendedKeyUsagePurpose::ClientAuth),
    };
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = subject
        .names()
        .into_iter()
        .map(|name| {
            Ok(match subject {
                Subject::Server(_) => SanType::DnsName(name.try_into()?),
                Subject::Fleet(_) => SanType::URI(name.try_into()?),
            })
        })
        .collect::<Result<_, rcgen::Error>>()?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    let until = now.as_second().saturating_add(whole(periods.leaf));
    valid(&mut params, now, periods, until.min(end.as_second()));
    Ok(Certified {
        certificate: params.signed_by(&key, &issuer)?.pem(),
        private_key: key.serialize_pem(),
    })
}

/// The last second that we name, well within the years that a certificate can.
const LAST: i64 = 253_000_000_000;

/// Sets the validity: from so much before now, until a second since 1970.
fn valid(params: &mut CertificateParams, now: Timestamp, periods: &Periods, until: i64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |second: i64| {
        let second = u64::try_from(second.min(LAST)).unwrap_or_default();
        epoch + Duration::from_secs(second)
    };
    params.not_before = at(now.as_second().saturating_sub(whole(periods.backdate)));
    params.not_after = at(until);
}

/// Whole seconds.
fn whole(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
