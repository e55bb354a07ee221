//! HTTPRoutes, and the parts that all kinds of routes share.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::filter::{backend_filter, filter, header_name, header_value};
use super::json::{
    Json, any_number, any_of, dedup, just, list, may, mostly, must, number, record, unique_list,
};
use super::pool;

pub(super) fn http_route() -> Json {
    route("HTTPRoute", rule())
}

/// A route of this kind with these rules.
pub(super) fn route(kind: &'static str, rule: Json) -> Json {
    let spec = record(vec![
        ("parentRefs", may(0.97, list(parent(), 1..4))),
        ("useDefaultGateways", may(0.2, mostly(&["All"], &["None"]))),
        ("hostnames", may(0.7, list(any_of(pool::DOMAINS), 0..4))),
        ("rules", may(0.97, list(rule, 1..5))),
    ]);
    (super::metadata(pool::ROUTES, &["one", "two"]), spec)
        .prop_map(move |(metadata, mut spec)| {
            repair_parents(&mut spec["parentRefs"]);
            repair_names(&mut spec["rules"]);
            if let Some(fields) = spec.as_object_mut() {
                fields.retain(|_, value| !value.is_null());
            }
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": kind,
                "metadata": metadata,
                "spec": spec,
            })
        })
        .boxed()
}

fn parent() -> Json {
    let gateway = prop::sample::select(pool::GATEWAYS.to_vec())
        .prop_map(|(namespace, name)| json!({"namespace": namespace, "name": name}));
    let set = (
        any_of(pool::LISTENER_SETS),
        any_of(pool::NAMESPACES),
        prop::bool::weighted(0.3),
    );
    let set = set.prop_map(|(name, namespace, early)| {
        let mut parent = json!({"kind": "ListenerSet", "namespace": namespace, "name": name});
        if early {
            parent["group"] = "gateway.networking.x-k8s.io".into();
            parent["kind"] = "XListenerSet".into();
        }
        parent
    });
    let odd = prop_oneof![
        just(json!({"name": "web"})),
        just(json!({"name": "missing"})),
        just(json!({"kind": "Service", "group": "", "name": "s1"})),
        just(json!({"group": "example.net", "name": "web"})),
    ];
    let ports: Vec<u32> = pool::PORTS.iter().map(|&port| port.into()).collect();
    let narrow = record(vec![
        ("sectionName", may(0.1, any_of(pool::LISTENERS))),
        ("port", may(0.08, any_number(&ports))),
    ]);
    (prop_oneof![9 => gateway, 3 => set, 1 => odd], narrow)
        .prop_map(|(mut parent, narrow)| {
            if let (Some(parent), Value::Object(narrow)) = (parent.as_object_mut(), narrow) {
                parent.extend(narrow);
            }
            parent
        })
        .boxed()
}

/// For references to the same parent, keeps only those that set the same fields as the first but to different values.
fn repair_parents(parents: &mut Value) {
    let identity = |parent: &Value| {
        let part = |field: &str| parent[field].to_string();
        [part("group"), part("kind"), part("namespace"), part("name")]
    };
    let narrow = |parent: &Value| (parent["sectionName"].clone(), parent["port"].clone());
    let Some(list) = parents.as_array_mut() else {
        return;
    };
    let mut kept: Vec<Value> = Vec::new();
    for parent in list.drain(..) {
        let (section, port) = narrow(&parent);
        let fits = kept
            .iter()
            .filter(|other| identity(other) == identity(&parent))
            .all(|other| {
                let (other_section, other_port) = narrow(other);
                section.is_null() == other_section.is_null()
                    && port.is_null() == other_port.is_null()
                    && (section != other_section || port != other_port)
            });
        if fits {
            kept.push(parent);
        }
    }
    *list = kept;
}

/// Rule names are unique within a route.
fn repair_names(rules: &mut Value) {
    let mut seen = std::collections::BTreeSet::new();
    for rule in rules.as_array_mut().into_iter().flatten() {
        let name = rule["name"].to_string();
        if let Some(rule) = rule.as_object_mut()
            && !seen.insert(name)
        {
            rule.remove("name");
        }
    }
}

fn rule() -> Json {
    record(vec![
        ("name", may(0.3, any_of(&["n1", "n2"]))),
        ("matches", may(0.85, list(matching(), 0..4))),
        ("filters", may(0.6, list(filter(), 0..4))),
        (
            "backendRefs",
            may(0.93, list(backend(backend_filter()), 0..4)),
        ),
        ("timeouts", may(0.3, timeouts())),
        ("retry", may(0.3, retry())),
        ("sessionPersistence", may(0.2, session())),
    ])
    .prop_map(repaired)
    .boxed()
}

