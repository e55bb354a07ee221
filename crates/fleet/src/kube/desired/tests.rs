//! Golden files for fleets' objects: run with `SESAME_UPDATE=1` to update them, then read the diff.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sesame_model::{
    AddressRequest, AddressValue, ClassParameters, CreatedClass, FleetLogLevel, FleetParameters,
    OuterClass, Publishing, Routability, TaintEffect, Toleration, TrafficPolicy,
};

use super::*;
use crate::kube::testing;

fn desired_of(spec: &FleetSpec) -> DesiredObjects {
    let owner = spec.request.owner.as_ref().unwrap();
    let namespace = match &*owner.name {
        "web" => "default",
        _ => "shop",
    };
    let fleet = FleetId::of_gateway(namespace, Arc::clone(&owner.name));
    desired_objects(&testing::config(), &fleet, spec)
}

/// A fleet with every parameter set.
fn all_parameters() -> FleetSpec {
    let mut spec = testing::spec("front.door");
    spec.request.owner.as_mut().unwrap().class = "class".into();
    let pairs = |pairs: &[(&str, &str)]| {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    };
    spec.request.labels = pairs(&[("team", "shop"), ("app.kubernetes.io/name", "mine")]);
    spec.request.annotations = pairs(&[("example.com/note", "hello")]);
    spec.request.ports = [Port::tcp(443), Port::udp(443), Port::tcp(80)].into();
    spec.request.addresses = vec![AddressValue::Ip([192, 0, 2, 7].into()).into()];
    spec.bootstrap = r#"{"node":{}}"#.into();
    spec.module = false;
    spec.files = pairs(&[("certificate.json", "{}")]);
    spec.parameters = FleetParameters {
        network_policy: Some(true),
        autoscaling: Some(Autoscaling::Between {
            min: 3,
            max: 9,
            cpu_percent: 70,
        }),
        replicas: Some(5),
        load_balancer_annotations: Some(pairs(&[
            ("lb.example/speed", "low"),
            ("lb.example/scope", "internal"),
        ])),
        service_annotations: Some(pairs(&[("lb.example/speed", "high")])),
        load_balancer_class: Some("example.com/lb".to_owned()),
        load_balancer_source_ranges: Some(vec!["198.51.100.0/24".to_owned()]),
        external_traffic_policy: Some(TrafficPolicy::Local),
        image: Some("registry.example/envoy:2".to_owned()),
        image_pull_secrets: Some(vec!["pull".to_owned()]),
        service_account_annotations: Some(pairs(&[("cloud.example/role", "edge")])),
        cpu_request: Some(500),
        cpu_limit: Some(3500),
        memory_request: Some(256 << 20),
        memory_limit: Some(1 << 30),
        node_selector: Some(pairs(&[("role", "edge")])),
        tolerations: Some(vec![
            Toleration::default(),
            Toleration {
                key: Some("role".to_owned()),
                value: Some("edge".to_owned()),
                effect: Some(TaintEffect::NoExecute),
                seconds: Some(30),
            },
        ]),
        priority_class: Some("high".to_owned()),
        drain_delay: Some(Duration::from_millis(1500)),
        drain_timeout: Some(Duration::from_secs(300)),
        log_level: Some(FleetLogLevel::Debug),
        ..FleetParameters::default()
    };
    spec
}

/// A DaemonSet with a Service of type NodePort.
fn daemon_set_fleet() -> FleetSpec {
    let mut spec = testing::spec("web");
    spec.parameters.workload = Some(Workload::DaemonSet);
    spec.parameters.publishing = Some(Publishing::NodePort);
    // These have no effect on a DaemonSet with a NodePort Service.
    spec.parameters.load_balancer_annotations =
        all_parameters().parameters.load_balancer_annotations;
    spec.parameters.replicas = Some(3);
    spec.parameters.load_balancer_class = Some("example.com/lb".to_owned());
    spec.parameters.autoscaling = all_parameters().parameters.autoscaling;
    spec
}

fn assert_golden(name: &str, spec: &FleetSpec) {
    assert_golden_objects(name, &desired_of(spec).objects);
}

