//! The sidecar with a real Envoy: a drain doesn't lose requests and can't be started over the network.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod fixture;
mod overload;

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use sesame_fleet::kube::sidecar::{self, SidecarConfig};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::fixture::{
    Fixture, RAW, SETTLE_TIME, TIMEOUT, drain_status, get, read_until, reply, send, send_request,
    start,
};

/// Longer than the timeout of a request to Envoy's admin interface.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(11);

/// Stops Envoy's main thread until `ptrace::detach`, as if it were busy with a large configuration.
fn stop_main_thread(envoy: Pid) {
    ptrace::seize(envoy, ptrace::Options::empty()).unwrap();
    ptrace::interrupt(envoy).unwrap();
    waitpid(envoy, Some(WaitPidFlag::__WALL)).unwrap();
}

/// Stops Envoy until SIGCONT, as if it hung. Returns once no thread of it runs.
fn stop_all_threads(envoy: Pid) {
    kill(envoy, Signal::SIGSTOP).unwrap();
    waitpid(envoy, Some(WaitPidFlag::WUNTRACED)).unwrap();
}

#[tokio::test]
async fn requests_are_served_until_the_drain_ends() {
    // The test would time out if the drain lasted for its whole timeout.
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    let (mut client, mut backend) = fixture.active_request().await;
    let mut drained = fixture.stop().await;
    assert!(
        timeout(SETTLE_TIME, &mut drained).await.is_err(),
        "ended early"
    );
    // New clients are still served, until Envoy closes their connections.
    let (mut late, mut late_backend) = fixture.active_request().await;
    let closing = async {
        loop {
            reply(&mut late_backend).await;
            let response = read_until(&mut late, "hello").await;
            if response.contains("connection: close") {
                return;
            }
            send_request(&mut late).await;
            read_until(&mut late_backend, "\r\n\r\n").await;
        }
    };
    timeout(TIMEOUT, closing).await.expect("a drain in time");
    assert!(
        timeout(SETTLE_TIME, &mut drained).await.is_err(),
        "ended early"
    );

    reply(&mut backend).await;
    let response = read_until(&mut client, "hello").await;
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert!(response.contains("connection: close"), "{response}");
    assert_eq!(drain_status(drained).await, 200);
    fixture.end().await;
}

#[tokio::test]
async fn no_connection_is_closed_during_the_delay() {
    let fixture = Fixture::new(TIMEOUT * 10, TIMEOUT * 10).await;
    let mut drained = fixture.stop().await;
    let (mut client, mut backend) = fixture.active_request().await;
    reply(&mut backend).await;
    let response = read_until(&mut client, "hello").await;
    assert!(!response.contains("connection: close"), "{response}");
    assert!(
        timeout(SETTLE_TIME, &mut drained).await.is_err(),
        "ended early"
    );
    fixture.end().await;
}

#[tokio::test]
async fn idle_connections_do_not_hold_up_a_drain() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    let (mut client, mut backend) = fixture.active_request().await;
    reply(&mut backend).await;
    read_until(&mut client, "hello").await;
    let drained = fixture.stop().await;
    assert_eq!(drain_status(drained).await, 200);
    drop(client);
    fixture.end().await;
}

#[tokio::test]
async fn a_drain_waits_for_raw_tcp_connections() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    let mut client = TcpStream::connect((fixture.ip, RAW)).await.unwrap();
    client.write_all(b"one").await.unwrap();
    let (mut backend, _) = fixture.backend.accept().await.unwrap();
    let mut drained = fixture.stop().await;
    // Longer than the wait for an idle HTTP connection.
    assert!(
        timeout(SETTLE_TIME * 4, &mut drained).await.is_err(),
        "ended early"
    );
    client.write_all(b"two").await.unwrap();
    read_until(&mut backend, "onetwo").await;
    drop((client, backend));
    assert_eq!(drain_status(drained).await, 200);
    fixture.end().await;
}

#[tokio::test]
async fn a_drain_ends_at_its_timeout() {
    let fixture = Fixture::new(Duration::ZERO, Duration::from_millis(200)).await;
    let (_client, _backend) = fixture.active_request().await;
    let drained = fixture.stop().await;
    assert_eq!(drain_status(drained).await, 200);
    fixture.end().await;
}

