//! A restart: from the start of the process to the moment at which an Envoy that knew nothing has everything.
//!
//! That Envoy only pretends, since a real one takes longer to take in so many clusters than Sesame to send them. The real
//! one goes on meanwhile with what it has, under the requests of the prober.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use prost::Message as _;
use sesame_model::FleetId;
use sesame_testkit::certs::{Identity, client_config_as};
use sesame_testkit::fake_envoy::{FakeEnvoy, Server, State};
use sesame_xds::ResourceType;

use super::cluster::Cluster;
use super::replica::{EnvoyFiles, Replica, Settings};
use super::site::{EXTRA_SERVICES, EXTRAS};

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(5);
/// Somebody answers by then.
const PATIENCE: Duration = Duration::from_secs(60);

/// What took how many milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restarted {
    /// Until somebody answered at the address of discovery.
    pub(crate) connected: f64,
    /// Until everything was there.
    pub(crate) complete: f64,
    /// Processor time of the process until then.
    pub(crate) used: f64,
}

/// Ends a replica as a kubelet does, starts another in its place, and measures.
pub(crate) fn restart(
    cluster: &Cluster,
    settings: &Settings,
    files: &EnvoyFiles,
    replica: &mut Replica,
    name: &str,
    (port, apps): (u16, usize),
) -> Result<Restarted> {
    replica.end()?;
    *replica = settings.start(name)?;
    let begun = replica.begun;
    let read = |path| fs::read_to_string(path).context("an Envoy's file can't be read");
    let identity = Identity {
        chain: read(&files.certificate)?,
        private_key: read(&files.private_key)?,
    };
    let config = client_config_as(Some(&identity), &read(&files.authority)?, &["h2"])?;
    let connected = cluster.runtime().block_on(async {
        loop {
            let server = Server::Tls {
                address: settings.xds,
                name: Settings::server_name(),
                config: config.clone(),
            };
            // A listener asks for the table of its port.
            let follow = move |ty, _: &[u8]| match ty {
                ResourceType::Listener => vec![(ResourceType::Route, port.to_string())],
                _ => Vec::new(),
            };
            let fake = FakeEnvoy::builder(FleetId::unmanaged().as_str(), name).follow(follow);
            match fake.connect(server).await {
                Ok(fake) => break Ok((fake, begun.elapsed())),
                Err(error) if begun.elapsed() > PATIENCE => break Err(error),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    });
    let (fake, connected) = connected.with_context(|| settings.last_words())?;
    let done = cluster
        .runtime()
        .block_on(fake.until(|state| complete(state, port, apps)));
    let complete = begun.elapsed();
    let used = replica.milliseconds()?;
    if done.is_err() {
        let state = fake.state();
        let count = |ty| state.names(ty).len();
        bail!(
            "after {complete:?} an Envoy has {} of {} clusters, {} endpoints, {} route tables ({:?})",
            count(ResourceType::Cluster),
            apps + EXTRA_SERVICES,
            count(ResourceType::Endpoint),
            count(ResourceType::Route),
            state.ended()
        );
    }
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    Ok(Restarted {
        connected: millis(connected),
        complete: millis(complete),
        used,
    })
}

fn complete(state: &State, port: u16, apps: usize) -> bool {
    let all = |ty| state.names(ty).len() == apps + EXTRA_SERVICES;
    if !all(ResourceType::Cluster) || !all(ResourceType::Endpoint) {
        return false;
    }
    let table = state.body(ResourceType::Route, &port.to_string());
    let table = table.and_then(|body| RouteConfiguration::decode(body).ok());
    // Hosts that nobody asks for are a virtual host, too.
    table.is_some_and(|table| table.virtual_hosts.len() >= apps + EXTRAS)
}

/// How long ago a replica was started, in milliseconds.
pub(crate) fn age(replica: &Replica) -> f64 {
    Instant::now()
        .saturating_duration_since(replica.begun)
        .as_secs_f64()
        * 1e3
}
