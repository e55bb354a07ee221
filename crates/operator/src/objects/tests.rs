use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::*;

fn instance(spec: Value) -> Instance {
    let object = json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": "SesameConfiguration",
        "metadata": { "name": "sesame", "namespace": "sesame-system", "uid": "1" },
        "spec": spec,
    });
    Instance::read(&serde_json::from_value(object).unwrap())
}

fn built(spec: Value) -> Vec<DesiredObject> {
    let config = OperatorConfig {
        image: format!("ghcr.io/projectsesame/sesame:{}", env!("CARGO_PKG_VERSION")),
        envoy_image: "ghcr.io/projectsesame/envoy:1".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let instance = instance(spec);
    objects(&config, &instance, instance.spec.as_ref().unwrap())
}

fn names(objects: &[DesiredObject], kind: InstanceKind) -> Vec<String> {
    let of_kind = objects.iter().filter(|object| object.kind == kind);
    let name = |object: &DesiredObject| match &object.namespace {
        Some(namespace) => format!("{namespace}/{}", object.name),
        None => object.name.clone(),
    };
    of_kind.map(name).collect()
}

fn args(objects: &[DesiredObject]) -> Vec<&str> {
    let mut deployments = objects
        .iter()
        .filter(|object| object.kind == InstanceKind::Deployment);
    let deployment = &deployments.next().unwrap().object;
    let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    args.as_array()
        .unwrap()
        .iter()
        .map(|arg| arg.as_str().unwrap())
        .collect()
}

/// The fields of an object that the chart and the operator must set alike.
fn comparable(object: &Value) -> Value {
    let mut fields: Map<String, Value> = object.as_object().unwrap().clone();
    fields.remove("metadata");
    let mut object = Value::Object(fields);
    if let Some(args) = object.pointer_mut("/spec/template/spec/containers/0/args") {
        // Manifests have flags in place of a configuration; the images differ in their tags.
        args.as_array_mut().unwrap().retain(|arg| {
            let arg = arg.as_str().unwrap();
            !["--configuration=", "--ingress-class=", "--envoy-image="]
                .iter()
                .any(|flag| arg.starts_with(flag))
        });
    }
    object
}

#[test]
fn an_instance_has_the_same_objects_as_the_manifests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifests = fs::read_to_string(root.join("deploy/manifests/sesame.yaml")).unwrap();
    let manifests: Vec<Value> = serde_saphyr::from_multiple(&manifests).unwrap();
    let built = built(json!({ "gateway": { "controllerName": "example.com/a" }, "envoy": {} }));
    let mut compared = 0;
    for desired in &built {
        if matches!(
            desired.kind,
            InstanceKind::ClusterRoleBinding | InstanceKind::RoleBinding
        ) {
            continue;
        }
        let object = &desired.object;
        let mut alike = manifests.iter().filter(|manifest| {
            let names = ["name", "namespace"].map(|field| &manifest["metadata"][field]);
            manifest["kind"] == object["kind"] && names == [&*desired.name, "sesame-system"]
        });
        let manifest = alike
            .next()
            .unwrap_or_else(|| panic!("no manifest for {object}"));
        assert_eq!(comparable(object), comparable(manifest));
        compared += 1;
    }
    assert_eq!(compared, 6);
}

#[test]
fn an_instance_for_all_namespaces_has_cluster_wide_permissions() {
    let built = built(json!({ "instance": {}, "envoy": {} }));
    assert_eq!(
        names(&built, InstanceKind::ClusterRoleBinding),
        ["cluster", "objects", "fleets"]
            .map(|role| format!("sesame-instance-{role}:sesame-system"))
    );
    assert_eq!(
        names(&built, InstanceKind::RoleBinding),
        ["sesame-system/sesame-instance-own:sesame-system"]
    );
}

#[test]
fn an_instance_for_some_namespaces_has_permissions_in_these_only() {
    let built = built(json!({ "watchNamespaces": ["shop", "sesame-system"] }));
    assert_eq!(
        names(&built, InstanceKind::ClusterRoleBinding),
        ["sesame-instance-cluster:sesame-system"]
    );
    // It doesn't run Envoys.
    assert_eq!(
        names(&built, InstanceKind::RoleBinding),
        [
            "default/sesame-instance-events:sesame-system",
            "sesame-system/sesame-instance-objects:sesame-system",
            "sesame-system/sesame-instance-services:sesame-system",
            "shop/sesame-instance-objects:sesame-system",
            "shop/sesame-instance-services:sesame-system",
            "sesame-system/sesame-instance-own:sesame-system",
        ]
    );
    let args = args(&built);
    assert!(args.iter().all(|arg| !arg.contains("image")), "{args:?}");
}

