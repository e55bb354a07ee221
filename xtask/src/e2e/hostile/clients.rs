//! Clients that hold connections, flood Envoys and Sesame's probes, and smuggle requests.
//!
//! In: neighbours. Out: smuggled requests don't arrive, and the neighbours' changes are served while connections are held and
//! flooded.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::timeout;

use super::{Neighbours, PUBLIC, replicas, tenant, text};
use crate::e2e::network::{Connection, Request};
use crate::e2e::scene::Scene;
use crate::e2e::shop;

/// Numbers of connections without a request, and with one whose headers don't end.
const SILENT: usize = 400;
const SLOW: usize = 200;

/// Connections that cancel HTTP/2 requests, and the number of requests on each.
const FLOODS: usize = 20;
const CANCELLED: u32 = 20_000;

/// Concurrent clients that send requests with long paths, the number of these requests of each, and the paths' length in
/// bytes.
const ATTACKERS: usize = 2;
const LONG: usize = 1_500;
const PATH: usize = 58_000;

/// Time limit for a server to close a connection.
const CLOSED: Duration = Duration::from_secs(60);

/// The port of Sesame's probes and metrics.
const PROBES: u16 = 8080;

/// Requests that a server refuses.
const REFUSED: [(&str, &str); 4] = [
    (
        "two lengths",
        "POST /public HTTP/1.1\r\nhost: public.example.com\r\ncontent-length: 4\r\ncontent-length: 40\r\n\r\n0\r\n\r\n",
    ),
    (
        "length and chunks",
        "POST /public HTTP/1.1\r\nhost: public.example.com\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nhost: public.example.com\r\n\r\n",
    ),
    (
        "underscore",
        "GET /public HTTP/1.1\r\nhost: public.example.com\r\nx_a: 1\r\n\r\n",
    ),
    (
        "line feed in a header",
        "GET /public HTTP/1.1\r\nhost: public.example.com\r\nx-a: 1\n\rx-b: 2\r\n\r\n",
    ),
];

/// Sends requests for the host with the most expensive expressions.
pub(super) fn expressions(scene: &Scene, neighbours: &mut Neighbours<'_>) -> Result<String> {
    let address = neighbours.shared();
    let attack = scene.network.spawn(move |runtime| {
        runtime.block_on(async {
            let mut attackers = JoinSet::new();
            for _ in 0..ATTACKERS {
                attackers.spawn(long_paths(address));
            }
            while let Some(attacker) = attackers.join_next().await {
                attacker??;
            }
            anyhow::Ok(())
        })
    });
    attack
        .join()
        .map_err(|_| anyhow::anyhow!("a client panicked"))???;
    Ok(format!("{} requests", ATTACKERS * LONG))
}

/// Attacks the shared Envoys and Sesame's probes.
pub(super) fn attack(scene: &Scene, neighbours: &mut Neighbours<'_>) -> Result<String> {
    let envoy = neighbours.shared();
    smuggled(scene, envoy)?;
    let mut probes = Vec::new();
    for pod in replicas(scene)? {
        probes.push(SocketAddr::new(
            text(&pod["status"]["podIP"]).parse()?,
            PROBES,
        ));
    }
    let mut targets = vec![envoy];
    targets.extend(&probes);
    let (stop, stopped) = oneshot::channel();
    let attack = scene
        .network
        .spawn(move |runtime| LocalSet::new().block_on(&runtime, all(targets, stopped)));
    neighbours.change()?;
    for address in probes {
        let mut request = shop::request(address, "sesame");
        request.path = "/readyz".to_owned();
        let response = scene.send(&request)?;
        ensure!(response.status == 200, "/readyz: {response:?}");
    }
    // The attack may have failed, which its result shows.
    let _ = stop.send(());
    let attack = attack
        .join()
        .map_err(|_| anyhow::anyhow!("the attack panicked"))?;
    let closed = attack??;
    neighbours.change()?;
    Ok(format!("{closed} of {FLOODS} floods closed"))
}

