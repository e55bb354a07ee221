//! Fleets' objects on a real API server. Controllers don't run, so there are no pods, and the tests write the statuses.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod fixture;
mod outer;
mod pod_services;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_model::{
    AddressRequest, AddressValue, Autoscaling, FleetAddress, FleetProblem, FleetState, Port,
    Publishing, Routability, Workload,
};

use crate::fixture::{Fixture, all_parameters, spec};

/// All kinds of objects in a fleet.
const KINDS: [&str; 8] = [
    "ServiceAccount",
    "ConfigMap",
    "Service",
    "NetworkPolicy",
    "Deployment",
    "DaemonSet",
    "PodDisruptionBudget",
    "HorizontalPodAutoscaler",
];

/// The resourceVersion of each object that exists.
async fn versions(fixture: &Fixture) -> BTreeMap<&'static str, Value> {
    let mut versions = BTreeMap::new();
    for kind in KINDS {
        if let Some(object) = fixture.get(kind).await {
            versions.insert(kind, object["metadata"]["resourceVersion"].clone());
        }
    }
    versions
}

#[tokio::test]
async fn a_restart_writes_nothing() {
    for (namespace, spec) in [
        ("restart", spec()),
        ("restart-all-parameters", all_parameters()),
    ] {
        let mut fixture = Fixture::new(namespace).await;
        fixture.set_fleet(Some(spec.clone()));
        fixture.lead();
        fixture.until_exists("PodDisruptionBudget").await;
        fixture.settle().await;
        let created = versions(&fixture).await;
        assert!(created.len() >= 5, "{created:?}");

        // An apply without changes leaves no trace, but a read-only replica would report its failure.
        fixture.run_read_only().await;
        fixture.set_fleet(Some(spec.clone()));
        fixture.lead();
        fixture.until_state(|_| true).await;
        let next = fixture.states_within_settle_time().await;
        assert!(next.is_empty(), "an unneeded write: {next:?}");
        assert_eq!(versions(&fixture).await, created);
        let mut other = spec;
        other
            .request
            .annotations
            .insert("a".to_owned(), "b".to_owned());
        fixture.set_fleet(Some(other));
        fixture
            .until_state(|state| matches!(state.problem, Some(FleetProblem::NoResources(_))))
            .await;
    }
}

#[tokio::test]
async fn adding_a_port_keeps_the_node_ports_of_others() {
    let fixture = Fixture::new("ports").await;
    let mut desired = spec();
    desired.request.ports.insert(Port::tcp(443));
    fixture.set_fleet(Some(desired.clone()));
    fixture.lead();
    fixture.until_exists("PodDisruptionBudget").await;
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
    let before = node_ports(&fixture.get("Service").await.unwrap());
    let pods = fixture.get("Deployment").await.unwrap()["metadata"]["generation"].clone();

    desired.request.ports.remove(&Port::tcp(80));
    desired
        .request
        .ports
        .extend([Port::udp(443), Port::tcp(8080)]);
    fixture.set_fleet(Some(desired));
    let service = fixture
        .until("Service", |service| {
            service["spec"]["ports"].as_array().unwrap().len() == 3
        })
        .await;
    let after = node_ports(&service);
    assert_eq!(after["443/\"TCP\""], before["443/\"TCP\""]);
    assert!(after.contains_key("8080/\"TCP\"") && after.contains_key("443/\"UDP\""));
    let generation = fixture.get("Deployment").await.unwrap()["metadata"]["generation"].clone();
    assert_eq!(generation, pods, "no new pods");
}

#[tokio::test]
async fn a_network_policy_follows_the_ports_and_its_parameter() {
    let fixture = Fixture::new("network-policy").await;
    let mut desired = spec();
    desired.parameters.network_policy = Some(true);
    fixture.set_fleet(Some(desired.clone()));
    fixture.lead();
    let ports = |policy: &Value| -> Vec<String> {
        let ports = policy["spec"]["ingress"][0]["ports"].as_array();
        let port = |port: &Value| format!("{}/{}", port["port"], port["protocol"]);
        ports.into_iter().flatten().map(port).collect()
    };
    let has = async |expected: &[&str]| {
        let policy = fixture.until("NetworkPolicy", |policy| ports(policy) == expected);
        policy.await
    };
    has(&["80/\"TCP\"", "19001/\"TCP\""]).await;
    desired
        .request
        .ports
        .extend([Port::udp(443), Port::tcp(19_001)]);
    fixture.set_fleet(Some(desired.clone()));
    let all = [
        "80/\"TCP\"",
        "443/\"UDP\"",
        "19001/\"TCP\"",
        "19002/\"TCP\"",
    ];
    has(&all).await;

    let opened = json!({ "spec": { "ingress": [{}] } });
    fixture.merge("NetworkPolicy", opened).await;
    has(&all).await;
    fixture.delete("NetworkPolicy").await;
    has(&all).await;

    desired.parameters.network_policy = Some(false);
    fixture.set_fleet(Some(desired));
    fixture.until_gone("NetworkPolicy").await;
    assert!(fixture.get("Deployment").await.is_some());
}

