//! Compares permissions with requests.
//!
//! In: permissions, requests. Out: differences.

use std::collections::BTreeSet;
use std::fmt;

use super::audit::Request;
use super::{Place, Right};

/// Verbs that may be unused if another permission for the same resource or a subresource is used: the verb, the other
/// permission's verb and subresource, the reason.
const COMPANIONS: &[(&str, &str, &str, &str)] = &[
    (
        "list",
        "watch",
        "",
        "if the API server supports streaming lists, Sesame uses only `watch`; otherwise, or as a fallback, `list`",
    ),
    (
        "get",
        "patch",
        "/status",
        "the object is read after a conflict, which tests cannot provoke",
    ),
];

/// A verb that the API server checks while it handles a request with another verb.
const CHECKED_WITHIN: &str = "bind";

/// API groups that Kubernetes' default roles allow every account to use.
const OF_EVERYONE: &[&str] = &["authorization.k8s.io", "authentication.k8s.io"];

/// The differences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Unused permissions.
    pub(super) unused: BTreeSet<Right>,
    /// Rejected requests, except those whose permission was used by other requests.
    pub(super) refused: BTreeSet<Request>,
    /// Requests allowed by permissions outside the manifests.
    pub(super) foreign: BTreeSet<Request>,
    /// The number of permissions.
    rights: usize,
}

impl Verdict {
    /// Whether the permissions suffice.
    pub(crate) fn suffices(&self) -> bool {
        self.refused.is_empty() && self.foreign.is_empty()
    }

    /// The number of used permissions, as text.
    pub(crate) fn usage(&self) -> String {
        let used = self.rights - self.unused.len();
        format!("{used} of {} permissions were used", self.rights)
    }

    /// Whether all permissions were used.
    pub(crate) fn is_used(&self) -> bool {
        self.unused.is_empty()
    }

    /// Whether the permissions match exactly.
    pub(crate) fn fits(&self) -> bool {
        self.is_used() && self.suffices()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for right in &self.unused {
            writeln!(f, "granted, unused:         {right}")?;
        }
        for request in &self.refused {
            writeln!(f, "requested, rejected:     {request}")?;
        }
        for request in &self.foreign {
            writeln!(f, "allowed by other roles:  {request}")?;
        }
        f.write_str(&self.usage())
    }
}

/// Compares permissions with requests.
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
        .filter(|right| right.verb != CHECKED_WITHIN && !used(right) && !excused(right));
    // A freshly started API server rejects all requests until it has read the roles.
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

/// Whether a permission covers a request.
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
