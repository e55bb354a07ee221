//! Wildcard hosts of Ingresses and HTTPProxies, whose star stands for exactly one label. In a virtual host, a star
//! stands for one or more, as in the Gateway API, so routes check the Host header too.

use sesame_model::{HeaderMatch, ValueMatch};

/// A label of at most 63 characters, as in DNS: the rest of a longer one isn't read, so a long Host header takes no time.
/// Restricted to ASCII, for a small program.
const LABEL: &str = r"[!-\-/-9;-~]{1,63}";

/// The condition on the Host header of requests to a wildcard host; `None` for other hosts.
///
/// Add it after [`MatchRank::of`](super::precedence::MatchRank::of): it doesn't make a match more specific than other
/// sources' matches for the same host.
pub(crate) fn one_label(host: &str) -> Option<HeaderMatch> {
    let suffix = host.strip_prefix("*.")?.replace('.', "\\.");
    Some(HeaderMatch {
        name: ":authority".to_owned(),
        value: ValueMatch::Regex(format!("(?i){LABEL}\\.{suffix}(:[0-9]{{1,5}})?")),
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
        assert_eq!(
            pattern,
            r"(?i)[!-\-/-9;-~]{1,63}\.example\.com(:[0-9]{1,5})?"
        );
    }

    #[test]
    fn the_longest_host_fits_in_a_program() {
        let label = "a".repeat(62);
        let host = format!("*.{label}.{label}.{label}.{}", &label[..61]);
        assert_eq!(host.len(), 252);
        let found = one_label(&host).expect("a condition");
        let ValueMatch::Regex(pattern) = found.value else {
            panic!("{found:?}");
        };
        assert_eq!(regex::check(&pattern), Ok(()));
    }
}
