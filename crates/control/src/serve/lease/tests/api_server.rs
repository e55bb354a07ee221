//! Two replicas at a real API server.

use sesame_testkit::api_server::ApiServer;
use tokio::task::JoinHandle;

use super::*;

/// Shorter times than the defaults, so that tests are fast.
const QUICK: Times = Times {
    lease: Duration::from_secs(2),
    deadline: Duration::from_millis(1500),
    renew: Duration::from_millis(300),
    look: Duration::from_millis(100),
    answer: Duration::from_secs(1),
};

struct Replica {
    leads: watch::Receiver<bool>,
    stop: CancellationToken,
    election: JoinHandle<()>,
}

fn replica(client: &kube::Client, lease: &str, identity: &str) -> Replica {
    let stop = CancellationToken::new();
    let config = LeaseConfig {
        name: lease.to_owned(),
        times: QUICK,
        ..LeaseConfig::new("default", identity)
    };
    let (trouble, _) = watch::channel(None);
    let (leads, election) = start(client.clone(), config, trouble, stop.clone());
    Replica {
        leads,
        stop,
        election: tokio::spawn(election),
    }
}

async fn leads(replica: &mut Replica) {
    let leads = replica.leads.wait_for(|leads| *leads);
    let leads = tokio::time::timeout(Duration::from_secs(240), leads).await;
    leads.expect("it never leads").unwrap();
}

async fn lease(client: &kube::Client, name: &str) -> k8s_openapi::api::coordination::v1::LeaseSpec {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    leases.get(name).await.unwrap().spec.unwrap()
}

#[tokio::test]
async fn a_replica_that_dies_is_followed_and_takes_its_place_behind() {
    let server = ApiServer::shared().await.unwrap();
    let client = server.admin().await.unwrap();
    let mut first = replica(&client, "killed", "a");
    leads(&mut first).await;
    let mut second = replica(&client, "killed", "b");
    // It has been alive for longer than the length of its Lease.
    tokio::time::sleep(QUICK.lease + QUICK.look).await;
    assert!(*first.leads.borrow() && !*second.leads.borrow());
    first.election.abort();
    assert!(first.election.await.unwrap_err().is_cancelled());
    let died = Instant::now();
    leads(&mut second).await;
    // Not before the old leader would have stopped by itself.
    assert!(died.elapsed() + QUICK.renew >= QUICK.deadline);
    let spec = lease(&client, "killed").await;
    assert_eq!(spec.holder_identity.as_deref(), Some("b"));
    assert_eq!(spec.lease_transitions, Some(1));
    let third = replica(&client, "killed", "a");
    tokio::time::sleep(QUICK.renew * 2).await;
    assert!(*second.leads.borrow() && !*third.leads.borrow());
}

#[tokio::test]
async fn a_replica_that_ends_in_peace_is_followed_at_once() {
    let server = ApiServer::shared().await.unwrap();
    let client = server.admin().await.unwrap();
    let mut first = replica(&client, "released", "a");
    leads(&mut first).await;
    let mut second = replica(&client, "released", "b");
    first.stop.cancel();
    first.election.await.unwrap();
    assert!(!*first.leads.borrow());
    leads(&mut second).await;
    second.stop.cancel();
    second.election.await.unwrap();
    let spec = lease(&client, "released").await;
    assert_eq!(
        (spec.holder_identity, spec.lease_transitions),
        (None, Some(1))
    );
}

#[tokio::test]
async fn without_an_api_server_nobody_leads_and_with_it_somebody_does() {
    let server = ApiServer::start().await.unwrap();
    let client = server.admin().await.unwrap();
    let mut only = replica(&client, "away", "a");
    leads(&mut only).await;
    server.stop().await.unwrap();
    let lost = only.leads.wait_for(|leads| !*leads);
    let lost = tokio::time::timeout(Duration::from_secs(240), lost).await;
    lost.expect("it goes on leading").unwrap();
    server.resume().await.unwrap();
    leads(&mut only).await;
}

#[tokio::test]
async fn the_rights_that_a_lease_needs_are_to_get_create_and_update() {
    let server = ApiServer::shared().await.unwrap();
    let admin = server.admin().await.unwrap();
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = serde_json::json!({"metadata": {"name": "lease"}, "rules": [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "resourceNames": ["rights"], "verbs": ["get", "update"]},
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
    let mut only = replica(&client, "rights", "a");
    leads(&mut only).await;
    tokio::time::sleep(QUICK.deadline + QUICK.renew).await;
    assert!(*only.leads.borrow());
    only.stop.cancel();
    only.election.await.unwrap();
    assert_eq!(lease(&admin, "rights").await.holder_identity, None);
}

#[tokio::test]
async fn a_namespace_that_is_not_there_is_told() {
    let server = ApiServer::shared().await.unwrap();
    let client = server.admin().await.unwrap();
    let (trouble, mut told) = watch::channel(None);
    let stop = CancellationToken::new();
    let config = LeaseConfig::new("nowhere", "a");
    let (leads, election) = start(client, config, trouble, stop.clone());
    let election = tokio::spawn(election);
    let failing = told.wait_for(Option::is_some);
    let failing = tokio::time::timeout(Duration::from_secs(240), failing).await;
    let text = failing.expect("no failure is reported").unwrap().clone();
    assert!(text.is_some_and(|text| text.contains("nowhere")));
    assert!(!*leads.borrow());
    stop.cancel();
    election.await.unwrap();
}
