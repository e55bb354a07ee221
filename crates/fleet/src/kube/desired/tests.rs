//! Golden files of fleets' objects: run with `SESAME_UPDATE=1` to update them, then read the diff.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sesame_model::{
    AddressRequest, FleetLogLevel, FleetParameters, Port, ServiceType, TaintEffect, Toleration,
    TrafficPolicy,
};

use super::*;
use crate::kube::testing;

fn of(spec: &FleetSpec) -> Desired {
    let owner = spec.request.owner.as_ref().unwrap();
    let namespace = match &*owner.name {
        "web" => "default",
        _ => "shop",
    };
    let fleet = FleetId::of_gateway(namespace, Arc::clone(&owner.name));
    desired(&testing::config(), &fleet, spec)
}

/// A fleet with every parameter set.
fn chosen() -> FleetSpec {
    let mut spec = testing::spec("front.door");
    spec.request.owner.as_mut().unwrap().class = "class".into();
    let pairs = |pairs: &[(&str, &str)]| {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    };
    spec.request.labels = pairs(&[("team", "shop"), ("app.kubernetes.io/name", "mine")]);
    spec.request.annotations = pairs(&[("example.com/note", "hello")]);
    spec.request.ports = [Port::tcp(443), Port::udp(443), Port::tcp(80)].into();
    spec.request.addresses = vec![AddressRequest::Ip([192, 0, 2, 7].into())];
    spec.bootstrap = r#"{"node":{}}"#.into();
    spec.module = false;
    spec.files = pairs(&[("certificate.json", "{}")]);
    spec.parameters = FleetParameters {
        autoscaling: Some(Autoscaling::Between {
            min: 3,
            max: 9,
            cpu_percent: 70,
        }),
        replicas: Some(5),
        service_annotations: Some(pairs(&[("lb.example/speed", "high")])),
        load_balancer_class: Some("example.com/lb".to_owned()),
        load_balancer_source_ranges: Some(vec!["198.51.100.0/24".to_owned()]),
        external_traffic_policy: Some(TrafficPolicy::Local),
        image: Some("registry.example/envoy:2".to_owned()),
        image_pull_secrets: Some(vec!["pull".to_owned()]),
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
fn everywhere() -> FleetSpec {
    let mut spec = testing::spec("web");
    spec.parameters.workload = Some(Workload::DaemonSet);
    spec.parameters.service_type = Some(ServiceType::NodePort);
    // Not applicable here.
    spec.parameters.replicas = Some(3);
    spec.parameters.load_balancer_class = Some("example.com/lb".to_owned());
    spec.parameters.autoscaling = chosen().parameters.autoscaling;
    spec
}

fn golden(name: &str, spec: &FleetSpec) {
    let objects: Vec<Value> = of(spec).objects.into_values().collect();
    let is = format!("{:#}\n", json!(objects));
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/kube/desired/tests")
        .join(name);
    if std::env::var_os("SESAME_UPDATE").is_some() {
        std::fs::write(&file, &is).unwrap();
    }
    let was = std::fs::read_to_string(&file).unwrap();
    assert!(is == was, "{} differs:\n{is}", file.display());
}

#[test]
fn objects_of_a_fleet_whose_owner_asks_for_nothing() {
    golden("plain.json", &testing::spec("web"));
}

#[test]
fn objects_of_a_fleet_whose_owner_has_chosen_everything() {
    golden("chosen.json", &chosen());
}

#[test]
fn objects_of_a_fleet_on_each_node() {
    golden("everywhere.json", &everywhere());
}

/// Checks that the API server's type has every field that we write.
fn reads_back<T: DeserializeOwned + Serialize>(object: &Value) {
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), *object);
}

