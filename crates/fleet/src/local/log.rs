//! Parses Envoy's output into lines with a level.
//!
//! In: bytes from a pipe. Out: lines of bounded length.

use std::fmt;

/// The maximum length of a line, in bytes. The rest is dropped.
const MAX_LINE: usize = 16 << 10;

/// Envoy's `--log-format`: level, component, and message with escaped newlines. No timestamp, since Sesame's log adds
/// one.
pub(super) const FORMAT: &str = "[%l][%n] %_";

/// Envoy's log levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Trace.
    Trace,
    /// Debug.
    Debug,
    /// Info.
    Info,
    /// Warning.
    Warning,
    /// Error.
    Error,
    /// Critical: Envoy exits.
    Critical,
}

impl Level {
    const ALL: [Self; 6] = [
        Self::Trace,
        Self::Debug,
        Self::Info,
        Self::Warning,
        Self::Error,
        Self::Critical,
    ];

    /// Envoy's name for the level, as in `--log-level`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A line that Envoy printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The level.
    pub level: Level,
    /// Envoy's component: `main`, `upstream`, `config` …; `stdout` for standard output (access logs), empty if the line
    /// has none.
    pub component: String,
    /// The text.
    pub message: String,
}

impl Line {
    /// A line from standard error. If it isn't in [`FORMAT`], Envoy printed it before setting up its log (invalid
    /// flags, a missing library), so it is a warning.
    pub(super) fn from_stderr(text: &str) -> Self {
        let structured = || {
            let (level, rest) = text.strip_prefix('[')?.split_once("][")?;
            let (component, message) = rest.split_once("] ")?;
            Some(Self {
                level: Level::parse(level)?,
                component: component.to_owned(),
                message: message.to_owned(),
            })
        };
        structured().unwrap_or_else(|| Self {
            level: Level::Warning,
            component: String::new(),
            message: text.to_owned(),
        })
    }

    /// A line from standard output.
    pub(super) fn from_stdout(text: &str) -> Self {
        Self {
            level: Level::Info,
            component: "stdout".to_owned(),
            message: text.to_owned(),
        }
    }
}

/// Splits a byte stream into lines of at most [`MAX_LINE`] bytes.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    /// The current line, up to the limit.
    partial: Vec<u8>,
    /// The current line exceeds the limit.
    truncated: bool,
}

impl Splitter {
    /// Appends bytes and calls `emit` with each completed line, except empty ones.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut emit: impl FnMut(&str)) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            self.extend(&bytes[..end]);
            self.finish(&mut emit);
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes);
    }

    /// Emits the current line, at its end or at the end of the stream.
    pub(super) fn finish(&mut self, mut emit: impl FnMut(&str)) {
        let text = String::from_utf8_lossy(&self.partial);
        let text = text.trim_end();
        if self.truncated {
            emit(&format!("{text} … (truncated)"));
        } else if !text.is_empty() {
            emit(text);
        }
        self.partial.clear();
        self.truncated = false;
    }

    fn extend(&mut self, bytes: &[u8]) {
        let room = MAX_LINE - self.partial.len();
        self.truncated |= bytes.len() > room;
        self.partial
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<String> {
        let mut splitter = Splitter::default();
        let mut lines = Vec::new();
        for chunk in chunks {
            splitter.push(chunk, |line| lines.push(line.to_owned()));
        }
        splitter.finish(|line| lines.push(line.to_owned()));
        lines
    }

    #[test]
    fn lines_in_envoys_format_are_parsed() {
        let line = Line::from_stderr("[warning][config] a [b] c] d");
        let expected = Line {
            level: Level::Warning,
            component: "config".into(),
            message: "a [b] c] d".into(),
        };
        assert_eq!(line, expected);
        for level in Level::ALL {
            let text = format!("[{level}][main] x");
            assert_eq!(Line::from_stderr(&text).level, level);
        }
    }

    #[test]
    fn other_lines_are_warnings() {
        for text in [
            "PARSE ERROR: Argument: --x",
            "[fatal][main] x",
            "[info] x",
            "[info][main]",
            "[",
        ] {
            let line = Line::from_stderr(text);
            assert_eq!(
                (line.level, line.component.as_str(), line.message.as_str()),
                (Level::Warning, "", text)
            );
        }
    }

    #[test]
    fn chunks_are_joined_into_lines() {
        assert_eq!(
            lines(&[b"on", b"e\r\ntw", b"o\n\n\nthr", b"ee"]),
            ["one", "two", "three"]
        );
        assert_eq!(lines(&[b"\xff\n"]), ["\u{fffd}"]);
    }

    #[test]
    fn a_long_line_is_truncated_and_the_next_is_not() {
        let long = vec![b'x'; 3 * MAX_LINE];
        let lines = lines(&[&long, &long, b"\nnext\n"]);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("xxx") && lines[0].ends_with("x … (truncated)"));
        assert!(lines[0].len() < MAX_LINE + 20);
        assert_eq!(lines[1], "next");
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(text in "[a-c \n]{0,60}", cuts in prop::collection::vec(0_usize..60, 0..6)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(lines(&chunks), lines(&[bytes]));
        }

        #[test]
        fn any_text_parses(text in "\\PC*") {
            let line = Line::from_stderr(&text);
            prop_assert!(text.ends_with(&line.message));
        }
    }
}