/// Removes combinations that the API doesn't allow.
pub(super) fn repaired(mut rule: Value) -> Value {
    let repair = |filters: &mut Value| {
        let mut position = 0;
        dedup(filters, |filter| {
            position += 1;
            match filter["type"].as_str() {
                Some("RequestMirror" | "ExtensionRef" | "ExternalAuth" | "Newer") => {
                    position.to_string()
                }
                once => once.unwrap_or_default().to_owned(),
            }
        });
        let redirects = has(filters, "RequestRedirect");
        if let Some(filters) = filters.as_array_mut()
            && redirects
        {
            filters.retain(|filter| filter["type"] != "URLRewrite");
        }
        redirects
    };
    let redirects = rule.get_mut("filters").is_some_and(repair);
    let backends = rule.get_mut("backendRefs").and_then(Value::as_array_mut);
    for backend in backends.into_iter().flatten() {
        backend.get_mut("filters").map(repair);
    }
    let replaces_prefix = rule.to_string().contains("\"ReplacePrefixMatch\"");
    if let Some(fields) = rule.as_object_mut() {
        if redirects {
            fields.remove("backendRefs");
        }
        if replaces_prefix {
            one_prefix(fields);
        }
    }
    rule
}

fn has(filters: &Value, type_: &str) -> bool {
    let mut filters = filters.as_array().into_iter().flatten();
    filters.any(|filter| filter["type"] == type_)
}

/// A prefix can be replaced only in a rule whose matches are all prefixes.
fn one_prefix(rule: &mut serde_json::Map<String, Value>) {
    let Some(matches) = rule.get_mut("matches").and_then(Value::as_array_mut) else {
        return;
    };
    matches.truncate(1);
    match matches.first_mut() {
        None => {
            rule.remove("matches");
        }
        Some(only) => {
            let literal = only["path"]["type"] != "RegularExpression"
                && only["path"]["type"] != "Glob"
                && !only["path"].is_null();
            if literal {
                only["path"]["type"] = "PathPrefix".into();
            } else if let Some(only) = only.as_object_mut() {
                only.remove("path");
            }
        }
    }
}

/// Matches on a name and a value.
fn values(name: Json, value: Json) -> Json {
    let value_of = |value: Json| {
        let exact = value.prop_map(|value| ("Exact", value));
        let regex = header_regex().prop_map(|value| ("RegularExpression", value));
        prop_oneof![120 => exact, 20 => regex, 1 => just("v").prop_map(|value| ("Glob", value))]
    };
    let value = (name, value_of(value), any::<bool>())
        .prop_map(|(name, (type_, value), explicit)| match (type_, explicit) {
            ("Exact", false) => json!({"name": name, "value": value}),
            _ => json!({"name": name, "type": type_, "value": value}),
        })
        .boxed();
    unique_list(value, 0..3, "name")
}

pub(super) fn header_matches() -> Json {
    values(header_name(), header_value())
}

fn matching() -> Json {
    let query = prop_oneof![9 => header_value(), 1 => any_of(pool::ODD_QUERY_VALUES)]
        .prop_map(|value| shortened(value, 1024))
        .boxed();
    let methods = prop_oneof![
        19 => any_of(pool::METHODS),
        1 => any_of(pool::ODD_METHODS),
    ];
    record(vec![
        ("path", may(0.8, path())),
        ("headers", may(0.3, header_matches())),
        ("queryParams", may(0.25, values(header_name(), query))),
        ("method", may(0.3, methods.boxed())),
    ])
}

/// Header values aren't empty and don't contain control characters.
fn header_regex() -> Json {
    regex()
        .prop_map(|regex| {
            let text: String = regex.chars().filter(|c| !c.is_control()).collect();
            Value::from(if text.is_empty() { "." } else { &text })
        })
        .boxed()
}

fn shortened(value: Value, max_chars: usize) -> Value {
    value
        .as_str()
        .map(|text| text.chars().take(max_chars).collect::<String>().into())
        .unwrap_or(value)
}

fn path() -> Json {
    let literal = || mostly(pool::PATHS, pool::ODD_PATHS);
    prop_oneof![
        64 => literal().prop_map(|value| json!({"type": "PathPrefix", "value": value})),
        40 => literal().prop_map(|value| json!({"type": "Exact", "value": value})),
        16 => regex().prop_map(|value| json!({"type": "RegularExpression", "value": value})),
        16 => literal().prop_map(|value| json!({"value": value})),
        1 => just(json!({"type": "Glob", "value": "/**"})),
        8 => just(json!({})),
    ]
    .boxed()
}