#[test]
fn every_field_is_one_of_the_api_servers() {
    for spec in [testing::spec("web"), chosen(), everywhere()] {
        for (kind, object) in of(&spec).objects {
            match kind {
                Kind::ServiceAccount => reads_back::<ServiceAccount>(&object),
                Kind::ConfigMap => reads_back::<ConfigMap>(&object),
                Kind::Service => reads_back::<Service>(&object),
                Kind::Deployment => reads_back::<Deployment>(&object),
                Kind::DaemonSet => reads_back::<DaemonSet>(&object),
                Kind::PodDisruptionBudget => reads_back::<PodDisruptionBudget>(&object),
                Kind::HorizontalPodAutoscaler => reads_back::<HorizontalPodAutoscaler>(&object),
            }
        }
    }
}

#[test]
fn owners_labels_and_annotations_are_everywhere_and_ours_stay() {
    let mut spec = chosen();
    let plain = of(&spec);
    let ours = plain.objects[&Kind::Service]["metadata"]["labels"].clone();
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
    let overridden = of(&spec);
    assert_eq!(overridden, plain);
    let template = &plain.objects[&Kind::Deployment]["spec"]["template"];
    for object in plain.objects.values().chain([template]) {
        let metadata = &object["metadata"];
        assert_eq!(metadata["labels"]["team"], "shop");
        assert_eq!(metadata["annotations"]["example.com/note"], "hello");
        assert_eq!(
            metadata["labels"]["gateway.networking.k8s.io/gateway-name"],
            "front.door"
        );
    }
}

#[test]
fn a_listener_comes_and_goes_without_a_new_pod() {
    let mut spec = chosen();
    let before = of(&spec);
    spec.request.ports = [Port::tcp(8080)].into();
    let after = of(&spec);
    assert_ne!(
        after.objects[&Kind::Service],
        before.objects[&Kind::Service]
    );
    assert_eq!(
        after.objects[&Kind::Deployment],
        before.objects[&Kind::Deployment]
    );
}

#[test]
fn the_sidecar_gives_way_to_a_listener() {
    let mut spec = chosen();
    let probe = |spec: &FleetSpec| {
        let pod = of(spec).objects[&Kind::Deployment]["spec"]["template"]["spec"].clone();
        let envoy = &pod["containers"][0];
        let port = envoy["readinessProbe"]["httpGet"]["port"].clone();
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

#[test]
fn other_files_mean_other_pods() {
    let mut spec = chosen();
    let before = of(&spec);
    spec.bootstrap = "{}".into();
    let after = of(&spec);
    spec.files.clear();
    let later = of(&spec);
    let template =
        |desired: &Desired| desired.objects[&Kind::Deployment]["spec"]["template"].clone();
    assert_ne!(template(&after), template(&before));
    assert_ne!(template(&later), template(&after));
}

#[test]
fn there_is_time_to_drain_and_to_end() {
    let deployment = of(&chosen()).objects[&Kind::Deployment].clone();
    let pod = &deployment["spec"]["template"]["spec"];
    // 1.5 s of delay, 300 s of drain, and 10 s for Envoy's exit.
    assert_eq!(pod["terminationGracePeriodSeconds"], 312);
}

#[test]
fn a_fleet_without_an_owner_lives_in_sesames_namespace() {
    let mut spec = testing::spec("web");
    spec.request.owner = None;
    let config = testing::config();
    let desired = desired(&config, &FleetId::Default, &spec);
    for (kind, object) in &desired.objects {
        let metadata = &object["metadata"];
        assert_eq!(metadata["namespace"], config.namespace, "{kind:?}");
        assert!(metadata["name"].as_str().unwrap().starts_with("default-"));
        assert!(metadata.get("ownerReferences").is_none(), "{kind:?}");
        let labels = metadata["labels"].as_object().unwrap();
        assert_eq!(labels["projectsesame.io/fleet"], metadata["name"]);
        assert!(!labels.keys().any(|key| key.contains("gateway.networking")));
    }
    let kinds: Vec<_> = desired.objects.keys().collect();
    let of_gateway = of(&testing::spec("web"));
    assert_eq!(kinds, of_gateway.objects.keys().collect::<Vec<_>>());
}
