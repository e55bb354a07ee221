//! A temporary outage of the API server.
//!
//! In: a scene with Sesame. Out: no requests failed, and changes are served soon after the API server is back.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::load::Load;
use super::scene::{Scene, until};
use super::shop;

/// Time limit for serving changes made after the outage.
const SERVED: Duration = Duration::from_secs(30);

/// Time limit for updating statuses, which may require a leader election.
const RIGHT: Duration = Duration::from_secs(30);

/// Runs the test.
pub(super) fn outage(scene: &Scene) -> Result<String> {
    let address = shop::open(scene)?;
    scene.apply(&[shop::route(shop::GATEWAY, "outage", "before")])?;
    let request = shop::request(address, &shop::host("outage"));
    shop::served(scene, &request, "before")?;
    let load = Load::start(
        &scene.network,
        vec![request.clone(), shop::request(address, shop::HOST)],
    );

    scene.cluster.stop_api_server()?;
    sleep(scene.outage);
    scene.cluster.start_api_server()?;
    shop::change(scene, "outage", "after")?;
    scene.apply(&[shop::route(shop::GATEWAY, "arrival", "first")])?;
    let changed = Instant::now();
    let arrival = shop::request(address, &shop::host("arrival"));
    shop::served(scene, &request, "after")?;
    shop::served(scene, &arrival, "first")?;
    let served = changed.elapsed();
    ensure!(
        served <= SERVED,
        "changes took {served:?} to be served, more than {SERVED:?}"
    );
    let ((), right) = until("all statuses are up to date", RIGHT, || {
        shop::statuses_are_right(scene, shop::GATEWAY)
    })?;
    let tally = load.stop()?;
    let of = format!("of={}", shop::GATEWAY);
    scene.kubectl(&["-n", shop::NAMESPACE, "delete", "httproutes", "-l", &of])?;
    Ok(format!(
        "{tally}; down for {} s; subsequent changes served within {:.1} s, statuses up to date {:.1} s later",
        scene.outage.as_secs(),
        served.as_secs_f32(),
        right.as_secs_f32()
    ))
}
