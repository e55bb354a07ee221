//! HTTPRoutes, and the rule that responds to a request.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_testkit::client::Request;

/// The listeners, by name, with their hostnames; an empty one is for all hosts.
pub(super) const LISTENERS: [(&str, &str); 4] = [
    ("all", ""),
    ("wide", "*.example.com"),
    ("narrow", "*.b.example.com"),
    ("one", "a.example.com"),
];

#[derive(Clone, Debug)]
pub(super) struct Route {
    /// Part of its name.
    pub(super) number: usize,
    /// 0 for an old route, 1 for a newer one.
    pub(super) age: usize,
    pub(super) hostnames: Vec<&'static str>,
    /// The only listener that it is attached to, if any.
    pub(super) listener: Option<usize>,
    /// The matches of each rule. Without matches, a rule matches everything.
    pub(super) rules: Vec<Vec<Match>>,
}

#[derive(Clone, Debug)]
pub(super) struct Match {
    pub(super) path: Path,
    pub(super) method: Option<&'static str>,
    pub(super) headers: BTreeMap<&'static str, &'static str>,
    pub(super) parameters: BTreeMap<&'static str, &'static str>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Path {
    Exact(&'static str),
    Prefix(&'static str),
    Expression(&'static str),
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// With or without a port, in any case.
    pub(super) host: &'static str,
    pub(super) path: &'static str,
    pub(super) method: &'static str,
    pub(super) headers: BTreeMap<&'static str, &'static str>,
    pub(super) parameters: BTreeMap<&'static str, &'static str>,
}

/// A rule: the number of its route, and its index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    route: usize,
    rule: usize,
}

/// The rule that responds to a request; `None` if none matches.
pub(super) fn answer(routes: &[Route], call: &Call) -> Option<Place> {
    let host = call.host.to_lowercase();
    let host = host.split(':').next().unwrap_or_default();
    let listeners = LISTENERS.iter().enumerate();
    let (listener, _) = listeners
        .filter(|(_, (_, hostname))| covers(hostname, host))
        .min_by_key(|(_, (_, hostname))| width(hostname))?;
    let attached = routes
        .iter()
        .filter(|route| route.listener.is_none_or(|only| only == listener));
    let candidates = attached.flat_map(|route| {
        let everything = [""];
        let hostnames = match route.hostnames.as_slice() {
            [] => &everything[..],
            some => some,
        };
        let of_host = hostnames.iter().filter(|hostname| covers(hostname, host));
        let width = of_host.map(|hostname| width(hostname)).min();
        let matching = width.map(|width| route.matching(call).map(move |found| (width, found)));
        matching.into_iter().flatten()
    });
    let first = candidates.min_by_key(|(width, (rank, seniority, _))| (*width, *rank, *seniority));
    first.map(|(_, (_, _, place))| place)
}

/// Whether a hostname, which may be a wildcard or empty, covers a host.
fn covers(hostname: &str, host: &str) -> bool {
    match hostname.strip_prefix('*') {
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => hostname.is_empty() || hostname == host,
    }
}

/// The narrowest hostname has the smallest width.
fn width(hostname: &str) -> (bool, Reverse<usize>) {
    let wide = hostname.is_empty() || hostname.starts_with('*');
    (wide, Reverse(hostname.len()))
}

/// The precedence of a match: the kind and the length of the path, a method, the numbers of headers and parameters.
type Rank = (u8, Reverse<usize>, bool, Reverse<usize>, Reverse<usize>);

/// The precedence among equal matches: age and name of the route, index of the rule.
type Seniority = (usize, usize, usize);

impl Route {
    /// Its matches for a request.
    fn matching(&self, call: &Call) -> impl Iterator<Item = (Rank, Seniority, Place)> {
        let rules = self.rules.iter().enumerate();
        rules.filter_map(|(index, matches)| {
            let found = matches.iter().filter(|one| one.admits(call));
            let rank = match matches.as_slice() {
                [] => Some(Match::default().rank()),
                _ => found.map(Match::rank).min(),
            };
            let place = Place {
                route: self.number,
                rule: index,
            };
            Some((rank?, (self.age, self.number, index), place))
        })
    }

    pub(super) fn json(&self) -> Value {
        let rule = |(index, matches): (usize, &Vec<Match>)| {
            let place = Place {
                route: self.number,
                rule: index,
            };
            json!({
                "matches": matches.iter().map(Match::json).collect::<Vec<_>>(),
                "filters": [{"type": "RequestRedirect", "requestRedirect": {
                    "hostname": place.hostname(), "statusCode": 302,
                }}],
            })
        };
        let section = self.listener.map(|listener| LISTENERS[listener].0);
        let mut parent = json!({"name": "web"});
        if let Some(section) = section {
            parent["sectionName"] = section.into();
        }
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {
                "namespace": "default",
                "name": format!("r{}", self.number),
                "creationTimestamp": format!("2026-01-0{}T00:00:00Z", self.age + 1),
            },
            "spec": {
                "parentRefs": [parent],
                "hostnames": self.hostnames,
                "rules": self.rules.iter().enumerate().map(rule).collect::<Vec<_>>(),
            },
        })
    }
}

impl Default for Match {
    fn default() -> Self {
        Self {
            path: Path::Prefix("/"),
            method: None,
            headers: BTreeMap::new(),
            parameters: BTreeMap::new(),
        }
    }
}

impl Match {
    fn admits(&self, call: &Call) -> bool {
        let holds = |pairs: &BTreeMap<&str, &str>, given: &BTreeMap<&'static str, &'static str>| {
            let mut pairs = pairs.iter();
            pairs.all(|(name, value)| given.get(name) == Some(value))
        };
        self.path.admits(call.path)
            && self.method.is_none_or(|method| method == call.method)
            && holds(&self.headers, &call.headers)
            && holds(&self.parameters, &call.parameters)
    }