fn assert_golden_objects(name: &str, objects: &BTreeMap<ObjectKind, Value>) {
    let objects: Vec<&Value> = objects.values().collect();
    let actual = format!("{:#}\n", json!(objects));
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/kube/desired/tests")
        .join(name);
    if std::env::var_os("SESAME_UPDATE").is_some() {
        std::fs::write(&file, &actual).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    assert!(actual == expected, "{} differs:\n{actual}", file.display());
}

#[test]
fn objects_with_default_parameters_match_the_golden_file() {
    assert_golden("defaults.json", &testing::spec("web"));
}

#[test]
fn objects_with_all_parameters_match_the_golden_file() {
    assert_golden("all-parameters.json", &all_parameters());
}

/// Addresses outside and inside the cluster: two Services.
#[test]
fn services_of_a_fleet_with_a_cluster_ip_match_the_golden_file() {
    let mut spec = testing::spec("web");
    let in_cluster = AddressRequest {
        address: AddressValue::Ip([10, 0, 0, 9].into()),
        routability: Routability::Cluster,
    };
    spec.request.addresses = vec![in_cluster.clone(), AddressValue::Any.into()];
    let mut objects = desired_of(&spec).objects;
    objects.retain(|kind, _| matches!(kind, ObjectKind::Service | ObjectKind::ClusterService));
    assert_golden_objects("cluster-ip.json", &objects);

    spec.request.addresses = vec![in_cluster];
    let objects = desired_of(&spec).objects;
    assert!(!objects.contains_key(&ObjectKind::Service));
    assert!(objects.contains_key(&ObjectKind::ClusterService));
}

#[test]
fn objects_of_a_daemon_set_fleet_match_the_golden_file() {
    assert_golden("daemon-set.json", &daemon_set_fleet());
}

fn published(class: OuterClass) -> FleetSpec {
    let mut spec = testing::spec("web");
    spec.parameters.publishing = Some(Publishing::Gateway(class));
    spec.request.ports = [Port::tcp(443), Port::udp(443)].into();
    spec
}

#[test]
fn a_gateway_in_front_of_a_fleet_matches_the_golden_file() {
    let mut spec = published(OuterClass::Existing("outer".to_owned()));
    spec.request.addresses = vec![
        AddressValue::Ip([192, 0, 2, 7].into()).into(),
        AddressValue::Any.into(),
    ];
    let mut objects = desired_of(&spec).objects;
    objects.retain(|kind, _| kind.has_ports());
    assert_golden_objects("outer-gateway.json", &objects);
}

#[test]
fn a_created_class_matches_the_golden_file() {
    let class = CreatedClass {
        controller_name: "example.com/lb".to_owned(),
        parameters: Some(ClassParameters {
            group: "example.com".to_owned(),
            kind: "Settings".to_owned(),
            name: "edge".to_owned(),
            namespace: Some("infra".to_owned()),
        }),
    };
    let spec = published(OuterClass::Created(class));
    let objects = class_objects(&testing::config(), &spec).objects;
    assert_golden_objects("gateway-class.json", &objects);
    let name = &objects[&ObjectKind::GatewayClass]["metadata"]["name"];
    let gateway = &desired_of(&spec).objects[&ObjectKind::Gateway];
    assert_eq!(gateway["spec"]["gatewayClassName"], *name);
    assert!(
        class_objects(&testing::config(), &testing::spec("web"))
            .objects
            .is_empty()
    );
}

/// Checks that the API type has every field that we write.
fn assert_round_trip<T: DeserializeOwned + Serialize>(object: &Value) {
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), *object);
}

