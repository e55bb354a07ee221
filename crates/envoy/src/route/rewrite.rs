//! Path rewrites, for forwarded requests and for redirects.

use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use sesame_model::{PathMatch, PathRewrite};

use super::matching::regex;

/// A rewrite in Envoy's terms.
#[derive(Debug, PartialEq)]
pub(super) enum Rewrite {
    /// Replaces the part matched by the route's path match.
    Matched(String),
    /// Replaces what the expression matches.
    Regex {
        /// RE2, anchored so that it matches at most once.
        pattern: String,
        /// With backslashes doubled.
        substitution: String,
    },
}

impl Rewrite {
    /// The message for `regex_rewrite`.
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

/// The rewrite; `None` if the path stays the same.
///
/// Prefixes are replaced as the Gateway API's `ReplacePrefixMatch` requires:
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
/// With an exact match, a prefix replacement replaces the whole path; with a regular expression, which has no prefix,
/// it does nothing.
pub(super) fn rewrite(matched: &PathMatch, rewrite: &PathRewrite) -> Option<Rewrite> {
    match (rewrite, matched) {
        (
            PathRewrite::Full(path) | PathRewrite::Prefix(path) | PathRewrite::Text(path),
            PathMatch::Exact(_),
        ) => Some(Rewrite::Matched(absolute(path))),
        // Envoy's match for a prefix without segments is `/`.
        (PathRewrite::Text(text), PathMatch::StartsWith(_) | PathMatch::Prefix(_))
        | (PathRewrite::Prefix(text), PathMatch::StartsWith(_)) => {
            Some(Rewrite::Matched(absolute(text)))
        }
        (PathRewrite::Full(path), _) => Some(Rewrite::regex("^.*$".to_owned(), &absolute(path))),
        (PathRewrite::Prefix(replacement), PathMatch::Prefix(prefix)) => self::prefix(
            prefix.trim_end_matches('/'),
            replacement.trim_end_matches('/'),
        ),
        (PathRewrite::Prefix(_) | PathRewrite::Text(_), PathMatch::Regex(_)) => None,
    }
}

/// Neither argument has a trailing slash.
fn prefix(prefix: &str, replacement: &str) -> Option<Rewrite> {
    match (prefix, replacement) {
        ("", "") => None,
        // Envoy's prefix match includes the slash.
        ("", replacement) => Some(Rewrite::Matched(absolute(replacement) + "/")),
        // Leaves exactly one slash in place of the prefix.
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
    fn a_prefix_is_replaced_with_exactly_one_slash() {
        assert_eq!(of_prefix("/foo", "/xyz"), matched("/xyz"));
        assert_eq!(of_prefix("/foo", "/xyz/"), matched("/xyz"));
        assert_eq!(of_prefix("/foo/", "xyz"), matched("/xyz"));
        assert_eq!(of_prefix("/foo.a", ""), regex(r"^/foo\.a/*", "/"));
        assert_eq!(of_prefix("/foo", "/"), regex("^/foo/*", "/"));
        assert_eq!(of_prefix("/", "/xyz"), matched("/xyz/"));
        assert_eq!(of_prefix("/", "/"), None);
    }

    #[test]
    fn a_full_path_replaces_the_whole_path() {
        let full = PathRewrite::Full(r"/a\1".to_owned());
        let prefix = PathMatch::Prefix("/b".to_owned());
        assert_eq!(rewrite(&prefix, &full), regex("^.*$", r"/a\\1"));
        let exact = PathMatch::Exact("/b".to_owned());
        assert_eq!(rewrite(&exact, &full), matched(r"/a\1"));
    }

    #[test]
    fn a_text_is_replaced_without_regard_to_slashes() {
        let text = PathRewrite::Text("/b/".to_owned());
        for path in [
            PathMatch::StartsWith("/a".to_owned()),
            PathMatch::Prefix("/".to_owned()),
            PathMatch::Exact("/a".to_owned()),
        ] {
            assert_eq!(rewrite(&path, &text), matched("/b/"));
        }
    }

    #[test]
    fn a_regular_expression_has_no_prefix_to_replace() {
        let matched = PathMatch::Regex("/b+".to_owned());
        let change = PathRewrite::Prefix("/a".to_owned());
        assert_eq!(rewrite(&matched, &change), None);
    }
}