#[tokio::test]
async fn a_drain_cannot_be_started_over_the_network() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    assert_eq!(send(fixture.sidecar, "POST", "/drain").await.0, 404);
    let sidecar = fixture.sidecar;
    let mut drained = tokio::spawn(async move { get(sidecar, "/drained").await });
    assert!(
        timeout(SETTLE_TIME, &mut drained).await.is_err(),
        "ended early"
    );
    assert_eq!(get(fixture.sidecar, "/ready").await, 200);
    let (mut client, mut backend) = fixture.active_request().await;
    reply(&mut backend).await;
    let response = read_until(&mut client, "hello").await;
    assert!(!response.contains("connection: close"), "{response}");
    drained.abort();
    fixture.end().await;
}

#[tokio::test]
async fn a_restarted_sidecar_reports_ready() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    assert_eq!(drain_status(fixture.stop().await).await, 200);
    fixture.serving.abort();
    let (sidecar, serving) = start(&fixture.config).await;
    assert_eq!(get(sidecar, "/ready").await, 200);
    serving.abort();
    fixture.end().await;
}

#[tokio::test]
async fn a_drain_ends_when_envoy_exits() {
    let fixture = Fixture::new(TIMEOUT * 10, TIMEOUT * 10).await;
    let (_client, _backend) = fixture.active_request().await;
    let drained = fixture.stop().await;
    timeout(TIMEOUT, fixture.supervisor.shutdown())
        .await
        .unwrap();
    assert_eq!(drain_status(drained).await, 200);
    fixture.end().await;
}

#[tokio::test]
async fn a_drain_continues_while_envoys_main_thread_is_busy() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    let (_client, _backend) = fixture.active_request().await;
    let envoy = Pid::from_raw(fixture.pid);
    stop_main_thread(envoy);
    let mut drained = fixture.stop().await;
    assert!(
        timeout(ADMIN_TIMEOUT, &mut drained).await.is_err(),
        "ended early"
    );
    ptrace::detach(envoy, None).unwrap();
    fixture.end().await;
}

#[tokio::test]
async fn envoy_is_alive_during_a_drain_and_until_it_hangs() {
    let fixture = Fixture::new(TIMEOUT * 10, TIMEOUT * 10).await;
    assert_eq!(get(fixture.sidecar, "/live").await, 200);
    let drained = fixture.stop().await;
    assert_eq!(get(fixture.sidecar, "/live").await, 200);
    assert_eq!(get(fixture.sidecar, "/ready").await, 503);
    drained.abort();

    let envoy = Pid::from_raw(fixture.pid);
    stop_all_threads(envoy);
    assert_eq!(get(fixture.sidecar, "/live").await, 503);
    kill(envoy, Signal::SIGCONT).unwrap();
    assert_eq!(get(fixture.sidecar, "/live").await, 200);
    fixture.end().await;
}

#[tokio::test]
async fn envoy_is_ready_until_its_worker_threads_hang() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT).await;
    let envoy = Pid::from_raw(fixture.pid);
    stop_main_thread(envoy);
    assert_eq!(get(fixture.sidecar, "/ready").await, 200);
    ptrace::detach(envoy, None).unwrap();

    stop_all_threads(envoy);
    assert_eq!(get(fixture.sidecar, "/ready").await, 503);
    kill(envoy, Signal::SIGCONT).unwrap();
    assert_eq!(get(fixture.sidecar, "/ready").await, 200);
    fixture.end().await;
}

/// Otherwise, the remaining Envoys would get its clients, and be overloaded too.
#[tokio::test]
async fn probes_are_served_while_slow_clients_are_connected() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    let mut slow = Vec::new();
    for _ in 0..600 {
        let mut stream = TcpStream::connect(fixture.sidecar).await.unwrap();
        stream.write_all(b"GET /drai").await.unwrap();
        slow.push(stream);
    }
    assert_eq!(get(fixture.sidecar, "/live").await, 200);
    assert_eq!(get(fixture.sidecar, "/ready").await, 200);
    fixture.end().await;
}

#[tokio::test]
async fn envoys_metrics_are_forwarded() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT).await;
    let (status, page) = send(fixture.sidecar, "GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(page.contains("# TYPE envoy_server_live gauge"), "{page}");
    fixture.end().await;
}

#[tokio::test]
async fn a_stale_control_socket_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let control: PathBuf = dir.path().join("sidecar.sock");
    std::fs::write(&control, "").unwrap();
    let config = SidecarConfig {
        admin_socket: dir.path().join("none"),
        readiness_socket: dir.path().join("none"),
        control_socket: control.clone(),
        ..SidecarConfig::default()
    };
    let (sidecar, serving) = start(&config).await;
    assert_eq!(get(sidecar, "/ready").await, 503);
    sidecar::start_drain(&control).await.unwrap();
    serving.abort();
}
