//! Strings that a schema allows or rejects.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use regex::Regex;
use serde_json::Value;

/// A cache of compiled patterns: compiling a pattern takes longer than matching it.
static PATTERNS: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);

/// The schema of a string.
pub(crate) struct Text<'a> {
    schema: &'a Value,
    pattern: Option<Regex>,
}

/// Strings of many forms; `#` is replaced by a number to make them distinct.
const FORMS: &[&str] = &[
    "a#",
    "a#.example.com",
    "/a#",
    "example.com/a#",
    "http://a#.example.com",
    "spiffe://example.com/a#",
    "1#s",
    "2026-01-02T03:04:05Z",
];

/// Strings that some pattern rejects.
const PROBES: &[&str] = &[
    "",
    "a",
    "A",
    "Service",
    "9",
    "a b",
    " a",
    "a ",
    "a\tb",
    "a\nb",
    "\u{0}",
    "ä",
    "-a",
    "a-",
    "a-b",
    "a_b",
    "a..b",
    ".a",
    "a.",
    "*",
    "*.a",
    "*.example.com",
    "a.*",
    "a.*.example.com",
    "**.a",
    "example.com",
    "Example.com",
    "192.0.2.1",
    "2001:db8::1",
    "example.com/",
    "/",
    "/a",
    "a/b",
    "a/b/c",
    "example.com/a",
    "example.com/-a",
    "Example.com/a",
    "//",
    "/a//b",
    "/a/./b",
    "/a/../b",
    "/a/..",
    "/a/.",
    "/a%2fb",
    "/a%2Fb",
    "/a%20b",
    "/a%2",
    "/a#b",
    "/a?b",
    "/a b",
    "/a,b;c=d",
    "/a{b}",
    "http://example.com",
    "https://example.com:8443",
    "https://*.example.com",
    "https://*",
    "https://example.com/",
    "ftp://example.com",
    "https://",
    "spiffe://example.com/a",
    "mailto:a@example.com",
    "a:",
    ":a",
    "1s",
    "1h1m1s1ms",
    "1h1m1s1ms1s",
    "1.5s",
    "100000s",
    "99999s",
    "-1s",
    "1",
    "s",
    "0s",
    "x-header",
    "x!#$%&'*+-.^_`|~",
    "x(y)",
    "x,y",
    "x\"y",
    "HTTP",
    "http",
    "https",
    "GET",
    "Hostname",
    "System",
    "Cluster",
    "k8s.io/a",
    "a.k8s.io/a",
    "2026-01-02T03:04:05Z",
];

impl<'a> Text<'a> {
    pub(crate) fn of(schema: &'a Value) -> Self {
        let compiled = |pattern: &str| {
            let mut patterns = PATTERNS.lock().expect("no test panics while holding it");
            let pattern = patterns
                .entry(pattern.to_owned())
                .or_insert_with(|| Regex::new(pattern).expect("a CRD's pattern is valid"));
            pattern.clone()
        };
        Text {
            schema,
            pattern: schema["pattern"].as_str().map(compiled),
        }
    }

    /// Whether the schema allows a string.
    pub(crate) fn allows(&self, text: &str) -> bool {
        let bound = |name: &str| self.schema[name].as_u64().map(|bound| bound as usize);
        let count = text.chars().count();
        bound("minLength").is_none_or(|minimum| count >= minimum)
            && bound("maxLength").is_none_or(|maximum| count <= maximum)
            && self
                .pattern
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(text))
            && (self.schema["format"] != "date-time" || text.parse::<jiff::Timestamp>().is_ok())
            && self.schema["enum"]
                .as_array()
                .is_none_or(|choices| choices.iter().any(|c| c == text))
    }

    /// An allowed string other than the default, chosen by field name and pattern.
    pub(crate) fn sample(&self, name: &str, nth: usize) -> String {
        let forms = match name {
            "protocol" => &["HTTP"],
            "routability" => &["example.com/a#"],
            "path" | "replaceFullPath" | "replacePrefixMatch" => &["/a#"],
            "value" if self.schema["default"] == "/" => &["/a#"],
            "hostname" | "hostnames" => &["a#.example.com"],
            _ => FORMS,
        };
        let number = if nth == 0 {
            String::new()
        } else {
            nth.to_string()
        };
        let mut samples = forms.iter().map(|form| form.replace('#', &number));
        samples
            .find(|text| self.schema["default"] != *text.as_str() && self.allows(text))
            .unwrap_or_else(|| panic!("{name}: no sample for {}", self.schema))
    }

    /// Strings of every form, one of the maximum length, and a longer one.
    pub(crate) fn probes(&self, name: &str) -> Vec<String> {
        let mut probes: Vec<String> = PROBES.iter().map(|probe| (*probe).to_owned()).collect();
        if let Some(maximum) = self.schema["maxLength"].as_u64() {
            for length in [maximum, maximum + 1] {
                probes.extend(stretch(&self.sample(name, 0), length as usize));
            }
        }
        probes
    }
}

/// Stretches the sample to this length, once with letters and once with hostname labels.
fn stretch(sample: &str, length: usize) -> [String; 2] {
    let letters = length.saturating_sub(sample.len());
    let (head, tail) = match sample.rsplit_once('a') {
        Some((head, tail)) => (head, format!("a{tail}")),
        None => ("", sample.to_owned()),
    };
    let mut labels = String::new();
    while labels.len() < letters {
        let left = letters - labels.len();
        match left {
            1 => labels.push('a'),
            2..=63 => labels.push_str(&format!("{}.", "a".repeat(left - 1))),
            // Never leaves a remainder of one.
            _ => labels.push_str(&format!("{}.", "a".repeat(50))),
        }
    }
    [
        format!("{head}{}{tail}", "a".repeat(letters)),
        format!("{head}{labels}{tail}"),
    ]
}
