//! Output.
//!
//! In: serializable values, lines. Out: YAML, JSON or text on standard output, messages on standard error.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, ErrorKind, Write};

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

/// Data formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// YAML
    Yaml,
    /// JSON, indented
    Json,
}

/// Prints a value.
pub(crate) fn print(value: &impl Serialize, format: Format) -> Result<()> {
    let text = match format {
        Format::Yaml => yaml(value)?,
        Format::Json => serde_json::to_string_pretty(value)?,
    };
    print_text(&text)
}

/// Prints text, adding a newline unless it ends with one.
pub(crate) fn print_text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// A value as YAML. Strings that look like another type are quoted.
pub(crate) fn yaml(value: &impl Serialize) -> Result<String> {
    let options = serde_saphyr::ser_options! {
        // Don't fold long lines, so that output stays searchable.
        folded_wrap_chars: usize::MAX,
    };
    Ok(serde_saphyr::to_string_with_options(value, options)?)
}

/// Prints a message to standard error. Control characters are escaped.
pub(crate) fn warn(message: fmt::Arguments<'_>) {
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "{}", escaped(&message.to_string()));
}

/// Escapes control characters, which could change what a terminal shows, and characters that reverse the direction of
/// text.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| {
        let reverses = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        c.is_control() && c != '\n' || reverses
    };
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match harmful(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Whether standard output was closed by its reader.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped("a.yaml: é\nb"), "a.yaml: é\nb");
        assert_eq!(
            escaped("\u{1b}[2Ja\r\tb\u{9b}\u{202e}"),
            r"\u{1b}[2Ja\r\tb\u{9b}\u{202e}"
        );
    }

    #[test]
    fn yaml_round_trips() {
        let value = json!({
            "number": 80, "text": "80", "yes": "yes", "null": "null", "empty": "", "octal": "010", "star": "*",
            "pem": "-----BEGIN X-----\nabc\n-----END X-----\n", "colon": "a: b", "control": "a\u{1}b", "tilde": "~",
            "list": [{"a": 1, "b": []}, {}], "float": 0.5, "percent": "%REQ(x)%", "long": "word ".repeat(40),
            "trail": "two\n\n", "spaces": "  a\nb", "at": "@type", "time": "1.5s", "date": "2001-01-01",
        });
        let text = yaml(&value).unwrap();
        let parsed: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(parsed, value, "{text}");
        for quoted in [
            "\ntext: \"80\"\n",
            "\n\"yes\": \"yes\"\n",
            "\noctal: \"010\"\n",
        ] {
            assert!(text.contains(quoted), "{quoted} in {text}");
        }
    }
}
