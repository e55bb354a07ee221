//! A restart: time from the start of the process until a fresh client has received all resources.
//!
//! The client is a fake Envoy, since a real one takes longer to process the clusters than Sesame takes to send them.
//! The real Envoy keeps serving the prober's requests with its last configuration.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, ScopedRouteConfiguration};
use prost::Message as _;
use sesame_testkit::certs::{Identity, client_config_as};
use sesame_testkit::fake_envoy::{FakeEnvoy, Server, State};
use sesame_xds::ResourceType;

use super::cluster::Cluster;
use super::replica::{EnvoyFiles, Replica, Settings};
use super::site::{EXTRA_SERVICES, EXTRAS};

/// Time between connection attempts.
const PAUSE: Duration = Duration::from_millis(5);
/// Time limit for connecting.
const PATIENCE: Duration = Duration::from_secs(60);

/// Times of a restart, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restarted {
    /// Until the xDS server accepted a connection.
    pub(crate) connected: f64,
    /// Until all resources were received.
    pub(crate) complete: f64,
    /// Sesame's CPU time until then.
    pub(crate) used: f64,
}

/// Replaces a replica with a new one and measures the times.
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
    let read = |path| fs::read_to_string(path).context("cannot read an Envoy's file");
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
            // A listener refers to its port's route table, or to scopes, each of which refers to a shard.
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
            let fake = FakeEnvoy::builder("unmanaged", name).follow(follow);
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
            "after {complete:?} the fake Envoy has {} of {} clusters, {} endpoints, {} listeners, {} scopes, {} route tables ({:?})",
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
    // Some virtual hosts, such as the catch-all, are in all shards.
    let hosts: BTreeSet<String> = tables
        .flat_map(|table| table.virtual_hosts)
        .map(|host| host.name)
        .collect();
    hosts.len() >= apps + EXTRAS
}

/// Time since a replica started, in milliseconds.
pub(crate) fn age(replica: &Replica) -> f64 {
    Instant::now()
        .saturating_duration_since(replica.begun)
        .as_secs_f64()
        * 1e3
}
