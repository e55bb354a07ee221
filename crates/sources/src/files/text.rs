//! The text of a file as documents, and offsets as lines and columns.
//!
//! In: text. Out: trees. YAML is cut at its `---` lines before it is parsed: such a line ends a document
//! wherever it stands, so a mistake in one document can't hide its neighbours.

use super::limits::Limits;
use super::tree::{Document, Fault, Offset};
use super::{json, yaml};

/// How to read a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// JSON values, one after another.
    Json,
    /// YAML, or JSON if it is some.
    Yaml,
}

/// Calls `each` with every document of a text, in order.
///
/// # Errors
/// A fault that makes the whole text unusable. Documents before it were handed out.
pub(super) fn documents(
    text: &str,
    format: Format,
    limits: &Limits,
    mut each: impl FnMut(Document),
) -> Result<(), Fault> {
    let bare = text.strip_prefix('\u{feff}').unwrap_or(text);
    #[allow(clippy::cast_possible_truncation)] // 3 bytes at most.
    let base = (text.len() - bare.len()) as Offset;
    let mut count = 0;
    let mut count_one = |at: Offset| {
        count += 1;
        if count > limits.documents {
            let message = format!("more than {} documents in one file", limits.documents);
            return Err(Fault::new(at, message));
        }
        Ok(())
    };
    if format == Format::Json || is_json(bare) {
        for document in json::documents(bare, base, limits) {
            count_one(base)?;
            each(document);
        }
        return Ok(());
    }
    for (at, part) in parts(bare) {
        let at = base + at;
        if let Some(document) = yaml::document(part, at, limits) {
            count_one(at)?;
            each(document);
        }
    }
    Ok(())
}

/// Whether a text is JSON through and through, as kubectl asks of what begins with a brace.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{')
        && serde_json::Deserializer::from_str(text)
            .into_iter::<serde::de::IgnoredAny>()
            .all(|value| value.is_ok())
}

/// Cuts YAML at the lines that begin or end a document. Parts without content are left out.
fn parts(text: &str) -> Vec<(Offset, &str)> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut at = 0;
    let mut content = false;
    let mut push = |from: usize, to: usize, content: bool| {
        if content {
            #[allow(clippy::cast_possible_truncation)] // Files are smaller than 4 GiB.
            parts.push((from as Offset, &text[from..to]));
        }
    };
    for line in text.split_inclusive('\n') {
        let next = at + line.len();
        match marker(line) {
            Some(Marker::Begin) => {
                push(from, at, content);
                from = at;
                let rest = line[3..].trim_start();
                content = !rest.is_empty() && !rest.starts_with('#');
            }
            Some(Marker::End) => {
                push(from, at, content);
                from = next;
                content = false;
            }
            // A directive (`%YAML 1.2`) stands before its document and means nothing by itself.
            None => content |= !line.trim().is_empty() && !line.starts_with(['#', '%']),
        }
        at = next;
    }
    push(from, at, content);
    parts
}

enum Marker {
    Begin,
    End,
}

fn marker(line: &str) -> Option<Marker> {
    let (marker, rest) = line.split_at_checked(3)?;
    if !rest.is_empty() && !rest.starts_with([' ', '\t', '\r', '\n']) {
        return None;
    }
    match marker {
        "---" => Some(Marker::Begin),
        "..." => Some(Marker::End),
        _ => None,
    }
}

/// Turns offsets into lines and columns. Offsets that grow cost no more than reading the text once.
pub(super) struct Lines<'t> {
    text: &'t str,
    /// The last answer: offset, and line and column there, both counted from 1.
    last: (usize, u32, u32),
}

impl<'t> Lines<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let start = if text.starts_with('\u{feff}') { 3 } else { 0 };
        Self {
            text,
            last: (start, 1, 1),
        }
    }

    /// Line and column, counted from 1, columns in characters.
    pub(super) fn position(&mut self, at: Offset) -> (u32, u32) {
        let mut at = (at as usize).min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        if at < self.last.0 {
            *self = Self::new(self.text);
        }
        let (from, mut line, mut column) = self.last;
        for c in self.text.get(from..at).unwrap_or_default().chars() {
            if c == '\n' {
                line = line.saturating_add(1);
                column = 1;
            } else {
                column = column.saturating_add(1);
            }
        }
        self.last = (at.max(from), line, column);
        (line, column)
    }
}

#[cfg(test)]
mod tests;