#[tokio::test]
async fn changed_fields_are_reverted_and_added_ones_are_kept() {
    let mut fixture = Fixture::new("drift").await;
    fixture.set_fleet(Some(spec()));
    fixture.lead();
    fixture.until_exists("PodDisruptionBudget").await;

    let foreign_change = json!({
        "metadata": { "annotations": { "theirs": "stays" } },
        "spec": { "replicas": 9, "template": { "spec": { "terminationGracePeriodSeconds": 1 } } },
    });
    fixture.merge("Deployment", foreign_change).await;
    let restored = fixture
        .until("Deployment", |object| object["spec"]["replicas"] == 2)
        .await;
    assert_eq!(restored["metadata"]["annotations"]["theirs"], "stays");

    fixture
        .merge("ConfigMap", json!({ "data": { "bootstrap.json": "bad" } }))
        .await;
    fixture
        .until("ConfigMap", |object| {
            object["data"]["bootstrap.json"] == "{}"
        })
        .await;

    // Without the label the watch no longer selects it.
    let unlabelled = json!({ "metadata": {
        "labels": { "app.kubernetes.io/managed-by": null },
        "ownerReferences": null,
    } });
    fixture.merge("Service", unlabelled).await;
    fixture
        .until("Service", |object| {
            let metadata = &object["metadata"];
            metadata["labels"]["app.kubernetes.io/managed-by"] != "sesame"
                && metadata["ownerReferences"].is_null()
        })
        .await;
    // The Service therefore no longer counts as created by Sesame.
    fixture.until_state(|state| matches!(&state.problem, Some(FleetProblem::NoResources(text)) if text.contains("Service")))
        .await;

    let uid = fixture.get("Deployment").await.unwrap()["metadata"]["uid"].clone();
    fixture.delete("Deployment").await;
    fixture
        .until("Deployment", |object| object["metadata"]["uid"] != uid)
        .await;
}

#[tokio::test]
async fn a_workload_of_another_release_waits_for_sesame() {
    const RELEASE: &str = "projectsesame.io/release";
    let fixture = Fixture::new("release").await;
    fixture.set_fleet(Some(spec()));
    fixture.lead();
    let created = fixture.until("Deployment", |_| true).await;
    let (limit, release) = (
        &created["spec"]["revisionHistoryLimit"],
        &created["metadata"]["annotations"][RELEASE],
    );
    assert!(release.is_string() && *limit != 7, "{created:#}");
    fixture.set_sesame_rolled_out(false);
    let other = json!({
        "metadata": { "annotations": { RELEASE: "0" } },
        "spec": { "revisionHistoryLimit": 7 },
    });
    fixture.merge("Deployment", other).await;
    fixture.settle().await;
    let waiting = fixture.until("Deployment", |_| true).await;
    assert_eq!(waiting["spec"]["revisionHistoryLimit"], 7);
    fixture.set_sesame_rolled_out(true);
    let upgraded = |object: &Value| {
        object["spec"]["revisionHistoryLimit"] == *limit
            && object["metadata"]["annotations"][RELEASE] == *release
    };
    fixture.until("Deployment", upgraded).await;
}

#[tokio::test]
async fn a_foreign_object_is_reported_and_not_modified() {
    let mut fixture = Fixture::new("foreign").await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": fixture.name(), "namespace": "foreign" },
        "data": { "theirs": "1" },
    });
    fixture.create("ConfigMap", theirs).await;
    let before = fixture.get("ConfigMap").await.unwrap();
    fixture.set_fleet(Some(spec()));
    fixture.lead();
    let state = fixture
        .until_state(|state| matches!(state.problem, Some(FleetProblem::NoResources(_))))
        .await;
    let message = state.problem.unwrap().message().to_owned();
    assert!(
        message.starts_with(&format!(
            "ConfigMap foreign/{} already exists",
            fixture.name()
        )),
        "{message}"
    );
    fixture.until_exists("PodDisruptionBudget").await;
    assert_eq!(fixture.get("ConfigMap").await.unwrap(), before);

    fixture.delete("ConfigMap").await;
    fixture
        .until("ConfigMap", |object| {
            object["data"]["bootstrap.json"] == "{}"
        })
        .await;
    fixture
        .until_state(|state| !matches!(state.problem, Some(FleetProblem::NoResources(_))))
        .await;
}

