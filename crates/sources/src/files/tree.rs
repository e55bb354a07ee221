//! A document as a tree of values with their file offsets.

use serde_json::Number;

/// A byte offset in a file. [`super::Limits`] keeps files below 4 GiB.
pub(super) type Offset = u32;

/// A value and the offset at which it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) at: Offset,
    pub(super) value: Value,
}

/// A JSON value. Mappings keep the file's order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Value {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// The key of a mapping entry.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub(super) at: Offset,
    pub(super) name: String,
}

/// An error in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) at: Offset,
    pub(super) message: String,
}

impl SyntaxError {
    pub(super) fn new(at: Offset, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
        }
    }
}

/// One document of a file.
#[derive(Debug)]
pub(super) struct Document {
    /// `Err` if the document can't be parsed into a tree, so its object is unknown.
    pub(super) root: Result<Node, SyntaxError>,
    /// Errors that leave a usable tree, such as a duplicate key. With such errors, the tree is used only to identify
    /// the object.
    pub(super) errors: Vec<SyntaxError>,
}

/// A step in a path.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'a> {
    Field(&'a str),
    Index(usize),
}

impl Node {
    /// The value of a mapping entry.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries
                .iter()
                .find(|(key, _)| key.name == name)
                .map(|(_, node)| node),
            _ => None,
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// The offset of the value at `path`, or of the last existing value on the path.
    pub(super) fn locate<'a>(&self, path: impl IntoIterator<Item = Step<'a>>) -> Offset {
        let mut node = self;
        for step in path {
            let next = match (step, &node.value) {
                (Step::Field(name), _) => node.get(name),
                (Step::Index(index), Value::List(items)) => items.get(index),
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node.at
    }

    /// Converts to plain JSON. If a key is duplicated, its first value is used.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(number) => serde_json::Value::Number(number.clone()),
            Value::String(text) => serde_json::Value::String(text.clone()),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Map(entries) => {
                let mut map = serde_json::Map::new();
                for (key, node) in entries {
                    if !map.contains_key(&key.name) {
                        map.insert(key.name.clone(), node.to_json());
                    }
                }
                serde_json::Value::Object(map)
            }
        }
    }
}

/// Errors that leave a usable tree.
pub(super) struct TreeErrors {
    found: Vec<SyntaxError>,
    limit: usize,
}

impl TreeErrors {
    /// At most [`Limits::errors`](super::Limits::errors).
    pub(super) fn new(limit: usize) -> Self {
        Self {
            found: Vec::new(),
            limit,
        }
    }

    /// # Errors
    /// If the document has too many errors to be parsed further.
    pub(super) fn push(&mut self, mut error: SyntaxError) -> Result<(), SyntaxError> {
        if self.found.len() >= self.limit {
            let more = format!(" (more than {} errors in one document)", self.limit);
            error.message.push_str(&more);
            return Err(error);
        }
        self.found.push(error);
        Ok(())
    }

    /// The value, or its default if it is invalid.
    pub(super) fn valid<T: Default>(
        &mut self,
        at: Offset,
        value: Result<T, String>,
    ) -> Result<T, SyntaxError> {
        value.or_else(|message| {
            self.push(SyntaxError::new(at, message))?;
            Ok(T::default())
        })
    }

    pub(super) fn into_vec(self) -> Vec<SyntaxError> {
        self.found
    }
}

/// Reports duplicate keys in a mapping.
///
/// # Errors
/// If the document has too many errors.
pub(super) fn duplicate_keys(
    entries: &[(Key, Node)],
    errors: &mut TreeErrors,
) -> Result<(), SyntaxError> {
    let mut order: Vec<&Key> = entries.iter().map(|(key, _)| key).collect();
    order.sort_by(|a, b| (&a.name, a.at).cmp(&(&b.name, b.at)));
    for pair in order.windows(2) {
        if pair[0].name == pair[1].name {
            let message = format!("duplicate key `{}`", shown(&pair[1].name));
            errors.push(SyntaxError::new(pair[1].at, message))?;
        }
    }
    Ok(())
}

/// Quotes text from a file for a message: short and on one line.
pub(super) fn shown(text: &str) -> String {
    shortened(text, 80)
}

/// Text on one line, shortened to `longest` characters.
pub(super) fn shortened(text: &str, longest: usize) -> String {
    let mut short: String = text
        .chars()
        .take(longest)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(longest).is_some() {
        short.push('…');
    }
    short
}
