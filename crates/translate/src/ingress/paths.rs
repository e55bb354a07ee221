//! The paths of rules.

use sesame_api::{IngressPath, IngressPathType};
use sesame_model::{PathMatch, RouteMatch};

use crate::shared::regex;

/// Characters that make a path of type ImplementationSpecific a regular expression.
const REGEX: [char; 6] = ['^', '+', '*', '[', ']', '%'];

/// Reads which requests a path matches.
///
/// # Errors
/// Why the path can't match any request, as a message for the field `path`.
pub(super) fn read(source: &IngressPath) -> Result<PathMatch, String> {
    let path = source.path.as_deref().unwrap_or_default();
    match &source.path_type {
        IngressPathType::Exact => checked(path).map(PathMatch::Exact),
        IngressPathType::Prefix => checked(path).map(|path| match path.trim_end_matches('/') {
            "" => all(),
            prefix => PathMatch::Prefix(prefix.to_owned()),
        }),
        IngressPathType::ImplementationSpecific if path.is_empty() || path == "/" => Ok(all()),
        IngressPathType::ImplementationSpecific if path.contains(REGEX) => {
            match regex::check(path) {
                Ok(()) => Ok(PathMatch::Regex(path.to_owned())),
                Err(reason) => Err(format!("the regular expression {reason}")),
            }
        }
        IngressPathType::ImplementationSpecific => checked(path).map(PathMatch::StartsWith),
        IngressPathType::Other(_) => Err(format!(
            "pathType {} is unknown; use {}",
            source.path_type.as_str(),
            IngressPathType::KNOWN.join(", ")
        )),
    }
}

/// The match for all paths.
pub(super) fn all() -> PathMatch {
    PathMatch::Prefix("/".to_owned())
}

/// The match for a path, without other conditions.
pub(super) fn requests(path: PathMatch) -> RouteMatch {
    RouteMatch {
        path,
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
        grpc: false,
        share: None,
    }
}

/// Checks that a request can have this path.
fn checked(path: &str) -> Result<String, String> {
    if !path.starts_with('/') {
        return Err(format!("{path:?} does not start with a slash"));
    }
    let impossible = |c: char| c == '?' || c == '#' || c.is_ascii_control() || c == ' ';
    match path.chars().find(|&c| impossible(c)) {
        Some(c) => Err(format!(
            "{path:?} contains {c:?}, which is not valid in a path"
        )),
        None => Ok(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use sesame_api::IngressBackend;

    use super::*;

    fn path(type_: IngressPathType, path: &str) -> Result<PathMatch, String> {
        read(&IngressPath {
            path: Some(path.into()),
            path_type: type_,
            backend: IngressBackend::default(),
        })
    }

    #[test]
    fn a_prefix_ignores_slashes_at_the_end() {
        let prefix = |text| path(IngressPathType::Prefix, text);
        assert_eq!(prefix("/"), Ok(PathMatch::Prefix("/".into())));
        assert_eq!(prefix("/a"), Ok(PathMatch::Prefix("/a".into())));
        assert_eq!(prefix("/a/b/"), Ok(PathMatch::Prefix("/a/b".into())));
        assert!(prefix("").is_err() && prefix("a").is_err() && prefix("/a?b").is_err());
    }

    #[test]
    fn an_exact_path_is_compared_as_it_is() {
        let exact = |text| path(IngressPathType::Exact, text);
        assert_eq!(exact("/a/"), Ok(PathMatch::Exact("/a/".into())));
        assert!(exact("").is_err() && exact("/a#b").is_err());
    }

    #[test]
    fn an_implementation_specific_path_is_text_or_an_expression() {
        let specific = |text| path(IngressPathType::ImplementationSpecific, text);
        assert_eq!(specific(""), Ok(PathMatch::Prefix("/".into())));
        assert_eq!(specific("/"), Ok(PathMatch::Prefix("/".into())));
        assert_eq!(specific("/a/"), Ok(PathMatch::StartsWith("/a/".into())));
        assert_eq!(specific("/a.b"), Ok(PathMatch::StartsWith("/a.b".into())));
        for expression in ["/a.*", "/[ab]", "/a+", "/a%20b", "^/a$"] {
            let found = specific(expression);
            assert_eq!(found, Ok(PathMatch::Regex(expression.into())));
        }
        let error = specific("/[a").expect_err("invalid");
        assert!(error.starts_with("the regular expression is invalid"));
    }
}
