//! Processes: each Gateway has an Envoy, which exits when the Gateway is deleted and when Sesame exits.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::time::Instant;

use nix::sys::signal::Signal;
use sesame_testkit::backend::Backend;
use sesame_testkit::client::{Connect, Request};

use crate::harness::{
    Folder, HTTP, Sesame, Summary, at, backends, becomes, ended, eventually, gateway, is_running,
    new_ip, route, send_signal,
};

/// Starts the Gateways `web` and `other`, each on its own address, with one route attached to both.
async fn two() -> (Vec<Backend>, Sesame, IpAddr) {
    let (backends, services) = backends(&["a"]).await;
    let other = new_ip();
    let sesame = Sesame::serving(|ip| {
        let text = services + &route("a", &["web", "other"], &["a.example.com"], &[&at("/", "a")]);
        vec![
            ("all.yaml", text),
            ("web.yaml", gateway("web", ip, &[HTTP])),
            ("other.yaml", gateway("other", other, &[HTTP])),
        ]
    })
    .await;
    becomes(sesame.at(8080), "a.example.com", "/", "a").await;
    becomes((other, 8080).into(), "a.example.com", "/", "a").await;
    (backends, sesame, other)
}

/// Waits until a Gateway's Envoy has started, and returns its PID.
async fn envoy_of(sesame: &Sesame, gateway: &str) -> u32 {
    let started = sesame
        .event(&format!("an Envoy for {gateway} has started"), 0, |event| {
            event["type"] == "envoy-started" && is_of(event, gateway)
        })
        .await;
    u32::try_from(started["pid"].as_u64().expect("a PID")).expect("a process ID")
}

fn is_of(event: &serde_json::Value, gateway: &str) -> bool {
    event["gateway"]
        .as_str()
        .is_some_and(|name| name.ends_with(gateway))
}

/// Asserts that Sesame has removed all its files.
fn assert_no_files_left(sesame: &Sesame) {
    let left: Vec<_> = fs::read_dir(sesame.folder().scratch())
        .expect("a folder")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    assert!(left.is_empty(), "files remain: {left:?}");
}

#[tokio::test]
async fn a_killed_envoy_is_restarted_and_the_other_is_not_affected() {
    let (_backends, sesame, other) = two().await;
    let request = Request::get("a.example.com", "/");
    let mut neighbour = Connect::plain()
        .open((other, 8080).into())
        .await
        .expect("a connection");
    let first = envoy_of(&sesame, "/web").await;
    let neighbours = envoy_of(&sesame, "/other").await;
    let from = sesame.events();
    send_signal(first, Signal::SIGKILL);
    let start = Instant::now();
    ended(&[first]).await;
    eventually("it serves again", async || {
        let response = request.of(sesame.at(8080)).await;
        anyhow::ensure!(response == "a", "{response}");
        // Meanwhile, the other Envoy keeps its connections.
        assert_eq!(
            neighbour
                .send(&request)
                .await
                .expect("a response")
                .backend(),
            "a"
        );
        Ok(())
    })
    .await;
    println!("served again after {} ms", start.elapsed().as_millis());
    let exited = sesame
        .event("the exit is reported", from, |event| {
            event["type"] == "envoy-exited" && is_of(event, "/web")
        })
        .await;
    assert!(exited["restartInMs"].is_number(), "{exited}");
    let started = sesame
        .event("the start is reported", from, |event| {
            event["type"] == "envoy-started" && is_of(event, "/web")
        })
        .await;
    assert_ne!(started["pid"], first);
    let pids: Vec<u32> = sesame.envoys().into_iter().map(|(pid, _)| pid).collect();
    assert!(pids.len() == 2 && pids.contains(&neighbours), "{pids:?}");
    sesame.programmed().await;
}

#[tokio::test]
async fn a_removed_gateway_leaves_no_envoy_and_no_open_port() {
    let (_backends, sesame, other) = two().await;
    let gone = envoy_of(&sesame, "/web").await;
    let address = sesame.at(8080);
    sesame.folder().remove("web.yaml");
    ended(&[gone]).await;
    eventually("the port is free", async || {
        Ok(TcpListener::bind(address).map(drop)?)
    })
    .await;
    assert_eq!(
        Request::get("a.example.com", "/")
            .of((other, 8080).into())
            .await,
        "a"
    );
    eventually("its status is gone", async || {
        let status = sesame.status("Gateway", "web").await;
        anyhow::ensure!(status.is_err(), "{status:?}");
        Ok(())
    })
    .await;
    assert_eq!(sesame.envoys().len(), 1);
    // The Gateway is added again.
    sesame
        .folder()
        .write("web.yaml", &gateway("web", sesame.ip, &[HTTP]));
    becomes(address, "a.example.com", "/", "a").await;
}

