//! Parses YAML into trees.
//!
//! Uses only the YAML library's events, since aliases need limits and scalars are read as in kubectl (see
//! [`super::scalar`]). Numeric and boolean keys become text; `<<` merges mappings.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, Span, Tag};

use super::limits::Limits;
use super::scalar;
use super::tree::{self, Document, Key, Node, Offset, SyntaxError, TreeErrors, Value, shown};

/// The cost of a value in [`Limits::alias_bytes`], besides its text.
const VALUE_COST: usize = 64;

/// Parses a part of a file with at most one `---` marker, at its beginning. `base` is the offset of the part. Returns
/// `None` if it contains only comments.
pub(super) fn document(text: &str, base: Offset, limits: &Limits) -> Option<Document> {
    let mut builder = Builder::new(base, limits);
    let root = builder.read(text);
    let root = match root {
        Ok(()) => Ok(builder.root.take()?),
        Err(error) => Err(error),
    };
    Some(Document {
        root,
        errors: builder.errors.into_vec(),
    })
}

/// An open list or mapping.
struct Frame {
    at: Offset,
    anchor: usize,
    held: Held,
}

enum Held {
    List(Vec<Node>),
    Map {
        entries: Vec<(Key, Node)>,
        /// The key whose value comes next.
        key: Option<MapKey>,
        /// The values of `<<`, in order.
        merged: Vec<Node>,
    },
}

enum MapKey {
    Named(Key),
    Merge,
}

struct Anchored {
    node: Node,
    values: usize,
    /// Depth of nested lists and mappings.
    height: usize,
    /// The cost of each copy in [`Limits::alias_bytes`].
    cost: usize,
}

struct Builder<'l> {
    base: Offset,
    limits: &'l Limits,
    open: Vec<Frame>,
    root: Option<Node>,
    anchors: HashMap<usize, Anchored>,
    errors: TreeErrors,
    values: usize,
    alias_bytes: usize,
}

impl<'l> Builder<'l> {
    fn new(base: Offset, limits: &'l Limits) -> Self {
        Self {
            base,
            limits,
            open: Vec::new(),
            root: None,
            anchors: HashMap::new(),
            errors: TreeErrors::new(limits.errors),
            values: 0,
            alias_bytes: 0,
        }
    }

    fn read(&mut self, text: &str) -> Result<(), SyntaxError> {
        let mut options = granit_parser::Options::default();
        options.set_emit_comments(false);
        for event in Parser::new_from_str_with_options(text, options) {
            let (event, span) = event.map_err(|error| {
                let at = self.offset(error.marker().byte_offset().unwrap_or(0));
                match error.kind() {
                    // The parser's own limit is higher, but it reads ahead of its events.
                    ErrorKind::RecursionLimitExceeded => self.too_deep(at),
                    _ => SyntaxError::new(at, shown(&error.info())),
                }
            })?;
            self.event(event, &span)?;
        }
        Ok(())
    }

