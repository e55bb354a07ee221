//! Tracing, policies, global authorization and default rate limits.

use serde_json::{Value, json};

use super::{EXTENSION, Outcome, Row, row};
use crate::e2e::shop;

/// All rows.
pub(super) fn sections() -> Vec<Row> {
    let mut rows = tracing();
    rows.extend(policy());
    rows.extend(global_auth());
    rows.push(default_limits());
    rows.extend(replica());
    rows
}

/// The sections for Sesame's own processes. Except for logs, they take effect at the next start.
fn replica() -> Vec<Row> {
    use Outcome::{Rejected, Reported, RestartRequired};
    let at_start = |field, valid, invalid, outcome| {
        Row(field, valid, RestartRequired, Some((invalid, outcome)))
    };
    let metrics = |address: &str| json!({ "address": address, "port": 9102 });
    vec![
        at_start("watchNamespaces", json!(["shop"]), json!([]), Rejected),
        at_start("contourCompat", json!("Read"), json!("Some"), Rejected),
        at_start("xds.address", json!("0.0.0.0"), json!("here"), Reported),
        at_start("xds.port", json!(18_001), json!(0), Rejected),
        at_start(
            "xds.advertisedHost",
            json!("xds.example.com"),
            json!(""),
            Rejected,
        ),
        at_start("xds.advertisedPort", json!(443), json!(65_536), Rejected),
        at_start("metrics", metrics("0.0.0.0"), metrics("here"), Reported),
        at_start(
            "leaderElection.disabled",
            json!(true),
            json!("yes"),
            Rejected,
        ),
        at_start(
            "leaderElection.leaseDuration",
            json!("20s"),
            json!("90s"),
            Reported,
        ),
        at_start(
            "leaderElection.renewDeadline",
            json!("5s"),
            json!("10s"),
            Reported,
        ),
        at_start(
            "leaderElection.retryPeriod",
            json!("1s"),
            json!("5s"),
            Reported,
        ),
        row("logging.format", json!("text"), json!("xml")),
        row("logging.level", json!("debug"), json!("loud")),
    ]
}

/// A section with an ExtensionService and another field.
fn with_service(field: &str, value: Value) -> Value {
    let mut section = json!({
        "extensionService": { "namespace": shop::NAMESPACE, "name": EXTENSION },
    });
    section[field] = value;
    section
}

/// A row of a section with an ExtensionService.
fn of_service(section: &'static str, field: &str, valid: Value, invalid: Value) -> Row {
    row(
        section,
        with_service(field, valid),
        with_service(field, invalid),
    )
}

fn tracing() -> Vec<Row> {
    let tags = |name: &str| {
        json!([
            { "tagName": "env", "literal": "test" },
            { "tagName": name, "requestHeaderName": "x-user" },
        ])
    };
    let of =
        |field: &str, valid: Value, invalid: Value| of_service("tracing", field, valid, invalid);
    vec![
        of("serviceName", json!("edge"), json!("")),
        of("overallSampling", json!("0.25"), json!("101")),
        of("includePodDetail", json!(false), json!("no")),
        of("maxPathTagLength", json!(512), json!(0)),
        of("customTags", tags("user"), tags("env")),
    ]
}

fn policy() -> Vec<Row> {
    let headers =
        |name: &str| json!({ "set": [{ "name": name, "value": "shop" }], "remove": ["x-debug"] });
    let of = |field: &'static str| {
        let invalid = Some((headers("a b"), Outcome::Reported));
        Row(field, headers("x-team"), Outcome::Programmed, invalid)
    };
    vec![
        of("policy.requestHeaders"),
        of("policy.responseHeaders"),
        row("policy.applyToIngress", json!(true), json!("yes")),
    ]
}

fn global_auth() -> Vec<Row> {
    let body = |bytes: u32| json!({ "maxRequestBytes": bytes, "allowPartialMessage": true, "packAsBytes": true });
    let of =
        |field: &str, valid: Value, invalid: Value| of_service("globalAuth", field, valid, invalid);
    vec![
        of("failOpen", json!(true), json!("yes")),
        of(
            "authPolicy",
            json!({ "disabled": true, "context": { "tier": "all" } }),
            json!({ "disabled": "yes" }),
        ),
        of("responseTimeout", json!("2s"), json!("soon")),
        of("withRequestBody", body(1_048_576), body(1_048_577)),
    ]
}

fn default_limits() -> Row {
    let value_match = json!({
        "value": "team",
        "expectMatch": false,
        "headers": [
            { "name": "a", "exact": "a", "ignoreCase": true },
            { "name": "b", "notexact": "b" },
            { "name": "c", "contains": "c" },
            { "name": "d", "notcontains": "d", "treatMissingAsEmpty": true },
            { "name": "e", "present": true },
            { "name": "f", "notpresent": true },
            { "name": "g", "regex": "g+" },
        ],
    });
    let entries = json!([
        { "genericKey": { "key": "team", "value": "shop" } },
        { "requestHeader": { "headerName": "x-team", "descriptorKey": "team" } },
        { "requestHeaderValueMatch": value_match },
        { "remoteAddress": {} },
    ]);
    let of = |entries: Value| json!({ "descriptors": [{ "entries": entries }] });
    of_service(
        "rateLimitService",
        "defaultGlobalRateLimitPolicy",
        of(entries),
        of(json!([])),
    )
}
