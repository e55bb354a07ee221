//! Services for XBackends. Controllers don't run, so nothing is garbage-collected.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sesame_fleet::kube::pod_services::{self, PodServiceFailures, PodServiceWriter};
use sesame_model::{PodService, PodServiceChange, PodServiceId};
use tokio::time::timeout;

use crate::fixture::Fixture;

fn id(fixture: &Fixture) -> PodServiceId {
    PodServiceId {
        namespace: fixture.namespace().into(),
        xbackend: "x".into(),
    }
}

fn service(fixture: &Fixture, app: &str) -> PodService {
    PodService {
        // The fixture's own name.
        name: fixture.name().into(),
        owner_uid: "uid-x".to_owned(),
        selector: BTreeMap::from([("app".to_owned(), app.to_owned())]),
    }
}

fn start(fixture: &Fixture) -> (PodServiceWriter, PodServiceFailures) {
    let (writer, failures) = pod_services::start(fixture.client());
    writer.set_leading(true);
    (writer, failures)
}

fn uid(service: &Value) -> String {
    service["metadata"]["uid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn services_are_created_changed_and_deleted() {
    let fixture = Fixture::new("pods").await;
    let (writer, _failures) = start(&fixture);
    let created = PodServiceChange::Create(service(&fixture, "a"));
    writer.set(id(&fixture), Some(created));
    let created = fixture.until("Service", |_| true).await;
    assert_eq!(
        created["metadata"]["ownerReferences"],
        json!([{
            "apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackend", "name": "x", "uid": "uid-x",
            "controller": true, "blockOwnerDeletion": false,
        }])
    );
    assert_eq!(
        created["metadata"]["labels"],
        json!({"app.kubernetes.io/managed-by": "sesame", "projectsesame.io/xbackend": "x"})
    );
    assert_eq!(created["spec"]["clusterIP"], "None");

    // Fields changed by other clients are restored; fields added by them stay.
    let foreign = json!({
        "metadata": {"annotations": {"theirs": "stays"}},
        "spec": {
            "selector": {"app": "theirs", "more": "b"}, "publishNotReadyAddresses": true, "ports": [{"port": 7}],
        },
    });
    fixture.merge("Service", foreign).await;
    let update = PodServiceChange::Update {
        uid: uid(&created),
        service: service(&fixture, "b"),
    };
    writer.set(id(&fixture), Some(update));
    let updated = fixture
        .until("Service", |service| {
            service["spec"]["selector"] == json!({"app": "b"})
        })
        .await;
    assert_eq!(updated["metadata"]["annotations"]["theirs"], "stays");
    let spec = &updated["spec"];
    assert!(spec["publishNotReadyAddresses"].as_bool() != Some(true));
    assert_eq!(
        spec["ports"],
        json!([{"port": 7, "protocol": "TCP", "targetPort": 7}])
    );

    // Only the observed Service is deleted.
    let delete = |uid: &str| PodServiceChange::Delete {
        name: fixture.name().into(),
        uid: uid.to_owned(),
    };
    writer.set(id(&fixture), Some(delete("another")));
    fixture.settle().await;
    fixture.until_exists("Service").await;
    writer.set(id(&fixture), Some(delete(&uid(&created))));
    fixture.until_gone("Service").await;
}

#[tokio::test]
async fn a_service_created_in_the_meantime_is_not_overwritten() {
    let fixture = Fixture::new("pods-taken").await;
    let taken = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": fixture.name()},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
    });
    fixture.create("Service", taken).await;
    let before = fixture.get("Service").await;
    let (writer, _failures) = start(&fixture);
    let created = PodServiceChange::Create(service(&fixture, "a"));
    writer.set(id(&fixture), Some(created));
    fixture.settle().await;
    assert_eq!(fixture.get("Service").await, before);
}

#[tokio::test]
async fn a_refused_write_is_reported_and_retried() {
    let mut fixture = Fixture::new("pods-refused").await;
    fixture.run_read_only().await;
    let reader = fixture.reader().await;
    let (writer, mut failures) = pod_services::start(reader);
    writer.set_leading(true);
    let created = PodServiceChange::Create(service(&fixture, "a"));
    writer.set(id(&fixture), Some(created));
    let next = timeout(Duration::from_secs(60), failures.recv());
    let (of, message) = next.await.unwrap().unwrap();
    assert_eq!(of, id(&fixture));
    let expected = format!(
        "not allowed to create Service {}/{}",
        fixture.namespace(),
        fixture.name()
    );
    let message = message.unwrap();
    assert!(message.starts_with(&expected), "{message}");
    fixture.allow_writes().await;
    let next = timeout(Duration::from_secs(60), failures.recv());
    assert_eq!(next.await.unwrap().unwrap(), (id(&fixture), None));
    fixture.until_exists("Service").await;
}
