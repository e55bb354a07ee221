//! Compact YAML: a list or mapping that fits on one line is written on one line.

use std::fmt::Write as _;

use serde_json::Value;

/// Maximum width of such a line, in characters.
const WIDTH: usize = 118;

/// A YAML value.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A string, quoted where needed.
    Text(String),
    /// A number, true, false or null.
    Bare(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in this order.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// A string.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Whether it is an empty list or mapping.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::List(list) => list.is_empty(),
            Self::Map(fields) => fields.is_empty(),
            Self::Text(_) | Self::Bare(_) => false,
        }
    }

    /// The value as YAML, with a trailing newline.
    pub fn to_yaml(&self) -> String {
        let mut out = String::new();
        self.block(0, &mut out);
        out
    }

    /// Writes lines with this indentation, except for the first.
    fn block(&self, indent: usize, out: &mut String) {
        match self {
            Self::Map(fields) if !fields.is_empty() => {
                for (position, (name, value)) in fields.iter().enumerate() {
                    if position > 0 {
                        pad(indent, out);
                    }
                    out.push_str(&quoted(name, false));
                    out.push(':');
                    value.behind_colon(indent, quoted(name, false).chars().count() + 1, out);
                }
            }
            Self::List(list) if !list.is_empty() => {
                for (position, value) in list.iter().enumerate() {
                    if position > 0 {
                        pad(indent, out);
                    }
                    out.push_str("- ");
                    value.block(indent + 2, out);
                }
            }
            _ => {
                out.push_str(&self.flow(false));
                out.push('\n');
            }
        }
    }

    fn behind_colon(&self, indent: usize, used: usize, out: &mut String) {
        let flow = self.flow(false);
        let scalar = matches!(self, Self::Text(_) | Self::Bare(_));
        if scalar || self.is_empty() || indent + used + 1 + flow.chars().count() <= WIDTH {
            out.push(' ');
            out.push_str(&flow);
            out.push('\n');
            return;
        }
        out.push('\n');
        // A list under a key doesn't need extra indentation.
        let inner = match self {
            Self::List(_) => indent,
            _ => indent + 2,
        };
        pad(inner, out);
        self.block(inner, out);
    }

    /// The value on one line.
    fn flow(&self, inside: bool) -> String {
        match self {
            Self::Text(text) => quoted(text, inside),
            Self::Bare(text) => text.clone(),
            Self::List(list) => {
                let items: Vec<String> = list.iter().map(|item| item.flow(true)).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Map(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{}: {}", quoted(name, true), value.flow(true)))
                    .collect();
                format!("{{{}}}", fields.join(", "))
            }
        }
    }
}

impl From<Value> for Node {
    /// Sorts fields by name, regardless of the library's order.
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Bare(value.to_string()),
            Value::Array(list) => Self::List(list.into_iter().map(Self::from).collect()),
            Value::Object(fields) => {
                let mut fields: Vec<(String, Self)> = fields
                    .into_iter()
                    .map(|(name, value)| (name, Self::from(value)))
                    .collect();
                fields.sort_by(|(a, _), (b, _)| a.cmp(b));
                Self::Map(fields)
            }
        }
    }
}

fn pad(indent: usize, out: &mut String) {
    let _ = write!(out, "{:indent$}", "");
}

/// A string as a plain scalar if that is safe, otherwise in double quotes as in JSON. More characters are special
/// `inside` brackets.
fn quoted(text: &str, inside: bool) -> String {
    let starts_well = text.starts_with(|c: char| c.is_alphabetic() || "/_(.^$".contains(c));
    // Text with a second dot, a slash or the unit `s` isn't a number.
    let is_number =
        |text: &str| text.matches('.').count() < 2 && !text.contains('/') && !text.ends_with('s');
    let starts_as_number = text.starts_with(|c: char| c.is_ascii_digit()) && !is_number(text);
    let word = text.to_ascii_lowercase();
    let means_more = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let unsafe_ = |c: char| c.is_control() || c == '"' || (inside && ",[]{}".contains(c));
    let plain = (starts_well || starts_as_number)
        && !text.contains(unsafe_)
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with([':', ' '])
        && !means_more.contains(&&*word);
    if plain {
        text.to_owned()
    } else {
        Value::String(text.to_owned()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_survive_a_round_trip() {
        let long = "x".repeat(90);
        for value in [
            json!({"a": 1, "b": [true, null, "yes"], "c": {}, "d": []}),
            json!([{"a": {"b": long.clone(), "c": [long.clone(), {"d": long}]}}, "x: y", "*", "", "- z"]),
            json!({"": "a, b", "ip": "127.0.0.1:80", "s": "15s", "#": " x", "k:": "tab\there", "0x1": "1e3", "n": "12", "é": "[a]"}),
            json!([["a", ["b"]], {"x": "#no", "y": "a #b"}]),
        ] {
            let text = Node::from(value.clone()).to_yaml();
            let back: Value =
                serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert_eq!(back, value, "{text}");
        }
    }

    #[test]
    fn short_values_are_on_one_line() {
        let text = Node::from(json!({"list": ["a", "b"], "map": {"x": 1}})).to_yaml();
        assert_eq!(text, "list: [a, b]\nmap: {x: 1}\n");
    }
}
