//! Accepted differences between `api` and the CRDs, with reasons.

use std::collections::BTreeMap;

use super::schema::Crd;

/// A path suffix and the reason for the difference.
type List = &'static [(&'static str, &'static str)];

/// Kinds that `api` does not read.
pub(crate) const UNREAD_KINDS: List = &[("XMesh", "Sesame is not a mesh")];

/// Fields that `api` drops.
pub(crate) const UNREAD_FIELDS: List = &[];

/// Enumerations with unknown values.
pub(crate) const UNKNOWN_VALUES: List = &[(
    "cors.allowMethods[]",
    "`*` isn't a method; `Other(\"*\")` means all methods",
)];

/// Defaults that decoding does not apply.
pub(crate) const DEFAULTS: List = &[
    // The API server applies these before a controller sees the object, and nothing depends on them.
    (
        "Gateway.status",
        "the API server applies it: conditions are Unknown until a controller writes them",
    ),
    (
        "Gateway.status.conditions",
        "the API server applies it: conditions are Unknown until a controller writes them",
    ),
    (
        "GatewayClass.status",
        "the API server applies it: conditions are Unknown until a controller writes them",
    ),
    (
        "GatewayClass.status.conditions",
        "the API server applies it: conditions are Unknown until a controller writes them",
    ),
    (
        "ListenerSet.status",
        "the API server applies it: conditions are Unknown until a controller writes them",
    ),
    (
        "ListenerSet.status.conditions",
        "the API server applies it: conditions are Unknown until a controller writes them",
    ),
    (
        "XListenerSet.status",
        "the API server applies it: conditions are Unknown until a controller writes them",
    ),
    (
        "XListenerSet.status.conditions",
        "the API server applies it: conditions are Unknown until a controller writes them",
    ),
];

/// Fields where decoding is laxer than the schema.
pub(crate) const LAXER: List = &[
    (
        "addresses[].type",
        "translation reports unknown types in the status",
    ),
    (
        "listeners[].protocol",
        "translation reports unknown protocols in the status",
    ),
    (
        "add[].value",
        "the experimental channel allows less than the standard one",
    ),
    (
        "set[].value",
        "the experimental channel allows less than the standard one",
    ),
    (
        "headers[].value",
        "the experimental channel allows less than the standard one",
    ),
    (
        "subjectAltNames[].uri",
        "the schema requires // after the scheme, RFC 3986 does not",
    ),
    (
        "wellKnownCACertificates",
        "translation reports unknown names in the status",
    ),
];

/// Fields where decoding is stricter than the schema.
pub(crate) const STRICTER: List = &[
    (
        "GRPCRoute.spec.rules[].matches[].method.method",
        "CEL: a protocol name",
    ),
    (
        "GRPCRoute.spec.rules[].matches[].method.service",
        "CEL: a protocol name",
    ),
    (
        "Gateway.spec.addresses[].routability",
        "CEL: Cluster, or a domain with a path",
    ),
    (
        "HTTPRoute.spec.rules[].matches[].path.value",
        "CEL: a normalized path",
    ),
    (
        "TCPRoute.spec.rules",
        "v1alpha2 allows 16 rules, v1 allows one",
    ),
    (
        "TLSRoute.spec.rules",
        "v1alpha2 allows 16 rules, v1 allows one",
    ),
    (
        "UDPRoute.spec.rules",
        "v1alpha2 allows 16 rules, v1 allows one",
    ),
    ("TLSRoute.spec.hostnames[]", "CEL: not an IP address"),
    (
        "XListenerSet.spec.listeners",
        "CEL: unique by port, protocol and hostname, also with the default port",
    ),
    (
        "retryConstraint.budget.interval",
        "CEL: one second to one hour",
    ),
    (
        "retryConstraint.minRetryRate.interval",
        "CEL: at most one hour",
    ),
];

/// Number of differences to print per place.
const SHOWN: usize = 8;

/// The differences found, to be compared with a list.
pub(crate) struct Exceptions {
    list: List,
    used: Vec<bool>,
    /// By path: channel, version and difference.
    unlisted: BTreeMap<String, Vec<String>>,
}

impl Exceptions {
    pub(crate) fn new(list: List) -> Self {
        Exceptions {
            list,
            used: vec![false; list.len()],
            unlisted: BTreeMap::new(),
        }
    }

    /// Records a difference at a path in a CRD.
    pub(crate) fn record(&mut self, crd: &Crd, path: &str, how: &str) {
        let listed = self.list.iter().position(|(end, _)| {
            path.strip_suffix(end)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.') || end.starts_with('['))
        });
        match listed {
            Some(index) => self.used[index] = true,
            None => {
                let how = format!("{} {}: {how}", crd.channel, crd.api_version);
                self.unlisted.entry(path.to_owned()).or_default().push(how);
            }
        }
    }

    /// Fails on unlisted differences and unused entries.
    pub(crate) fn check(self) {
        let unlisted: Vec<String> = self
            .unlisted
            .iter()
            .map(|(path, how)| {
                let shown = how[..how.len().min(SHOWN)].join("\n    ");
                format!("{path}: {} times\n    {shown}", how.len())
            })
            .collect();
        let unused: Vec<&str> = self
            .list
            .iter()
            .zip(&self.used)
            .filter(|(_, used)| !**used)
            .map(|((end, _), _)| *end)
            .collect();
        assert!(
            unlisted.is_empty(),
            "{} places differ:\n{}",
            unlisted.len(),
            unlisted.join("\n")
        );
        assert!(unused.is_empty(), "unused exceptions: {unused:?}");
    }
}
