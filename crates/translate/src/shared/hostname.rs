//! Gateway API hostnames: exact, `*.example.com` (at least one label in place of the star), or none.
//!
//! A *domain* is a hostname, or `*` if there is none, so every listener and route has one.

use std::cmp::Ordering;

/// The domain that stands for a missing hostname: all hosts.
pub const ANY: &str = "*";

/// The domain of an optional hostname.
pub fn domain(hostname: Option<&str>) -> &str {
    match hostname {
        None | Some("") => ANY,
        Some(hostname) => hostname,
    }
}

/// True if `wide` covers every host of `narrow`.
pub fn covers(wide: &str, narrow: &str) -> bool {
    if wide == ANY || wide == narrow {
        return true;
    }
    // `*.example.com` covers `a.example.com` and `*.a.example.com`, but not `example.com`.
    match wide.strip_prefix('*') {
        Some(suffix) => {
            narrow.strip_prefix('*').unwrap_or(narrow).ends_with(suffix)
                && narrow.len() > suffix.len()
        }
        None => false,
    }
}

/// The hosts in both domains: the narrower domain, or `None` if they are disjoint.
pub fn intersection<'a>(a: &'a str, b: &'a str) -> Option<&'a str> {
    if covers(a, b) {
        Some(b)
    } else if covers(b, a) {
        Some(a)
    } else {
        None
    }
}

/// Sorts more specific domains first: exact names, then wildcards with more labels, then `*`.
pub fn by_specificity(a: &str, b: &str) -> Ordering {
    rank(b).cmp(&rank(a))
}

/// If two domains cover the same host, the more specific one has the higher rank.
fn rank(domain: &str) -> (bool, usize) {
    // For wildcards that cover the same host, more characters means more labels.
    (!domain.starts_with('*'), domain.len())
}

/// The domain itself and all wider domains, from the most specific one to `*`.
pub fn widening(domain: &str) -> impl Iterator<Item = String> + '_ {
    let exact = (!domain.starts_with('*')).then(|| domain.to_owned());
    let tail = domain.strip_prefix("*.").unwrap_or(domain);
    // `*.example.com` doesn't cover `example.com`.
    let start = if exact.is_some() {
        tail.find('.').map(|dot| &tail[dot + 1..])
    } else {
        Some(tail)
    };
    let start = start.filter(|_| domain != ANY);
    let wildcards = std::iter::successors(start, |rest| rest.find('.').map(|dot| &rest[dot + 1..]))
        .map(|rest| format!("*.{rest}"));
    exact
        .into_iter()
        .chain(wildcards)
        .chain(std::iter::once(ANY.to_owned()))
}

/// Sorts domains by their ends, so that those below the same wildcard are neighbours.
pub(crate) fn by_end(a: &str, b: &str) -> Ordering {
    a.bytes().rev().cmp(b.bytes().rev())
}

/// Whether one of these domains, sorted by [`by_end`], has hosts in common with a domain, whose [`widening`] is given. The
/// cost is logarithmic in their number.
pub(crate) fn any_intersects(sorted: &[String], widening: &[String]) -> bool {
    let suffix = widening.first().and_then(|domain| domain.strip_prefix('*'));
    let narrower = suffix.is_some_and(|suffix| {
        let after = sorted.partition_point(|name| by_end(name, suffix).is_le());
        sorted.get(after).is_some_and(|name| name.ends_with(suffix))
    });
    let is_listed = |domain: &String| sorted.binary_search_by(|name| by_end(name, domain)).is_ok();
    narrower || widening.iter().any(is_listed)
}

/// Why a name can't be an external host's; `None` if it can. Envoy itself listens on `localhost`, and an IP address, in
/// any notation that a resolver accepts, may belong to anything. No top-level domain begins with a digit.
pub(crate) fn not_external(hostname: &str) -> Option<&'static str> {
    match hostname.rsplit('.').next().unwrap_or_default() {
        "localhost" => Some("is the host that Envoy runs on"),
        last if last.starts_with(|first: char| first.is_ascii_digit()) => {
            Some("is not a domain name")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_matches_one_or_more_labels() {
        assert!(covers("*.example.com", "a.example.com"));
        assert!(covers("*.example.com", "a.b.example.com"));
        assert!(covers("*.example.com", "*.b.example.com"));
        assert!(covers("*.example.com", "*.example.com"));
        assert!(!covers("*.example.com", "example.com"));
        assert!(!covers("*.example.com", "an-example.com"));
        assert!(!covers("*.b.example.com", "*.example.com"));
        assert!(!covers("a.example.com", "*.example.com"));
        assert!(covers(ANY, "example.com") && covers(ANY, "*.com") && covers(ANY, ANY));
        assert!(!covers("*.com", ANY));
    }

    #[test]
    fn the_intersection_is_the_narrower_domain() {
        assert_eq!(
            intersection("*.example.com", "a.example.com"),
            Some("a.example.com")
        );
        assert_eq!(
            intersection("a.example.com", "*.com"),
            Some("a.example.com")
        );
        assert_eq!(intersection(ANY, ANY), Some(ANY));
        assert_eq!(intersection("*.example.com", "example.com"), None);
        assert_eq!(intersection("*.a.com", "*.b.com"), None);
    }

    #[test]
    fn widening_goes_from_the_domain_to_all_hosts() {
        let all = |domain| widening(domain).collect::<Vec<_>>();
        assert_eq!(all("a.b.c"), ["a.b.c", "*.b.c", "*.c", "*"]);
        assert_eq!(all("*.b.c"), ["*.b.c", "*.c", "*"]);
        assert_eq!(all("localhost"), ["localhost", "*"]);
        assert_eq!(all("*"), ["*"]);
        for wider in all("a.b.c") {
            assert!(covers(&wider, "a.b.c"), "{wider}");
        }
    }

    #[test]
    fn intersections_are_found_among_sorted_domains() {
        let domains = [
            "*", "a", "*.a", "b.a", "*.b.a", "c.b.a", "xb.a", "*.xb.a", "c", "d.c", "*.e.d.c",
        ];
        // Each subset.
        for subset in 0..1_u32 << domains.len() {
            let chosen = (0..domains.len()).filter(|at| subset >> at & 1 == 1);
            let mut sorted: Vec<String> = chosen.map(|at| domains[at].to_owned()).collect();
            sorted.sort_by(|a, b| by_end(a, b));
            for domain in domains {
                let expected = sorted.iter().any(|one| intersection(one, domain).is_some());
                let widening: Vec<String> = widening(domain).collect();
                assert_eq!(
                    any_intersects(&sorted, &widening),
                    expected,
                    "{sorted:?} {domain}"
                );
            }
        }
    }

    #[test]
    fn specific_domains_come_first() {
        let mut domains = vec!["*", "*.com", "a.example.com", "*.example.com"];
        domains.sort_by(|a, b| by_specificity(a, b));
        assert_eq!(domains, ["a.example.com", "*.example.com", "*.com", "*"]);
    }
}
