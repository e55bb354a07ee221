//! Thousands of objects take few requests.

use futures::StreamExt as _;
use serde_json::json;
use sesame_api::Kind;
use sesame_testkit::api_server::ApiServer;

use crate::subscriber::{Cluster, Subscriber, config};

const SLICES: usize = 2000;

#[tokio::test]
async fn two_thousand_objects_take_one_list_and_one_change_set() {
    let server = ApiServer::shared().await.unwrap();
    let cluster = Cluster(server.admin().await.unwrap());
    cluster.namespace("bulk").await;
    let slice = |number: usize| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "namespace": "bulk", "name": format!("s{number}"),
                "labels": {"kubernetes.io/service-name": format!("s{number}")},
            },
            "endpoints": [{"addresses": [format!("10.1.{}.{}", number / 250, number % 250)]}],
            "ports": [{"port": 80}],
        })
    };
    futures::stream::iter(0..SLICES)
        .for_each_concurrent(32, |number| {
            let cluster = cluster.clone();
            async move { cluster.create(&slice(number)).await }
        })
        .await;

    let config = config(&[Kind::EndpointSlice, Kind::Secret], Some("bulk"));
    let mut subscriber = Subscriber::new(cluster.0.clone(), config);
    subscriber.synced().await;
    assert_eq!((subscriber.sets, subscriber.objects.len()), (1, SLICES));
    let work = &subscriber.counters;
    assert_eq!((work.lists(), work.watches(), work.gets()), (2, 0, 0));
    assert_eq!(work.events(), SLICES as u64);
    assert_eq!(work.discoveries(), 0);

    // A changed object is one event and one change.
    let mut changed = slice(7);
    changed["endpoints"][0]["conditions"] = json!({"ready": false});
    cluster.apply(&changed).await;
    subscriber
        .until("the change", |received| received.sets == 2)
        .await;
    assert_eq!(subscriber.changes.len(), SLICES + 1);
    assert_eq!(subscriber.counters.lists(), 2);
}
