//! Valid, skipped and invalid objects in text.

use super::*;

fn unknown(_: &ObjectKey) -> Known {
    Known::default()
}

fn read(text: &str) -> Parsed {
    read_with(text, &unknown)
}

fn read_with(text: &str, known: &dyn Fn(&ObjectKey) -> Known) -> Parsed {
    let config = FilesConfig::new([""; 0]);
    parse(Path::new("a.yaml"), text, Format::Yaml, &config, known)
}

fn keys(parsed: &Parsed) -> Vec<String> {
    parsed
        .found
        .iter()
        .map(|found| found.key.to_string())
        .collect()
}

fn errors(parsed: Parsed) -> Vec<String> {
    let errors = parsed.errors.into_vec(Path::new("a.yaml"));
    errors.iter().map(ToString::to_string).collect()
}

const SERVICE: &str =
    "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 80}]}\n";

#[test]
fn the_errors_before_the_end_of_an_unreadable_document_are_reported() {
    let found = errors(read("a: !x 1\nb: [\n"));
    assert!(found[0].contains("unsupported tag"), "{found:?}");
    assert!(found[1].contains("unclosed"), "{found:?}");
    let many = format!("{SERVICE}kind: [{}]\n", "!x a, ".repeat(1_001));
    let found = errors(read(&many));
    assert!(found[0].contains("unsupported tag"), "{found:?}");
    assert!(found[0].starts_with("a.yaml:5:"), "{}", found[0]);
}

#[test]
fn objects_lists_and_typed_lists_are_read() {
    let parsed = read(
        "apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
- apiVersion: v1
  kind: ServiceList
  metadata: {resourceVersion: '1'}
  items:
  - {metadata: {name: a, namespace: shop}}
  - {apiVersion: v1, kind: Service, metadata: {name: b}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRouteList
items:
- {metadata: {name: r}, spec: {}}
---
{apiVersion: v1, kind: List}
---
{apiVersion: v1, kind: List, items: null}
",
    );
    assert_eq!(
        keys(&parsed),
        [
            "Namespace/shop",
            "Service/shop/a",
            "Service/default/b",
            "HTTPRoute/default/r"
        ]
    );
    assert_eq!(parsed.found[1].location, (9, 5));
    assert_eq!(errors(parsed), [""; 0]);
}

#[test]
fn other_kinds_are_skipped() {
    let parsed = read(&format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: a}}\n---\n{SERVICE}---
apiVersion: apps/v1\nkind: DeploymentList\nitems: [{{}}, {{}}]\n---
apiVersion: example.com/v1\nkind: AllowList\nspec: {{}}\n"
    ));
    assert_eq!(keys(&parsed), ["Service/default/s"]);
    assert_eq!(errors(parsed), [""; 0]);
}

#[test]
fn every_error_has_its_location_and_doesnt_affect_others() {
    let parsed = read(&format!(
        "{SERVICE}---
kind: Service
metadata: {{name: t}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: g}}
spec:
  gatewayClassName: sesame
  listeners:
  - name: http
    protocol: HTTP
    port: many
---
[1, 2]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HttpRoute
metadata: {{name: r}}
---
apiVersion: gateway.networking.k8s.io/v9
kind: HTTPRoute
metadata: {{name: r}}
---
apiVersion: v1
kind: Service
metadata: {{name: u}}
spec: {{ports: [{{port: 1, port: 2}}]}}
---
apiVersion: v1
kind: 7
---
apiVersion: v1
kind: Service
metadata: {{namespace: x}}
---
apiVersion: v1
kind: List
items: 5
---
{}",
        SERVICE.replace("name: s", "name: z")
    ));
    assert_eq!(keys(&parsed), ["Service/default/s", "Service/default/z"]);
    let all = errors(parsed);
    let starts = [
        "a.yaml:6:1: `apiVersion` is missing",
        "a.yaml:17:11: Gateway/default/g: spec.listeners[0].port: ",
        "a.yaml:19:1: not an object",
        "a.yaml:22:7: unknown kind `HttpRoute`: did you mean `HTTPRoute`?",
        "a.yaml:25:13: unsupported version gateway.networking.k8s.io/v9 of HTTPRoute",
        "a.yaml:32:26: Service/default/u: duplicate key `port`",
        "a.yaml:35:7: `kind` must be a string",
        "a.yaml:39:11: metadata.name: ",
        "a.yaml:43:8: `items` of a List must be a list",
    ];
    assert_eq!(all.len(), starts.len(), "{all:#?}");
    for (error, start) in all.iter().zip(starts) {
        assert!(error.starts_with(start), "{error} / {start}");
    }
}