#[tokio::test]
async fn only_objects_of_removed_fleets_are_deleted() {
    let mut fixture = Fixture::new("prune").await;
    fixture.set_fleet(Some(all_parameters()));
    fixture.lead();
    fixture.until_exists("PodDisruptionBudget").await;
    // A copy under another name, with our labels.
    let mut copy = fixture.get("ConfigMap").await.unwrap();
    copy["metadata"] = json!({
        "name": "copy", "namespace": "prune",
        "labels": copy["metadata"]["labels"],
        "ownerReferences": copy["metadata"]["ownerReferences"],
    });
    fixture.create("ConfigMap", copy).await;

    fixture.set_fleet(None);
    fixture.all_gone().await;
    assert!(fixture.get_named("ConfigMap", "copy").await.is_some());

    // Orphans: the fleet is removed while Sesame isn't running.
    fixture.set_fleet(Some(all_parameters()));
    fixture.until_exists("PodDisruptionBudget").await;
    fixture.restart().await;
    fixture.lead();
    fixture.mark_complete();
    fixture.all_gone().await;
    assert!(fixture.get_named("ConfigMap", "copy").await.is_some());
}

#[tokio::test]
async fn a_fleet_in_sesames_namespace_is_removed_without_an_owner() {
    let mut fixture = Fixture::in_own_namespace("own").await;
    fixture.set_fleet(Some(all_parameters()));
    fixture.lead();
    fixture.until_exists("PodDisruptionBudget").await;
    let deployment = fixture.get("Deployment").await.unwrap();
    assert!(deployment["metadata"]["ownerReferences"].is_null());
    fixture.delete("Service").await;
    fixture.until_exists("Service").await;
    fixture.set_fleet(None);
    fixture.all_gone().await;

    // The Gateway is deleted while Sesame isn't running.
    fixture.set_fleet(Some(all_parameters()));
    fixture.until_exists("PodDisruptionBudget").await;
    fixture.restart().await;
    fixture.lead();
    fixture.mark_complete();
    fixture.all_gone().await;
}

#[tokio::test]
async fn the_old_workload_is_deleted_once_the_new_one_is_available() {
    let mut fixture = Fixture::new("switch").await;
    fixture.set_fleet(Some(spec()));
    fixture.lead();
    fixture.until_exists("PodDisruptionBudget").await;
    let mut other = spec();
    other.parameters.workload = Some(Workload::DaemonSet);
    fixture.set_fleet(Some(other));
    fixture.until_exists("DaemonSet").await;
    fixture.until_gone("PodDisruptionBudget").await;
    fixture.settle().await;
    assert!(
        fixture.get("Deployment").await.is_some(),
        "the Deployment is missing"
    );
    let serving = json!({ "status": {
        "observedGeneration": 1, "numberAvailable": 1, "desiredNumberScheduled": 1,
        "currentNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1,
    } });
    fixture.status("DaemonSet", serving).await;
    fixture.until_gone("Deployment").await;
    fixture.until_state(|state| state.ready).await;
}

#[tokio::test]
async fn an_autoscaler_starts_from_the_current_replicas() {
    let fixture = Fixture::new("scale").await;
    let mut desired = spec();
    desired.parameters.replicas = Some(5);
    fixture.set_fleet(Some(desired.clone()));
    fixture.lead();
    fixture.until_exists("PodDisruptionBudget").await;
    desired.parameters.autoscaling = Some(Autoscaling::Between {
        min: 2,
        max: 9,
        cpu_percent: 80,
    });
    fixture.set_fleet(Some(desired));
    fixture.until_exists("HorizontalPodAutoscaler").await;
    let deployment = fixture.get("Deployment").await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 5);
    // The autoscaler sets the number of replicas.
    fixture
        .merge("Deployment", json!({ "spec": { "replicas": 7 } }))
        .await;
    fixture.settle().await;
    let deployment = fixture.get("Deployment").await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 7);
}

