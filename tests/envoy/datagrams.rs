//! UDPRoutes: sessions are distributed by weight and survive changes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::harness::{Sesame, assert_share, created, eventually, gateway, service, udp_route};

const UDP: &str = "name: udp, protocol: UDP, port: 5300";

/// Starts a server that replies to each datagram with its own name and the datagram; it stops when the test ends.
/// Returns a Service for it, with the same name.
async fn echo(name: &'static str) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = socket.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut buffer = [0; 64];
        while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
            let reply = [name.as_bytes(), &buffer[..length]].concat();
            let _ = socket.send_to(&reply, client).await;
        }
    });
    let objects = service(name, &[address]);
    objects.replace("port: 80}", "port: 53, protocol: UDP}")
}

/// A client's session with a UDP port.
struct Session {
    socket: UdpSocket,
    /// The number of datagrams sent.
    sent: u32,
}

impl Session {
    async fn with(address: SocketAddr) -> Self {
        let socket = UdpSocket::bind(SocketAddr::new(address.ip(), 0)).await;
        let socket = socket.expect("a socket");
        socket.connect(address).await.expect("an address");
        Self { socket, sent: 0 }
    }

    /// Sends datagrams, since some can get lost, until a server answers or ten seconds have passed. Returns the
    /// server's name.
    async fn answer(&mut self) -> Result<String> {
        for _ in 0..10 {
            self.sent += 1;
            let datagram = format!(" {}", self.sent);
            self.socket.send(datagram.as_bytes()).await?;
            if let Ok(name) = timeout(Duration::from_secs(1), self.reply_to(&datagram)).await {
                return name;
            }
        }
        bail!("no answer")
    }

    /// Waits for the reply to this datagram and returns the name in it. Skips late replies to earlier datagrams.
    async fn reply_to(&self, datagram: &str) -> Result<String> {
        let mut buffer = [0; 64];
        loop {
            let length = self.socket.recv(&mut buffer).await?;
            if let Some(name) = str::from_utf8(&buffer[..length])?.strip_suffix(datagram) {
                return Ok(name.to_owned());
            }
        }
    }

    /// Asserts that this server answers.
    async fn stays(&mut self, expected: &str) {
        for _ in 0..5 {
            assert_eq!(self.answer().await.expect("an answer"), expected);
        }
    }
}

/// Waits until new sessions go to this server.
async fn becomes(address: SocketAddr, expected: &str) {
    eventually(expected, async || {
        let name = Session::with(address).await.answer().await?;
        ensure!(name == expected, "{name}");
        Ok(())
    })
    .await;
}

fn to(backends: &[(&str, u32)]) -> String {
    let backends = backends.iter();
    let refs =
        backends.map(|(name, weight)| format!("{{name: {name}, port: 53, weight: {weight}}}"));
    format!("backendRefs: [{}]", Vec::from_iter(refs).join(", "))
}

#[tokio::test]
async fn sessions_are_shared_by_weight_and_those_for_invalid_backends_are_dropped() {
    let services = echo("a").await + &echo("b").await + &echo("none").await;
    let rule = to(&[("a", 5), ("b", 3), ("none", 0), ("missing", 2)]);
    let sesame =
        Sesame::with_gateway(&[UDP], &(udp_route("udp", &["web"], &[rule]) + &services)).await;
    let address = sesame.at(5300);
    eventually("an answer", async || {
        Session::with(address).await.answer().await
    })
    .await;
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..400 {
        asked.spawn(async move { Session::with(address).await.answer().await });
    }
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    for answer in asked.join_all().await {
        let name = answer.unwrap_or_else(|_| "no answer".to_owned());
        *found.entry(name).or_default() += 1;
    }
    for (name, share) in [("a", 0.5), ("b", 0.3), ("no answer", 0.2)] {
        assert_share(name, found.remove(name).unwrap_or(0), 400, share);
    }
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn sessions_survive_changes_and_leave_endpoints_that_are_gone() {
    let (a, b) = (echo("a").await, echo("b").await);
    let objects = |ip: IpAddr, listeners: &[&str], backends: &[(&str, u32)]| {
        let route = created(&udp_route("udp", &["web"], &[to(backends)]), "2026-01-02");
        gateway("web", ip, listeners) + &route + &b
    };
    let sesame = Sesame::serving(|ip| {
        vec![
            ("all.yaml", objects(ip, &[UDP], &[("a", 1)])),
            ("a.yaml", a),
        ]
    })
    .await;
    let address = sesame.at(5300);
    becomes(address, "a").await;
    let mut session = Session::with(address).await;
    session.stays("a").await;

    // Other weights, and another listener.
    let more = "name: more, protocol: UDP, port: 5301";
    let folder = sesame.folder();
    folder.replace(
        "all.yaml",
        &objects(sesame.ip, &[UDP, more], &[("a", 1), ("b", 1_000_000)]),
    );
    becomes(address, "b").await;
    session.stays("a").await;

    // An older route with the same endpoint.
    folder.write(
        "old.yaml",
        &created(
            &udp_route("old", &["web"], &[to(&[("a", 1)])]),
            "2026-01-01",
        ),
    );
    becomes(address, "a").await;
    session.stays("a").await;

    folder.remove("a.yaml");
    folder.remove("old.yaml");
    becomes(address, "b").await;
    eventually("the session moves to b", async || {
        let name = session.answer().await?;
        ensure!(name == "b", "{name}");
        Ok(())
    })
    .await;
    session.stays("b").await;
}
