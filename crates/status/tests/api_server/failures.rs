//! A server that can't or won't.

use serde_json::json;
use sesame_api::Kind;
use sesame_status::{Reason, Sent};
use sesame_testkit::api_server::ApiServer;

use crate::cluster::{cluster, on, our_parents, route_status, until};

#[tokio::test]
async fn without_the_right_it_says_so_and_writes_when_it_has_it() {
    let cluster = cluster("forbidden").await;
    let key = cluster.route("r");
    cluster.create_route("r").await;
    let server = ApiServer::shared().await.unwrap();
    let client = server.service_account("forbidden", "sesame").await.unwrap();
    let replica = cluster.replica(&client);
    replica.says(&key, &route_status(&["g"], 1));
    replica.writer.lead(true);
    until("it says so", async || !replica.writer.troubles().is_empty()).await;
    let trouble = replica.writer.troubles().remove(0);
    assert_eq!((trouble.reason, trouble.objects), (Reason::Forbidden, 1));
    assert!(trouble.message.contains("httproutes/status"), "{trouble}");
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/forbidden";
    let role = json!({"metadata": {"name": "sesame"}, "rules": [
        {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["httproutes/status"],
            "verbs": ["patch"]}
    ]});
    cluster.post(&format!("{rbac}/roles"), &role).await;
    let binding = json!({"metadata": {"name": "sesame"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "sesame"},
        "subjects": [{"kind": "ServiceAccount", "name": "sesame", "namespace": "forbidden"}]});
    cluster
        .post(&format!("{rbac}/rolebindings"), &binding)
        .await;
    replica.rests(2).await;
    assert_eq!(
        our_parents(&cluster.status(&key).await),
        [("g".to_owned(), 1)]
    );
    assert_eq!(replica.counters.writes(Kind::HTTPRoute, Sent::Written), 1);
}

#[tokio::test]
async fn what_the_server_refuses_keeps_nothing_else_from_being_written() {
    let cluster = cluster("refused").await;
    let (bad, good) = (cluster.route("bad"), cluster.route("good"));
    cluster.create_route("bad").await;
    cluster.create_route("good").await;
    // A name of a parent that no object can have.
    let replica = cluster.leader(&[(bad.clone(), route_status(&[""], 1))]);
    until("it is refused", async || {
        !replica.writer.troubles().is_empty()
    })
    .await;
    let trouble = replica.writer.troubles().remove(0);
    assert_eq!((trouble.reason, &trouble.example), (Reason::Refused, &bad));
    assert!(trouble.message.contains("parentRef.name"), "{trouble}");
    replica.says(&good, &route_status(&["g"], 1));
    until("the other is written", async || {
        our_parents(&cluster.status(&good).await) == [("g".to_owned(), 1)]
    })
    .await;
    replica.says(&bad, &route_status(&["g"], 1));
    replica.rests(3).await;
    assert_eq!(
        our_parents(&cluster.status(&bad).await),
        [("g".to_owned(), 1)]
    );
}

#[tokio::test]
async fn what_was_said_while_the_server_was_away_is_written_when_it_is_back() {
    let server = ApiServer::start().await.unwrap();
    let cluster = on(&server, "away").await;
    let names: Vec<_> = (0..30).map(|n| format!("r{n}")).collect();
    let mut says = Vec::new();
    for name in &names {
        cluster.create_route(name).await;
        says.push((cluster.route(name), route_status(&["g"], 1)));
    }
    let replica = cluster.leader(&says);
    replica.rests(30).await;
    server.stop().await.unwrap();
    for (key, _) in &says {
        replica.says(key, &route_status(&["h"], 1));
    }
    until("it is noticed", async || {
        let troubles = replica.writer.troubles();
        troubles
            .iter()
            .any(|trouble| trouble.reason == Reason::Unanswered)
    })
    .await;
    server.resume().await.unwrap();
    replica.rests(60).await;
    for (key, _) in &says {
        assert_eq!(
            our_parents(&cluster.status(key).await),
            [("h".to_owned(), 1)]
        );
    }
    let failed = replica.counters.writes(Kind::HTTPRoute, Sent::Failed);
    assert!(
        failed < 60,
        "{failed} requests to a server that isn't there"
    );
}
