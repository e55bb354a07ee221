//! Splits the text of a file into documents, and converts offsets into lines and columns.
//!
//! YAML is split at its `---` lines before it is parsed, so that an error in one document doesn't affect the others.

use super::limits::Limits;
use super::tree::{Document, Offset, SyntaxError};
use super::{json, yaml};

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Concatenated JSON values.
    Json,
    /// YAML, or JSON if it begins with a brace and is valid JSON.
    Yaml,
}

/// Calls `each` with every document in a text, in order.
///
/// # Errors
/// If there are too many documents. Those within the limit are passed to `each`.
pub(super) fn documents(
    text: &str,
    format: Format,
    limits: &Limits,
    mut each: impl FnMut(Document),
) -> Result<(), SyntaxError> {
    let bare = text.strip_prefix('\u{feff}').unwrap_or(text);
    #[allow(clippy::cast_possible_truncation)] // At most 3 bytes.
    let base = (text.len() - bare.len()) as Offset;
    let mut count = 0;
    let mut count_one = |at: Offset| {
        count += 1;
        if count > limits.documents {
            let message = format!("more than {} documents in one file", limits.documents);
            return Err(SyntaxError::new(at, message));
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

/// Whether the whole text is JSON. kubectl makes the same distinction.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{')
        && serde_json::Deserializer::from_str(text)
            .into_iter::<serde::de::IgnoredAny>()
            .all(|value| value.is_ok())
}

/// Splits YAML at the lines that begin or end a document. Skips parts without content.
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
            // A directive (`%YAML 1.2`) is not content.
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

/// The bytes of a block of [`Lines`].
const BLOCK: usize = 1024;

/// Converts offsets into lines and columns. A conversion reads at most one block.
pub(super) struct Lines<'t> {
    /// Without a byte order mark.
    text: &'t str,
    /// The length of the byte order mark.
    mark: usize,
    /// The location at which each block begins.
    blocks: Vec<(u32, u32)>,
}

impl<'t> Lines<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let bare = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut location = (1, 1);
        let ends = bare.as_bytes().chunks(BLOCK).map(|block| {
            location = advanced(location, block);
            location
        });
        Self {
            text: bare,
            mark: text.len() - bare.len(),
            blocks: std::iter::once((1, 1)).chain(ends).collect(),
        }
    }

    /// The line and column, from 1; columns count characters.
    pub(super) fn location(&self, at: Offset) -> (u32, u32) {
        let at = (at as usize).saturating_sub(self.mark);
        let at = self.text.floor_char_boundary(at);
        let block = at / BLOCK;
        let before = &self.text.as_bytes()[block * BLOCK..at];
        advanced(self.blocks[block], before)
    }
}

/// The location after text that begins at a location.
fn advanced((line, column): (u32, u32), text: &[u8]) -> (u32, u32) {
    let newline = |byte| byte == b'\n';
    let (column, rest) = match text.iter().rposition(|byte| newline(*byte)) {
        Some(last) => (1, &text[last + 1..]),
        None => (column, text),
    };
    // Each character has one byte that doesn't continue it.
    let characters = count(rest, |byte| byte & 0b1100_0000 != 0b1000_0000);
    (line + count(text, newline), column + characters)
}

fn count(text: &[u8], counted: impl Fn(u8) -> bool) -> u32 {
    text.iter().map(|byte| u32::from(counted(*byte))).sum()
}

#[cfg(test)]
mod tests;
