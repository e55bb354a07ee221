//! Fleets' objects on a real API server. No controller runs there: there are no pods, and what a controller would say in a
//! status the test says.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod rig;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_api::{AddressType, GatewaySpecAddress};
use sesame_fleet::kube::{Port, Problem};
use sesame_model::{Autoscaling, ServiceType, Workload};

use crate::rig::{Rig, chosen, spec};

/// All kinds that a fleet of a test may have.
const KINDS: [&str; 7] = [
    "ServiceAccount",
    "ConfigMap",
    "Service",
    "Deployment",
    "DaemonSet",
    "PodDisruptionBudget",
    "HorizontalPodAutoscaler",
];

/// The version of each object that is there.
async fn versions(rig: &Rig) -> BTreeMap<&'static str, Value> {
    let mut versions = BTreeMap::new();
    for kind in KINDS {
        if let Some(object) = rig.get(kind).await {
            versions.insert(kind, object["metadata"]["resourceVersion"].clone());
        }
    }
    versions
}

#[tokio::test]
async fn a_fleet_is_made_and_a_restarted_sesame_finds_nothing_to_do() {
    for (namespace, spec) in [
        ("made", spec("made")),
        ("made-chosen", chosen("made-chosen")),
    ] {
        let mut rig = Rig::new(namespace).await;
        rig.want(Some(spec.clone()));
        rig.lead();
        rig.until_there("PodDisruptionBudget").await;
        rig.settle().await;
        let made = versions(&rig).await;
        assert!(made.len() >= 5, "{made:?}");

        // Writing what stands there already leaves no trace, but who may only look can't even do that.
        rig.run_as_reader().await;
        rig.want(Some(spec.clone()));
        rig.lead();
        rig.observed(|_| true).await;
        let next = rig.observed_soon().await;
        assert!(next.is_empty(), "written without need: {next:?}");
        assert_eq!(versions(&rig).await, made);
        let mut other = spec;
        other.annotations.insert("a".to_owned(), "b".to_owned());
        rig.want(Some(other));
        rig.observed(|seen| matches!(seen.problem, Some(Problem::NoResources(_))))
            .await;
    }
}

#[tokio::test]
async fn a_port_comes_and_the_others_keep_theirs() {
    let rig = Rig::new("ports").await;
    let mut wanted = spec("ports");
    wanted.ports.insert(Port::tcp(443));
    rig.want(Some(wanted.clone()));
    rig.lead();
    rig.until_there("PodDisruptionBudget").await;
    let node_ports = |service: &Value| -> BTreeMap<String, Value> {
        let ports = service["spec"]["ports"].as_array().unwrap();
        ports
            .iter()
            .map(|port| {
                let key = format!("{}/{}", port["port"], port["protocol"]);
                (key, port["nodePort"].clone())
            })
            .collect()
    };
    let before = node_ports(&rig.get("Service").await.unwrap());
    let pods = rig.get("Deployment").await.unwrap()["metadata"]["generation"].clone();

    wanted.ports.remove(&Port::tcp(80));
    wanted.ports.extend([Port::udp(443), Port::tcp(8080)]);
    rig.want(Some(wanted));
    let service = rig
        .until("Service", |service| {
            service["spec"]["ports"].as_array().unwrap().len() == 3
        })
        .await;
    let after = node_ports(&service);
    assert_eq!(after["443/\"TCP\""], before["443/\"TCP\""]);
    assert!(after.contains_key("8080/\"TCP\"") && after.contains_key("443/\"UDP\""));
    let still = rig.get("Deployment").await.unwrap()["metadata"]["generation"].clone();
    assert_eq!(still, pods, "no new pods");
}

