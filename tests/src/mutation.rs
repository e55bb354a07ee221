//! Invalid and odd objects: a JSON value with one place changed to something missing, mistyped, far too large, or odd.
//! Deterministic.

use std::fmt;

use serde_json::{Map, Value, json};

/// Entries in a list or mapping that is too large.
const MANY: usize = 2_000;

/// Characters in a string that is too long.
const LONG: usize = 100_000;

/// Nesting levels in a value that is too deep. The parser rejects text nested much deeper.
const DEEP: usize = 200;

/// Strings that are special in some syntax.
const ODD: [&str; 20] = [
    "",
    "*",
    "*.",
    "..",
    ".",
    "%",
    "%s%n",
    "%REQ(host)%",
    "/",
    "//",
    "-",
    "a b",
    "A",
    "\0",
    "\r\nx: y",
    "\u{202e}\u{1f600}é",
    "${HOME}",
    "a.example.com.",
    "[::1]:80",
    "99999999999999999999",
];

/// A mutation.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// The place as a JSON pointer: `/spec/rules/0/name`.
    pub path: String,
    /// What was changed.
    pub what: String,
    /// The whole value with the change.
    pub value: Value,
}

/// The places in a value that can be changed: every field and every list entry, but not the root.
pub fn paths(value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    collect(value, "", &mut out);
    out
}

fn collect(value: &Value, path: &str, out: &mut Vec<String>) {
    let mut below = |name: &str, value: &Value| {
        let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
        out.push(path.clone());
        collect(value, &path, out);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| below(name, value)),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, value)| below(&index.to_string(), value));
        }
        _ => {}
    }
}

/// The number of mutations at a place.
pub fn count(value: &Value, path: &str) -> usize {
    ways(value.pointer(path).expect("a path in the value")).len()
}

/// Returns a mutation at a place by number.
///
/// # Panics
/// If there is no such place or mutation.
pub fn mutate(value: &Value, path: &str, number: usize) -> Mutation {
    let mut whole = value.clone();
    let place = whole.pointer_mut(path).expect("a path in the value");
    let way = ways(place).swap_remove(number);
    match way.replacement(place) {
        Some(replacement) => *place = replacement,
        None => remove(&mut whole, path),
    }
    Mutation {
        path: path.to_owned(),
        what: way.to_string(),
        value: whole,
    }
}

fn remove(whole: &mut Value, path: &str) {
    let (parent, name) = path.rsplit_once('/').expect("the path is not the root's");
    match whole.pointer_mut(parent).expect("a path in the value") {
        Value::Object(fields) => {
            fields.remove(&name.replace("~1", "/").replace("~0", "~"));
        }
        Value::Array(items) => {
            items.remove(name.parse().expect("the number of an entry"));
        }
        _ => {}
    }
}

/// A way to change a value.
#[derive(Clone, Debug)]
enum Way {
    Remove,
    Become(Value),
    /// A list containing the value.
    List,
    /// A mapping containing the value.
    Field,
    Deep,
    /// A string, list or mapping that is too large.
    Large,
    /// A name slightly longer than the maximum length.
    LongName,
    Reverse,
    Double,
    /// The string with a prefix and a suffix.
    Surround,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Become(value) => write!(f, "became {value}"),
            other => write!(f, "changed by {other:?}"),
        }
    }
}

impl Way {
    /// The new value; `None` means removal.
    fn replacement(&self, value: &Value) -> Option<Value> {
        Some(match (self, value) {
            (Self::Remove, _) => return None,
            (Self::Become(other), _) => other.clone(),
            (Self::List, _) => json!([value]),
            (Self::Field, _) => json!({ "x": value }),
            (Self::Deep, _) => deep(),
            (Self::LongName, _) => json!(vec!["a".repeat(63); 4].join(".")),
            (Self::Large, Value::Array(items)) => {
                items.iter().cycle().take(MANY).cloned().collect()
            }
            (Self::Large, Value::Object(fields)) => {
                let mut many: Map<String, Value> = fields.clone();
                many.extend((0..MANY).map(|number| (format!("x{number}"), json!("y"))));
                many.into()
            }
            (Self::Large, _) => json!("a".repeat(LONG)),
            (Self::Double, Value::Array(items)) => [items.clone(), items.clone()].concat().into(),
            (Self::Reverse, Value::Array(items)) => items.iter().rev().cloned().collect(),
            (Self::Surround, Value::String(text)) => json!(format!("x{text}\n")),
            (Self::Double | Self::Reverse | Self::Surround, other) => other.clone(),
        })
    }
}

/// The ways that actually change a value.
fn ways(value: &Value) -> Vec<Way> {
    let mut out = vec![Way::Remove, Way::List, Way::Field, Way::Deep];
    let mut others = vec![
        Value::Null,
        json!("text"),
        json!(7),
        json!(true),
        json!([]),
        json!({}),
    ];
    match value {
        Value::String(_) => {
            out.extend([Way::Large, Way::LongName, Way::Surround]);
            others.extend(ODD.map(Value::from));
        }
        Value::Number(number) => {
            others.extend([json!(-1), json!(0), json!(65_536), json!(1_000_000_001)]);
            others.extend([
                json!(u64::MAX),
                json!(0.5),
                json!(1e300),
                json!(number.to_string()),
            ]);
        }
        Value::Bool(flag) => others.push(json!(!flag)),
        Value::Array(items) if !items.is_empty() => {
            out.extend([Way::Large, Way::Double]);
            if items.first() != items.last() {
                out.push(Way::Reverse);
            }
        }
        Value::Object(_) => out.push(Way::Large),
        Value::Array(_) | Value::Null => {}
    }
    out.extend(
        others
            .into_iter()
            .filter(|other| other != value)
            .map(Way::Become),
    );
    out
}

fn deep() -> Value {
    (0..DEEP).fold(json!(1), |inner, level| match level % 2 {
        0 => json!([inner]),
        _ => json!({ "x": inner }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_found_and_changed() {
        let value = json!({"a/b": {"c": [1, {"d": "x"}]}, "e~": true});
        let paths = paths(&value);
        assert_eq!(
            paths,
            [
                "/a~1b",
                "/a~1b/c",
                "/a~1b/c/0",
                "/a~1b/c/1",
                "/a~1b/c/1/d",
                "/e~0"
            ]
        );
        for path in &paths {
            for number in 0..count(&value, path) {
                let mutation = mutate(&value, path, number);
                assert_ne!(mutation.value, value, "{path}: {}", mutation.what);
            }
        }
        assert_eq!(
            mutate(&value, "/a~1b/c/0", 0).value,
            json!({"a/b": {"c": [{"d": "x"}]}, "e~": true})
        );
    }
}
