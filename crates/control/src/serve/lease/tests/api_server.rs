//! Leader election with a real API server.

use sesame_testkit::api_server::ApiServer;
use tokio::task::JoinHandle;

use super::*;

/// Intervals for fast tests, and deadlines for busy machines.
const SHORT: Timings = Timings {
    lease_duration: Duration::from_secs(10),
    renew_deadline: Duration::from_secs(8),
    renew_interval: Duration::from_millis(500),
    poll_interval: Duration::from_millis(200),
    request_timeout: Duration::from_secs(4),
};

struct Replica {
    is_leader: watch::Receiver<bool>,
    stop: CancellationToken,
    election: JoinHandle<()>,
}

fn replica(client: &kube::Client, lease: &str, identity: &str) -> Replica {
    let stop = CancellationToken::new();
    let config = LeaseConfig {
        name: lease.to_owned(),
        timings: SHORT,
        ..LeaseConfig::new("default", identity)
    };
    let (failure, _) = watch::channel(None);
    let (is_leader, election) = start(client.clone(), config, failure, stop.clone());
    Replica {
        is_leader,
        stop,
        election: tokio::spawn(election),
    }
}

async fn until_leader(replica: &mut Replica) {
    let leader = replica.is_leader.wait_for(|is_leader| *is_leader);
    let leader = tokio::time::timeout(Duration::from_secs(240), leader).await;
    leader.expect("it becomes the leader").unwrap();
}

async fn lease(client: &kube::Client, name: &str) -> k8s_openapi::api::coordination::v1::LeaseSpec {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    leases.get(name).await.unwrap().spec.unwrap()
}

#[tokio::test]
async fn a_dead_leader_is_replaced_and_does_not_return_as_leader() {
    let server = ApiServer::shared().await.unwrap();
    let client = server.admin().await.unwrap();
    let mut first = replica(&client, "killed", "a");
    until_leader(&mut first).await;
    let mut second = replica(&client, "killed", "b");
    // Longer than the Lease's duration: the leader renews it.
    tokio::time::sleep(SHORT.lease_duration + SHORT.poll_interval).await;
    assert!(*first.is_leader.borrow() && !*second.is_leader.borrow());
    first.election.abort();
    assert!(first.election.await.unwrap_err().is_cancelled());
    let died = Instant::now();
    until_leader(&mut second).await;
    // Not before the old leader's deadline.
    assert!(died.elapsed() + SHORT.renew_interval >= SHORT.renew_deadline);
    let spec = lease(&client, "killed").await;
    assert_eq!(spec.holder_identity.as_deref(), Some("b"));
    assert_eq!(spec.lease_transitions, Some(1));
    let third = replica(&client, "killed", "a");
    tokio::time::sleep(SHORT.renew_interval * 2).await;
    assert!(*second.is_leader.borrow() && !*third.is_leader.borrow());
}

#[tokio::test]
async fn a_leader_that_shuts_down_is_replaced_at_once() {
    let server = ApiServer::shared().await.unwrap();
    let client = server.admin().await.unwrap();
    let mut first = replica(&client, "released", "a");
    until_leader(&mut first).await;
    let mut second = replica(&client, "released", "b");
    first.stop.cancel();
    first.election.await.unwrap();
    assert!(!*first.is_leader.borrow());
    until_leader(&mut second).await;
    second.stop.cancel();
    second.election.await.unwrap();
    let spec = lease(&client, "released").await;
    assert_eq!(
        (spec.holder_identity, spec.lease_transitions),
        (None, Some(1))
    );
}

#[tokio::test]
async fn leadership_ends_while_the_api_server_is_down() {
    let server = ApiServer::start().await.unwrap();
    let client = server.admin().await.unwrap();
    let mut only = replica(&client, "outage", "a");
    until_leader(&mut only).await;
    server.stop().await.unwrap();
    let lost = only.is_leader.wait_for(|is_leader| !*is_leader);
    let lost = tokio::time::timeout(Duration::from_secs(240), lost).await;
    lost.expect("leadership ends").unwrap();
    server.resume().await.unwrap();
    until_leader(&mut only).await;
}

#[tokio::test]
async fn the_election_needs_permission_to_get_create_and_update_leases() {
    let server = ApiServer::shared().await.unwrap();
    let admin = server.admin().await.unwrap();
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = serde_json::json!({"metadata": {"name": "lease"}, "rules": [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "resourceNames": ["permissions"], "verbs": ["get", "update"]},
    ]});
    let binding = serde_json::json!({"metadata": {"name": "lease"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lease"},
        "subjects": [{"kind": "ServiceAccount", "name": "sesame", "namespace": "default"}]});
    for (plural, object) in [("roles", role), ("rolebindings", binding)] {
        let request = kube::core::Request::new(format!("{rbac}/{plural}"));
        let request = request.create(&PostParams::default(), object.to_string().into_bytes());
        admin.request_text(request.unwrap()).await.unwrap();
    }
    let client = server.service_account("default", "sesame").await.unwrap();
    let mut only = replica(&client, "permissions", "a");
    until_leader(&mut only).await;
    tokio::time::sleep(SHORT.renew_deadline + SHORT.renew_interval).await;
    assert!(*only.is_leader.borrow());
    only.stop.cancel();
    only.election.await.unwrap();
    assert_eq!(lease(&admin, "permissions").await.holder_identity, None);
}

#[tokio::test]
async fn a_missing_namespace_is_reported() {
    let server = ApiServer::shared().await.unwrap();
    let client = server.admin().await.unwrap();
    let (failure, mut reported) = watch::channel(None);
    let stop = CancellationToken::new();
    let config = LeaseConfig::new("nowhere", "a");
    let (is_leader, election) = start(client, config, failure, stop.clone());
    let election = tokio::spawn(election);
    let failing = reported.wait_for(Option::is_some);
    let failing = tokio::time::timeout(Duration::from_secs(240), failing).await;
    let text = failing.expect("the failure is reported").unwrap().clone();
    assert!(text.is_some_and(|text| text.contains("nowhere")));
    assert!(!*is_leader.borrow());
    stop.cancel();
    election.await.unwrap();
}
