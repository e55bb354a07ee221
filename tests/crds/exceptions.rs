//! Where `api` differs from the CRDs, and why.

use std::collections::BTreeMap;

use super::schema::Crd;

/// The end of a place's path, and why it differs.
type List = &'static [(&'static str, &'static str)];

/// Kinds that are not read.
pub(crate) const UNREAD_KINDS: List = &[
    ("XBackend", "Services are the only backends"),
    ("XBackendTrafficPolicy", "not supported"),
    ("XMesh", "Sesame is no mesh"),
    ("XTelemetryPolicy", "not supported"),
];

/// Fields that are not kept.
pub(crate) const UNREAD_FIELDS: List = &[];

/// Enumerations with values that are not known.
pub(crate) const UNKNOWN_VALUES: List = &[(
    "cors.allowMethods[]",
    "* is no method: `Other(\"*\")` stands for all",
)];

/// Defaults that are not filled in.
pub(crate) const DEFAULTS: List = &[
    // An API server fills it in before any controller has seen the object; nothing is decided by it.
    ("Gateway.status", "says that nobody has said anything"),
    (
        "Gateway.status.conditions",
        "says that nobody has said anything",
    ),
    ("GatewayClass.status", "says that nobody has said anything"),
    (
        "GatewayClass.status.conditions",
        "says that nobody has said anything",
    ),
    ("ListenerSet.status", "says that nobody has said anything"),
    (
        "ListenerSet.status.conditions",
        "says that nobody has said anything",
    ),
];

/// Places where more is let through than the schema allows.
pub(crate) const LAXER: List = &[
    (
        "addresses[].type",
        "a Gateway is told that the type is unknown",
    ),
    (
        "listeners[].protocol",
        "a listener is told that the protocol is unknown",
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
        "the schema asks for // behind the scheme, RFC 3986 doesn't",
    ),
    (
        "wellKnownCACertificates",
        "a policy is told that the name is unknown",
    ),
];

/// Places where less is let through than the schema allows.
pub(crate) const STRICTER: List = &[
    (
        "GRPCRoute.spec.rules[].matches[].method.method",
        "CEL: a name of the protocol",
    ),
    (
        "GRPCRoute.spec.rules[].matches[].method.service",
        "CEL: a name of the protocol",
    ),
    (
        "Gateway.spec.addresses[].routability",
        "CEL: Cluster, or a domain with a path",
    ),
    (
        "HTTPRoute.spec.rules[].matches[].path.value",
        "CEL: a path that is normal",
    ),
    ("TCPRoute.spec.rules", "v1alpha2 allows 16, v1 one"),
    ("TLSRoute.spec.rules", "v1alpha2 allows 16, v1 one"),
    ("UDPRoute.spec.rules", "v1alpha2 allows 16, v1 one"),
    ("TLSRoute.spec.hostnames[]", "CEL: no address"),
];

/// How many differences of one place a failure shows.
const SHOWN: usize = 8;

/// Differences met, held against a list.
pub(crate) struct Exceptions {
    list: List,
    used: Vec<bool>,
    /// By path: the channels' versions and what differs.
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

    /// Something differs at that path of that CRD.
    pub(crate) fn meet(&mut self, crd: &Crd, path: &str, how: &str) {
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

    /// Fails if something differed that is not listed, or nothing by an entry.
    pub(crate) fn settle(self) {
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
        assert!(unused.is_empty(), "nothing differs any more at {unused:?}");
    }
}
