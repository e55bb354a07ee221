//! `fleets`: an update of one fleet while all streams of another fleet flood the server with requests.
//!
//! In this process: the discovery server, and one client of the updated fleet. In another, over a Unix socket: the clients of
//! the other fleet, each of which changes its subscriptions continuously.

use std::env;
use std::io::{self, Read};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use sesame_testkit::fake_envoy::{FakeEnvoy, Server};
use sesame_xds::ResourceType::{Cluster, Route};
use sesame_xds::{FleetId, Registry, Resource, ServerConfig, Update};
use tokio::net::UnixListener;
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_stream::wrappers::UnixListenerStream;

use crate::Settings;
use crate::machine;
use crate::report::{Figure, Samples, Unit};
use crate::rig;

/// The fleets.
const QUIET: &str = "ns/quiet";
const BUSY: &str = "ns/busy";
/// The streams of the busy fleet, and the names to which each subscribes: close to the server's limits for a fleet.
const STREAMS: usize = 1_000;
const NAMES: usize = 64;
/// Time between the requests of a stream.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between updates.
const REST: Duration = Duration::from_millis(10);

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    eprintln!("fleets: {STREAMS} streams of a fleet, {NAMES} names each");
    machine::raise_file_limit()?;
    // Separate threads, as different machines would have.
    let (server, quiet) = (rig::runtime("server")?, rig::runtime("quiet")?);
    quiet.block_on(measure(settings.rounds, server.handle()))
}

async fn measure(rounds: usize, server: &Handle) -> Result<Vec<Figure>> {
    let folder = tempfile::Builder::new().prefix("sesame-bench-").tempdir()?;
    let socket = folder.path().join("xds.sock");
    let registry = Registry::new(ServerConfig::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = registry.clone();
    let incoming = {
        let _in_runtime = server.enter();
        UnixListenerStream::new(UnixListener::bind(&socket)?)
    };
    let server = server.spawn(async move {
        let shutdown = async { stopped.await.unwrap_or_default() };
        serving.serve_incoming(incoming, shutdown).await
    });
    let mut updates = Updates {
        registry: &registry,
        revision: 0,
    };
    updates.apply(BUSY);
    updates.apply(QUIET);
    let quiet = FakeEnvoy::builder(QUIET, "quiet");
    let quiet = quiet.connect(Server::Unix(socket.clone())).await?;
    let alone = updates.measure(&quiet, rounds).await?;
    let before = machine::memory(None)?.now;
    let mut clients = Command::new(env::current_exe()?)
        .arg("--flood")
        .arg(&socket)
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot run the clients of the busy fleet")?;
    while updates.streams(BUSY) < STREAMS {
        sleep(PAUSE).await;
    }
    // Until each stream has sent some requests.
    sleep(10 * PAUSE).await;
    let (started, already) = (Instant::now(), updates.sent());
    let flooded = updates.measure(&quiet, rounds).await?;
    let rate = (updates.sent() - already) as f64 / started.elapsed().as_secs_f64();
    let streams = updates.streams(BUSY);
    let memory = machine::memory(None)?.now - before;
    // Ends the clients.
    drop(clients.stdin.take());
    clients.wait().await?;
    drop(quiet);
    // Fails if the server has already stopped, which its result shows.
    let _ = stop.send(());
    server.await?.context("the discovery server")?;
    Ok(vec![
        Figure::of("update of a fleet, alone", Unit::Milliseconds, &alone),
        Figure::of(
            "update of a fleet, another floods the server",
            Unit::Milliseconds,
            &flooded,
        )
        .note(format!("{streams} streams, {rate:.0} responses per second")),
        Figure::new(
            "p99 of the delay",
            Unit::Milliseconds,
            flooded.quantile(0.99) - alone.quantile(0.99),
        )
        .at_most(50.0),
        Figure::new("memory for the flooding fleet", Unit::Mebibytes, memory).at_most(64.0),
    ])
}

/// The updates of a server.
struct Updates<'a> {
    registry: &'a Registry,
    revision: u64,
}

impl Updates<'_> {
    /// Changes a cluster of a fleet, and returns its new content.
    fn apply(&mut self, fleet: &str) -> Vec<u8> {
        self.revision += 1;
        let body = self.revision.to_string().into_bytes();
        let update = Update {
            upserts: vec![(Cluster, Resource::new("c", body.clone()))],
            removals: Vec::new(),
            revision: self.revision,
        };
        self.registry.apply(&FleetId::new(fleet), update);
        body
    }

    /// The number of streams of a fleet.
    fn streams(&self, fleet: &str) -> usize {
        let status = self.registry.status(&FleetId::new(fleet));
        status.map_or(0, |status| status.clients.len())
    }

    /// The number of responses to clients of both fleets.
    fn sent(&self) -> u64 {
        let sent = self.registry.sent();
        sent.iter().map(|total| total.responses).sum()
    }

    /// The time from each of several updates until the client has it, in milliseconds.
    async fn measure(&mut self, client: &FakeEnvoy, rounds: usize) -> Result<Samples> {
        let mut samples = Samples::default();
        for _ in 0..rounds {
            sleep(REST).await;
            let since = Instant::now();
            let body = self.apply(QUIET);
            let received = |state: &sesame_testkit::fake_envoy::State| {
                state.body(Cluster, "c") == Some(&body[..])
            };
            client.until(received).await?;
            samples.push(since.elapsed().as_secs_f64() * 1e3);
        }
        Ok(samples)
    }
}

/// Runs the clients of the busy fleet until standard input ends.
pub(crate) fn flood(socket: &Path) -> Result<()> {
    machine::raise_file_limit()?;
    let runtime = rig::runtime("busy")?;
    runtime.block_on(async {
        for number in 0..STREAMS {
            let envoy = FakeEnvoy::builder(BUSY, &number.to_string());
            let envoy = envoy.connect(Server::Unix(socket.to_owned())).await?;
            tokio::spawn(change_subscriptions(envoy, number));
        }
        anyhow::Ok(())
    })?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Subscribes to names, and then to others instead, again and again.
async fn change_subscriptions(envoy: FakeEnvoy, number: usize) {
    let names = |round: usize| -> Vec<String> {
        (0..NAMES)
            .map(|name| format!("{number}-{}-{name}", round % 2))
            .collect()
    };
    for round in 0.. {
        envoy.send(DeltaDiscoveryRequest {
            type_url: Route.type_url().to_owned(),
            resource_names_subscribe: names(round),
            resource_names_unsubscribe: if round > 0 {
                names(round + 1)
            } else {
                Vec::new()
            },
            ..DeltaDiscoveryRequest::default()
        });
        sleep(PAUSE).await;
    }
}