#[tokio::test]
async fn what_somebody_changes_is_put_back_and_what_he_adds_stays() {
    let mut rig = Rig::new("drift").await;
    rig.want(Some(spec("drift")));
    rig.lead();
    rig.until_there("PodDisruptionBudget").await;

    let meddling = json!({
        "metadata": { "annotations": { "theirs": "stays" } },
        "spec": { "replicas": 9, "template": { "spec": { "terminationGracePeriodSeconds": 1 } } },
    });
    rig.merge("Deployment", meddling).await;
    let put_back = rig
        .until("Deployment", |object| object["spec"]["replicas"] == 2)
        .await;
    assert_eq!(put_back["metadata"]["annotations"]["theirs"], "stays");

    rig.merge("ConfigMap", json!({ "data": { "bootstrap.json": "bad" } }))
        .await;
    rig.until("ConfigMap", |object| {
        object["data"]["bootstrap.json"] == "{}"
    })
    .await;

    // Without its marks it isn't even seen.
    let unmarked = json!({ "metadata": {
        "labels": { "app.kubernetes.io/managed-by": null },
        "ownerReferences": null,
    } });
    rig.merge("Service", unmarked).await;
    rig.until("Service", |object| {
        let metadata = &object["metadata"];
        metadata["labels"]["app.kubernetes.io/managed-by"] != "sesame"
            && metadata["ownerReferences"].is_null()
    })
    .await;
    // Then it could be anybody's.
    rig.observed(|seen| matches!(&seen.problem, Some(Problem::NoResources(text)) if text.contains("Service")))
        .await;

    let uid = rig.get("Deployment").await.unwrap()["metadata"]["uid"].clone();
    rig.delete("Deployment").await;
    rig.until("Deployment", |object| object["metadata"]["uid"] != uid)
        .await;
}

#[tokio::test]
async fn an_object_of_somebody_elses_is_left_alone() {
    let mut rig = Rig::new("foreign").await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": rig.name(), "namespace": "foreign" },
        "data": { "theirs": "1" },
    });
    rig.create("ConfigMap", theirs).await;
    let before = rig.get("ConfigMap").await.unwrap();
    rig.want(Some(spec("foreign")));
    rig.lead();
    let seen = rig
        .observed(|seen| matches!(seen.problem, Some(Problem::NoResources(_))))
        .await;
    let message = seen.problem.unwrap().message().to_owned();
    assert!(
        message.starts_with(&format!("ConfigMap foreign/{} is there", rig.name())),
        "{message}"
    );
    rig.until_there("PodDisruptionBudget").await;
    assert_eq!(rig.get("ConfigMap").await.unwrap(), before);

    rig.delete("ConfigMap").await;
    rig.until("ConfigMap", |object| {
        object["data"]["bootstrap.json"] == "{}"
    })
    .await;
    rig.observed(|seen| !matches!(seen.problem, Some(Problem::NoResources(_))))
        .await;
}

#[tokio::test]
async fn what_is_not_wanted_goes_and_nothing_else() {
    let mut rig = Rig::new("prune").await;
    rig.want(Some(spec("prune")));
    rig.lead();
    rig.until_there("PodDisruptionBudget").await;
    // Somebody has copied one of ours under another name, labels and all.
    let mut copy = rig.get("ConfigMap").await.unwrap();
    copy["metadata"] = json!({
        "name": "copy", "namespace": "prune",
        "labels": copy["metadata"]["labels"],
        "ownerReferences": copy["metadata"]["ownerReferences"],
    });
    rig.create("ConfigMap", copy).await;

    rig.want(None);
    rig.all_gone().await;
    assert!(rig.get_named("ConfigMap", "copy").await.is_some());

    // What was left while nobody looked.
    rig.want(Some(spec("prune")));
    rig.until_there("PodDisruptionBudget").await;
    rig.restart().await;
    rig.lead();
    rig.settled();
    rig.all_gone().await;
    assert!(rig.get_named("ConfigMap", "copy").await.is_some());
}

#[tokio::test]
async fn the_old_workload_goes_when_the_new_one_serves() {
    let mut rig = Rig::new("switch").await;
    rig.want(Some(spec("switch")));
    rig.lead();
    rig.until_there("PodDisruptionBudget").await;
    let mut other = spec("switch");
    other.parameters.workload = Some(Workload::DaemonSet);
    rig.want(Some(other));
    rig.until_there("DaemonSet").await;
    rig.until_gone("PodDisruptionBudget").await;
    rig.settle().await;
    assert!(rig.get("Deployment").await.is_some(), "nobody serves");
    let serving = json!({ "status": {
        "observedGeneration": 1, "numberAvailable": 1, "desiredNumberScheduled": 1,
        "currentNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1,
    } });
    rig.status("DaemonSet", serving).await;
    rig.until_gone("Deployment").await;
    let seen = rig.observed(|seen| seen.available == 1).await;
    assert_eq!(seen.replicas, 1);
}

