//! Secrets, and what stands in them.
//!
//! In: authorities, certificates, owners. Out: Secrets; and back again, from what anybody may have written.
//! Pure. It must not know an API server.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;

use super::FleetOwner;
use super::issue::Certified;
use super::plan::{Authorities, Authority};
use super::read::{self, Files, Flaw};
use crate::kube::names;

/// The Secret with the authorities and their keys, in Sesame's namespace.
pub const AUTHORITY: &str = "sesame-ca";
/// The Secret with the certificate that Sesame shows to Envoys, in Sesame's namespace.
pub const SERVER: &str = "sesame-xds";

/// On every Secret of a fleet: the namespace of the Sesame that keeps it.
pub const KEPT_BY: &str = "projectsesame.io/identity";
/// On every Secret of a fleet: the fleet's name.
pub(super) const FLEET: &str = "projectsesame.io/identity-of";

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const BUNDLE: &str = "ca.crt";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
/// Since when the authority signs.
const SINCE: &str = "projectsesame.io/signing-since";
/// Annotation on the Secret of the authorities: since when all bundles have the next one.
pub const EVERYWHERE: &str = "projectsesame.io/next-everywhere-since";

/// Kubernetes' type for a certificate and its key; `ca.crt` may stand beside them.
const TLS: &str = "kubernetes.io/tls";

/// Fills a Secret with the authorities; what is on it besides stays.
pub(super) fn write_authorities(secret: &mut Secret, authorities: &Authorities) {
    let mut data = BTreeMap::new();
    let mut put = |key: &str, text: &str| {
        data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
    };
    if let Some(signing) = &authorities.signing {
        put(CERTIFICATE, &signing.certified.certificate);
        put(KEY, &signing.certified.private_key);
    }
    if let Some(next) = &authorities.next {
        put(NEXT_CERTIFICATE, &next.certified.certificate);
        put(NEXT_KEY, &next.certified.private_key);
    }
    put(BUNDLE, &authorities.bundle());
    secret.data = Some(data);
    let annotations = secret.metadata.annotations.get_or_insert_default();
    for (key, at) in [
        (SINCE, authorities.since),
        (EVERYWHERE, authorities.everywhere),
    ] {
        match at {
            Some(at) => _ = annotations.insert(key.to_owned(), at.to_string()),
            None => _ = annotations.remove(key),
        }
    }
    own(&mut secret.metadata);
}

/// What stands in the Secret of the authorities.
///
/// # Errors
/// An authority that signs or will sign is of no use. That its bundle is not as it should be is not an error:
/// what is missing there is known from elsewhere in the same Secret, and what nobody can read vouches for
/// nobody.
pub(super) fn read_authorities(secret: &Secret) -> Result<Authorities, Flaw> {
    let pair =
        |certificate: &'static str, key: &str| match (text(secret, certificate), text(secret, key))
        {
            (None, None) => Ok(None),
            (Some(certificate), Some(private_key)) => Authority::new(Certified {
                certificate,
                private_key,
            })
            .map(Some),
            (None, Some(_)) => Err(Flaw::Certificate(certificate)),
            (Some(_), None) => Err(Flaw::Key),
        };
    let signing = pair(CERTIFICATE, KEY)?;
    let next = pair(NEXT_CERTIFICATE, NEXT_KEY)?;
    if signing.is_none() && next.is_none() {
        return Err(Flaw::Certificate(CERTIFICATE));
    }
    let mut retired = read::authorities(&text(secret, BUNDLE).unwrap_or_default());
    for authority in signing.iter().chain(&next) {
        retired.retain(|old| old.fingerprint != authority.trusted.fingerprint);
    }
    Ok(Authorities {
        since: moment(secret, SINCE),
        everywhere: next.as_ref().and_then(|_| moment(secret, EVERYWHERE)),
        signing,
        next,
        retired,
    })
}

/// The authorities of a bundle without a key: what is left when the Secret of the authorities is destroyed.
pub(super) fn recover(bundle: &str, now: Timestamp) -> Option<Authorities> {
    let retired = read::authorities(bundle);
    (!retired.is_empty()).then(|| Authorities {
        since: Some(now),
        retired,
        ..Authorities::default()
    })
}

