//! Wildcard hosts of Ingresses and HTTPProxies, whose star stands for exactly one label. In a virtual host, a star
//! stands for one or more, as in the Gateway API, so routes check the Host header too.

use sesame_model::{HeaderMatch, ValueMatch};

/// The condition on the Host header of requests to a wildcard host; `None` for other hosts.
///
/// Add it after [`MatchRank::of`](super::precedence::MatchRank::of): it doesn't make a match more specific than other
/// sources' matches for the same host.
pub(crate) fn one_label(host: &str) -> Option<HeaderMatch> {
    let suffix = host.strip_prefix("*.")?.replace('.', "\\.");
    Some(HeaderMatch {
        name: ":authority".to_owned(),
        value: ValueMatch::Regex(format!("(?i)[^.:]+\\.{suffix}(:[0-9]+)?")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::regex;

    #[test]
    fn only_wildcard_hosts_have_a_condition() {
        assert_eq!(one_label("example.com"), None);
        assert_eq!(one_label("*"), None);
        let found = one_label("*.example.com").expect("a condition");
        let ValueMatch::Regex(pattern) = found.value else {
            panic!("{found:?}");
        };
        assert_eq!(pattern, r"(?i)[^.:]+\.example\.com(:[0-9]+)?");
        assert_eq!(regex::check(&pattern), Ok(()));
    }
}
