//! Changes that routes and Services make to cookie attributes.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_api::{CookieRewrite, CookieRewritePolicy, SameSite};
use sesame_model::CookieChange;

use super::findings::{About, Findings};

/// Reads the cookie policies of the route or Service at path `field`.
pub(super) fn read(
    field: &str,
    policies: &[CookieRewritePolicy],
    about: About,
    findings: &mut Findings,
) -> Vec<CookieChange> {
    let mut seen = BTreeSet::new();
    let mut changes = Vec::with_capacity(policies.len());
    for (index, policy) in policies.iter().enumerate() {
        let field = format!("{field}.cookieRewritePolicies[{index}]");
        if !policy.name.bytes().all(is_of_token) || policy.name.is_empty() {
            let message = "expected a cookie name: ASCII without spaces, control characters or any of ()<>@,;:\\\"/[]?={}";
            findings.refuse(about, &format!("{field}.name"), message);
        } else if !seen.insert(&policy.name) {
            let message = format!("{} has several entries; merge them into one", policy.name);
            findings.refuse(about, &format!("{field}.name"), message);
        }
        let attributes = [
            policy.path_rewrite.is_some(),
            policy.domain_rewrite.is_some(),
            policy.secure.is_some(),
            policy.same_site.is_some(),
        ];
        if !attributes.contains(&true) {
            let message =
                "at least one of pathRewrite, domainRewrite, secure and sameSite is required";
            findings.refuse(about, &field, message);
        }
        let mut value = |name: &str, rewrite: &Option<CookieRewrite>| {
            let value = rewrite.as_ref().map(|rewrite| Arc::clone(&rewrite.value))?;
            if value.is_empty() || !value.bytes().all(is_of_attribute) {
                let message =
                    "expected an attribute value: ASCII without control characters or semicolons";
                findings.refuse(about, &format!("{field}.{name}.value"), message);
            }
            Some(value)
        };
        let path = value("pathRewrite", &policy.path_rewrite);
        let domain = value("domainRewrite", &policy.domain_rewrite);
        let same_site = policy.same_site.as_ref().and_then(|value| match value {
            SameSite::Strict => Some("Strict"),
            SameSite::Lax => Some("Lax"),
            SameSite::None => Some("None"),
            other => {
                let message = format!(
                    "unknown value {:?}; use Strict, Lax or None",
                    other.as_str()
                );
                findings.refuse(about, &format!("{field}.sameSite"), message);
                None
            }
        });
        changes.push(CookieChange {
            name: Arc::clone(&policy.name),
            path,
            domain,
            secure: policy.secure,
            same_site,
        });
    }
    changes
}

/// Merges a route's changes with those of one of its Services. For each attribute, the Service takes precedence.
pub(super) fn merged(
    of_route: &[CookieChange],
    of_service: Vec<CookieChange>,
) -> Arc<[CookieChange]> {
    let mut merged = of_route.to_vec();
    for own in of_service {
        match merged.iter_mut().find(|change| change.name == own.name) {
            Some(change) => {
                *change = CookieChange {
                    path: own.path.or(change.path.take()),
                    domain: own.domain.or(change.domain.take()),
                    secure: own.secure.or(change.secure),
                    same_site: own.same_site.or(change.same_site),
                    name: own.name,
                }
            }
            None => merged.push(own),
        }
    }
    merged.into()
}

/// The changes for each target; empty if no target has changes.
pub(super) fn unless_none(of_targets: Vec<Arc<[CookieChange]>>) -> Box<[Arc<[CookieChange]>]> {
    match of_targets.iter().all(|changes| changes.is_empty()) {
        true => Box::default(),
        false => of_targets.into(),
    }
}

/// Whether a token may contain this character (RFC 2616, section 2.2).
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte)
}

/// Whether an attribute's value may contain this character (RFC 6265, section 4.1.1).
fn is_of_attribute(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b';'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_policies(text: &str) -> (Vec<CookieChange>, Vec<String>) {
        let policies: Vec<CookieRewritePolicy> =
            serde_json::from_value(super::super::testing::yaml(text)).expect("policies");
        let mut findings = Findings::default();
        let changes = read("f", &policies, About::COOKIES, &mut findings);
        let messages = findings.list.into_iter().map(|found| found.message);
        (changes, messages.collect())
    }

    #[test]
    fn a_service_overrides_attributes_of_the_route() {
        let read = |text| {
            let (changes, errors) = read_policies(text);
            assert!(errors.is_empty(), "{errors:?}");
            changes
        };
        let route = read(
            "[{name: a, pathRewrite: {value: /r}, domainRewrite: {value: r.com}, secure: true}, {name: b, secure: true}]",
        );
        let service = read(
            "[{name: a, pathRewrite: {value: /s}, secure: false, sameSite: Lax}, {name: A, sameSite: None}]",
        );
        let change = |name: &str, path: Option<&str>, domain: Option<&str>, secure, same_site| {
            CookieChange {
                name: name.into(),
                path: path.map(Into::into),
                domain: domain.map(Into::into),
                secure,
                same_site,
            }
        };
        assert_eq!(
            *merged(&route, service),
            [
                change("a", Some("/s"), Some("r.com"), Some(false), Some("Lax")),
                change("b", None, None, Some(true), None),
                change("A", None, None, None, Some("None")),
            ]
        );
        assert_eq!(*merged(&route, Vec::new()), route);
    }

    #[test]
    fn invalid_entries_are_reported() {
        let (_, errors) = read_policies(
            r#"
            - {name: a, secure: true}
            - {name: a, secure: false}
            - {name: b}
            - {name: "c;d", secure: true}
            - {name: "é", secure: true}
            - {name: "", secure: true}
            - {name: d, pathRewrite: {value: "/;Domain=x"}, domainRewrite: {value: "a\r\nb"}}
            - {name: e, pathRewrite: {value: ""}, domainRewrite: {value: "é"}, sameSite: Some}
            - {name: f, pathRewrite: {value: "/a b, %20\"=-+"}}
        "#,
        );
        let fields: Vec<&str> = errors
            .iter()
            .map(|error| error.split(':').next().unwrap_or_default())
            .collect();
        let expected = [
            "[1].name",
            "[2]",
            "[3].name",
            "[4].name",
            "[5].name",
            "[6].pathRewrite.value",
            "[6].domainRewrite.value",
            "[7].pathRewrite.value",
            "[7].domainRewrite.value",
            "[7].sameSite",
        ];
        let expected = expected.map(|field| format!("f.cookieRewritePolicies{field}"));
        assert_eq!(fields, expected);
    }
}
