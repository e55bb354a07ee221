//! A restart: from the start of the process to the moment at which an Envoy that knew nothing has everything.
//!
//! That Envoy only pretends, since a real one takes longer to take in so many clusters than Sesame to send them. The real
//! one goes on meanwhile with what it has, under the requests of the prober.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, ScopedRouteConfiguration};
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
            // A listener asks for the table of its port, or for scopes, of which each asks for a shard.
            let follow = move |ty, body: &[u8]| match ty {
                ResourceType::Listener => vec![
                    (ResourceType::Route, port.to_string()),
                    (ResourceType::ScopedRoute, "*".to_owned()),
                ],
                ResourceType::ScopedRoute => ScopedRouteConfiguration::decode(body)
                    .map(|scope| (ResourceType::Route, scope.route_configuration_name))
                    .into_iter()
                    .collect(),
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
        .block_on(fake.until(|state| complete(state, apps)));
    let complete = begun.elapsed();
    let used = replica.milliseconds()?;
    if done.is_err() {
        let state = fake.state();
        let count = |ty| state.names(ty).len();
        bail!(
            "after {complete:?} an Envoy has {} of {} clusters, {} endpoints, {} listeners, {} scopes, {} route tables ({:?})",
            count(ResourceType::Cluster),
            apps + EXTRA_SERVICES,
            count(ResourceType::Endpoint),
            count(ResourceType::Listener),
            count(ResourceType::ScopedRoute),
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

fn complete(state: &State, apps: usize) -> bool {
    let all = |ty| state.names(ty).len() == apps + EXTRA_SERVICES;
    if !all(ResourceType::Cluster) || !all(ResourceType::Endpoint) {
        return false;
    }
    let tables = state.names(ResourceType::Route).into_iter();
    let tables = tables.filter_map(|name| state.body(ResourceType::Route, name));
    let tables = tables.filter_map(|body| RouteConfiguration::decode(body).ok());
    // Some are in all shards. Hosts that nobody asks for are a virtual host, too.
    let hosts: BTreeSet<String> = tables
        .flat_map(|table| table.virtual_hosts)
        .map(|host| host.name)
        .collect();
    hosts.len() >= apps + EXTRAS
}

/// How long ago a replica was started, in milliseconds.
pub(crate) fn age(replica: &Replica) -> f64 {
    Instant::now()
        .saturating_duration_since(replica.begun)
        .as_secs_f64()
        * 1e3
}
