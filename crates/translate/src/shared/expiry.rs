//! Certificates that expire soon, have expired, or aren't valid yet. They are served nevertheless: the client decides.
//!
//! In: the states of certificates, and the date. Out: a message about each such certificate. A new date reruns one stage for
//! each certificate.

use sesame_engine::{Builder, Table};
use sesame_model::CertificateKey;
use x509_parser::time::ASN1Time;

use crate::inputs::Inputs;
use crate::shared::certificates::CertificateState;

/// How far ahead of a certificate's expiry the message appears, in seconds.
const NOTICE: i64 = 14 * DAY;
const DAY: i64 = 24 * 60 * 60;

/// When a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from: i64,
    /// The last second.
    pub until: i64,
}

impl Validity {
    /// What is wrong on a day, given in days since 1970, as a clause to follow "Secret ns/name".
    fn problem(self, today: i64) -> Option<String> {
        let (start, end) = (today * DAY, (today + 1) * DAY);
        if self.until < start {
            Some(format!("expired on {}; renew it", date(self.until)))
        } else if self.until < end + NOTICE {
            Some(format!("expires on {}; renew it", date(self.until)))
        } else if self.from >= end {
            Some(format!("is not valid before {}", date(self.from)))
        } else {
            None
        }
    }
}

/// `2026-12-31`.
fn date(seconds: i64) -> String {
    let date = ASN1Time::from_timestamp(seconds).map(|time| time.to_datetime().date());
    date.map_or_else(|_| seconds.to_string(), |date| date.to_string())
}

/// Declares the messages about certificates, each a sentence. Without a date, there are none.
pub(crate) fn stage(
    b: &mut Builder,
    inputs: &Inputs,
    states: Table<CertificateKey, CertificateState>,
) -> Table<CertificateKey, String> {
    let today = inputs.today;
    b.derive("expiring certificates", states, move |reader, key| {
        let state = reader.get(states, key)?;
        let CertificateState::Valid { validity, .. } = *state else {
            return None;
        };
        let problem = validity.problem(*reader.get(today, &())?)?;
        Some(format!("Secret {key} {problem}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_appear_two_weeks_ahead() {
        let validity = Validity {
            from: 100 * DAY + 10,
            until: 200 * DAY + 10,
        };
        let on = |day| validity.problem(day);
        assert_eq!(on(99).as_deref(), Some("is not valid before 1970-04-11"));
        assert_eq!(on(100), None);
        assert_eq!(on(185), None);
        assert_eq!(on(186).as_deref(), Some("expires on 1970-07-20; renew it"));
        assert_eq!(on(200).as_deref(), Some("expires on 1970-07-20; renew it"));
        assert_eq!(on(201).as_deref(), Some("expired on 1970-07-20; renew it"));
    }
}
