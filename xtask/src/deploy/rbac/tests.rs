//! Small manifests against small logs.

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
# Somebody else's.
kind: ClusterRoleBinding
metadata: {name: other}
roleRef: {kind: ClusterRole, name: sesame}
subjects: [{kind: ServiceAccount, name: other, namespace: sesame-system}]
"#;

const GATEWAYS: &str = "gateway.networking.k8s.io";

/// An event: verb, group, resource, namespace, name, the answer's code.
type Event<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, u16);

/// All that the manifests allow, once each.
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
fn what_is_used_fits() {
    let verdict = judged(ALL, &[]);
    assert!(verdict.fits(), "{verdict}");
    assert_eq!(lines(&verdict), ["7 of 7 rights were used"]);
}

#[test]
fn each_right_that_is_not_used_is_told() {
    // A list goes with the watch, and a get with the patch of a status.
    let told = [
        vec![
            "granted, never used: list gateways.gateway.networking.k8s.io",
            "granted, never used: watch gateways.gateway.networking.k8s.io",
        ],
        vec![
            "granted, never used: get gateways.gateway.networking.k8s.io",
            "granted, never used: patch gateways/status.gateway.networking.k8s.io",
        ],
        vec![
            "granted, never used: create deployments.apps",
            "granted, never used: patch deployments.apps",
        ],
        vec![
            r#"granted, never used: update leases.coordination.k8s.io "sesame-leader" in sesame-system"#,
        ],
    ];
    for (left_out, expected) in told.iter().enumerate() {
        let mut events = ALL.to_vec();
        events.remove(left_out);
        let verdict = judged(&events, &[]);
        assert!(!verdict.fits());
        let lines = lines(&verdict);
        assert_eq!(lines[..lines.len() - 1], *expected);
    }
}

#[test]
fn a_right_in_one_namespace_or_to_one_object_is_not_used_elsewhere() {
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
fn refusals_and_rights_of_others_are_told() {
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
            "asked for, refused: list pods",
            r#"used, granted by another: delete deployments.apps "web" in a"#,
            "7 of 7 rights were used",
        ]
    );
}

#[test]
fn what_is_refused_for_a_moment_is_not_told() {
    let refused = ("watch", GATEWAYS, "gateways", "", "", 403);
    let verdict = judged(&[&[refused], ALL].concat(), &[]);
    assert!(verdict.fits(), "{verdict}");
    let verdict = judged(&[&[refused], &ALL[1..]].concat(), &[]);
    assert!(!verdict.suffices(), "{verdict}");
}

#[test]
fn what_a_run_could_not_use_is_passed_over() {
    let verdict = judged(
        &ALL[..2],
        &["deployments.apps", "leases.coordination.k8s.io"],
    );
    assert!(verdict.fits(), "{verdict}");
}

#[test]
fn the_repositorys_manifests_grant_something_in_both_scopes() {
    let text = fs::read_to_string(crate::deploy::manifests()).unwrap();
    let granted = granted(&crate::deploy::objects(&text).unwrap());
    assert!(granted.iter().any(|right| right.place == Place::Everywhere));
    let own = Place::Namespace(ACCOUNT.0.to_owned());
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