#[tokio::test]
async fn ctrl_c_and_sigterm_leave_nothing_behind() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (_backends, sesame, other) = two().await;
        let envoys: Vec<u32> = sesame.envoys().into_iter().map(|(pid, _)| pid).collect();
        assert_eq!(envoys.len(), 2);
        let status = sesame.end(Some(signal)).await;
        assert!(status.success(), "{signal}: {status}");
        // They exited before Sesame.
        for pid in envoys {
            assert!(!is_running(pid), "{signal}: Envoy {pid} is still running");
        }
        assert_no_files_left(&sesame);
        for address in [sesame.at(8080), (other, 8080).into()] {
            TcpListener::bind(address).expect("the port is free");
        }
        assert_eq!(sesame.stray_lines(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn requests_in_flight_complete_during_shutdown() {
    let (_backends, sesame, _other) = two().await;
    let mut connection = sesame.open().await;
    let slow = Request::get("a.example.com", "/?delay=1s");
    let pid = sesame.pid();
    let signal = async {
        eventually("the request is in flight", async || {
            anyhow::ensure!(
                _backends[0]
                    .requests()
                    .iter()
                    .any(|request| request.path == "/?delay=1s"),
                "not yet"
            );
            Ok(())
        })
        .await;
        send_signal(pid, Signal::SIGTERM);
    };
    let (response, ()) = tokio::join!(connection.send(&slow), signal);
    let response = response.expect("a response");
    assert_eq!(
        (response.status.as_u16(), response.backend().as_str()),
        (200, "a")
    );
    drop(connection);
    assert!(sesame.end(None).await.success());
}

#[tokio::test]
async fn envoys_do_not_outlive_a_killed_sesame() {
    let (_backends, sesame, _other) = two().await;
    let envoys: Vec<u32> = sesame.envoys().into_iter().map(|(pid, _)| pid).collect();
    assert_eq!(envoys.len(), 2);
    let status = sesame.end(Some(Signal::SIGKILL)).await;
    assert!(!status.success());
    ended(&envoys).await;
    // The next Sesame starts normally.
    let folder = Folder::new(&[("web.yaml", gateway("web", sesame.ip, &[HTTP]))]);
    let ip = sesame.ip;
    drop(sesame);
    let next = Sesame::start(ip, folder, &[]).await;
    next.programmed().await;
    becomes(next.at(8080), "a.example.com", "/", "404").await;
}

/// Gateways without addresses get loopback addresses in name order.
#[tokio::test]
async fn gateways_without_addresses_get_stable_ones() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let loopback = |last| IpAddr::from(Ipv4Addr::new(127, 0, 0, last));
    // A port that is currently free on both addresses.
    let port = eventually("a port that is free at both addresses", async || {
        let one = TcpListener::bind((loopback(1), 0))?;
        let port = one.local_addr()?.port();
        TcpListener::bind((loopback(2), port))?;
        Ok(port)
    })
    .await;
    let ip = new_ip();
    let bare = |name: &str| {
        let listener = format!("name: http, protocol: HTTP, port: {port}");
        let text = gateway(name, ip, &[&listener]);
        text.replace(
            &format!("  addresses: [{{type: IPAddress, value: \"{ip}\"}}]\n"),
            "",
        )
    };
    let text = services
        + &bare("a")
        + &bare("b")
        + &route("a", &["a"], &["a.example.com"], &[&at("/", "a")])
        + &route("b", &["b"], &["a.example.com"], &[&at("/", "b")]);
    let sesame = Sesame::start(ip, Folder::new(&[("all.yaml", text)]), &[]).await;
    sesame.programmed().await;
    for (last, name) in [(1, "a"), (2, "b")] {
        becomes((loopback(last), port).into(), "a.example.com", "/", name).await;
        let status = sesame.status("Gateway", name).await.expect("a status");
        assert_eq!(status["addresses"][0]["value"], loopback(last).to_string());
    }
}

#[tokio::test]
async fn an_envoy_that_cannot_run_is_reported_with_a_fix() {
    let ip = new_ip();
    let folder = Folder::new(&[("web.yaml", gateway("web", ip, &[HTTP]))]);
    let path = folder.path();
    let path = path.to_str().expect("a readable path");
    let sesame = Sesame::spawn(ip, folder, &[path, "--envoy", "/nowhere/envoy"], "");
    let status = sesame.end(None).await;
    assert_eq!(status.code(), Some(1));
    eventually("the log says why", async || {
        let log = sesame.log();
        anyhow::ensure!(
            log.contains("--envoy") && log.contains("/nowhere/envoy"),
            "{log}"
        );
        Ok(())
    })
    .await;
    assert_no_files_left(&sesame);
}