#[test]
fn every_field_exists_in_the_api_types() {
    for spec in [testing::spec("web"), all_parameters(), daemon_set_fleet()] {
        for (kind, object) in desired_of(&spec).objects {
            match kind {
                ObjectKind::ServiceAccount => assert_round_trip::<ServiceAccount>(&object),
                ObjectKind::ConfigMap => assert_round_trip::<ConfigMap>(&object),
                ObjectKind::Service | ObjectKind::ClusterService => {
                    assert_round_trip::<Service>(&object)
                }
                ObjectKind::NetworkPolicy => assert_round_trip::<NetworkPolicy>(&object),
                ObjectKind::Deployment => assert_round_trip::<Deployment>(&object),
                ObjectKind::DaemonSet => assert_round_trip::<DaemonSet>(&object),
                ObjectKind::PodDisruptionBudget => {
                    assert_round_trip::<PodDisruptionBudget>(&object)
                }
                ObjectKind::HorizontalPodAutoscaler => {
                    assert_round_trip::<HorizontalPodAutoscaler>(&object)
                }
                // `tests/objects` has their CRDs.
                kind => assert!(kind.is_custom()),
            }
        }
    }
}

#[test]
fn owner_labels_apply_everywhere_and_never_override_ours() {
    let mut spec = all_parameters();
    let plain = desired_of(&spec);
    let ours = plain.objects[&ObjectKind::Service]["metadata"]["labels"].clone();
    for key in ours.as_object().unwrap().keys() {
        spec.request.labels.insert(key.clone(), "theirs".to_owned());
    }
    for key in ["pod-template-hash", "projectsesame.io/bootstrap"] {
        spec.request
            .labels
            .insert(key.to_owned(), "theirs".to_owned());
        spec.request
            .annotations
            .insert(key.to_owned(), "theirs".to_owned());
    }
    spec.request
        .labels
        .insert("team".to_owned(), "shop".to_owned());
    let overridden = desired_of(&spec);
    assert_eq!(overridden, plain);
    let template = &plain.objects[&ObjectKind::Deployment]["spec"]["template"];
    let all = plain
        .objects
        .iter()
        .map(|(kind, object)| (Some(*kind), object));
    for (kind, object) in all.chain([(None, template)]) {
        let metadata = &object["metadata"];
        assert_eq!(metadata["labels"]["team"], "shop");
        if kind == Some(ObjectKind::ServiceAccount) {
            continue;
        }
        assert_eq!(metadata["annotations"]["example.com/note"], "hello");
        assert_eq!(
            metadata["labels"]["gateway.networking.k8s.io/gateway-name"],
            "front.door"
        );
    }
}

#[test]
fn a_service_account_has_only_its_own_annotations() {
    let mut spec = all_parameters();
    let metadata = |spec: &FleetSpec| {
        desired_of(spec).objects[&ObjectKind::ServiceAccount]["metadata"].clone()
    };
    assert_eq!(
        metadata(&spec)["annotations"],
        json!({ "cloud.example/role": "edge" })
    );
    spec.parameters.service_account_annotations = None;
    assert_eq!(metadata(&spec).get("annotations"), None);
}

#[test]
fn a_changed_listener_replaces_no_pods() {
    let mut spec = all_parameters();
    let before = desired_of(&spec);
    spec.request.ports = [Port::tcp(8080)].into();
    let after = desired_of(&spec);
    assert_ne!(
        after.objects[&ObjectKind::Service],
        before.objects[&ObjectKind::Service]
    );
    assert_eq!(
        after.objects[&ObjectKind::Deployment],
        before.objects[&ObjectKind::Deployment]
    );
}

#[test]
fn the_sidecar_port_avoids_listener_ports() {
    let mut spec = all_parameters();
    let probe = |spec: &FleetSpec| {
        let pod =
            desired_of(spec).objects[&ObjectKind::Deployment]["spec"]["template"]["spec"].clone();
        let envoy = &pod["containers"][0];
        let port = envoy["readinessProbe"]["httpGet"]["port"].clone();
        assert_eq!(envoy["livenessProbe"]["httpGet"]["port"], port);
        assert_eq!(envoy["lifecycle"]["preStop"]["httpGet"]["port"], port);
        let args = pod["initContainers"][0]["args"].as_array().unwrap();
        assert!(args.contains(&json!(port.to_string())), "{args:?}");
        port
    };
    assert_eq!(probe(&spec), 19_001);
    spec.request
        .ports
        .extend([Port::tcp(19_001), Port::udp(19_002), Port::tcp(19_003)]);
    assert_eq!(probe(&spec), 19_002);
}