/// Fills a Secret with a certificate, its key and the bundle; what is on it besides stays.
pub(super) fn write_files(secret: &mut Secret, files: &Files) {
    let data = [
        (CERTIFICATE, &files.certified.certificate),
        (KEY, &files.certified.private_key),
        (BUNDLE, &files.authorities),
    ];
    secret.data = Some(
        data.map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())))
            .into(),
    );
    // The type of a Secret can't be changed.
    secret.type_.get_or_insert_with(|| TLS.to_owned());
    own(&mut secret.metadata);
}

/// What stands in the Secret of a server or a fleet; missing parts are empty.
pub(super) fn read_files(secret: &Secret) -> Files {
    let part = |key| text(secret, key).unwrap_or_default();
    Files {
        certified: Certified {
            certificate: part(CERTIFICATE),
            private_key: part(KEY),
        },
        authorities: part(BUNDLE),
    }
}

/// Puts on a fleet's Secret what its owner wants there, and by what we know it again.
pub(super) fn write_owner(
    metadata: &mut ObjectMeta,
    kept_by: &str,
    fleet: &sesame_model::FleetId,
    owner: &FleetOwner,
) {
    let labels = metadata.labels.get_or_insert_default();
    labels.extend(owner.labels.clone());
    labels.insert(KEPT_BY.to_owned(), kept_by.to_owned());
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.extend(owner.annotations.clone());
    annotations.insert(FLEET.to_owned(), fleet.to_string());
    if let Some(reference) = &owner.owner_reference {
        let references = metadata.owner_references.get_or_insert_default();
        // Of an owner of the same name that is gone, the reference would have ours collected with it.
        references.retain(|other| (&other.kind, &other.name) != (&reference.kind, &reference.name));
        references.push(reference.clone());
    }
    own(metadata);
}

/// Whether everything that [`write_owner`] would put there is there.
pub(super) fn owned(
    metadata: &ObjectMeta,
    kept_by: &str,
    fleet: &sesame_model::FleetId,
    owner: &FleetOwner,
) -> bool {
    let mut should = metadata.clone();
    write_owner(&mut should, kept_by, fleet, owner);
    let sorted = |metadata: &ObjectMeta| {
        let mut references = metadata.owner_references.clone().unwrap_or_default();
        references.sort_by(|a, b| a.uid.cmp(&b.uid));
        references
    };
    should.labels == metadata.labels
        && should.annotations == metadata.annotations
        && sorted(&should) == sorted(metadata)
}

/// Whether a Secret in the place of a fleet's is the fleet's, even if somebody took some of its marks.
pub(super) fn is_ours(metadata: &ObjectMeta, kept_by: &str, fleet: &sesame_model::FleetId) -> bool {
    let has = |map: &Option<BTreeMap<String, String>>, key: &str, value: &str| {
        map.as_ref()
            .and_then(|map| map.get(key))
            .is_some_and(|is| is == value)
    };
    has(&metadata.labels, KEPT_BY, kept_by) || has(&metadata.annotations, FLEET, fleet.as_str())
}

/// The fleet whose Secret stands in a place (namespace, name), if it is one that Sesame has made for a Gateway: copies that
/// others have made are theirs.
pub(super) fn left_over(
    metadata: &ObjectMeta,
    (namespace, name): &(String, String),
) -> Option<sesame_model::FleetId> {
    let fleet = metadata.annotations.as_ref()?.get(FLEET)?;
    let (its, _) = fleet.split_once('/')?;
    let fleet = sesame_model::FleetId(fleet.as_str().into());
    (its == namespace && names::certificate_secret(&fleet) == *name).then_some(fleet)
}

fn own(metadata: &mut ObjectMeta) {
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(
        "app.kubernetes.io/managed-by".to_owned(),
        "sesame".to_owned(),
    );
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    // What is not text is PEM of nothing, which the reader finds out.
    Some(String::from_utf8_lossy(&bytes.0).into_owned())
}

fn moment(secret: &Secret, key: &str) -> Option<Timestamp> {
    secret.metadata.annotations.as_ref()?.get(key)?.parse().ok()
}
