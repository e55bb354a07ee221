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

#[cfg(test)]
mod tests {
    use super::*;

    fn of_prefix(prefix: &str, replacement: &str) -> Option<Rewrite> {
        rewrite(
            &PathMatch::Prefix(prefix.to_owned()),
            &PathRewrite::Prefix(replacement.to_owned()),
        )
    }

    fn matched(text: &str) -> Option<Rewrite> {
        Some(Rewrite::Matched(text.to_owned()))
    }

    fn regex(pattern: &str, substitution: &str) -> Option<Rewrite> {
        Some(Rewrite::Regex {
            pattern: pattern.to_owned(),
            substitution: substitution.to_owned(),
        })
    }

    #[test]
    fn prefixes() {
        assert_eq!(of_prefix("/foo", "/xyz"), matched("/xyz"));
        assert_eq!(of_prefix("/foo", "/xyz/"), matched("/xyz"));
        assert_eq!(of_prefix("/foo/", "xyz"), matched("/xyz"));
        assert_eq!(of_prefix("/foo.a", ""), regex(r"^/foo\.a/*", "/"));
        assert_eq!(of_prefix("/foo", "/"), regex("^/foo/*", "/"));
        assert_eq!(of_prefix("/", "/xyz"), matched("/xyz/"));
        assert_eq!(of_prefix("/", "/"), None);
    }

    #[test]
    fn whole_paths() {
        let full = PathRewrite::Full(r"/a\1".to_owned());
        let prefix = PathMatch::Prefix("/b".to_owned());
        assert_eq!(rewrite(&prefix, &full), regex("^.*$", r"/a\\1"));
        let exact = PathMatch::Exact("/b".to_owned());
        assert_eq!(rewrite(&exact, &full), matched(r"/a\1"));
    }

    #[test]
    fn an_expression_has_no_prefix() {
        let matched = PathMatch::Regex("/b+".to_owned());
        let change = PathRewrite::Prefix("/a".to_owned());
        assert_eq!(rewrite(&matched, &change), None);
    }
}
