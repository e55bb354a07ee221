//! CRDs that are missing, serve other versions, or are installed and uninstalled at runtime.

use serde_json::{Value, json};
use sesame_api::{Kind, ObjectKey};
use sesame_testkit::api_server::ApiServer;

use crate::subscriber::{Cluster, Subscriber, config};

/// A CRD that serves these versions and stores the first one.
fn definition(kind: Kind, versions: &[&str]) -> Value {
    let version = |(index, name): (usize, &&str)| {
        json!({
            "name": name, "served": true, "storage": index == 0, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    let singular = kind.as_str().to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.gateway.networking.k8s.io", kind.plural()),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "gateway.networking.k8s.io", "scope": "Namespaced",
            "names": {"kind": kind.as_str(), "plural": kind.plural(), "singular": singular},
            "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>(),
        },
    })
}

fn object(kind: Kind, version: &str) -> Value {
    json!({
        "apiVersion": format!("gateway.networking.k8s.io/{version}"), "kind": kind.as_str(),
        "metadata": {"namespace": "default", "name": "r"},
        "spec": {"hostnames": ["x.example"], "rules": [{"backendRefs": [{"name": "b", "port": 80}]}]},
    })
}

#[tokio::test]
async fn definitions_can_be_installed_and_uninstalled_at_runtime() {
    let server = ApiServer::start().await.unwrap();
    let cluster = Cluster(server.admin().await.unwrap());
    let kinds = [Kind::HTTPRoute, Kind::GRPCRoute, Kind::TLSRoute];
    let mut subscriber = Subscriber::new(cluster.0.clone(), config(&kinds, None));
    subscriber.synced().await;
    assert!(subscriber.objects.is_empty());
    assert_eq!(
        subscriber.failing(),
        kinds.map(|kind| format!("{kind}: NotInstalled"))
    );

    // An older but supported version, and an unsupported one.
    let http = ObjectKey::new(Kind::HTTPRoute, "default", "r");
    let older = definition(Kind::HTTPRoute, &["v1beta1"]);
    cluster.apply(&older).await;
    cluster
        .apply(&definition(Kind::GRPCRoute, &["v1alpha2"]))
        .await;
    subscriber
        .until("two definitions", |received| {
            received.failing() == ["GRPCRoute: OtherVersion", "TLSRoute: NotInstalled"]
        })
        .await;
    let message = &subscriber.failures[0].message;
    assert!(
        message.contains("serves v1alpha2, but Sesame reads v1:"),
        "{message}"
    );
    cluster.apply(&object(Kind::HTTPRoute, "v1beta1")).await;
    subscriber
        .until("the route", |received| received.has(&http))
        .await;

    // Changing the served version doesn't change objects.
    cluster
        .apply(&definition(Kind::HTTPRoute, &["v1beta1", "v1"]))
        .await;
    let mut only_new = definition(Kind::HTTPRoute, &["v1beta1", "v1"]);
    only_new["spec"]["versions"][0]["served"] = false.into();
    cluster.apply(&only_new).await;
    let mut changed = object(Kind::HTTPRoute, "v1");
    changed["metadata"]["labels"] = json!({"a": "b"});
    apply_soon(&cluster, &changed).await;
    subscriber
        .until("a change in the new version", |received| {
            !received.objects[&http].labels().is_empty()
        })
        .await;
    assert_eq!(subscriber.changes_of(&http), 2);

    // If no supported version is served, the objects stay. Uninstalling the CRD removes them.
    let mut neither = only_new.clone();
    neither["spec"]["versions"][1]["served"] = false.into();
    neither["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .push(definition(Kind::HTTPRoute, &["x", "v9"])["spec"]["versions"][1].clone());
    cluster.apply(&neither).await;
    subscriber
        .until("no version", |received| {
            received
                .failing()
                .contains(&"HTTPRoute: OtherVersion".to_owned())
        })
        .await;
    assert!(subscriber.has(&http) && subscriber.changes_of(&http) == 2);
    cluster.delete(&neither).await;
    subscriber
        .until("no definition", |received| {
            !received.has(&http)
                && received
                    .failing()
                    .contains(&"HTTPRoute: NotInstalled".to_owned())
        })
        .await;
    cluster.apply(&definition(Kind::HTTPRoute, &["v1"])).await;
    apply_soon(&cluster, &object(Kind::HTTPRoute, "v1")).await;
    subscriber
        .until("the route again", |received| received.has(&http))
        .await;
}

/// Applies an object as soon as its kind is served.
async fn apply_soon(cluster: &Cluster, object: &Value) {
    let attempts = 600;
    for attempt in 0..attempts {
        match cluster.try_apply(object).await {
            Ok(()) => return,
            Err(error) if attempt + 1 == attempts => panic!("{error}"),
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
    }
}

#[tokio::test]
async fn discovery_is_polled_without_permission_to_watch_definitions() {
    let server = ApiServer::start().await.unwrap();
    let cluster = Cluster(server.admin().await.unwrap());
    let rules = json!([{"apiGroups": ["gateway.networking.k8s.io"], "resources": ["*"], "verbs": ["list", "watch"]}]);
    crate::permissions::grant(&cluster, "reader", rules).await;
    let reader = server.service_account("default", "reader").await.unwrap();
    let mut subscriber = Subscriber::new(reader, config(&[Kind::TLSRoute], None));
    subscriber.synced().await;
    assert_eq!(subscriber.failing(), ["TLSRoute: NotInstalled"]);
    cluster
        .apply(&definition(Kind::TLSRoute, &["v1alpha2"]))
        .await;
    apply_soon(&cluster, &object(Kind::TLSRoute, "v1alpha2")).await;
    let key = ObjectKey::new(Kind::TLSRoute, "default", "r");
    subscriber
        .until("the route", |received| {
            received.has(&key) && received.failing().is_empty()
        })
        .await;
}
