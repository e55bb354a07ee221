//! Objects that share hosts, and the expected answers to requests.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde_json::{Value, json};

/// The Secret that holds the certificate of every valid object.
pub(super) const SECRET: &str = "certificate";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    // In order of precedence.
    HttpRoute,
    HttpProxy,
    Ingress,
}

/// An object with one host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Object {
    pub(super) kind: Kind,
    /// Part of the object's name. Objects lack creation times, so names determine precedence within a kind.
    pub(super) number: usize,
    pub(super) host: &'static str,
    /// For HTTPProxies and Ingresses.
    pub(super) tls: Tls,
    /// For Ingresses.
    pub(super) plain: Plain,
    pub(super) rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tls {
    None,
    Valid,
    /// The certificate doesn't exist.
    Broken,
    /// An HTTPProxy forwards connections to the backend of its first rule.
    Forwarded,
}

/// How an Ingress handles requests without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Plain {
    Served,
    Redirected,
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule {
    pub(super) path: &'static str,
    pub(super) exact: bool,
    /// Whether an HTTPProxy with TLS serves it without TLS.
    pub(super) permit_insecure: bool,
    pub(super) backend: usize,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Backend(usize),
    /// 301 to the same URL with TLS.
    Redirect,
    /// 404.
    Nothing,
    /// The connection is closed.
    Closed,
}

impl Rule {
    fn matches(&self, kind: Kind, path: &str) -> bool {
        if self.exact {
            return path == self.path;
        }
        match (kind, path.strip_prefix(self.path)) {
            (_, None) => false,
            // A text prefix, not whole segments.
            (Kind::HttpProxy, Some(_)) => true,
            (_, Some(rest)) => self.path == "/" || rest.is_empty() || rest.starts_with('/'),
        }
    }

    /// Its precedence among the rules for a host: the smallest comes first.
    fn rank(&self) -> (bool, Reverse<usize>) {
        (!self.exact, Reverse(self.path.len()))
    }
}

/// The expected answer to a request.
pub(super) fn answer(objects: &BTreeSet<Object>, tls: bool, host: &str, path: &str) -> Answer {
    match tls {
        true => with_tls(objects, host, path),
        false => without_tls(objects, host, path),
    }
}

fn without_tls(objects: &BTreeSet<Object>, host: &str, path: &str) -> Answer {
    // The wildcard's HTTPProxy doesn't serve a host with its own HTTPProxy.
    let own = owner(objects, host).is_some();
    let candidates = objects.iter().filter(|object| match object.kind {
        Kind::HttpRoute => true,
        Kind::HttpProxy => object.owns(objects) && (!own || object.host == host),
        Kind::Ingress => object.plain != Plain::Refused,
    });
    match first(candidates, host, path) {
        None => Answer::Nothing,
        Some((object, rule)) => {
            let redirects = match object.kind {
                Kind::HttpRoute => false,
                Kind::HttpProxy => object.tls != Tls::None && !rule.permit_insecure,
                Kind::Ingress => object.plain == Plain::Redirected,
            };
            match redirects {
                true => Answer::Redirect,
                false => Answer::Backend(rule.backend),
            }
        }
    }
}

fn with_tls(objects: &BTreeSet<Object>, host: &str, path: &str) -> Answer {
    // The host, and then the wildcard host around it.
    let wider = host.ends_with(".example.com").then_some("*.example.com");
    let mut domains = [Some(host), wider].into_iter().flatten();
    let Some((domain, tls)) = domains.find_map(|domain| match listener(objects, domain) {
        Tls::None => None,
        tls => Some((domain, tls)),
    }) else {
        return Answer::Closed;
    };
    match (tls, owner(objects, domain)) {
        (Tls::Broken, _) => return Answer::Closed,
        (Tls::Forwarded, Some(proxy)) => return Answer::Backend(proxy.rules[0].backend),
        _ => {}
    }
    let of_ingresses = has_certificate(objects, domain);
    let candidates = objects.iter().filter(|object| {
        object.host == domain
            && match object.kind {
                Kind::HttpRoute => false,
                Kind::HttpProxy => object.owns(objects) && object.tls == Tls::Valid,
                Kind::Ingress => of_ingresses,
            }
    });
    let found = first(candidates, host, path);
    found.map_or(Answer::Nothing, |(_, rule)| Answer::Backend(rule.backend))
}

/// How TLS connections for exactly this host, or this wildcard, are served.
fn listener(objects: &BTreeSet<Object>, domain: &str) -> Tls {
    match owner(objects, domain).map_or(Tls::None, |proxy| proxy.tls) {
        Tls::None if has_certificate(objects, domain) => Tls::Valid,
        tls => tls,
    }
}

/// Whether an Ingress has a certificate for a host.
fn has_certificate(objects: &BTreeSet<Object>, domain: &str) -> bool {
    objects.iter().any(|object| {
        object.kind == Kind::Ingress && object.host == domain && object.tls == Tls::Valid
    })
}