/// Regular expressions.
pub(super) fn regex() -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        3 => prop::sample::select(pool::REGEXES.to_vec()),
        2 => prop::sample::select(pool::REGEX_PARTS.to_vec()),
        1 => prop::sample::select(pool::ODD_REGEXES.to_vec()),
    ]
    .prop_map(str::to_owned);
    let repeats = prop::sample::select(pool::REPEATS.to_vec());
    leaf.prop_recursive(3, 12, 3, move |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}{b}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}|{b})")),
            (inner, repeats.clone()).prop_map(|(a, times)| format!("(?:{a}){times}")),
        ]
    })
    .prop_map(|text| text.chars().take(1024).collect())
    .boxed()
}

/// A reference to a Service, or to something else.
pub(super) fn backend_object() -> Json {
    let service = record(vec![
        ("name", must(any_of(pool::SERVICES))),
        ("namespace", may(0.2, any_of(pool::NAMESPACES))),
        ("port", must(any_number(pool::SERVICE_PORTS))),
    ]);
    let xbackend = record(vec![
        ("group", must(just("gateway.networking.x-k8s.io"))),
        ("kind", must(just("XBackend"))),
        ("name", must(any_of(pool::XBACKENDS))),
        ("namespace", may(0.1, any_of(pool::NAMESPACES))),
    ]);
    let odd = prop_oneof![
        just(json!({"name": "missing", "port": 80})),
        just(json!({"name": "s1", "port": 65_535})),
        just(json!({"kind": "ConfigMap", "name": "s1"})),
        just(json!({"group": "example.net", "kind": "Service", "name": "s1", "port": 80})),
        just(json!({"group": "", "kind": "Service", "name": "Not.A.Name", "port": 80})),
        just(json!({"name": "s1", "namespace": "elsewhere", "port": 80})),
    ];
    prop_oneof![12 => service, 2 => xbackend, 1 => odd].boxed()
}

/// A backend with filters from `filter`.
pub(super) fn backend(filter: Json) -> Json {
    let weight = prop_oneof![
        3 => number(0..4),
        1 => any_number(&[0, 1, 999_999, 1_000_000]),
    ];
    let extra = record(vec![
        ("weight", may(0.6, weight.boxed())),
        ("filters", may(0.3, list(filter, 0..3))),
    ]);
    (backend_object(), extra)
        .prop_map(|(mut backend, extra)| {
            if let (Some(backend), Value::Object(extra)) = (backend.as_object_mut(), extra) {
                backend.extend(extra);
            }
            backend
        })
        .boxed()
}

fn timeouts() -> Json {
    let duration = || mostly(pool::DURATIONS, pool::ODD_DURATIONS);
    record(vec![
        ("request", may(0.7, duration())),
        ("backendRequest", may(0.6, duration())),
    ])
    .prop_map(|mut timeouts| {
        let millis = |field: &str| {
            let text = timeouts[field].as_str()?;
            Some(sesame_api::Duration::parse(text).ok()?.as_millis())
        };
        if let (Some(request), Some(each)) = (millis("request"), millis("backendRequest"))
            && request > 0
            && each > request
            && let Some(fields) = timeouts.as_object_mut()
        {
            fields.remove("backendRequest");
        }
        timeouts
    })
    .boxed()
}

fn retry() -> Json {
    let code = any_number(&[400, 429, 499, 500, 503, 599]);
    record(vec![
        ("codes", may(0.7, unique_list(code, 0..4, ""))),
        ("attempts", may(0.7, any_number(&[0, 1, 3, 2_147_483_647]))),
        (
            "backoff",
            may(0.6, mostly(pool::DURATIONS, pool::ODD_DURATIONS)),
        ),
    ])
}

pub(super) fn session() -> Json {
    let names = || any_of(&["session", "S-1", "!#$%&'*+-.^_`|~", "__Host-x"]);
    let paths = || mostly(&["/", "/a"], &["", "ü", "a b", "/;x", "\n", "\0", "%"]);
    let durations = || mostly(pool::DURATIONS, pool::ODD_DURATIONS);
    let cookie = record(vec![
        ("name", may(0.6, names())),
        ("path", may(0.5, paths())),
        (
            "lifetimeType",
            may(0.5, mostly(&["Permanent", "Session"], &["Forever"])),
        ),
    ]);
    let cookies = (cookie, any::<bool>(), prop::option::of(durations())).prop_map(
        |(cookie, typed, timeout)| {
            let permanent = cookie["lifetimeType"] == "Permanent";
            let mut session = json!({"cookie": cookie});
            if typed {
                session["type"] = "Cookie".into();
            }
            match timeout {
                Some(timeout) => session["absoluteTimeout"] = timeout,
                None if permanent => session["absoluteTimeout"] = "1h".into(),
                None => {}
            }
            session
        },
    );
    let headers =
        header_name().prop_map(|name| json!({"type": "Header", "header": {"name": name}}));
    prop_oneof![40 => cookies, 20 => headers, 1 => just(json!({"type": "Newer"}))].boxed()
}
