//! Statuses: one line per condition, one word for a good one, and nothing for a negative-polarity condition that is
//! absent.

use serde_json::Value;

use super::{Constants, Fields, Outcome};
use crate::yaml::Node;

/// Conditions without a problem. The reason implies the message.
const GOOD: [(&str, &str, &str); 5] = [
    ("Accepted", "True", "Accepted"),
    ("Programmed", "True", "Programmed"),
    ("ResolvedRefs", "True", "ResolvedRefs"),
    ("SupportedVersion", "True", "SupportedVersion"),
    ("Conflicted", "False", "NoConflicts"),
];

/// All statuses that are not in `shared`, by object.
pub(super) fn all(whole: &Outcome, shared: &Outcome, constants: &mut Constants) -> Node {
    let mut out = Vec::new();
    for status in &whole.translation.statuses {
        let theirs = shared.translation.statuses.iter();
        let same = theirs
            .filter(|other| other.key == status.key)
            .any(|other| without_counts(&other.status) == without_counts(&status.status));
        if !same {
            let generation = whole.generations.get(&status.key).copied();
            let node = one(status.status.clone(), generation, constants);
            out.push((status.key.to_string(), node));
        }
    }
    Node::Map(out)
}

/// The status without route counts, so that a shared Gateway is unchanged whichever routes a case attaches to it.
fn without_counts(status: &Value) -> Value {
    let mut status = status.clone();
    for listener in status
        .get_mut("listeners")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        listener["attachedRoutes"] = 0.into();
    }
    status
}

fn one(status: Value, generation: Option<i64>, constants: &mut Constants) -> Node {
    let mut fields = Fields::of(status);
    let mut out = Vec::new();
    conditions(&mut fields, generation, &mut out);
    let addresses = fields.list("addresses");
    if !addresses.is_empty() {
        let addresses = addresses.into_iter().map(address).collect();
        out.push(("addresses".to_owned(), Node::List(addresses)));
    }
    let listeners = fields.list("listeners");
    if !listeners.is_empty() {
        let listeners = listeners.into_iter().map(|each| listener(each, generation));
        out.push(("listeners".to_owned(), Node::Map(listeners.collect())));
    }
    if fields.0.contains_key("parents") {
        let parents = fields.list("parents").into_iter();
        out.extend(parents.map(|each| entry("parent", each, generation, constants)));
    }
    if fields.0.contains_key("ancestors") {
        let ancestors = fields.list("ancestors").into_iter();
        out.extend(ancestors.map(|each| entry("ancestor", each, generation, constants)));
    }
    if let Some(features) = fields.take("supportedFeatures")
        && !constants.is("supported features", &features)
    {
        out.push(("supportedFeatures".to_owned(), Node::from(features)));
    }
    fields.rest(&mut out);
    Node::Map(out)
}

fn conditions(fields: &mut Fields, generation: Option<i64>, out: &mut Vec<(String, Node)>) {
    for condition in fields.list("conditions") {
        let mut condition = Fields::of(condition);
        let type_ = condition.text("type");
        let status = condition.text("status");
        let reason = condition.text("reason");
        let message = condition.text("message");
        let observed = condition.take("observedGeneration");
        let current = observed == generation.map(Value::from);
        let good = GOOD.contains(&(type_.as_str(), status.as_str(), reason.as_str()));
        let node = if good && current && condition.0.is_empty() {
            if status == "False" {
                continue;
            }
            Node::Bare(status)
        } else {
            let mut text = format!("{status} {reason} - {message}");
            if !current {
                text.push_str(&format!(" (observed generation {observed:?})"));
            }
            if !condition.0.is_empty() {
                text.push_str(&format!(" (and {:?})", condition.0));
            }
            Node::Text(text)
        };
        out.push((type_, node));
    }
}

/// The value, prefixed with its type unless that is IPAddress.
fn address(address: Value) -> Node {
    let mut fields = Fields::of(address.clone());
    let (type_, value) = (fields.text("type"), fields.text("value"));
    if !fields.0.is_empty() {
        Node::from(address)
    } else if type_ == "IPAddress" {
        Node::text(value)
    } else {
        Node::text(format!("{type_} {value}"))
    }
}

fn listener(listener: Value, generation: Option<i64>) -> (String, Node) {
    let mut fields = Fields::of(listener);
    let name = fields.text("name");
    let mut out = Vec::new();
    conditions(&mut fields, generation, &mut out);
    let kinds = fields.list("supportedKinds").into_iter().map(|kind| {
        let mut fields = Fields::of(kind.clone());
        let (group, kind_name) = (fields.text("group"), fields.text("kind"));
        match group == "gateway.networking.k8s.io" && fields.0.is_empty() {
            true => Node::text(kind_name),
            false => Node::from(kind),
        }
    });
    out.push(("supportedKinds".to_owned(), Node::List(kinds.collect())));
    fields.rest(&mut out);
    (name, Node::Map(out))
}

/// The status of a route for one parent, or of a policy for one ancestor, by reference.
fn entry(
    what: &str,
    entry: Value,
    generation: Option<i64>,
    constants: &mut Constants,
) -> (String, Node) {
    let mut fields = Fields::of(entry);
    let reference = fields.take(&format!("{what}Ref"));
    let mut reference = Fields::of(reference.expect("an entry has a reference"));
    let mut name = format!("{what} ");
    if let Some(namespace) = reference.take("namespace") {
        name.push_str(namespace.as_str().expect("a namespace is a string"));
        name.push('/');
    }
    name.push_str(&reference.text("name"));
    for field in ["sectionName", "port"] {
        match reference.take(field) {
            Some(Value::String(text)) => name.push_str(&format!(" {field} {text}")),
            Some(other) => name.push_str(&format!(" {field} {other}")),
            None => {}
        }
    }
    let mut out = Vec::new();
    conditions(&mut fields, generation, &mut out);
    let kind = reference.take_all(&["group", "kind"]);
    if !constants.is("parentRef", &kind) {
        out.push(("kind".to_owned(), Node::from(kind)));
    }
    let controller = fields.take_all(&["controllerName"]);
    if !constants.is("controller", &controller) {
        out.push(("controller".to_owned(), Node::from(controller)));
    }
    reference.rest(&mut out);
    fields.rest(&mut out);
    (name, Node::Map(out))
}
