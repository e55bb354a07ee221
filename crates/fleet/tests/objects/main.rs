//! Fleets' objects on a real API server. No controller runs there: there are no pods, and the tests write the statuses.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod rig;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_model::{
    AddressRequest, Autoscaling, FleetAddress, FleetProblem, FleetState, Port, ServiceType,
    Workload,
};

use crate::rig::{Rig, chosen, spec};

/// All kinds of a fleet's objects.
const KINDS: [&str; 7] = [
    "ServiceAccount",
    "ConfigMap",
    "Service",
    "Deployment",
    "DaemonSet",
    "PodDisruptionBudget",
    "HorizontalPodAutoscaler",
];

/// The resourceVersion of each object that exists.
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
    for (namespace, spec) in [("made", spec()), ("made-chosen", chosen())] {
        let mut rig = Rig::new(namespace).await;
        rig.want(Some(spec.clone()));
        rig.lead();
        rig.until_there("PodDisruptionBudget").await;
        rig.settle().await;
        let made = versions(&rig).await;
        assert!(made.len() >= 5, "{made:?}");

        // An apply without changes leaves no trace, but a read-only replica would report its failure.
        rig.run_as_reader().await;
        rig.want(Some(spec.clone()));
        rig.lead();
        rig.observed(|_| true).await;
        let next = rig.observed_soon().await;
        assert!(next.is_empty(), "written without need: {next:?}");
        assert_eq!(versions(&rig).await, made);
        let mut other = spec;
        other
            .request
            .annotations
            .insert("a".to_owned(), "b".to_owned());
        rig.want(Some(other));
        rig.observed(|seen| matches!(seen.problem, Some(FleetProblem::NoResources(_))))
            .await;
    }
}

#[tokio::test]
async fn a_port_comes_and_the_others_keep_theirs() {
    let rig = Rig::new("ports").await;
    let mut wanted = spec();
    wanted.request.ports.insert(Port::tcp(443));
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

    wanted.request.ports.remove(&Port::tcp(80));
    wanted
        .request
        .ports
        .extend([Port::udp(443), Port::tcp(8080)]);
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
    rig.want(Some(spec()));
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

    // Without the labels it drops out of the watch.
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
    // Then it no longer counts as Sesame's.
    rig.observed(|seen| matches!(&seen.problem, Some(FleetProblem::NoResources(text)) if text.contains("Service")))
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
    rig.want(Some(spec()));
    rig.lead();
    let seen = rig
        .observed(|seen| matches!(seen.problem, Some(FleetProblem::NoResources(_))))
        .await;
    let message = seen.problem.unwrap().message().to_owned();
    assert!(
        message.starts_with(&format!("ConfigMap foreign/{} exists", rig.name())),
        "{message}"
    );
    rig.until_there("PodDisruptionBudget").await;
    assert_eq!(rig.get("ConfigMap").await.unwrap(), before);

    rig.delete("ConfigMap").await;
    rig.until("ConfigMap", |object| {
        object["data"]["bootstrap.json"] == "{}"
    })
    .await;
    rig.observed(|seen| !matches!(seen.problem, Some(FleetProblem::NoResources(_))))
        .await;
}

#[tokio::test]
async fn what_is_not_wanted_goes_and_nothing_else() {
    let mut rig = Rig::new("prune").await;
    rig.want(Some(spec()));
    rig.lead();
    rig.until_there("PodDisruptionBudget").await;
    // A copy under another name, with our labels.
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

    // Orphans from the time when Sesame wasn't running.
    rig.want(Some(spec()));
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
    rig.want(Some(spec()));
    rig.lead();
    rig.until_there("PodDisruptionBudget").await;
    let mut other = spec();
    other.parameters.workload = Some(Workload::DaemonSet);
    rig.want(Some(other));
    rig.until_there("DaemonSet").await;
    rig.until_gone("PodDisruptionBudget").await;
    rig.settle().await;
    assert!(
        rig.get("Deployment").await.is_some(),
        "the Deployment is missing"
    );
    let serving = json!({ "status": {
        "observedGeneration": 1, "numberAvailable": 1, "desiredNumberScheduled": 1,
        "currentNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1,
    } });
    rig.status("DaemonSet", serving).await;
    rig.until_gone("Deployment").await;
    rig.observed(|seen| seen.ready).await;
}

#[tokio::test]
async fn an_autoscaler_takes_over_the_number_there_is() {
    let rig = Rig::new("scale").await;
    let mut wanted = spec();
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
    // The autoscaler's write.
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
        let mut wanted = spec();
        wanted.request.addresses = values
            .iter()
            .map(|value| AddressRequest::Ip(value.parse().unwrap()))
            .collect();
        wanted
    };
    rig.want(Some(asking(&["203.0.113.1", "192.0.2.7"])));
    rig.lead();
    rig.observed(|seen| matches!(seen.problem, Some(FleetProblem::AddressNotUsable(_))))
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
    assert_eq!(seen.addresses, [FleetAddress::parse("192.0.2.7")]);
}

#[tokio::test]
async fn addresses_inside_the_cluster_need_no_load_balancer() {
    let mut rig = Rig::new("inside").await;
    let mut wanted = spec();
    wanted.parameters.service_type = Some(ServiceType::ClusterIp);
    rig.want(Some(wanted));
    rig.lead();
    let seen = rig.observed(|seen| seen.problem.is_none()).await;
    let service = rig.get("Service").await.unwrap();
    assert_eq!(seen.addresses[0].to_string(), service["spec"]["clusterIP"]);
}

#[tokio::test]
async fn a_replica_that_doesnt_lead_observes_what_the_other_writes() {
    let mut leader = Rig::new("two").await;
    let mut other = leader.beside().await;
    other.want(Some(spec()));
    let says = |seen: &FleetState, text: &str| {
        let problem = seen.problem.as_ref();
        problem.is_some_and(|problem| problem.message().contains(text))
    };
    other.observed(|seen| says(seen, "no address yet")).await;
    assert!(leader.get("Service").await.is_none(), "there is no leader");
    leader.want(Some(spec()));
    leader.lead();
    let seen = other.observed(|seen| says(seen, "load balancer")).await;
    assert!(!seen.ready);
    // The new leader has nothing to write.
    leader.until_there("PodDisruptionBudget").await;
    leader.settle().await;
    let made = versions(&leader).await;
    leader.stop().await;
    other.lead();
    other.settle().await;
    assert_eq!(versions(&other).await, made);
}

#[tokio::test]
async fn missing_rights_are_reported() {
    let mut rig = Rig::new("forbidden").await;
    rig.run_as("powerless").await;
    rig.want(Some(spec()));
    rig.lead();
    let seen = rig
        .observed(|seen| matches!(seen.problem, Some(FleetProblem::NoResources(_))))
        .await;
    let message = seen.problem.unwrap().message().to_owned();
    assert!(message.contains("forbidden"), "{message}");
}
