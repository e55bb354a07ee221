//! JSON text to trees: the only file that reads JSON.
//!
//! serde_json tells no positions of values, but hands out the untouched text of each, whose address
//! inside the whole text is its position. So a value is read level by level: each byte once for every
//! level that it is in, which [`Limits::nesting`] bounds.

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::limits::Limits;
use super::tree::{self, Document, Fault, Key, Node, Offset, Value};

/// Reads JSON values that follow one another. Ends with the first that is broken, since nothing tells
/// where the next one would begin.
pub(super) fn documents<'t>(
    text: &'t str,
    base: Offset,
    limits: &'t Limits,
) -> impl Iterator<Item = Document> + 't {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let mut broken = false;
    std::iter::from_fn(move || {
        if broken {
            return None;
        }
        let mut reader = Reader {
            text,
            base,
            limits,
            values: 0,
            faults: Vec::new(),
        };
        let root = match values.next()? {
            Ok(raw) => reader.node(raw, 0),
            Err(error) => {
                broken = true;
                Err(reader.fault(text, &error))
            }
        };
        Some(Document {
            root,
            faults: reader.faults,
        })
    })
}

struct Reader<'t> {
    text: &'t str,
    base: Offset,
    limits: &'t Limits,
    values: usize,
    faults: Vec<Fault>,
}

impl<'t> Reader<'t> {
    /// The position of a part of the text.
    #[allow(clippy::cast_possible_truncation)] // Files are smaller than 4 GiB.
    fn offset(&self, part: &str) -> Offset {
        let byte = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        self.base.saturating_add(byte as Offset)
    }

    /// An error of serde_json, whose line and column count from the beginning of `part`.
    #[allow(clippy::cast_possible_truncation)]
    fn fault(&self, part: &str, error: &serde_json::Error) -> Fault {
        let line = part
            .split_inclusive('\n')
            .take(error.line().saturating_sub(1))
            .map(str::len)
            .sum::<usize>();
        let byte = (line + error.column().saturating_sub(1)).min(part.len());
        let at = self.offset(part).saturating_add(byte as Offset);
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        Fault::new(at, format!("not JSON: {message}"))
    }

    fn node(&mut self, raw: &'t RawValue, depth: usize) -> Result<Node, Fault> {
        let part = raw.get();
        let at = self.offset(part);
        self.values += 1;
        if self.values > self.limits.values {
            let message = format!("more than {} values in one document", self.limits.values);
            return Err(Fault::new(at, message));
        }
        let collection = part.starts_with(['[', '{']);
        if collection && depth >= self.limits.nesting {
            let message = format!(
                "nested more than {} lists and mappings deep",
                self.limits.nesting
            );
            return Err(Fault::new(at, message));
        }
        let mut json = serde_json::Deserializer::from_str(part);
        let value = if part.starts_with('[') {
            let items = json
                .deserialize_seq(Items)
                .map_err(|e| self.fault(part, &e))?;
            let items = items.into_iter().map(|item| self.node(item, depth + 1));
            Value::List(items.collect::<Result<_, _>>()?)
        } else if part.starts_with('{') {
            let entries = json
                .deserialize_map(Entries)
                .map_err(|e| self.fault(part, &e))?;
            let mut nodes = Vec::with_capacity(entries.len());
            for (name, item) in entries {
                let node = self.node(item, depth + 1)?;
                nodes.push((Key { at: node.at, name }, node));
            }
            tree::duplicate_keys(&nodes, &mut self.faults);
            Value::Map(nodes)
        } else {
            match serde_json::from_str(part).map_err(|e| self.fault(part, &e))? {
                serde_json::Value::Bool(value) => Value::Bool(value),
                serde_json::Value::Number(number) => Value::Number(number),
                serde_json::Value::String(text) => Value::String(text),
                _ => Value::Null,
            }
        };
        Ok(Node { at, value })
    }
}

struct Items;

impl<'t> Visitor<'t> for Items {
    type Value = Vec<&'t RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(items)
    }
}

struct Entries;

impl<'t> Visitor<'t> for Entries {
    type Value = Vec<(String, &'t RawValue)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }
}