    #[allow(clippy::cast_possible_truncation)] // Files are smaller than 4 GiB.
    fn offset(&self, byte: usize) -> Offset {
        self.base.saturating_add(byte as Offset)
    }

    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), SyntaxError> {
        let at = self.offset(span.start.byte_offset().unwrap_or(0));
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                if plain && tag.is_none() && text == "<<" && self.merge_key() {
                    return Ok(());
                }
                // The parser locates a missing value at the next token. Its key is a more helpful location.
                let at = if span.is_empty() && plain {
                    self.key_offset().unwrap_or(at)
                } else {
                    at
                };
                let value = self.scalar(at, &text, plain, tag.as_deref())?;
                self.count(at, 1)?;
                self.close(Node { at, value }, anchor)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.collection_tag(at, tag.as_deref(), "seq")?;
                self.open(at, anchor, Held::List(Vec::new()))?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.collection_tag(at, tag.as_deref(), "map")?;
                let held = Held::Map {
                    entries: Vec::new(),
                    key: None,
                    merged: Vec::new(),
                };
                self.open(at, anchor, held)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(frame) = self.open.pop() {
                    let node = self.finish(frame.at, frame.held)?;
                    self.close(node, frame.anchor)?;
                }
            }
            Event::Alias(anchor) => self.alias(at, anchor)?,
            Event::UnresolvedAlias(name) => {
                let message = format!("undefined alias `*{}`", shown(&name));
                return Err(SyntaxError::new(at, message));
            }
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, at: Offset, values: usize) -> Result<(), SyntaxError> {
        self.values = self.values.saturating_add(values);
        if self.values > self.limits.values {
            let message = format!("more than {} values in one document", self.limits.values);
            return Err(SyntaxError::new(at, message));
        }
        Ok(())
    }

    /// Counts a copy of a node.
    fn count_copy(&mut self, at: Offset, values: usize, cost: usize) -> Result<(), SyntaxError> {
        self.alias_bytes = self.alias_bytes.saturating_add(cost);
        if self.alias_bytes > self.limits.alias_bytes {
            let message = format!(
                "the anchors and aliases in this document expand to more than {} bytes",
                self.limits.alias_bytes
            );
            return Err(SyntaxError::new(at, message));
        }
        self.count(at, values)
    }

    fn open(&mut self, at: Offset, anchor: usize, held: Held) -> Result<(), SyntaxError> {
        self.count(at, 1)?;
        if self.open.len() >= self.limits.nesting {
            return Err(self.too_deep(at));
        }
        self.open.push(Frame { at, anchor, held });
        Ok(())
    }

    fn too_deep(&self, at: Offset) -> SyntaxError {
        let message = format!(
            "lists and mappings nested more than {} levels deep",
            self.limits.nesting
        );
        SyntaxError::new(at, message)
    }

    /// Treats `<<` as a merge key if a key is expected.
    fn merge_key(&mut self) -> bool {
        match self.open.last_mut().map(|frame| &mut frame.held) {
            Some(Held::Map { key, .. }) if key.is_none() => {
                *key = Some(MapKey::Merge);
                true
            }
            _ => false,
        }
    }

    /// The offset of the key whose value is expected.
    fn key_offset(&self) -> Option<Offset> {
        match self.open.last().map(|frame| &frame.held) {
            Some(Held::Map {
                key: Some(MapKey::Named(key)),
                ..
            }) => Some(key.at),
            _ => None,
        }
    }

    fn scalar(
        &mut self,
        at: Offset,
        text: &str,
        plain: bool,
        tag: Option<&Tag>,
    ) -> Result<Value, SyntaxError> {
        let resolved = match tag {
            None if plain => scalar::resolve(text),
            None => Ok(Value::String(text.to_owned())),
            Some(tag) => tagged(tag, text),
        };
        self.errors.valid(at, resolved)
    }

    fn collection_tag(
        &mut self,
        at: Offset,
        tag: Option<&Tag>,
        expected: &str,
    ) -> Result<(), SyntaxError> {
        match tag {
            Some(tag) if tag.core_suffix() != Some(expected) => {
                self.errors.push(SyntaxError::new(at, unknown_tag(tag)))
            }
            _ => Ok(()),
        }
    }

    /// Adds a complete node to the open list or mapping.
    fn close(&mut self, node: Node, anchor: usize) -> Result<(), SyntaxError> {
        if anchor != 0 {
            let (values, height, cost) = measure(&node);
            // The anchor's copy counts too: nested anchors would multiply memory.
            self.count_copy(node.at, values, cost)?;
            self.anchors.insert(
                anchor,
                Anchored {
                    node: node.clone(),
                    values,
                    height,
                    cost,
                },
            );
        }
        let Some(frame) = self.open.last_mut() else {
            if self.root.is_some() {
                let message = "a second document must begin with `---`";
                return self.errors.push(SyntaxError::new(node.at, message));
            }
            self.root = Some(node);
            return Ok(());
        };
        match &mut frame.held {
            Held::List(items) => items.push(node),
            Held::Map {
                entries,
                key,
                merged,
            } => match key.take() {
                Some(MapKey::Named(name)) => entries.push((name, node)),
                Some(MapKey::Merge) => merged.push(node),
                None => {
                    let at = node.at;
                    let name = self.errors.valid(at, key_name(node.value))?;
                    *key = Some(MapKey::Named(Key { at, name }));
                }
            },
        }
        Ok(())
    }

    fn alias(&mut self, at: Offset, anchor: usize) -> Result<(), SyntaxError> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            // The anchor's node is still open.
            return Err(SyntaxError::new(
                at,
                "an alias cannot refer to an anchor that contains it",
            ));
        };
        let (values, height, cost) = (anchored.values, anchored.height, anchored.cost);
        if self.open.len() + height > self.limits.nesting {
            return Err(self.too_deep(at));
        }
        self.count_copy(at, values, cost)?;
        let node = self.anchors[&anchor].node.clone();
        self.close(node, 0)
    }

    fn finish(&mut self, at: Offset, held: Held) -> Result<Node, SyntaxError> {
        // Small vectors have room for four elements, which would multiply the memory of small collections.
        let value = match held {
            Held::List(mut items) => {
                items.shrink_to_fit();
                Value::List(items)
            }
            Held::Map {
                mut entries,
                merged,
                ..
            } => {
                tree::duplicate_keys(&entries, &mut self.errors)?;
                if !merged.is_empty() {
                    self.merge(&mut entries, merged)?;
                }
                entries.shrink_to_fit();
                Value::Map(entries)
            }
        };
        Ok(Node { at, value })
    }

    /// Adds the entries of merged mappings. Explicit entries take precedence, then those of earlier mappings.
    fn merge(
        &mut self,
        entries: &mut Vec<(Key, Node)>,
        merged: Vec<Node>,
    ) -> Result<(), SyntaxError> {
        let mut names: std::collections::HashSet<String> =
            entries.iter().map(|(key, _)| key.name.clone()).collect();
        let mut sources = Vec::new();
        for node in merged {
            match node.value {
                Value::List(items) => sources.extend(items),
                _ => sources.push(node),
            }
        }
        for source in sources {
            let Value::Map(more) = source.value else {
                let message = "`<<` takes a mapping or a list of mappings";
                self.errors.push(SyntaxError::new(source.at, message))?;
                continue;
            };
            for (key, node) in more {
                if names.insert(key.name.clone()) {
                    entries.push((key, node));
                }
            }
        }
        Ok(())
    }
}

