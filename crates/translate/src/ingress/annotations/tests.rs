use sesame_api::{IngressSpec, IngressStatus, Meta};

use super::*;

fn ingress(annotations: &[(&str, &str)]) -> Ingress {
    let annotations = annotations.iter();
    Ingress {
        meta: Meta {
            annotations: annotations
                .map(|(name, value)| (format!("projectsesame.io/{name}"), (*value).to_owned()))
                .collect(),
            ..Meta::default()
        },
        spec: IngressSpec::default(),
        status: IngressStatus::default(),
    }
}

fn options(annotations: &[(&str, &str)]) -> (RouteOptions, Vec<String>) {
    let mut notices = Notices::default();
    let options = route_options(&ingress(annotations), &mut notices);
    assert!(notices.errors.is_empty());
    let warnings = notices.warnings.iter();
    (options, warnings.map(ToString::to_string).collect())
}

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

#[test]
fn the_response_timeout_has_an_older_name() {
    let timeout = |annotations: &[(&str, &str)]| options(annotations).0.timeout;
    assert_eq!(timeout(&[]), None);
    assert_eq!(timeout(&[("response-timeout", "2s")]), seconds(2));
    assert_eq!(timeout(&[("request-timeout", "3s")]), seconds(3));
    assert_eq!(
        timeout(&[("response-timeout", "2s"), ("request-timeout", "3s")]),
        seconds(2)
    );
    assert_eq!(timeout(&[("response-timeout", "infinity")]), seconds(0));
    assert_eq!(timeout(&[("response-timeout", "0s")]), None);
    let (found, warnings) = options(&[("response-timeout", "soon")]);
    assert_eq!(found, RouteOptions::default());
    assert_eq!(
        warnings,
        [
            "metadata.annotations[projectsesame.io/response-timeout]: is not a valid duration; use a duration such as 30s \
             or 1m30s, or infinity"
        ]
    );
}

#[test]
fn retries_need_a_condition() {
    let attempts = |number: &str| {
        let (found, warnings) = options(&[("retry-on", "5xx"), ("num-retries", number)]);
        (found.retry.map(|retry| retry.attempts), warnings.len())
    };
    assert_eq!(attempts("3"), (Some(3), 0));
    assert_eq!(attempts("0"), (Some(1), 0));
    assert_eq!(attempts("-1"), (None, 0));
    assert_eq!(attempts("-2"), (Some(1), 1));
    assert_eq!(attempts("many"), (Some(1), 1));
    let (found, warnings) = options(&[
        ("retry-on", "gateway-error, 5xx,5xx"),
        ("per-try-timeout", "1s"),
    ]);
    let retry = found.retry.expect("retries");
    assert_eq!(retry.on, ["5xx", "gateway-error"]);
    assert_eq!((retry.attempts, found.try_timeout), (1, seconds(1)));
    assert!(warnings.is_empty(), "{warnings:?}");
    let (found, warnings) = options(&[("num-retries", "3"), ("per-try-timeout", "1s")]);
    assert_eq!(found, RouteOptions::default());
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let (found, warnings) = options(&[("retry-on", "sometimes")]);
    assert_eq!((found.retry, warnings.len()), (None, 1));
}

#[test]
fn a_maximum_below_the_minimum_is_ignored() {
    let of = |annotations: &[(&str, &str)]| {
        let mut notices = Notices::default();
        let found = versions(&ingress(annotations), &mut notices);
        let found = found.map(|versions| (versions.min, versions.max));
        (found, notices.warnings.len())
    };
    let (min, max) = (
        "tls-minimum-protocol-version",
        "tls-maximum-protocol-version",
    );
    use TlsVersion::{V1_2, V1_3};
    assert_eq!(of(&[]), (None, 0));
    assert_eq!(of(&[(min, "1.3")]), (Some((V1_3, V1_3)), 0));
    assert_eq!(of(&[(max, "1.2")]), (Some((V1_2, V1_2)), 0));
    assert_eq!(of(&[(min, "1.3"), (max, "1.2")]), (Some((V1_3, V1_3)), 1));
    assert_eq!(of(&[(min, "1.1")]), (None, 1));
}

#[test]
fn a_redirect_takes_precedence_over_no_http() {
    let of = |annotations: &[(&str, &str)]| {
        let mut ingress = ingress(&[]);
        for (name, value) in annotations {
            let annotations = &mut ingress.meta.annotations;
            annotations.insert((*name).to_owned(), (*value).to_owned());
        }
        plain_http(&ingress)
    };
    assert_eq!(of(&[]), PlainHttp::Served);
    assert_eq!(of(&[(ALLOW_HTTP, "true")]), PlainHttp::Served);
    assert_eq!(of(&[(ALLOW_HTTP, "false")]), PlainHttp::Refused);
    assert_eq!(of(&[(FORCE_SSL_REDIRECT, "true")]), PlainHttp::Redirected);
    assert_eq!(
        of(&[(FORCE_SSL_REDIRECT, "true"), (ALLOW_HTTP, "false")]),
        PlainHttp::Redirected
    );
}

#[test]
fn long_lists_have_few_notices() {
    let list = "a,".repeat(100_000);
    assert_eq!(options(&[("retry-on", &list)]).1.len(), 16);
}