    fn rank(&self) -> Rank {
        let (kind, length) = match self.path {
            Path::Exact(_) => (0, 0),
            // The API leaves the place of expressions open.
            Path::Expression(text) => (1, text.len()),
            Path::Prefix(text) => (2, text.trim_end_matches('/').len()),
        };
        (
            kind,
            Reverse(length),
            self.method.is_none(),
            Reverse(self.headers.len()),
            Reverse(self.parameters.len()),
        )
    }

    fn json(&self) -> Value {
        let (type_, path) = match self.path {
            Path::Exact(text) => ("Exact", text),
            Path::Prefix(text) => ("PathPrefix", text),
            Path::Expression(text) => ("RegularExpression", text),
        };
        let pairs = |pairs: &BTreeMap<&str, &str>| -> Vec<Value> {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect()
        };
        let mut out = json!({
            "path": {"type": type_, "value": path},
            "headers": pairs(&self.headers),
            "queryParams": pairs(&self.parameters),
        });
        if let Some(method) = self.method {
            out["method"] = method.into();
        }
        out
    }
}

impl Path {
    fn admits(self, path: &str) -> bool {
        match self {
            Self::Exact(text) => path == text,
            Self::Prefix(text) => {
                let rest = path.strip_prefix(text.trim_end_matches('/'));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Self::Expression(text) => regex::Regex::new(&format!("^(?:{text})$"))
                .expect("an expression")
                .is_match(path),
        }
    }
}

impl Call {
    pub(super) fn request(&self) -> Request {
        let query: Vec<String> = self
            .parameters
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let target = match query.is_empty() {
            true => self.path.to_owned(),
            false => format!("{}?{}", self.path, query.join("&")),
        };
        let request = Request::get(self.host, &target).method(self.method);
        let headers = self.headers.iter();
        headers.fold(request, |request, (name, value)| {
            request.header(name, value)
        })
    }
}

impl Place {
    fn hostname(self) -> String {
        format!("r{}-{}.example.org", self.route, self.rule)
    }

    /// The place in the `location` header of a response.
    pub(super) fn of_location(location: &str) -> Option<Self> {
        let (_, rest) = location.split_once("://r")?;
        let (host, _) = rest.split_once(".example.org")?;
        let (route, rule) = host.split_once('-')?;
        Some(Self {
            route: route.parse().ok()?,
            rule: rule.parse().ok()?,
        })
    }
}