/// The HTTPProxy that owns a host: the first for it.
fn owner<'a>(objects: &'a BTreeSet<Object>, domain: &str) -> Option<&'a Object> {
    let proxies = objects
        .iter()
        .filter(|object| object.kind == Kind::HttpProxy);
    let of_host = proxies.filter(|object| object.host == domain);
    of_host.min_by_key(|object| object.number)
}

/// The rule with the highest precedence that matches.
fn first<'a>(
    objects: impl Iterator<Item = &'a Object>,
    host: &str,
    path: &str,
) -> Option<(&'a Object, &'a Rule)> {
    let rules = objects
        .filter(|object| object.serves(host))
        .flat_map(|object| {
            let rules = object.rules.iter().enumerate();
            rules.map(move |(at, rule)| {
                let wildcard = object.host.starts_with('*');
                let key = (wildcard, rule.rank(), object.kind, object.number, at);
                (key, object, rule)
            })
        });
    let matching = rules.filter(|(_, object, rule)| rule.matches(object.kind, path));
    let first = matching.min_by_key(|(key, ..)| *key);
    first.map(|(_, object, rule)| (object, rule))
}

impl Object {
    fn owns(&self, objects: &BTreeSet<Self>) -> bool {
        owner(objects, self.host) == Some(self)
    }

    fn serves(&self, host: &str) -> bool {
        match self.host.strip_prefix('*') {
            None => host == self.host,
            // Only the Gateway API's wildcards match more than one label.
            Some(suffix) => host.strip_suffix(suffix).is_some_and(|label| {
                !label.is_empty() && (self.kind == Kind::HttpRoute || !label.contains('.'))
            }),
        }
    }

    fn secret(&self) -> Option<&'static str> {
        match self.tls {
            Tls::None => None,
            Tls::Valid | Tls::Forwarded => Some(SECRET),
            Tls::Broken => Some("missing"),
        }
    }

    pub(super) fn json(&self) -> Value {
        let (api_version, kind, spec) = match self.kind {
            Kind::HttpRoute => (
                "gateway.networking.k8s.io/v1",
                "HTTPRoute",
                self.http_route(),
            ),
            Kind::HttpProxy => ("projectsesame.io/v1", "HTTPProxy", self.http_proxy()),
            Kind::Ingress => ("networking.k8s.io/v1", "Ingress", self.ingress()),
        };
        let annotations = match self.plain {
            Plain::Served => json!({}),
            Plain::Redirected => json!({"ingress.kubernetes.io/force-ssl-redirect": "true"}),
            Plain::Refused => json!({"kubernetes.io/ingress.allow-http": "false"}),
        };
        let name = format!("o{}", self.number);
        json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"namespace": "default", "name": name, "annotations": annotations},
            "spec": spec,
        })
    }

    fn http_route(&self) -> Value {
        let rule = |rule: &Rule| {
            let type_ = if rule.exact { "Exact" } else { "PathPrefix" };
            json!({
                "matches": [{"path": {"type": type_, "value": rule.path}}],
                "backendRefs": [{"name": service(rule), "port": 80}],
            })
        };
        let rules: Vec<Value> = self.rules.iter().map(rule).collect();
        json!({
            "parentRefs": [{"name": "web"}],
            "hostnames": [self.host],
            "rules": rules,
        })
    }

    fn http_proxy(&self) -> Value {
        let route = |rule: &Rule| {
            let condition = if rule.exact { "exact" } else { "prefix" };
            json!({
                "conditions": [{condition: rule.path}],
                "permitInsecure": rule.permit_insecure,
                "services": [{"name": service(rule), "port": 80}],
            })
        };
        let routes: Vec<Value> = self.rules.iter().map(route).collect();
        let tls = self.secret().map(|secret| json!({"secretName": secret}));
        let forwards = self.tls == Tls::Forwarded;
        let target = json!({"services": [{"name": service(&self.rules[0]), "port": 80}]});
        json!({
            "ingressClassName": "sesame",
            "virtualhost": {"fqdn": self.host, "tls": tls},
            "routes": routes,
            "tcpproxy": forwards.then_some(target),
        })
    }

    fn ingress(&self) -> Value {
        let path = |rule: &Rule| {
            json!({
                "path": rule.path,
                "pathType": if rule.exact { "Exact" } else { "Prefix" },
                "backend": {"service": {"name": service(rule), "port": {"number": 80}}},
            })
        };
        let paths: Vec<Value> = self.rules.iter().map(path).collect();
        let tls = self.secret();
        let tls = tls.map(|secret| json!({"hosts": [self.host], "secretName": secret}));
        json!({
            "ingressClassName": "sesame",
            "tls": Vec::from_iter(tls),
            "rules": [{"host": self.host, "http": {"paths": paths}}],
        })
    }
}

fn service(rule: &Rule) -> String {
    format!("s{}", rule.backend)
}
