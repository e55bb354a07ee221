//! Tests with small manifests and small logs.

use std::io::Write;

use serde_json::json;

use super::*;

const MANIFESTS: &str = r#"
kind: ClusterRole
metadata: {name: sesame}
rules:
  - {apiGroups: [gateway.networking.k8s.io], resources: [gateways], verbs: [get, list, watch]}
  - {apiGroups: [gateway.networking.k8s.io], resources: [gateways/status], verbs: [patch]}
  - {apiGroups: [apps], resources: [deployments], verbs: [create, patch]}
---
kind: ClusterRoleBinding
metadata: {name: sesame}
roleRef: {kind: ClusterRole, name: sesame}
subjects: [{kind: ServiceAccount, name: sesame, namespace: sesame-system}]
---
kind: Role
metadata: {name: sesame, namespace: sesame-system}
rules:
  - {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [sesame-leader], verbs: [update]}
---
kind: RoleBinding
metadata: {name: sesame, namespace: sesame-system}
roleRef: {kind: Role, name: sesame}
subjects: [{kind: ServiceAccount, name: sesame, namespace: sesame-system}]
---
# Another controller's.
kind: ClusterRoleBinding
metadata: {name: other}
roleRef: {kind: ClusterRole, name: sesame}
subjects: [{kind: ServiceAccount, name: other, namespace: sesame-system}]
"#;

const GATEWAYS: &str = "gateway.networking.k8s.io";

/// An event: verb, group, resource, namespace, name, response code.
type Event<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, u16);

/// A request for each permission.
const ALL: &[Event<'_>] = &[
    ("watch", GATEWAYS, "gateways", "", "", 200),
    ("patch", GATEWAYS, "gateways/status", "a", "web", 200),
    ("patch", "apps", "deployments", "a", "web", 201),
    (
        "update",
        "coordination.k8s.io",
        "leases",
        "sesame-system",
        "sesame-leader",
        200,
    ),
];

fn judged(events: &[Event<'_>], without: &[&str]) -> Verdict {
    let dir = tempfile::tempdir().unwrap();
    let manifests = dir.path().join("manifests.yaml");
    fs::write(&manifests, MANIFESTS).unwrap();
    let audit = dir.path().join("audit.log");
    let mut log = fs::File::create(&audit).unwrap();
    for (verb, group, resource, namespace, name, code) in events {
        let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
        let event = json!({
            "verb": verb,
            "user": {"username": "system:serviceaccount:sesame-system:sesame"},
            "objectRef": {"apiGroup": group, "resource": resource, "subresource": sub, "namespace": namespace, "name": name},
            "responseStatus": {"code": code},
            "annotations": {"authorization.k8s.io/decision": if *code == 403 { "forbid" } else { "allow" }},
        });
        writeln!(log, "{event}").unwrap();
    }
    let without: Vec<String> = without.iter().map(|text| (*text).to_owned()).collect();
    compare(&manifests, &[audit], &without).unwrap()
}

fn lines(verdict: &Verdict) -> Vec<String> {
    let text = verdict.to_string();
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect()
}

#[test]
fn used_permissions_match() {
    let verdict = judged(ALL, &[]);
    assert!(verdict.fits(), "{verdict}");
    assert_eq!(lines(&verdict), ["7 of 7 permissions were used"]);
}

#[test]
fn each_unused_permission_is_reported() {
    // `list` accompanies `watch`, `get` accompanies patching a status.
    let expected = [
        vec![
            "granted, unused: list gateways.gateway.networking.k8s.io",
            "granted, unused: watch gateways.gateway.networking.k8s.io",
        ],
        vec![
            "granted, unused: get gateways.gateway.networking.k8s.io",
            "granted, unused: patch gateways/status.gateway.networking.k8s.io",
        ],
        vec![
            "granted, unused: create deployments.apps",
            "granted, unused: patch deployments.apps",
        ],
        vec![
            r#"granted, unused: update leases.coordination.k8s.io "sesame-leader" in sesame-system"#,
        ],
    ];
    for (left_out, expected) in expected.iter().enumerate() {
        let mut events = ALL.to_vec();
        events.remove(left_out);
        let verdict = judged(&events, &[]);
        assert!(!verdict.fits());
        let lines = lines(&verdict);
        assert_eq!(lines[..lines.len() - 1], *expected);
    }
}

#[test]
fn permissions_apply_only_to_their_namespace_and_object() {
    for (namespace, name) in [("a", "sesame-leader"), ("sesame-system", "another")] {
        let mut events = ALL.to_vec();
        events[3] = (
            "update",
            "coordination.k8s.io",
            "leases",
            namespace,
            name,
            200,
        );
        let verdict = judged(&events, &[]);
        assert_eq!(
            (verdict.unused.len(), verdict.foreign.len()),
            (1, 1),
            "{verdict}"
        );
    }
}

#[test]
fn rejected_requests_and_foreign_permissions_are_reported() {
    let mut events = ALL.to_vec();
    events.push(("list", "", "pods", "", "", 403));
    events.push(("delete", "apps", "deployments", "a", "web", 200));
    events.push((
        "create",
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "",
        "",
        201,
    ));
    let verdict = judged(&events, &[]);
    assert!(!verdict.fits());
    assert_eq!(
        lines(&verdict),
        [
            "requested, rejected: list pods",
            r#"allowed by other roles: delete deployments.apps "web" in a"#,
            "7 of 7 permissions were used",
        ]
    );
}

#[test]
fn temporary_rejections_are_ignored() {
    let refused = ("watch", GATEWAYS, "gateways", "", "", 403);
    let verdict = judged(&[&[refused], ALL].concat(), &[]);
    assert!(verdict.fits(), "{verdict}");
    let verdict = judged(&[&[refused], &ALL[1..]].concat(), &[]);
    assert!(!verdict.suffices(), "{verdict}");
}

#[test]
fn unavailable_resources_are_ignored() {
    let verdict = judged(
        &ALL[..2],
        &["deployments.apps", "leases.coordination.k8s.io"],
    );
    assert!(verdict.fits(), "{verdict}");
}

#[test]
fn the_manifests_grant_permissions_in_both_scopes() {
    let text = fs::read_to_string(crate::deploy::manifests()).unwrap();
    let granted = granted(&crate::deploy::objects(&text).unwrap());
    assert!(granted.iter().any(|right| right.place == Place::Everywhere));
    let own = Place::Namespace(NAMESPACE.to_owned());
    assert!(
        granted
            .iter()
            .any(|right| right.place == own && right.resource == "leases")
    );
    let read = |verb: &str, resource: &str| {
        granted
            .iter()
            .any(|right| right.verb == verb && right.resource == resource)
    };
    assert!(read("watch", "httproutes") && read("patch", "httproutes/status"));
}
