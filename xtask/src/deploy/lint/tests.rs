//! The repository's manifests have no problems, and each kind of problem is found.

use std::fs;

use serde_json::json;

use super::*;

fn shipped() -> Vec<Value> {
    let text = fs::read_to_string(crate::deploy::manifests()).unwrap();
    crate::deploy::objects(&text).unwrap()
}

fn of_kind<'a>(objects: &'a mut [Value], kind: &str) -> &'a mut Value {
    objects
        .iter_mut()
        .find(|object| object["kind"] == kind)
        .unwrap()
}

/// The only problem after changing the first object of a kind.
fn after(kind: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut objects = shipped();
    change(of_kind(&mut objects, kind));
    let problems = problems(&objects);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems.into_iter().next().unwrap()
}

fn add_rule(role: &mut Value, group: &str, resource: &str, verb: &str) {
    let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
    role["rules"].as_array_mut().unwrap().push(rule);
}

#[test]
fn the_manifests_have_no_problems() {
    assert_eq!(problems(&shipped()), Vec::<String>::new());
    for kind in [
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "Role",
        "Service",
        "Deployment",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "GatewayClass",
    ] {
        assert!(
            shipped().iter().any(|object| object["kind"] == kind),
            "{kind}"
        );
    }
}

#[test]
fn broad_permissions_are_found() {
    for (group, resource, verb) in [
        ("apps", "replicasets", "*"),
        ("apps", "*", "get"),
        ("*", "replicasets", "get"),
        ("rbac.authorization.k8s.io", "roles", "escalate"),
        ("rbac.authorization.k8s.io", "roles", "bind"),
        ("", "users", "impersonate"),
    ] {
        let problem = after("ClusterRole", |role| add_rule(role, group, resource, verb));
        assert!(problem.ends_with("is too broad"), "{problem}");
    }
}

#[test]
fn permissions_in_the_wrong_scope_are_found() {
    let problem = after("Role", |role| add_rule(role, "", "namespaces", "get"));
    assert!(problem.contains("no effect in a Role"), "{problem}");

    let mut objects = shipped();
    let mut role = of_kind(&mut objects, "Role").clone();
    role["metadata"]["name"] = "sesame-gateways".into();
    let mut binding = of_kind(&mut objects, "RoleBinding").clone();
    binding["metadata"]["name"] = "sesame-gateways".into();
    binding["roleRef"]["name"] = "sesame-gateways".into();
    objects.extend([role, binding]);
    let problems = problems(&objects);
    assert!(!problems.is_empty());
    let wide = |problem: &String| problem.ends_with("only some namespaces are watched");
    assert!(problems.iter().all(wide), "{problems:#?}");
}

#[test]
fn useless_permissions_are_found() {
    let problem = after("ClusterRole", |role| {
        let first = role["rules"][0].clone();
        let mut again = first;
        again["verbs"] = json!(["watch"]);
        role["rules"].as_array_mut().unwrap().push(again);
    });
    assert!(problem.ends_with("is a duplicate"), "{problem}");
    let problem = after("RoleBinding", |binding| binding["subjects"] = json!([]));
    assert_eq!(problem, "Role sesame-system/sesame has no binding");
    let problem = after("ClusterRole", |role| {
        let rule = json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]});
        role["rules"].as_array_mut().unwrap().push(rule);
    });
    assert!(problem.contains("rules for nonResourceURLs"), "{problem}");
}

#[test]
fn pods_with_unneeded_privileges_are_found() {
    for (pointer, value) in [
        ("/securityContext/runAsNonRoot", json!(false)),
        ("/securityContext/seccompProfile", json!(null)),
        ("/containers/0/securityContext/capabilities/drop", json!([])),
        (
            "/containers/0/securityContext/readOnlyRootFilesystem",
            json!(false),
        ),
        (
            "/containers/0/securityContext/allowPrivilegeEscalation",
            json!(true),
        ),
    ] {
        let problem = after("Deployment", |deployment| {
            let pod = &mut deployment["spec"]["template"]["spec"];
            *pod.pointer_mut(pointer).unwrap() = value;
        });
        assert!(problem.contains("securityContext/"), "{problem}");
    }
    let problem = after("Deployment", |deployment| {
        deployment["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    });
    assert!(problem.ends_with("requests no resources"), "{problem}");
}

#[test]
fn dangling_references_are_found() {
    let problem = after("Service", |service| {
        service["spec"]["selector"] = json!({"app": "other"})
    });
    assert!(problem.ends_with("selects no pods"), "{problem}");
    let problem = after("Service", |service| {
        service["spec"]["ports"][0]["targetPort"] = "other".into()
    });
    assert!(
        problem.contains("refers to a port that the pods don't have"),
        "{problem}"
    );
    let problem = after("PodDisruptionBudget", |budget| {
        budget["spec"]["selector"]["matchLabels"] = json!({});
    });
    assert!(problem.ends_with("selects no pods"), "{problem}");
    let problem = after("NetworkPolicy", |policy| {
        policy["spec"]["ingress"][0]["ports"][0]["port"] = "other".into();
    });
    assert!(
        problem.contains("refers to a port that the pods don't have"),
        "{problem}"
    );
    let problem = after("Deployment", |deployment| {
        let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        container["readinessProbe"]["httpGet"]["port"] = "other".into();
    });
    assert!(
        problem.contains("the readinessProbe uses an undefined container port"),
        "{problem}"
    );
}

#[test]
fn duplicate_objects_are_found() {
    let mut objects = shipped();
    let account = of_kind(&mut objects, "ServiceAccount").clone();
    objects.push(account);
    assert_eq!(
        problems(&objects),
        ["ServiceAccount sesame-system/sesame is a duplicate"]
    );
}
