//! Changes that routes and Services make to headers.

use std::collections::BTreeSet;

use sesame_api::HeadersPolicy;
use sesame_model::{HeaderChanges, HeaderLists};

use super::findings::{About, Findings};
use super::operators::{self, HeaderText, MAX_REFERENCES, Names};
use super::text::is_authority;
use crate::shared::headers::check_name;

/// The reference to a client's certificate, whose length Envoy can't limit.
const CERTIFICATE: &str = "%DOWNSTREAM_PEER_CERT%";
/// The maximum number of [`CERTIFICATE`] in the values of a policy.
const MAX_CERTIFICATES: usize = 2;

/// Where a headers policy is, and which headers it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The requests of all routes. The Host header can't be changed.
    RequestOfAll,
    RequestOfRoute,
    RequestOfService,
    Response,
}

/// The changes that a policy makes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub(super) headers: HeaderChanges,
    pub(super) host: Option<HostRewrite>,
}

/// The Host header that the backend receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostRewrite {
    /// This value.
    Literal(String),
    /// The value of the request header with this name.
    Header(String),
}

/// Reads a policy. `field` is its path.
pub(super) fn read(
    field: &str,
    policy: Option<&HeadersPolicy>,
    place: Place,
    names: Names<'_>,
    findings: &mut Findings,
) -> Changes {
    let mut changes = Changes::default();
    let Some(policy) = policy else {
        return changes;
    };
    let mut lists = HeaderLists::default();
    let mut seen = BTreeSet::new();
    let mut references = 0;
    for (index, header) in policy.set.iter().enumerate() {
        let field = format!("{field}.set[{index}]");
        let name = header.name.to_ascii_lowercase();
        let value = match operators::read(&header.value, names) {
            Ok(value) => value,
            Err(message) => {
                findings.refuse(About::HEADERS, &format!("{field}.value"), message);
                continue;
            }
        };
        if name == "host" {
            match host(&header.value, place) {
                Ok(_) if changes.host.is_some() => {
                    let message = "the Host header is set several times; keep one entry";
                    findings.refuse(About::HEADERS, &field, message);
                }
                Ok(host) => changes.host = Some(host),
                Err(message) => findings.refuse(About::HEADERS, &field, message),
            }
            continue;
        }
        if let Err(error) = check_name(format!("{field}.name"), &name) {
            findings.refuse(About::HEADERS, &error.field, &error.message);
            continue;
        }
        if !seen.insert(name) {
            let message = format!("{} is set several times; keep one entry", header.name);
            findings.refuse(About::HEADERS, &field, message);
            continue;
        }
        let name = header.name.to_string();
        match value {
            HeaderText::Plain(value) => lists.set.push((name, value)),
            HeaderText::Computed {
                value,
                references: more,
            } => {
                references += more;
                lists.computed.push((name, value));
            }
        }
    }
    let computed = lists.computed.iter().map(|(_, value)| value);
    let certificates: usize = computed
        .map(|value| value.matches(CERTIFICATE).count())
        .sum();
    if certificates > MAX_CERTIFICATES {
        let message = format!(
            "has {certificates} references {CERTIFICATE}; at most {MAX_CERTIFICATES} are allowed, since each can be \
             replaced by a long value"
        );
        findings.refuse(About::HEADERS, &format!("{field}.set"), message);
    }
    if references > MAX_REFERENCES {
        let message = format!(
            "has {references} references such as %REQ(name)%; at most {MAX_REFERENCES} are allowed, since each can be \
             replaced by a long value"
        );
        findings.refuse(About::HEADERS, &format!("{field}.set"), message);
    }
    for (index, header) in policy.remove.iter().enumerate() {
        let field = format!("{field}.remove[{index}]");
        let name = header.to_ascii_lowercase();
        if name == "host" {
            let message = "the Host header can't be removed; remove this entry";
            findings.refuse(About::HEADERS, &field, message);
        } else if let Err(error) = check_name(field, header) {
            findings.refuse(About::HEADERS, &error.field, &error.message);
        } else if seen.insert(name) {
            // A header that is also set isn't removed: setting it already replaces its other values.
            lists.remove.push(header.to_string());
        }
    }
    changes.headers = lists.into();
    changes
}

