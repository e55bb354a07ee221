//! What to do next, so that at no moment anybody who behaves is refused.
//!
//! In: the time, the authorities, what is kept for servers and fleets. Out: one next step, or what somebody
//! needs. Pure. It must not know where anything is kept.
//!
//! An authority is followed by another in steps, each taken only when the one before has reached everybody:
//!
//! 1. *Introduce*: a third of the life of the one that signs is left. The next one is made; all bundles get its
//!    certificate, nothing is signed by it.
//! 2. *Everywhere*: all bundles have it. From now on a time is waited ([`Periods::settle`]) in which that
//!    reaches processes; if a bundle turns out to lack it, the time begins anew.
//! 3. *Promote*: from now on the new one signs, and everybody is given a certificate of it. The old one stays in
//!    all bundles.
//!    If the old one has but a sixth of its life left, nobody is waited for any more: one fleet whose Secret can't be
//!    written must not have everybody's certificates end.
//! 4. *Retire*: the last certificate that the old one signed has expired. It leaves the bundles.
//!
//! A lost key (the Secret was destroyed and nobody remembers it) begins at 1 with the old authority's
//! certificate, if some bundle still has it: fleets that come meanwhile get certificates of the new one, which
//! servers trust at once; the server keeps its old certificate until Envoys trust the new authority.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use super::issue::{self, Certified, IssueError, Periods, Subject};
use super::read::{self, Files, Fingerprint, Flaw, Leaf, Trusted};

/// An authority with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Its certificate and key.
    pub certified: Certified,
    /// What the certificate says.
    pub trusted: Trusted,
}

impl Authority {
    /// Looks at it first.
    ///
    /// # Errors
    /// It is of no use.
    pub fn new(certified: Certified) -> Result<Self, Flaw> {
        let trusted = read::authority(&certified)?;
        Ok(Self { certified, trusted })
    }
}

/// Everybody who vouches, vouched or will vouch for certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorities {
    /// The one that signs; `None` only after its key was lost.
    pub signing: Option<Authority>,
    /// Since when it does. Not known if somebody has tampered with it.
    pub since: Option<Timestamp>,
    /// The one that will sign.
    pub next: Option<Authority>,
    /// Since when all bundles have the next one.
    pub everywhere: Option<Timestamp>,
    /// Those that signed, and whose certificates may still be in use.
    pub retired: Vec<Trusted>,
}

impl Authorities {
    /// All that are to be trusted: the one that signs, the next one, the others.
    pub fn trusted(&self) -> impl Iterator<Item = &Trusted> {
        let with_keys = self.signing.iter().chain(&self.next);
        with_keys
            .map(|authority| &authority.trusted)
            .chain(&self.retired)
    }

    /// The same as PEM.
    pub fn bundle(&self) -> String {
        self.trusted().map(|trusted| trusted.pem.as_str()).collect()
    }

    /// The same by fingerprint.
    pub fn fingerprints(&self) -> BTreeSet<Fingerprint> {
        self.trusted().map(|trusted| trusted.fingerprint).collect()
    }

    /// Whom new certificates are of. Only when there is no other, the next one.
    pub fn signer(&self) -> Option<&Authority> {
        self.signing.as_ref().or(self.next.as_ref())
    }
}

/// A step that changes the authorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The first authority is made.
    Found,
    /// The next authority is made.
    Introduce,
    /// It isn't known since when the one that signs does: from now on, then.
    Date,
    /// All bundles have the next one: that is noted.
    Everywhere,
    /// Not all have it after all.
    NotEverywhere,
    /// The next one signs from now on.
    Promote,
    /// Those that don't sign any more are forgotten.
    Retire,
}

/// The next step, if it is time for one. `None` for authorities: there are none and never were. `complete`: all
/// bundles are known to be as [`Authorities::bundle`] has it.
pub fn step(
    now: Timestamp,
    periods: &Periods,
    authorities: Option<&Authorities>,
    complete: bool,
) -> Option<Step> {
    let Some(state) = authorities else {
        return Some(Step::Found);
    };
    if state.since.is_none() {
        return Some(Step::Date);
    }
    match (&state.signing, &state.next, state.everywhere) {
        (None, None, _) => return Some(Step::Introduce),
        (Some(signing), None, _) if now >= introduction(&signing.trusted) => {
            return Some(Step::Introduce);
        }
        (signing, Some(next), _) if now >= deadline(signing.as_ref().unwrap_or(next)) => {
            return Some(Step::Promote);
        }
        (_, Some(_), Some(_)) if !complete => return Some(Step::NotEverywhere),
        (_, Some(_), None) if complete => return Some(Step::Everywhere),
        (_, Some(_), Some(since)) if now >= after(since, periods.settle) => {
            return Some(Step::Promote);
        }
        _ => {}
    }
    let forget = state.since.map(|since| retirement(since, periods));
    let over = !state.retired.is_empty() && forget.is_some_and(|at| now >= at);
    (over && state.signing.is_some()).then_some(Step::Retire)
}

/// When [`step`] may give something although nothing has changed but the time.
pub fn next_look(periods: &Periods, state: &Authorities) -> Option<Timestamp> {
    let introduced = match (&state.signing, &state.next) {
        (Some(signing), None) => Some(introduction(&signing.trusted)),
        _ => None,
    };
    let promoted = state.everywhere.map(|since| after(since, periods.settle));
    let hurried = state.next.as_ref();
    let hurried = hurried.map(|next| deadline(state.signing.as_ref().unwrap_or(next)));
    let retired = match state.since {
        Some(since) if !state.retired.is_empty() => Some(retirement(since, periods)),
        _ => None,
    };
    [introduced, promoted, hurried, retired]
        .into_iter()
        .flatten()
        .min()
}

