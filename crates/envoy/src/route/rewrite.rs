//! How a path changes, for requests that are forwarded and for addresses that clients are sent to.

use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use sesame_model::{PathMatch, PathRewrite};

use super::matching::regex;

/// A change in Envoy's terms.
#[derive(Debug, PartialEq)]
pub(super) enum Rewrite {
    /// What the route's path match took becomes this.
    Matched(String),
    /// What the expression finds becomes this.
    Regex {
        /// RE2, anchored, so that it is found once.
        pattern: String,
        /// With `\` doubled.
        substitution: String,
    },
}

impl Rewrite {
    /// As the message for `regex_rewrite`.
    pub(super) fn message(pattern: &str, substitution: String) -> RegexMatchAndSubstitute {
        RegexMatchAndSubstitute {
            pattern: Some(regex(pattern)),
            substitution,
        }
    }

    fn regex(pattern: String, substitution: &str) -> Self {
        Self::Regex {
            pattern,
            substitution: substitution.replace('\\', r"\\"),
        }
    }
}

/// The change, or `None` if there is none.
///
/// For a prefix it gives, as the Gateway API's `ReplacePrefixMatch` demands:
///
/// | path | matched | replacement | result |
/// |---|---|---|---|
/// | `/foo/bar` | `/foo` | `/xyz` or `/xyz/` | `/xyz/bar` |
/// | `/foo` | `/foo` | `/xyz` | `/xyz` |
/// | `/foo/` | `/foo` | `/xyz` | `/xyz/` |
/// | `/foo/bar` | `/foo` | empty or `/` | `/bar` |
/// | `/foo` and `/foo/` | `/foo` | empty or `/` | `/` |
/// | `/bar` | `/` | `/xyz` | `/xyz/bar` |
///
/// A prefix's replacement means the whole path where the route matches exactly, and nothing where it matches an
/// expression, which has no prefix.
pub(super) fn rewrite(matched: &PathMatch, rewrite: &PathRewrite) -> Option<Rewrite> {
    match (rewrite, matched) {
        (PathRewrite::Full(path), PathMatch::Exact(_))
        | (PathRewrite::Prefix(path), PathMatch::Exact(_)) => {
            Some(Rewrite::Matched(absolute(path)))
        }
        (PathRewrite::Full(path), _) => Some(Rewrite::regex("^.*$".to_owned(), &absolute(path))),
        (PathRewrite::Prefix(replacement), PathMatch::Prefix(prefix)) => self::prefix(
            prefix.trim_end_matches('/'),
            replacement.trim_end_matches('/'),
        ),
        (PathRewrite::Prefix(_), PathMatch::Regex(_)) => None,
    }
}

/// Both without trailing slashes.
fn prefix(prefix: &str, replacement: &str) -> Option<Rewrite> {
    match (prefix, replacement) {
        ("", "") => None,
        // Envoy's match took the slash too.
        ("", replacement) => Some(Rewrite::Matched(absolute(replacement) + "/")),
        // The slash behind the prefix stays as the only one, or is put there where the path ended.
        (prefix, "") => Some(Rewrite::regex(
            format!("^{}/*", regex_syntax::escape(prefix)),
            "/",
        )),
        (_, replacement) => Some(Rewrite::Matched(absolute(replacement))),
    }
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    }
}