#[tokio::test]
async fn addresses_come_from_the_load_balancer() {
    let mut fixture = Fixture::new("addresses").await;
    let requesting = |values: &[&str]| {
        let mut desired = spec();
        desired.request.addresses = values
            .iter()
            .map(|value| AddressValue::Ip(value.parse().unwrap()).into())
            .collect();
        desired
    };
    fixture.set_fleet(Some(requesting(&["203.0.113.1", "192.0.2.7"])));
    fixture.lead();
    fixture
        .until_state(|state| matches!(state.problem, Some(FleetProblem::AddressNotUsable(_))))
        .await;
    fixture
        .until("Service", |service| {
            service["spec"]["loadBalancerIP"] == "203.0.113.1"
        })
        .await;
    fixture.set_fleet(Some(requesting(&["192.0.2.7"])));
    fixture
        .until("Service", |service| {
            service["spec"]["loadBalancerIP"] == "192.0.2.7"
        })
        .await;
    let given = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } } });
    fixture.status("Service", given).await;
    let state = fixture.until_state(|state| state.problem.is_none()).await;
    assert_eq!(state.addresses, [FleetAddress::parse("192.0.2.7")]);
}

#[tokio::test]
async fn cluster_ips_need_no_load_balancer() {
    let mut fixture = Fixture::new("inside").await;
    let mut desired = spec();
    desired.parameters.publishing = Some(Publishing::ClusterIp);
    fixture.set_fleet(Some(desired));
    fixture.lead();
    let state = fixture.until_state(|state| state.problem.is_none()).await;
    let service = fixture.get("Service").await.unwrap();
    assert_eq!(state.addresses[0].to_string(), service["spec"]["clusterIP"]);
}

/// Kubernetes rejects an IP address outside the Service CIDR, and any change to a cluster IP.
#[tokio::test]
async fn a_cluster_ip_can_be_requested_beside_another_address() {
    let mut fixture = Fixture::new("routability").await;
    let requesting = |ip: &str| {
        let mut desired = spec();
        desired.parameters.publishing = Some(Publishing::ClusterIp);
        let in_cluster = AddressRequest {
            address: AddressValue::Ip(ip.parse().unwrap()),
            routability: Routability::Cluster,
        };
        desired.request.addresses = vec![AddressValue::Any.into(), in_cluster];
        desired
    };
    fixture.set_fleet(Some(requesting("192.0.2.1")));
    fixture.lead();
    let outside = fixture
        .until_state(|state| state.unassigned.iter().any(|why| why.contains("range")))
        .await;
    assert_eq!((outside.problem, outside.addresses.len()), (None, 1));
    for ip in ["10.0.0.77", "10.0.0.78"] {
        fixture.set_fleet(Some(requesting(ip)));
        let state = fixture
            .until_state(|state| state.addresses.len() == 2)
            .await;
        assert!(
            state.addresses.contains(&FleetAddress::parse(ip)),
            "{state:?}"
        );
        assert!(state.unassigned.is_empty() && state.problem.is_none());
    }
}

#[tokio::test]
async fn a_follower_reports_states_and_a_new_leader_writes_nothing() {
    let mut leader = Fixture::new("two").await;
    let mut other = leader.second_replica().await;
    other.set_fleet(Some(spec()));
    let mentions = |state: &FleetState, text: &str| {
        let problem = state.problem.as_ref();
        problem.is_some_and(|problem| problem.message().contains(text))
    };
    other
        .until_state(|state| mentions(state, "no address yet"))
        .await;
    assert!(leader.get("Service").await.is_none(), "no leader yet");
    leader.set_fleet(Some(spec()));
    leader.lead();
    let state = other
        .until_state(|state| mentions(state, "load balancer"))
        .await;
    assert!(!state.ready);
    // The new leader has nothing to write.
    leader.until_exists("PodDisruptionBudget").await;
    leader.settle().await;
    let created = versions(&leader).await;
    leader.stop().await;
    other.lead();
    other.settle().await;
    assert_eq!(versions(&other).await, created);
}

#[tokio::test]
async fn missing_permissions_are_reported() {
    let mut fixture = Fixture::new("forbidden").await;
    fixture.run_as("powerless").await;
    fixture.set_fleet(Some(spec()));
    fixture.lead();
    let state = fixture
        .until_state(|state| matches!(state.problem, Some(FleetProblem::NoResources(_))))
        .await;
    let message = state.problem.unwrap().message().to_owned();
    assert!(message.contains("forbidden"), "{message}");
}