/// What the authorities are after a step.
///
/// # Errors
/// A new authority can't be made.
pub fn take(
    step: Step,
    now: Timestamp,
    periods: &Periods,
    state: Option<&Authorities>,
) -> Result<Authorities, StepError> {
    let make =
        || -> Result<Authority, StepError> { Ok(Authority::new(issue::authority(now, periods)?)?) };
    let mut out = state.cloned().unwrap_or_default();
    match step {
        Step::Found => {
            out.signing = Some(make()?);
            out.since = Some(now);
        }
        Step::Introduce => {
            out.next = Some(make()?);
            out.everywhere = None;
        }
        Step::Date => out.since = Some(now),
        Step::Everywhere => out.everywhere = Some(now),
        Step::NotEverywhere => out.everywhere = None,
        Step::Promote => {
            let old = std::mem::replace(&mut out.signing, out.next.take());
            out.retired.extend(old.map(|old| old.trusted));
            out.since = Some(now);
            out.everywhere = None;
        }
        Step::Retire => out.retired.clear(),
    }
    Ok(out)
}

/// A step can't be taken.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// No certificate could be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// One was made and is not as it should be.
    #[error("a new authority is of no use: {0}")]
    Flaw(#[from] Flaw),
}

/// What somebody needs who has a certificate, or should have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing before that moment.
    Nothing(Timestamp),
    /// The same certificate, and the bundle of now.
    Bundle,
    /// A new certificate, and the bundle of now.
    Certificate,
}

/// What somebody needs, of whom this is kept.
pub fn need(
    now: Timestamp,
    authorities: &Authorities,
    subject: &Subject,
    kept: Option<&Leaf>,
) -> Need {
    let Some(leaf) = kept else {
        return Need::Certificate;
    };
    let trusted = authorities.fingerprints();
    let signing = authorities.signing.as_ref();
    let superseded = signing.is_some_and(|signing| signing.trusted.fingerprint != leaf.issuer);
    let until = renewal(leaf, subject);
    if superseded || !trusted.contains(&leaf.issuer) || now >= until || now < leaf.begin {
        Need::Certificate
    } else if leaf.trusts != trusted {
        Need::Bundle
    } else {
        Need::Nothing(until)
    }
}

/// A new certificate for somebody, with the bundle of now; `None` if there is no authority to sign it.
///
/// # Errors
/// It can't be made.
pub fn issue(
    now: Timestamp,
    periods: &Periods,
    authorities: &Authorities,
    subject: &Subject,
) -> Result<Option<Files>, IssueError> {
    let Some(signer) = authorities.signer() else {
        return Ok(None);
    };
    let end = signer.trusted.end;
    Ok(Some(Files {
        certified: issue::leaf(now, periods, subject, &signer.certified, end)?,
        authorities: authorities.bundle(),
    }))
}

/// What a Secret should hold instead of what it holds; `None`: it is as it should be, or nobody can sign.
///
/// # Errors
/// A certificate can't be made.
pub fn due(
    now: Timestamp,
    periods: &Periods,
    authorities: &Authorities,
    subject: &Subject,
    files: Option<Files>,
) -> Result<Option<Files>, IssueError> {
    let kept = files
        .as_ref()
        .and_then(|files| read::leaf(files, subject).ok());
    match (need(now, authorities, subject, kept.as_ref()), files) {
        (Need::Nothing(_), _) => Ok(None),
        (Need::Bundle, Some(files)) => Ok(Some(Files {
            authorities: authorities.bundle(),
            ..files
        })),
        _ => issue(now, periods, authorities, subject),
    }
}

/// When a certificate is renewed: when a third of its life is left, or up to a tenth of its life earlier,
/// which its owner's name decides, so that those made together don't all come together again.
pub fn renewal(leaf: &Leaf, subject: &Subject) -> Timestamp {
    let life = leaf.end.duration_since(leaf.begin).as_secs().max(0);
    let digest = Sha256::digest(subject.names().join(" "));
    let share = i64::from(u16::from_be_bytes([digest[0], digest[1]]));
    let early = life / 3 + (life / 10) * share / i64::from(u16::MAX);
    moved(leaf.end, -early)
}

/// When the authority that follows this one is made.
fn introduction(authority: &Trusted) -> Timestamp {
    moved(authority.end, -(life(authority) / 3))
}

/// When the one that follows signs, whoever hasn't heard of it.
fn deadline(authority: &Authority) -> Timestamp {
    moved(authority.trusted.end, -(life(&authority.trusted) / 6))
}

/// In seconds.
fn life(authority: &Trusted) -> i64 {
    let life = authority.end.duration_since(authority.begin);
    life.as_secs().max(0)
}

/// When the last certificate has expired that was signed before `since`, by every clock.
fn retirement(since: Timestamp, periods: &Periods) -> Timestamp {
    after(after(since, periods.leaf), periods.settle)
}

fn after(at: Timestamp, duration: Duration) -> Timestamp {
    moved(at, i64::try_from(duration.as_secs()).unwrap_or(i64::MAX))
}

fn moved(at: Timestamp, seconds: i64) -> Timestamp {
    at.saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(at)
}
