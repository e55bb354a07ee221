//! Thousands of routes, and a Gateway that counts them.

use sesame_api::Kind;
use sesame_status::WriteResult;
use sesame_testkit::api_server::ApiServer;
use tokio::task::JoinSet;

use crate::cluster::{
    Cluster, cluster, cluster_on, gateway_spec, gateway_status, route_status, until,
};

/// Enough to reveal repeated or sequential writes.
const ROUTES: usize = 2_000;

async fn create_routes(cluster: &Cluster, count: usize) {
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let cluster = Cluster {
            client: cluster.client.clone(),
            namespace: cluster.namespace.clone(),
        };
        tasks.spawn(async move {
            for n in (task..count).step_by(8) {
                cluster.create_route(&format!("r{n}")).await;
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_thousands_of_routes_is_written_once() {
    let server = ApiServer::start().await.unwrap();
    let cluster = cluster_on(&server, "scale").await;
    create_routes(&cluster, ROUTES).await;
    let desired: Vec<_> = (0..ROUTES)
        .map(|n| (cluster.route(&format!("r{n}")), route_status(&["g"], 1)))
        .collect();
    let replica = cluster.leader(&desired);
    let written = || {
        replica
            .counters
            .writes(Kind::HTTPRoute, WriteResult::Written)
    };
    let started = std::time::Instant::now();
    until("all are written", async || written() == ROUTES as u64).await;
    println!("{ROUTES} statuses in {:?}", started.elapsed());
    replica.settle(ROUTES as u64).await;
    assert_eq!(replica.counters.sent(), ROUTES as u64);
}

#[tokio::test]
async fn a_changing_route_count_is_written_at_a_limited_rate() {
    let cluster = cluster("counted").await;
    let key = cluster.key(Kind::Gateway, "g");
    cluster.create(Kind::Gateway, "g", gateway_spec()).await;
    let started = std::time::Instant::now();
    let replica = cluster.leader(&[(key.clone(), gateway_status(0, 1))]);
    for routes in 1..=1000 {
        replica.set_desired(&key, &gateway_status(routes, 1));
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    until("the count is current", async || {
        cluster.status(&key).await["listeners"][0]["attachedRoutes"] == 1000
    })
    .await;
    let writes = replica.counters.sent();
    // Four per second, and the first.
    let most = 4 * (started.elapsed().as_secs() + 1) + 1;
    assert!(writes <= most, "{writes} writes, expected at most {most}");
}