#[tokio::test]
async fn an_autoscaler_takes_over_the_number_there_is() {
    let rig = Rig::new("scale").await;
    let mut wanted = spec("scale");
    wanted.parameters.replicas = Some(5);
    rig.want(Some(wanted.clone()));
    rig.lead();
    rig.until_there("PodDisruptionBudget").await;
    wanted.parameters.autoscaling = Some(Autoscaling::Between {
        min: 2,
        max: 9,
        cpu_percent: 80,
    });
    rig.want(Some(wanted));
    rig.until_there("HorizontalPodAutoscaler").await;
    let deployment = rig.get("Deployment").await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 5);
    // As the autoscaler does.
    rig.merge("Deployment", json!({ "spec": { "replicas": 7 } }))
        .await;
    rig.settle().await;
    let deployment = rig.get("Deployment").await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 7);
}

#[tokio::test]
async fn addresses_are_the_load_balancers() {
    let mut rig = Rig::new("addresses").await;
    let asking = |values: &[&str]| {
        let mut wanted = spec("addresses");
        wanted.addresses = values
            .iter()
            .map(|value| GatewaySpecAddress {
                type_: AddressType::IpAddress,
                value: (*value).to_owned(),
                routability: None,
            })
            .collect();
        wanted
    };
    rig.want(Some(asking(&["203.0.113.1", "192.0.2.7"])));
    rig.lead();
    rig.observed(|seen| matches!(seen.problem, Some(Problem::AddressNotUsable(_))))
        .await;
    rig.until("Service", |service| {
        service["spec"]["loadBalancerIP"] == "203.0.113.1"
    })
    .await;
    rig.want(Some(asking(&["192.0.2.7"])));
    rig.until("Service", |service| {
        service["spec"]["loadBalancerIP"] == "192.0.2.7"
    })
    .await;
    let given = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } } });
    rig.status("Service", given).await;
    let seen = rig.observed(|seen| seen.problem.is_none()).await;
    let values: Vec<_> = seen
        .addresses
        .iter()
        .map(|address| (address.type_.as_str(), address.value.as_str()))
        .collect();
    assert_eq!(values, [("IPAddress", "192.0.2.7")]);
}

#[tokio::test]
async fn addresses_inside_the_cluster_need_no_load_balancer() {
    let mut rig = Rig::new("inside").await;
    let mut wanted = spec("inside");
    wanted.parameters.service_type = Some(ServiceType::ClusterIp);
    rig.want(Some(wanted));
    rig.lead();
    let seen = rig.observed(|seen| seen.problem.is_none()).await;
    let service = rig.get("Service").await.unwrap();
    assert_eq!(seen.addresses[0].value, service["spec"]["clusterIP"]);
}

#[tokio::test]
async fn a_replica_that_doesnt_lead_observes_what_the_other_writes() {
    let mut leader = Rig::new("two").await;
    let mut other = leader.beside().await;
    other.want(Some(spec("two")));
    other.observed(|seen| seen.replicas == 0).await;
    assert!(leader.get("Service").await.is_none(), "nobody leads");
    leader.want(Some(spec("two")));
    leader.lead();
    let seen = other.observed(|seen| seen.replicas == 2).await;
    assert_eq!(seen.available, 0);
    // The lead goes over, and there is nothing to do.
    leader.until_there("PodDisruptionBudget").await;
    leader.settle().await;
    let made = versions(&leader).await;
    leader.stop().await;
    other.lead();
    other.settle().await;
    assert_eq!(versions(&other).await, made);
}

#[tokio::test]
async fn without_rights_the_owner_is_told() {
    let mut rig = Rig::new("forbidden").await;
    rig.run_as("nobody").await;
    rig.want(Some(spec("forbidden")));
    rig.lead();
    let seen = rig
        .observed(|seen| matches!(seen.problem, Some(Problem::NoResources(_))))
        .await;
    let message = seen.problem.unwrap().message().to_owned();
    assert!(message.contains("forbidden"), "{message}");
}
