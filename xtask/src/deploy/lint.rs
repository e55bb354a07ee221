//! Rules for the manifests, regardless of chart values.
//!
//! In: objects. Out: problems: permissions that are too broad, unused or in the wrong scope, pods with more privileges
//! than needed, and dangling references.

use std::collections::BTreeSet;

use serde_json::Value;

use super::rbac::{self, Place, Right};

/// Cluster-scoped resources, which belong in ClusterRoles; all others belong in Roles.
const WITHOUT_NAMESPACE: &[(&str, &str)] = &[
    ("", "namespaces"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("certificates.k8s.io", "clustertrustbundles"),
    ("gateway.networking.k8s.io", "gatewayclasses"),
    ("gateway.networking.k8s.io", "gatewayclasses/status"),
    ("networking.k8s.io", "ingressclasses"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
];

/// Wildcards, and verbs that allow privilege escalation. `bind` is allowed for named roles only.
const NEVER: &[&str] = &["*", "escalate", "impersonate", "deletecollection"];

/// Required fields in a container's security context, as JSON pointers.
const CONTAINER: &[(&str, &str)] = &[
    ("/allowPrivilegeEscalation", "false"),
    ("/readOnlyRootFilesystem", "true"),
    ("/capabilities/drop", r#"["ALL"]"#),
];

/// Required fields in a pod's security context.
const POD: &[(&str, &str)] = &[
    ("/runAsNonRoot", "true"),
    ("/runAsUser", "65532"),
    ("/seccompProfile/type", r#""RuntimeDefault""#),
];

/// Finds all problems.
pub(super) fn problems(objects: &[Value]) -> Vec<String> {
    let mut problems = doubles(objects);
    problems.extend(rights(objects));
    for object in objects {
        if object["kind"] == "Deployment" {
            problems.extend(deployment(object));
        }
    }
    problems.extend(selectors(objects));
    problems
}

/// Finds duplicate objects.
fn doubles(objects: &[Value]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    objects
        .iter()
        .map(name_of)
        .filter(|name| !seen.insert(name.clone()))
        .map(|name| format!("{name} is a duplicate"))
        .collect()
}

/// Finds problems in roles.
fn rights(objects: &[Value]) -> Vec<String> {
    let mut problems = Vec::new();
    let roles = rbac::roles(objects);
    let rights = roles
        .iter()
        .flat_map(|role| role.rights(&Place::Everywhere));
    // The operator binds these roles.
    let bindable: BTreeSet<Option<String>> = rights
        .filter(|right| right.verb == "bind")
        .map(|right| right.name)
        .collect();
    for role in roles {
        let name = name_of(role.object);
        if role.places.is_empty()
            && !bindable.contains(&role.object["metadata"]["name"].as_str().map(str::to_owned))
        {
            problems.push(format!("{name} has no binding"));
        }
        for rule in role.rules() {
            if rule.get("nonResourceURLs").is_some() {
                problems.push(format!(
                    "{name}: rules for nonResourceURLs are not needed; remove {rule}"
                ));
            }
        }
        let mut seen = BTreeSet::new();
        // The scope of the binding doesn't matter here.
        for right in role.rights(&Place::Everywhere) {
            problems.extend(wrong(
                &name,
                role.object["kind"] == "ClusterRole",
                objects,
                &right,
            ));
            if !seen.insert(right.clone()) {
                problems.push(format!("{name}: {right} is a duplicate"));
            }
        }
    }
    problems
}

/// Finds problems in one permission.
fn wrong(role: &str, in_cluster: bool, objects: &[Value], right: &Right) -> Vec<String> {
    let mut problems = Vec::new();
    let too_broad = match right.verb.as_str() {
        "bind" => right.name.is_none(),
        verb => NEVER.contains(&verb),
    };
    if too_broad || right.resource.contains('*') || right.group == "*" {
        problems.push(format!("{role}: {right} is too broad"));
    }
    let without = WITHOUT_NAMESPACE.contains(&(right.group.as_str(), right.resource.as_str()));
    if without && !in_cluster {
        problems.push(format!(
            "{role}: {right} has no effect in a Role: the resource is cluster-scoped"
        ));
    }
    // Roles in namespaces exist only if Sesame watches selected namespaces.
    let some_only = objects.iter().any(|object| {
        object["kind"] == "Role"
            && object["metadata"]["name"]
                .as_str()
                .is_some_and(|name| name.ends_with("-gateways"))
    });
    if in_cluster && some_only && !without {
        problems.push(format!(
            "{role}: {right} belongs in Roles, since only some namespaces are watched"
        ));
    }
    problems
}

/// Finds problems in a Deployment's pods: privileges, and probes of undefined ports.
fn deployment(object: &Value) -> Vec<String> {
    let name = name_of(object);
    let pod = &object["spec"]["template"]["spec"];
    let mut problems = unsaid(&name, &pod["securityContext"], POD);
    let containers: Vec<&Value> = ["containers", "initContainers"]
        .iter()
        .filter_map(|field| pod[field].as_array())
        .flatten()
        .collect();
    for container in &containers {
        problems.extend(unsaid(&name, &container["securityContext"], CONTAINER));
        if container["resources"]["requests"].is_null() {
            problems.push(format!("{name}: a container requests no resources"));
        }
        let ports = ports(container);
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            let port = container[probe]["httpGet"]["port"].as_str();
            if !port.is_some_and(|port| ports.contains(port)) {
                problems.push(format!(
                    "{name}: the {probe} uses an undefined container port"
                ));
            }
        }
    }
    if containers.is_empty() {
        problems.push(format!("{name} has no containers"));
    }
    problems
}

fn unsaid(name: &str, context: &Value, wanted: &[(&str, &str)]) -> Vec<String> {
    wanted
        .iter()
        .filter(|(field, value)| {
            context.pointer(field).map(ToString::to_string).as_deref() != Some(*value)
        })
        .map(|(field, value)| format!("{name}: securityContext{field} must be {value}"))
        .collect()
}

/// Selectors in Services, PodDisruptionBudgets and NetworkPolicies must match a Deployment's pods, and the ports of Services
/// and NetworkPolicies must be ports of the pods.
fn selectors(objects: &[Value]) -> Vec<String> {
    let deployments: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"] == "Deployment")
        .collect();
    let mut problems = Vec::new();
    for object in objects {
        let spec = &object["spec"];
        let selector = match object["kind"].as_str() {
            Some("Service") => &spec["selector"],
            Some("PodDisruptionBudget" | "Deployment") => &spec["selector"]["matchLabels"],
            Some("NetworkPolicy") => &spec["podSelector"]["matchLabels"],
            _ => continue,
        };
        let name = name_of(object);
        let chosen = deployments.iter().find(|deployment| {
            let labels = &deployment["spec"]["template"]["metadata"]["labels"];
            let mut wanted = selector.as_object().into_iter().flatten().peekable();
            object["metadata"]["namespace"] == deployment["metadata"]["namespace"]
                && wanted.peek().is_some()
                && wanted.all(|(key, value)| labels[key] == *value)
        });
        let Some(chosen) = chosen else {
            problems.push(format!("{name} selects no pods"));
            continue;
        };
        let ports = ports(&chosen["spec"]["template"]["spec"]["containers"][0]);
        let policy = spec["ingress"].as_array().into_iter().flatten();
        let lists = policy.map(|rule| &rule["ports"]).chain([&spec["ports"]]);
        for port in lists.filter_map(Value::as_array).flatten() {
            let target = port.get("targetPort").unwrap_or(&port["port"]);
            if !target.as_str().is_some_and(|name| ports.contains(name)) {
                problems.push(format!(
                    "{name} refers to a port that the pods don't have: {port}"
                ));
            }
        }
    }
    problems
}

/// The names of a container's ports.
fn ports(container: &Value) -> BTreeSet<&str> {
    let ports = container["ports"].as_array().into_iter().flatten();
    ports.filter_map(|port| port["name"].as_str()).collect()
}

/// An object's display name, such as `Role sesame-system/sesame`.
fn name_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, about) = (text(&object["kind"]), &object["metadata"]);
    match text(&about["namespace"]) {
        namespace if namespace.is_empty() => format!("{kind} {}", text(&about["name"])),
        namespace => format!("{kind} {namespace}/{}", text(&about["name"])),
    }
}

#[cfg(test)]
mod tests;