#[test]
fn an_instance_with_all_envoys_in_its_namespace_may_run_them_there_only() {
    let built = built(json!({ "instance": { "envoyNamespace": "Sesame" }, "envoy": {} }));
    assert_eq!(
        names(&built, InstanceKind::ClusterRoleBinding),
        ["cluster", "objects"].map(|role| format!("sesame-instance-{role}:sesame-system"))
    );
    assert_eq!(
        names(&built, InstanceKind::RoleBinding),
        ["fleets", "own"].map(|role| format!("sesame-system/sesame-instance-{role}:sesame-system"))
    );
    let args = args(&built);
    assert!(args.contains(&"--envoy-namespace=sesame"), "{args:?}");
}

#[test]
fn the_instance_section_sets_fields_of_the_pods() {
    let built = built(json!({
        "instance": {
            "replicas": 3,
            "resources": { "requests": { "cpu": "1" } },
            "nodeSelector": { "a": "b" },
            "tolerations": [{ "key": "c", "operator": "Exists", "effect": "NoExecute" }],
            "priorityClassName": "high",
            "imagePullSecrets": ["d"],
        },
    }));
    let spec = &built.last().unwrap().object["spec"];
    let pod = &spec["template"]["spec"];
    assert_eq!(spec["replicas"], 3);
    assert_eq!(
        pod["containers"][0]["resources"],
        json!({ "requests": { "cpu": "1" } })
    );
    assert_eq!(pod["nodeSelector"], json!({ "a": "b" }));
    let toleration = json!({ "key": "c", "operator": "Exists", "effect": "NoExecute" });
    assert_eq!(pod["tolerations"], json!([toleration]));
    assert_eq!(pod["priorityClassName"], "high");
    assert_eq!(pod["imagePullSecrets"], json!([{ "name": "d" }]));
}

#[test]
fn sections_that_take_effect_at_the_start_replace_the_pods() {
    let template = |spec: Value| built(spec).last().unwrap().object["spec"]["template"].clone();
    let before = template(json!({ "instance": {} }));
    assert_ne!(
        template(json!({ "instance": {}, "contourCompat": "Read" })),
        before
    );
    assert_ne!(
        template(json!({ "instance": {}, "leaderElection": { "retryPeriod": "1s" } })),
        before
    );
    let live = json!({ "instance": {}, "logging": { "level": "debug" }, "httpProxy": {} });
    assert_eq!(template(live), before);
}

#[test]
fn ports_are_those_of_the_configuration() {
    let built = built(json!({
        "instance": {},
        "xds": { "port": 19_000, "advertisedPort": 443 },
        "metrics": { "port": 9102 },
    }));
    let ports = |name: &str| {
        let service = built.iter().find(|desired| desired.name == name).unwrap();
        service.object["spec"]["ports"][0].clone()
    };
    assert_eq!(ports("sesame-xds")["port"], 443);
    assert_eq!(ports("sesame-xds")["targetPort"], "xds");
    assert_eq!(ports("sesame-metrics")["port"], 9102);
    assert_eq!(ports("sesame-metrics")["targetPort"], "metrics");
    let pod = &built.last().unwrap().object["spec"]["template"]["spec"];
    let ports = pod["containers"][0]["ports"].as_array().unwrap();
    let ports: Vec<u64> = ports
        .iter()
        .map(|port| port["containerPort"].as_u64().unwrap())
        .collect();
    assert_eq!(ports, [8080, 19_000, 9102]);
}

#[test]
fn a_network_policy_lets_only_managed_envoys_connect() {
    let policy = |spec: Value| {
        let objects = built(spec);
        let mut policies = objects
            .iter()
            .filter(|object| object.kind == InstanceKind::NetworkPolicy);
        policies.next().map(|policy| policy.object["spec"].clone())
    };
    let managed = policy(json!({ "instance": {}, "envoy": {} })).unwrap();
    let from = &managed["ingress"][1]["from"][0];
    let labels = &from["podSelector"]["matchLabels"];
    assert_eq!(labels["app.kubernetes.io/instance"], "sesame-system");
    let unmanaged = policy(json!({ "instance": {} })).unwrap();
    assert!(unmanaged["ingress"][1].get("from").is_none());
    assert!(policy(json!({ "instance": { "networkPolicy": false } })).is_none());
}

/// Other objects would remain if a user removed the finalizer.
#[test]
fn objects_in_the_instances_namespace_have_an_owner() {
    for desired in built(json!({ "instance": {}, "envoy": {} })) {
        let metadata = &desired.object["metadata"];
        assert_eq!(
            metadata["annotations"][CONFIGURATION],
            "sesame-system/sesame"
        );
        if desired.kind != InstanceKind::ClusterRoleBinding
            && desired.kind != InstanceKind::RoleBinding
        {
            assert_eq!(metadata["ownerReferences"][0]["uid"], "1", "{metadata}");
        }
    }
}