fn host(value: &str, place: Place) -> Result<HostRewrite, &'static str> {
    match (operators::request_header(value), place) {
        (_, Place::Response) => {
            Err("the Host header has no meaning in responses; remove this entry")
        }
        (_, Place::RequestOfAll) => {
            Err("the Host header can't be changed for all routes; remove this entry")
        }
        (Some(name), Place::RequestOfRoute) => Ok(HostRewrite::Header(name.to_ascii_lowercase())),
        (Some(_), Place::RequestOfService) => Err(
            "the Host header of a Service needs a fixed value; move this entry to the route's requestHeadersPolicy",
        ),
        (None, _) if is_authority(value) => Ok(HostRewrite::Literal(value.to_owned())),
        (None, _) => Err("expected a host such as example.com or, in a route, %REQ(name)%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> HeadersPolicy {
        serde_json::from_value(super::super::testing::yaml(text)).expect("a policy")
    }

    fn read_policy(text: &str, place: Place) -> (Changes, Vec<String>) {
        let names = Names {
            namespace: "shop",
            service: None,
        };
        let mut findings = Findings::default();
        let changes = read("f", Some(&policy(text)), place, names, &mut findings);
        let messages = findings.list.into_iter().map(|found| found.message);
        (changes, messages.collect())
    }

    #[test]
    fn headers_are_set_computed_and_removed() {
        let text = "
            set:
            - {name: X-A, value: 5%}
            - {name: x-b, value: '%REQ(x-c)%'}
            remove: [x-d, X-A]
        ";
        let (changes, errors) = read_policy(text, Place::Response);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(changes.headers.set, [("X-A".into(), "5%".into())]);
        assert_eq!(
            changes.headers.computed,
            [("x-b".into(), "%REQ(x-c):8192%".into())]
        );
        assert_eq!(changes.headers.remove, ["x-d"]);
    }

    #[test]
    fn references_are_counted() {
        let policy = |references: usize| {
            let one = |number| format!("{{name: x-{number}, value: '%REQ(a)%-%REQ(b)%'}}");
            let all: Vec<_> = (0..references / 2).map(one).collect();
            read_policy(&format!("set: [{}]", all.join(",")), Place::Response).1
        };
        assert!(policy(32).is_empty());
        let errors = policy(34);
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0].starts_with("f.set: has 34 references"),
            "{errors:?}"
        );
        let value = CERTIFICATE.repeat(3);
        let errors = read_policy(
            &format!("set: [{{name: x, value: '{value}'}}]"),
            Place::Response,
        )
        .1;
        assert!(
            errors[0].starts_with("f.set: has 3 references %DOWNSTREAM_PEER_CERT%"),
            "{errors:?}"
        );
    }

    #[test]
    fn the_host_is_rewritten_in_requests_only() {
        let literal = "set: [{name: Host, value: example.com}]";
        let by_header = "set: [{name: host, value: '%REQ(X-Host)%'}]";
        let host = |text, place| read_policy(text, place).0.host;
        for place in [Place::RequestOfRoute, Place::RequestOfService] {
            let expected = Some(HostRewrite::Literal("example.com".into()));
            assert_eq!(host(literal, place), expected);
        }
        let expected = Some(HostRewrite::Header("x-host".into()));
        assert_eq!(host(by_header, Place::RequestOfRoute), expected);
        assert_eq!(read_policy(by_header, Place::RequestOfService).1.len(), 1);
        assert_eq!(read_policy(literal, Place::Response).1.len(), 1);
    }

    #[test]
    fn invalid_entries_are_reported() {
        let text = r#"
            set:
            - {name: content-length, value: "1"}
            - {name: x-a, value: "1"}
            - {name: X-A, value: "2"}
            - {name: x-b, value: "a\nb"}
            - {name: host, value: "%HOSTNAME%"}
            - {name: x-long, value: LONG}
            remove: [host, "", te]
        "#;
        let text = text.replace("LONG", &"a".repeat(4_097));
        let (_, errors) = read_policy(&text, Place::RequestOfRoute);
        let fields: Vec<&str> = errors
            .iter()
            .map(|error| error.split(':').next().unwrap_or_default())
            .collect();
        assert_eq!(
            fields,
            [
                "f.set[0].name",
                "f.set[2]",
                "f.set[3].value",
                "f.set[4]",
                "f.set[5].value",
                "f.remove[0]",
                "f.remove[1]",
                "f.remove[2]"
            ]
        );
    }
}
