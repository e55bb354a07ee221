//! Objects out of files: which are read, what is told of those that are not.

use super::*;

struct Nothing;

impl Before for Nothing {
    fn same(&self, _: &ObjectKey, _: Fingerprint) -> bool {
        false
    }
    fn created(&self, _: &ObjectKey) -> Option<Timestamp> {
        None
    }
}

fn read(text: &str) -> Parsed {
    let limits = Limits::default();
    parse(Path::new("a.yaml"), text, Format::Yaml, &limits, &Nothing)
}

fn keys(parsed: &Parsed) -> Vec<String> {
    parsed
        .found
        .iter()
        .map(|found| found.key.to_string())
        .collect()
}

fn problems(parsed: &Parsed) -> Vec<String> {
    parsed
        .broken
        .iter()
        .map(|broken| broken.problem.to_string())
        .collect()
}

const SERVICE: &str =
    "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 80}]}\n";

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
    assert_eq!(problems(&parsed), [""; 0]);
    assert_eq!(
        keys(&parsed),
        [
            "Namespace/shop",
            "Service/shop/a",
            "Service/default/b",
            "HTTPRoute/default/r"
        ]
    );
    assert_eq!(parsed.found[1].place, (9, 5));
    assert!(parsed.skipped.is_empty());
}

#[test]
fn other_kinds_are_counted() {
    let parsed = read(&format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: a}}\n---\n{SERVICE}---
apiVersion: apps/v1\nkind: DeploymentList\nitems: [{{}}, {{}}]\n---
apiVersion: example.com/v1\nkind: AllowList\nspec: {{}}\n"
    ));
    assert_eq!(keys(&parsed), ["Service/default/s"]);
    assert_eq!(problems(&parsed), [""; 0]);
    let skipped: Vec<_> = parsed.skipped.into_iter().collect();
    assert_eq!(
        skipped,
        [
            ("apps/v1/Deployment".to_owned(), 3),
            ("example.com/v1/AllowList".to_owned(), 1)
        ]
    );
}

#[test]
fn every_mistake_has_its_place_and_no_neighbour_suffers() {
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
    let all = problems(&parsed);
    let starts = [
        "a.yaml:6:1: `apiVersion` is missing",
        "a.yaml:17:11: Gateway/default/g: spec.listeners[0].port: ",
        "a.yaml:19:1: this is no object",
        "a.yaml:22:7: no kind `HttpRoute`: `HTTPRoute` is meant",
        "a.yaml:25:13: HTTPRoute is not read at version gateway.networking.k8s.io/v9",
        "a.yaml:32:26: Service/default/u: the key `port` is written twice",
        "a.yaml:35:7: `kind` must be text",
        "a.yaml:39:11: metadata.name: ",
        "a.yaml:43:8: `items` of a List must be a list",
    ];
    assert_eq!(all.len(), starts.len(), "{all:#?}");
    for (problem, start) in all.iter().zip(starts) {
        assert!(problem.starts_with(start), "{problem} / {start}");
    }
}

#[test]
fn a_mistake_in_a_list_is_its_items_own() {
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
    let broken: Vec<_> = parsed
        .broken
        .iter()
        .map(|b| b.key.clone().unwrap().to_string())
        .collect();
    assert_eq!(broken, ["Service/default/b", "Service/default/d"]);
    assert_eq!(parsed.broken[0].problem.line, Some(5));
    assert_eq!(parsed.broken[1].problem.line, Some(6));
}

#[test]
fn a_creation_time_is_the_files_or_the_given_one() {
    struct At(Timestamp);
    impl Before for At {
        fn same(&self, _: &ObjectKey, _: Fingerprint) -> bool {
            false
        }
        fn created(&self, _: &ObjectKey) -> Option<Timestamp> {
            Some(self.0)
        }
    }
    let now: Timestamp = "2026-05-01T10:00:00Z".parse().unwrap();
    let text = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nspec: {}\nmetadata:\n  name: r\n  generation: many\n";
    let own = format!("{text}  creationTimestamp: 2020-01-01T00:00:00Z\n");
    let created = |text: &str, before: &dyn Before| {
        let limits = Limits::default();
        let parsed = parse(Path::new("a"), text, Format::Yaml, &limits, before);
        match &parsed.found[0].object {
            Some(Object::HTTPRoute(route)) => {
                assert_eq!(route.meta.creation_timestamp, parsed.found[0].created);
                route.meta.creation_timestamp
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(created(text, &Nothing), None);
    assert_eq!(created(text, &At(now)), Some(now));
    let own_time = Some("2020-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(created(&own, &Nothing), own_time);
    assert_eq!(created(&own, &At(now)), own_time);
}

#[test]
fn messages_are_short_and_on_one_line() {
    let parsed = read(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: \"a\\n{}\"}}\n",
        "x".repeat(100_000)
    ));
    let text = parsed.broken[0].problem.to_string();
    assert!(text.len() < 2_000 && !text.contains('\n'), "{text}");
}

#[test]
fn fingerprints_tell_spec_from_the_rest() {
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
    // What moves between neighbours is another content.
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
fn no_message_repeats_a_secret() {
    let parsed = read(
        "{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {key: 'hunter2!'}}
---
{apiVersion: v1, kind: SecretList, items: [{metadata: {name: t}, data: {key: 'hunter2!'}}]}
",
    );
    let all = problems(&parsed);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].starts_with("a.yaml:1:"), "{all:?}");
    assert!(
        all.iter().all(|problem| !problem.contains("hunter2")),
        "{all:?}"
    );
}