/// Number of values, depth, and copy cost.
fn measure(node: &Node) -> (usize, usize, usize) {
    let mut total = (1, 0, VALUE_COST);
    let mut add = |node: &Node, key: usize| {
        let (values, height, cost) = measure(node);
        total = (total.0 + values, total.1.max(height), total.2 + cost + key);
    };
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| add(item, 0)),
        Value::Map(entries) => entries
            .iter()
            .for_each(|(key, item)| add(item, VALUE_COST + key.name.len())),
        Value::String(text) => return (1, 0, VALUE_COST + text.len()),
        _ => return total,
    }
    (total.0, total.1 + 1, total.2)
}

/// The value of a tagged scalar.
fn tagged(tag: &Tag, text: &str) -> Result<Value, String> {
    let wrong = |kind: &str| Err(format!("`{}` is not a valid {kind}", shown(text)));
    let core = match tag.core_suffix() {
        Some(core) => core,
        // A bare `!` is the non-specific tag, which gives text.
        None if tag.handle().is_empty() && tag.suffix() == "!" => "str",
        None if tag.handle() == "!" && tag.suffix().is_empty() => "str",
        None => return Err(unknown_tag(tag)),
    };
    match (core, scalar::resolve(text)) {
        ("str", _) => Ok(Value::String(text.to_owned())),
        ("null", Ok(Value::Null)) => Ok(Value::Null),
        ("null", _) => wrong("null"),
        ("bool", Ok(Value::Bool(value))) => Ok(Value::Bool(value)),
        ("bool", _) => wrong("boolean"),
        ("int", Ok(Value::Number(number))) if !number.is_f64() => Ok(Value::Number(number)),
        ("int", _) => wrong("integer"),
        ("float", Ok(Value::Number(number))) => Ok(Value::Number(number)),
        ("float", _) => wrong("number"),
        _ => Err(unknown_tag(tag)),
    }
}

fn unknown_tag(tag: &Tag) -> String {
    let written = format!("{}{}", tag.handle(), tag.suffix());
    format!(
        "unsupported tag `{}`: remove it, and write binary data as base64",
        shown(&written)
    )
}

/// A mapping key as text.
fn key_name(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Number(number) => match number.as_f64() {
            #[allow(clippy::cast_possible_truncation)] // kubectl also uses 32 bits here.
            Some(float) if number.is_f64() => Ok((float as f32).to_string()),
            _ => Ok(number.to_string()),
        },
        Value::Null => Err("null is not a valid key: quote it to make it a string".to_owned()),
        Value::List(_) | Value::Map(_) => Err("a list or mapping is not a valid key".to_owned()),
    }
}