#[test]
fn an_invalid_item_doesnt_affect_others() {
    let parsed = read(
        "apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: a}}
- {apiVersion: v1, kind: Service, metadata: {name: b, name: c}}
- {apiVersion: v1, kind: Service, metadata: {name: d}, spec: {ports: 5}}
- {apiVersion: v1, kind: Service, metadata: {name: e}}
",
    );
    assert_eq!(keys(&parsed), ["Service/default/a", "Service/default/e"]);
    let all = errors(parsed);
    assert_eq!(all.len(), 2);
    assert!(
        all[0].starts_with("a.yaml:5:55: Service/default/b: "),
        "{all:?}"
    );
    assert!(
        all[1].starts_with("a.yaml:6:70: Service/default/d: "),
        "{all:?}"
    );
}

#[test]
fn a_creation_time_is_the_one_in_the_file_or_the_known_one() {
    let now: Timestamp = "2026-05-01T10:00:00Z".parse().unwrap();
    let at = |_: &ObjectKey| Known {
        created: Some(now),
        ..Known::default()
    };
    let text = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nspec: {}\nmetadata:\n  name: r\n  generation: many\n";
    let own = format!("{text}  creationTimestamp: 2020-01-01T00:00:00Z\n");
    let created = |text: &str, known: &dyn Fn(&ObjectKey) -> Known| {
        let parsed = read_with(text, known);
        match &parsed.found[0].object {
            Some(Object::HTTPRoute(route)) => {
                assert_eq!(route.meta.creation_timestamp, parsed.found[0].created);
                route.meta.creation_timestamp
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(created(text, &unknown), None);
    assert_eq!(created(text, &at), Some(now));
    let own_time = Some("2020-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(created(&own, &unknown), own_time);
    assert_eq!(created(&own, &at), own_time);
}

#[test]
fn messages_are_short_and_on_one_line() {
    let parsed = read(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: \"a\\n{}\"}}\n",
        "x".repeat(100_000)
    ));
    let text = errors(parsed).remove(0);
    assert!(text.len() < 2_000 && !text.contains('\n'), "{text}");
}

#[test]
fn the_fingerprint_of_the_spec_ignores_metadata_and_status() {
    let of = |text: &str| read(text).found[0].fingerprint;
    let base = of(SERVICE);
    assert_eq!(
        base,
        of(
            "kind: Service\nspec: {ports: [{port: 80}], x: null}\nmetadata: {name: s, generation: 5}\napiVersion: v1\n"
        )
    );
    let labelled = of(&SERVICE.replace("name: s", "name: s, labels: {a: b}"));
    assert_eq!(base.spec, labelled.spec);
    assert_ne!(base.all, labelled.all);
    let changed = of(&SERVICE.replace("80", "81"));
    assert_ne!(base.spec, changed.spec);
    assert_ne!(base.all, changed.all);
    // Moving text from one field to another changes the fingerprint.
    assert_ne!(
        of(&SERVICE.replace(
            "[{port: 80}]",
            "[{port: 80, name: ab}, {port: 81, name: c}]"
        ))
        .spec,
        of(&SERVICE.replace(
            "[{port: 80}]",
            "[{port: 80, name: a}, {port: 81, name: bc}]"
        ))
        .spec
    );
}

#[test]
fn no_message_quotes_a_secret() {
    let parsed = read(
        "{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {key: 'hunter2!'}}
---
{apiVersion: v1, kind: SecretList, items: [{metadata: {name: t}, data: {key: 'hunter2!'}}]}
",
    );
    let all = errors(parsed);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].starts_with("a.yaml:1:"), "{all:?}");
    assert!(
        all.iter().all(|error| !error.contains("hunter2")),
        "{all:?}"
    );
}
