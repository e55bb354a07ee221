//! Rights against requests.
//!
//! In: what is granted, what was asked for. Out: what doesn't fit.

use std::collections::BTreeSet;
use std::fmt;

use super::audit::Request;
use super::{Place, Right};

/// Verbs that may stand unused where another right to the same resource, or to a part of it, is used: the verb, the other
/// one's verb and subresource, why.
const COMPANIONS: &[(&str, &str, &str, &str)] = &[
    (
        "list",
        "watch",
        "",
        "an API server that streams its lists is asked for a watch alone; others, and this one in need, for a list first",
    ),
    (
        "get",
        "patch",
        "/status",
        "after a conflict, which nobody can order, it is looked at what stands there",
    ),
];

/// What every account may ask about itself, by Kubernetes' own roles.
const OF_EVERYONE: &[&str] = &["authorization.k8s.io", "authentication.k8s.io"];

/// What doesn't fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Rights that nothing was done with.
    pub(super) unused: BTreeSet<Right>,
    /// Requests that were refused, by whatever right of ours they may be covered, if that was never honoured.
    pub(super) refused: BTreeSet<Request>,
    /// Requests that were allowed, though by no right of ours: whoever gave it won't be there elsewhere.
    pub(super) foreign: BTreeSet<Request>,
    /// How many rights there are.
    rights: usize,
}

impl Verdict {
    /// Whether what is granted is enough for what was done, though it may be more.
    pub(crate) fn suffices(&self) -> bool {
        self.refused.is_empty() && self.foreign.is_empty()
    }

    /// Whether everything fits.
    pub(crate) fn fits(&self) -> bool {
        self.unused.is_empty() && self.refused.is_empty() && self.foreign.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for right in &self.unused {
            writeln!(f, "granted, never used:      {right}")?;
        }
        for request in &self.refused {
            writeln!(f, "asked for, refused:       {request}")?;
        }
        for request in &self.foreign {
            writeln!(f, "used, granted by another: {request}")?;
        }
        let used = self.rights - self.unused.len();
        write!(f, "{used} of {} rights were used", self.rights)
    }
}

/// Compares them.
pub(super) fn of(granted: &BTreeSet<Right>, requests: &BTreeSet<Request>) -> Verdict {
    let allowed = || requests.iter().filter(|request| request.allowed);
    let used = |right: &Right| allowed().any(|request| covers(right, request));
    let excused = |right: &Right| {
        COMPANIONS.iter().any(|(verb, with, part, _)| {
            let other = Right {
                verb: (*with).to_owned(),
                resource: format!("{}{part}", right.resource),
                ..right.clone()
            };
            right.verb == *verb && granted.contains(&other) && used(&other)
        })
    };
    let unused = granted
        .iter()
        .filter(|right| !used(right) && !excused(right));
    // An API server that has just started refuses everything, until it has read who may do what.
    let honoured = |request: &Request| {
        let mut rights = granted.iter();
        rights.any(|right| covers(right, request) && used(right))
    };
    let refused = requests
        .iter()
        .filter(|request| !request.allowed && !honoured(request));
    let foreign = allowed().filter(|request| {
        !OF_EVERYONE.contains(&request.group.as_str())
            && !granted.iter().any(|right| covers(right, request))
    });
    Verdict {
        unused: unused.cloned().collect(),
        refused: refused.cloned().collect(),
        foreign: foreign.cloned().collect(),
        rights: granted.len(),
    }
}

/// Whether a right allows a request.
fn covers(right: &Right, request: &Request) -> bool {
    let here = match &right.place {
        Place::Everywhere => true,
        Place::Namespace(namespace) => request.namespace.as_ref() == Some(namespace),
    };
    here && right.group == request.group
        && right.resource == request.resource
        && right.verb == request.verb
        && (right.name.is_none() || right.name == request.name)
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.namespace {
            None => Place::Everywhere,
            Some(namespace) => Place::Namespace(namespace.clone()),
        };
        let Self {
            group,
            resource,
            verb,
            name,
            ..
        } = self.clone();
        Right {
            place,
            group,
            resource,
            verb,
            name,
        }
        .fmt(f)
    }
}