/// Paths and framing that servers read differently don't reach the backend.
fn smuggled(scene: &Scene, address: SocketAddr) -> Result<()> {
    let mut request = shop::request(address, &shop::host(PUBLIC));
    request.path = "/public".to_owned();
    shop::served(scene, &request, "")?;
    for path in [
        "/public/..%2fadmin",
        "/public/%2e%2e%5cadmin",
        "/public/..%5C../admin",
        "/public/../admin",
    ] {
        path.clone_into(&mut request.path);
        let response = scene.send(&request)?;
        ensure!(response.status != 200, "{path}: {response:?}");
    }
    let refused = scene.network.spawn(move |runtime| {
        runtime.block_on(async {
            for (what, request) in REFUSED {
                let mut stream = TcpStream::connect(address).await?;
                stream.write_all(request.as_bytes()).await?;
                let response = until_closed(&mut stream).await.context(what)?;
                ensure!(response.starts_with("HTTP/1.1 400"), "{what}: {response}");
            }
            Ok(())
        })
    });
    refused
        .join()
        .map_err(|_| anyhow::anyhow!("a client panicked"))??
}

/// Runs all attacks against these addresses, the first of which is Envoy's, at least until the signal. Returns the number of
/// floods that Envoy ended early.
async fn all(targets: Vec<SocketAddr>, stopped: oneshot::Receiver<()>) -> Result<usize> {
    let envoy = targets[0];
    let (mut silent, mut slow) = (Vec::new(), Vec::new());
    for &target in &targets {
        for _ in 0..SILENT {
            silent.push(TcpStream::connect(target).await?);
        }
        for _ in 0..SLOW {
            let mut stream = TcpStream::connect(target).await?;
            stream
                .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-slow: ")
                .await?;
            slow.push(stream);
        }
        oversized(target).await?;
    }
    let floods: Vec<_> = (0..FLOODS)
        .map(|_| tokio::task::spawn_local(flood(envoy)))
        .collect();
    let mut closed = 0;
    for flood in floods {
        closed += usize::from(flood.await??);
    }
    // Headers that don't end are a timeout for all servers.
    for mut stream in slow {
        until_closed(&mut stream).await.context("slow headers")?;
    }
    let _ = stopped.await;
    Ok(closed)
}

/// Headers of 1 MB are refused.
async fn oversized(address: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let header = format!(
        "GET / HTTP/1.1\r\nhost: a\r\nx-large: {}",
        "v".repeat(1_000_000)
    );
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(header.as_bytes()).await;
    let response = until_closed(&mut stream).await.context("large headers")?;
    ensure!(
        response.is_empty() || response.starts_with("HTTP/1.1 431"),
        "{response}"
    );
    Ok(())
}

/// Sends HTTP/2 requests and cancels each. Returns whether Envoy closed the connection.
async fn flood(address: SocketAddr) -> Result<bool> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len())
            .unwrap_or_default()
            .to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()];
        [&head.concat(), payload].concat()
    };
    // GET, /, http and the literal host (RFC 7541, appendix A).
    let host = shop::host(super::SHARED);
    let length = u8::try_from(host.len())?;
    let headers = [&[0x82, 0x84, 0x86, 0x01, length], host.as_bytes()].concat();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    for stream in (1..).step_by(2).take(CANCELLED as usize) {
        bytes.extend(frame(1, 0x5, stream, &headers));
        bytes.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    let stream = TcpStream::connect(address).await?;
    let (mut reader, mut writer) = stream.into_split();
    let mut sink = tokio::io::sink();
    let reading = tokio::io::copy(&mut reader, &mut sink);
    let writing = async {
        let written = writer.write_all(&bytes).await;
        written.is_err()
    };
    let ended = timeout(CLOSED, async {
        tokio::select! {
            _ = reading => true,
            failed = writing => failed,
        }
    });
    ended.await.context("a flood is stuck")
}

/// Requests for the host with the most expensive expressions.
async fn long_paths(address: SocketAddr) -> Result<()> {
    let request = Request {
        address,
        host: tenant::EXPRESSIONS.to_owned(),
        path: format!("/{}", "a".repeat(PATH)),
    };
    let mut open = None;
    for _ in 0..LONG {
        let connection = match open {
            Some(open) => open,
            None => Connection::open(address).await?,
        };
        let (response, left) = connection.send(&request).await?;
        ensure!(matches!(response.status, 404 | 500), "{response:?}");
        open = left;
    }
    Ok(())
}

/// Everything that the server sends until it closes the connection.
async fn until_closed(stream: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    let reading = timeout(CLOSED, stream.read_to_end(&mut bytes)).await;
    // A reset also closes it.
    let _ = reading.context("the connection stays open")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
