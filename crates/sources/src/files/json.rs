//! Parses JSON into trees.
//!
//! serde_json doesn't report offsets, but `RawValue` borrows a value's text, whose address within the file's text gives
//! the offset. Values are therefore parsed level by level, reading each byte once per level; [`Limits::nesting`] limits
//! the levels.

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::limits::Limits;
use super::tree::{self, Document, Key, Node, Offset, SyntaxError, TreeErrors, Value};

/// Parses concatenated JSON values up to the first invalid one.
pub(super) fn documents<'t>(
    text: &'t str,
    base: Offset,
    limits: &'t Limits,
) -> impl Iterator<Item = Document> + 't {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let mut invalid = false;
    std::iter::from_fn(move || {
        if invalid {
            return None;
        }
        let mut reader = Reader {
            text,
            base,
            limits,
            values: 0,
            errors: TreeErrors::new(limits.errors),
        };
        let root = match values.next()? {
            Ok(raw) => reader.node(raw, 0),
            Err(error) => {
                invalid = true;
                Err(reader.error(text, &error))
            }
        };
        Some(Document {
            root,
            errors: reader.errors.into_vec(),
        })
    })
}

struct Reader<'t> {
    text: &'t str,
    base: Offset,
    limits: &'t Limits,
    values: usize,
    errors: TreeErrors,
}

impl<'t> Reader<'t> {
    /// The offset of a part within the text.
    #[allow(clippy::cast_possible_truncation)] // Files are smaller than 4 GiB.
    fn offset(&self, part: &str) -> Offset {
        let byte = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        self.base.saturating_add(byte as Offset)
    }

    /// Converts a serde_json error, whose line and column are relative to `part`.
    #[allow(clippy::cast_possible_truncation)]
    fn error(&self, part: &str, error: &serde_json::Error) -> SyntaxError {
        let line = part
            .split_inclusive('\n')
            .take(error.line().saturating_sub(1))
            .map(str::len)
            .sum::<usize>();
        let byte = (line + error.column().saturating_sub(1)).min(part.len());
        let at = self.offset(part).saturating_add(byte as Offset);
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        SyntaxError::new(at, format!("invalid JSON: {message}"))
    }

    fn node(&mut self, raw: &'t RawValue, depth: usize) -> Result<Node, SyntaxError> {
        let part = raw.get();
        let at = self.offset(part);
        self.values += 1;
        if self.values > self.limits.values {
            let message = format!("more than {} values in one document", self.limits.values);
            return Err(SyntaxError::new(at, message));
        }
        let collection = part.starts_with(['[', '{']);
        if collection && depth >= self.limits.nesting {
            let message = format!(
                "lists and mappings nested more than {} levels deep",
                self.limits.nesting
            );
            return Err(SyntaxError::new(at, message));
        }
        let value = if part.starts_with('[') {
            let items: Vec<&RawValue> =
                serde_json::from_str(part).map_err(|e| self.error(part, &e))?;
            let items = items.into_iter().map(|item| self.node(item, depth + 1));
            Value::List(items.collect::<Result<_, _>>()?)
        } else if part.starts_with('{') {
            let entries = serde_json::Deserializer::from_str(part)
                .deserialize_map(Entries)
                .map_err(|e| self.error(part, &e))?;
            let mut nodes = Vec::with_capacity(entries.len());
            for (name, item) in entries {
                let node = self.node(item, depth + 1)?;
                nodes.push((Key { at: node.at, name }, node));
            }
            tree::duplicate_keys(&nodes, &mut self.errors)?;
            Value::Map(nodes)
        } else {
            match serde_json::from_str(part).map_err(|e| self.error(part, &e))? {
                serde_json::Value::Bool(value) => Value::Bool(value),
                serde_json::Value::Number(number) => Value::Number(number),
                serde_json::Value::String(text) => Value::String(text),
                _ => Value::Null,
            }
        };
        Ok(Node { at, value })
    }
}

struct Entries;

impl<'t> Visitor<'t> for Entries {
    type Value = Vec<(String, &'t RawValue)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }
}
