//! Instances that can't run at the same time. The oldest has precedence.

use std::collections::BTreeSet;

use sesame_api::{ConfigurationSpec, IngressConfiguration};

use crate::instance::Instance;

/// Why an instance can't run beside an older one; `None` if it can.
pub(crate) fn conflict(instance: &Instance, all: &[Instance]) -> Option<String> {
    let spec = instance.spec.as_ref().ok()?;
    let mut older: Vec<&Instance> = all
        .iter()
        .filter(|other| other.is_desired() || other.is_installed())
        .filter(|other| age(other) < age(instance))
        .collect();
    older.sort_by_key(|other| age(other));
    older.into_iter().find_map(|other| {
        let conflict = match &other.spec {
            _ if other.name.namespace == instance.name.namespace => {
                "runs an instance in this namespace; create this configuration in another namespace"
                    .to_owned()
            }
            Ok(theirs) => shared(spec, theirs)?,
            Err(_) => return None,
        };
        Some(format!(
            "The older SesameConfiguration {} {conflict}.",
            other.name
        ))
    })
}

fn shared(ours: &ConfigurationSpec, theirs: &ConfigurationSpec) -> Option<String> {
    let controller = |spec: &ConfigurationSpec| {
        let gateway = spec.gateway.as_ref();
        gateway.map(|gateway| gateway.controller_name.clone())
    };
    if let Some(name) = controller(ours)
        && controller(theirs).as_ref() == Some(&name)
    {
        return Some(format!(
            "has the same gateway.controllerName, {name}; set another one in one of the two"
        ));
    }
    let (ours, theirs) = (classes(ours), classes(theirs));
    let class = ours.intersection(&theirs).next()?;
    Some(format!(
        "serves the ingress class {class} too; set other ingress.classNames in one of the two"
    ))
}

fn classes(spec: &ConfigurationSpec) -> BTreeSet<&str> {
    let ingress = spec.ingress.as_ref();
    match ingress.and_then(|ingress| ingress.class_names.as_deref()) {
        Some(names) => names.iter().map(|name| &**name).collect(),
        None => BTreeSet::from([IngressConfiguration::DEFAULT_CLASS]),
    }
}

fn age(instance: &Instance) -> (Option<jiff::Timestamp>, &sesame_api::NamespacedName) {
    (instance.created, &instance.name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::instance::FINALIZER;

    fn instance(namespace: &str, name: &str, second: u32, spec: Value) -> Instance {
        let object = json!({
            "apiVersion": "projectsesame.io/v1alpha1",
            "kind": "SesameConfiguration",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": spec,
        });
        Instance::read(&serde_json::from_value(object).unwrap())
    }

    fn with_controller(name: &str) -> Value {
        json!({ "gateway": { "controllerName": name }, "ingress": { "classNames": [name] } })
    }

    #[test]
    fn different_instances_run_side_by_side() {
        let all = [
            instance("a", "sesame", 1, with_controller("example.com/a")),
            instance("b", "sesame", 2, with_controller("example.com/b")),
        ];
        assert_eq!(all.each_ref().map(|one| conflict(one, &all)), [None, None]);
    }

    #[test]
    fn the_older_of_two_instances_has_precedence() {
        let cases = [
            (
                instance("a", "z", 1, with_controller("example.com/a")),
                instance("a", "a", 2, with_controller("example.com/b")),
                "runs an instance in this namespace",
            ),
            (
                instance("a", "sesame", 1, with_controller("example.com/a")),
                instance("b", "sesame", 1, with_controller("example.com/a")),
                "the same gateway.controllerName, example.com/a",
            ),
            (
                instance("b", "sesame", 1, json!({ "ingress": {} })),
                instance(
                    "a",
                    "sesame",
                    2,
                    json!({ "ingress": { "classNames": ["x", "sesame"] } }),
                ),
                "the ingress class sesame too",
            ),
        ];
        for (older, younger, shared) in cases {
            let all = [younger, older];
            assert_eq!(conflict(&all[1], &all), None);
            let conflict = conflict(&all[0], &all).unwrap();
            assert!(conflict.contains(&all[1].name.to_string()), "{conflict}");
            assert!(conflict.contains(shared), "{conflict}");
        }
    }

    #[test]
    fn only_instances_conflict() {
        let younger = instance("a", "sesame", 2, json!({ "instance": {} }));
        let mut older = instance("a", "envoys", 1, json!({ "envoy": {} }));
        assert_eq!(conflict(&younger, &[older.clone()]), None);
        // Until its instance has been removed.
        older.finalizers.push(FINALIZER.to_owned());
        assert!(conflict(&younger, &[older]).is_some());
    }
}