/// Sesame's NetworkPolicy and those of the fleets.
#[test]
fn policies_select_the_pods_of_a_fleet() {
    let instance = json!(labels::pods_selector(&testing::config().instance));
    for spec in [testing::spec("web"), all_parameters()] {
        let objects = desired_of(&spec).objects;
        let pods = &objects[&ObjectKind::Deployment]["spec"]["template"]["metadata"]["labels"];
        let mut selectors = vec![&instance];
        let policy = objects.get(&ObjectKind::NetworkPolicy);
        selectors.extend(policy.map(|policy| &policy["spec"]["podSelector"]));
        for selector in selectors {
            for (key, value) in selector["matchLabels"].as_object().unwrap() {
                assert_eq!(pods[key], *value, "{key}");
            }
        }
        let required = &instance["matchExpressions"][0]["key"];
        assert!(pods[required.as_str().unwrap()].is_string(), "{pods}");
    }
}

#[test]
fn changed_files_replace_the_pods() {
    let mut spec = all_parameters();
    let before = desired_of(&spec);
    spec.bootstrap = "{}".into();
    let after = desired_of(&spec);
    spec.files.clear();
    let later = desired_of(&spec);
    let template = |desired: &DesiredObjects| {
        desired.objects[&ObjectKind::Deployment]["spec"]["template"].clone()
    };
    assert_ne!(template(&after), template(&before));
    assert_ne!(template(&later), template(&after));
}

/// A restart of an Envoy drops its connections.
#[test]
fn only_an_envoy_that_hangs_for_minutes_fails_its_liveness_probe() {
    let pod =
        desired_of(&all_parameters()).objects[&ObjectKind::Deployment]["spec"]["template"]["spec"]
            .clone();
    let probe = &pod["containers"][0]["livenessProbe"];
    let number = |field: &str| probe[field].as_u64().unwrap();
    assert!(number("periodSeconds") * number("failureThreshold") >= 60);
    assert!(number("timeoutSeconds") >= 5);
}

#[test]
fn the_grace_period_covers_drain_and_exit() {
    let deployment = desired_of(&all_parameters()).objects[&ObjectKind::Deployment].clone();
    let pod = &deployment["spec"]["template"]["spec"];
    // 1.5 s of delay, 300 s of drain, and 10 s for Envoy's exit.
    assert_eq!(pod["terminationGracePeriodSeconds"], 312);
}

#[test]
fn all_fleets_can_be_in_sesames_namespace() {
    let mut config = testing::config();
    config.own_namespace = true;
    let mut names = BTreeSet::new();
    for namespace in ["shop", "blog"] {
        let fleet = FleetId::of_gateway(namespace, "web");
        let desired = desired_objects(&config, &fleet, &testing::spec("web"));
        for object in desired.objects.values() {
            let metadata = &object["metadata"];
            assert_eq!(metadata["namespace"], config.namespace);
            assert!(metadata.get("ownerReferences").is_none(), "{metadata}");
            let labels = &metadata["labels"];
            assert_eq!(labels["projectsesame.io/gateway-namespace"], namespace);
            names.insert(metadata["name"].to_string());
        }
    }
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_fleet_without_an_owner_is_in_sesames_namespace() {
    let mut spec = testing::spec("web");
    spec.request.owner = None;
    let config = testing::config();
    let desired = desired_objects(&config, &FleetId::Default, &spec);
    for (kind, object) in &desired.objects {
        let metadata = &object["metadata"];
        assert_eq!(metadata["namespace"], config.namespace, "{kind:?}");
        let name = format!("default-fleet{}", kind.suffix());
        assert_eq!(metadata["name"], name, "{kind:?}");
        assert!(metadata.get("ownerReferences").is_none(), "{kind:?}");
        let labels = metadata["labels"].as_object().unwrap();
        assert_eq!(labels["projectsesame.io/fleet"], "default-fleet");
        assert!(!labels.keys().any(|key| key.contains("gateway.networking")));
    }
    let kinds: Vec<_> = desired.objects.keys().collect();
    let of_gateway = desired_of(&testing::spec("web"));
    assert_eq!(kinds, of_gateway.objects.keys().collect::<Vec<_>>());
}
