//! Prefix replacement, in paths and in redirects.
//!
//! Envoy replaces the text of the prefix, whatever follows it. To keep slashes correct, a route for `/p` has a variant
//! for `/p/`, and vice versa.

use std::collections::BTreeSet;

use sesame_api::PathRewritePolicy;
use sesame_model::{PathMatch, PathRewrite};

use super::conditions::{PathCondition, starts_with};
use super::findings::{About, Findings};
use super::text::{PATH, is_path};

/// The prefix replacements of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Replacements {
    /// Each replacement with its prefix; `None` stands for any prefix.
    entries: Vec<(Option<String>, String)>,
}

/// A path match of a route, with the rewrite for this path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) path: PathMatch,
    /// The path that determines the precedence; `None` if it is `path`.
    pub(super) ranked_as: Option<PathMatch>,
    pub(super) rewrite: Option<PathRewrite>,
}

/// Reads the replacements of a route.
pub(super) fn read(
    field: &str,
    policy: Option<&PathRewritePolicy>,
    findings: &mut Findings,
) -> Replacements {
    let mut seen = BTreeSet::new();
    let mut entries = Vec::new();
    for (index, entry) in policy
        .iter()
        .flat_map(|policy| &policy.replace_prefix)
        .enumerate()
    {
        let field = format!("{field}.pathRewritePolicy.replacePrefix[{index}]");
        let prefix = entry.prefix.as_deref().filter(|prefix| !prefix.is_empty());
        for (part, path) in [
            ("prefix", prefix),
            ("replacement", Some(&*entry.replacement)),
        ] {
            if path.is_some_and(|path| !is_path(path)) {
                findings.refuse(About::PREFIX, &format!("{field}.{part}"), PATH);
            }
        }
        if seen.insert(prefix) {
            entries.push((prefix.map(str::to_owned), entry.replacement.to_string()));
        } else {
            let message = match prefix {
                Some(prefix) => {
                    format!("an earlier entry also replaces prefix {prefix}; remove one of them")
                }
                None => "an earlier entry has no prefix either; remove one of them".to_owned(),
            };
            findings.refuse(About::PREFIX, &field, message);
        }
    }
    Replacements { entries }
}

impl Replacements {
    /// The replacement of a redirect, which applies to any prefix.
    pub(super) fn of_redirect(replacement: &str) -> Self {
        Self {
            entries: vec![(None, replacement.to_owned())],
        }
    }

    /// The variants of a route with this condition on the path.
    ///
    /// # Errors
    /// If the path has no prefix to replace.
    pub(super) fn variants(
        &self,
        path: Option<&PathCondition>,
        matched: &PathMatch,
    ) -> Result<Vec<Variant>, &'static str> {
        let unchanged = || {
            vec![Variant {
                path: matched.clone(),
                ranked_as: None,
                rewrite: None,
            }]
        };
        if self.entries.is_empty() {
            return Ok(unchanged());
        }
        let prefix = match path {
            None => "/",
            Some(PathCondition::Prefix(prefix)) => prefix,
            Some(PathCondition::Exact(_) | PathCondition::Regex(_)) => {
                return Err(
                    "needs a prefix to replace, but the condition on the path is exact or a regular expression",
                );
            }
        };
        let replacement = |wanted: Option<&str>| {
            let mut entries = self.entries.iter();
            let entry = entries.find(|(prefix, _)| prefix.as_deref() == wanted);
            entry.map(|(_, replacement)| replacement.as_str())
        };
        Ok(
            match replacement(Some(prefix)).or_else(|| replacement(None)) {
                Some(replacement) => replaced(prefix, replacement),
                None => unchanged(),
            },
        )
    }
}

fn replaced(prefix: &str, replacement: &str) -> Vec<Variant> {
    let base = prefix.trim_end_matches('/');
    let replacement = replacement.trim_end_matches('/');
    let text = |text: String| Some(PathRewrite::Text(text));
    let below = Variant {
        path: starts_with(&format!("{base}/")),
        ranked_as: None,
        rewrite: text(format!("{replacement}/")),
    };
    if base.is_empty() {
        return vec![below];
    }
    let itself = text(match replacement {
        "" => "/".to_owned(),
        replacement => replacement.to_owned(),
    });
    // With the replacement `/`, the path `/px` would become `/x`, for which another route may exist.
    match prefix.ends_with('/') || replacement.is_empty() {
        // The second variant matches only the path itself: `/px` doesn't start with `/p/`.
        true => vec![
            below,
            Variant {
                path: PathMatch::Exact(base.to_owned()),
                ranked_as: Some(starts_with(base)),
                rewrite: itself,
            },
        ],
        false => vec![
            Variant {
                path: starts_with(base),
                ranked_as: None,
                rewrite: itself,
            },
            below,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variants(prefix: &str, replacement: &str) -> Vec<(String, String)> {
        let replacements = Replacements::of_redirect(replacement);
        let path = PathCondition::Prefix(prefix.to_owned());
        let variants = replacements.variants(Some(&path), &starts_with(prefix));
        let variants = variants.expect("a prefix").into_iter();
        let texts = variants.map(|variant| {
            let path = match variant.path {
                PathMatch::Exact(path) => format!("={path}"),
                PathMatch::StartsWith(path) | PathMatch::Prefix(path) => path,
                other => panic!("{other:?}"),
            };
            match variant.rewrite {
                Some(PathRewrite::Text(text)) => (path, text),
                other => panic!("{other:?}"),
            }
        });
        texts.collect()
    }

    #[test]
    fn slashes_stay_right() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let pairs = pairs.iter();
            pairs.map(|&(a, b)| (a.to_owned(), b.to_owned())).collect()
        };
        for replacement in ["/r", "/r/"] {
            let expected = pairs(&[("/p", "/r"), ("/p/", "/r/")]);
            assert_eq!(variants("/p", replacement), expected);
            let expected = pairs(&[("/p/", "/r/"), ("=/p", "/r")]);
            assert_eq!(variants("/p/", replacement), expected);
            assert_eq!(variants("/", replacement), pairs(&[("/", "/r/")]));
        }
        assert_eq!(variants("/p", "/"), pairs(&[("/p/", "/"), ("=/p", "/")]));
        assert_eq!(variants("/", "/"), pairs(&[("/", "/")]));
    }

    #[test]
    fn the_entry_with_the_whole_prefix_applies() {
        let replacements = Replacements {
            entries: vec![(None, "/any".into()), (Some("/a".into()), "/x".into())],
        };
        let first = |prefix: &str| {
            let path = PathCondition::Prefix(prefix.to_owned());
            let variants = replacements.variants(Some(&path), &starts_with(prefix));
            variants.expect("a prefix")[0].rewrite.clone()
        };
        assert_eq!(first("/a"), Some(PathRewrite::Text("/x".into())));
        assert_eq!(first("/b"), Some(PathRewrite::Text("/any".into())));
        let exact = PathCondition::Exact("/a".into());
        let matched = PathMatch::Exact("/a".into());
        assert!(replacements.variants(Some(&exact), &matched).is_err());
    }
}
