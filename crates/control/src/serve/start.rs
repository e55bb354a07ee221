//! Starts a replica.
//!
//! In: settings. Out: all parts, started and connected.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sesame_api::Kind;
use sesame_fleet::kube as fleets;
use sesame_fleet::kube::identity;
use sesame_model::{FleetAddress, FleetId};
use sesame_sources::kube::{self as source, WatchConfig};
use sesame_status::Counters;
use sesame_translate::settings::{CONTROLLER_NAME, Mode, Settings};
use sesame_xds::{self as xds, tls};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::fleet_updates::FleetUpdates;
use super::health::Health;
use super::identify::identify;
use super::lead::{self, Following};
use super::managed::{EnvoyEnd, ManagedRunner};
use super::unmanaged::UnmanagedRunner;
use super::{Envoys, SERVICE, Serve, ServeConfig, addresses, feed, reports};
use crate::admin::{self, Pages, Readiness};
use crate::cluster::{self, ClusterError};
use crate::core::Core;
use crate::event::EventSender;
use crate::metrics::{Metrics, Serving};
use crate::owner::{Message, Outputs, Owner};
use crate::runner::FleetRunner;
use crate::running::{RunError, Running, Tasks};
use crate::streams::{self, tell};

/// Bound of the owner's queue of messages; senders wait when it is full.
const MESSAGES: usize = 4096;
/// Bound of the event queue.
const EVENTS: usize = 1024;
/// Bound of the queue of watch events; further changes are coalesced by the source.
const TOLD: usize = 64;
/// Timeout of a request to the API server.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a shutdown waits for the tasks.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How long Envoys take to replace a listener and to drain its connections: the default drain time plus a margin.
const DRAIN: Duration = Duration::from_secs(90);

/// Why a replica can't start. The message says how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No API server is configured.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// An address can't be bound.
    #[error("{flag} {address}: {reason}; choose another address or port")]
    Listen {
        /// The setting.
        flag: &'static str,
        /// Its value.
        address: SocketAddr,
        /// The cause.
        reason: io::Error,
    },
    /// The folder with certificates is incomplete or invalid.
    #[error("--xds-certificates: {0}")]
    Certificates(#[from] tls::files::FilesError),
    /// The system can't start a thread.
    #[error("the thread that translates can't be started: {0}")]
    Thread(io::Error),
}

/// Parts that have been started, and tasks still to be spawned.
pub(super) struct Parts {
    tasks: Tasks,
    stop: CancellationToken,
}

impl Parts {
    /// A task that runs until shutdown.
    pub(super) fn forever(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = task => match stop.is_cancelled() {
                    true => Ok(()),
                    false => Err(RunError::Task),
                },
                () = stop.cancelled() => Ok(()),
            }
        });
    }
}

impl Serve {
    /// Starts a replica. Must be called within a Tokio runtime with IO and time. Waits for an API server that doesn't
    /// answer.
    ///
    /// # Errors
    /// If the settings are invalid here: no API server is configured, an address is in use, a file is missing.
    pub async fn start(config: ServeConfig) -> Result<Self, StartError> {
        let begin = Instant::now();
        let client = client(&config).await?;
        let discovery = listen("--xds", config.xds).await?;
        let probes = listen_if("--probes", config.probes).await?;
        let admin = listen_if("--admin", config.admin).await?;
        let bound = |listener: &Option<TcpListener>| {
            let listener = listener.as_ref();
            listener.and_then(|listener| listener.local_addr().ok())
        };
        let (at_probes, at_admin) = (bound(&probes), bound(&admin));
        let at_xds = discovery.local_addr().unwrap_or(config.xds);

        let stop = CancellationToken::new();
        let step_down = CancellationToken::new();
        let mut parts = Parts {
            tasks: Tasks::new(),
            stop: stop.clone(),
        };
        let counters = Arc::new(Counters::default());
        let (statuses, writing) = sesame_status::start(
            client.clone(),
            sesame_status::WriterConfig::new(CONTROLLER_NAME),
            Arc::clone(&counters),
        );
        parts.forever(writing.run(stop.clone()));

        let (identity, keeper) = identify(&config, &client, &mut parts).await?;
        let election = lead::run(&config, &client, &step_down, &mut parts);
        let leads = election.leads;
        let trouble = keeper.as_ref().map(identity::Handle::failure);
        let health = Arc::new(Health::new(
            statuses.clone(),
            identity.clone(),
            trouble,
            election.trouble,
            leads.clone(),
        ));

        let registry = xds::Registry::new(xds::ServerConfig {
            authorize: Some(tls::authorize(&identity)),
            supports_variants: config.module.then_some(streams::SUPPORTS_VARIANTS),
            ..xds::ServerConfig::default()
        });
        let (events, happened) = EventSender::new(EVENTS, reports::worth);
        let outputs = Outputs {
            registry: registry.clone(),
            status_store: Arc::default(),
            progress: Arc::default(),
            metrics: Arc::new(Metrics::serving(Serving {
                counters,
                health: Arc::clone(&health),
                refusals: identity.refusals().clone(),
                registry: registry.clone(),
            })),
            events,
            statuses: Some(statuses.clone()),
            drain: DRAIN,
            ending: stop.clone(),
        };
        let (to_owner, messages) = mpsc::channel(MESSAGES);
        let (looked, first_look) = watch::channel(false);
        let (runner, provisioner) = runner(
            &config,
            &client,
            at_xds,
            keeper.clone(),
            looked,
            &to_owner,
            &mut parts,
        );
        let settings = Settings {
            ipv6: has_ipv6(),
            ..Settings::new(mode(&config.envoys))
        };
        let core = Core::in_cluster(settings, config.sharding);
        let owner = Owner::new(core, runner, outputs.clone(), begin);
        let owner = owner.spawn(messages).map_err(StartError::Thread)?;
        let weak = to_owner.downgrade();

        let reports = reports::report(
            client.clone(),
            config.replica.clone(),
            happened,
            weak.clone(),
            Arc::clone(&health),
        );
        parts.forever(reports);
        let heard = streams::hear(
            registry.events(),
            weak.clone(),
            outputs.clone(),
            Arc::new(lead::Pods),
        );
        parts.forever(heard);
        let (telling, told) = mpsc::channel(TOLD);
        let reading = WatchConfig {
            namespaces: config.watch_namespaces.clone(),
            kinds: served_kinds(),
            ..WatchConfig::default()
        };
        parts.tasks.spawn({
            let client = client.clone();
            let stop = stop.clone();
            async move {
                tokio::select! {
                    done = source::watch(client, reading, telling) => Ok(done?),
                    () = stop.cancelled() => Ok(()),
                }
            }
        });
        parts.forever(feed::pass_on(
            told,
            to_owner.clone(),
            statuses.clone(),
            Arc::clone(&health),
        ));
        parts.forever(lead::follow(Following {
            leads,
            first_look,
            owner: weak.clone(),
            health: Arc::clone(&health),
            statuses,
            provisioner,
            keeper,
        }));
        let serving = stop.clone().cancelled_owned();
        parts.tasks.spawn({
            // An Envoy that connects before its fleet is published waits.
            async move { Ok(registry.serve_tls(discovery, &identity, serving).await?) }
        });
        let pages = Pages {
            outputs,
            owner: weak,
            readiness: Readiness::Serve(health),
        };
        for (listener, router) in [
            (probes, admin::probes(pages.clone())),
            (admin, admin::pages(pages)),
        ] {
            if let Some(listener) = listener {
                let serving = stop.clone().cancelled_owned();
                parts.tasks.spawn(async move {
                    let done = admin::serve(listener, router, serving).await;
                    done.map_err(RunError::Admin)
                });
            }
        }
        Ok(Self {
            xds: at_xds,
            probes: at_probes,
            admin: at_admin,
            step_down,
            stop,
            stepped_down: election.stepped_down,
            running: Running::new(parts.tasks, owner),
        })
    }
}

async fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    let listening = TcpListener::bind(address).await;
    listening.map_err(|reason| StartError::Listen {
        flag,
        address,
        reason,
    })
}

async fn listen_if(
    flag: &'static str,
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, StartError> {
    match address {
        Some(address) => Ok(Some(listen(flag, address).await?)),
        None => Ok(None),
    }
}

async fn client(config: &ServeConfig) -> Result<kube::Client, StartError> {
    let mut found = cluster::connect(config.kubeconfig.as_deref()).await?;
    // Watches are silent for minutes, and other requests have their own timeouts.
    found.read_timeout = None;
    // A broken watch is retried soon.
    found.connect_timeout = Some(CONNECT);
    // Each part has its own retries.
    found.default_retry = false;
    Ok(cluster::client(found)?)
}

/// The mode of translation.
fn mode(envoys: &Envoys) -> Mode {
    match envoys {
        Envoys::Managed { .. } => Mode::Managed,
        Envoys::Unmanaged { gateway, .. } => Mode::Unmanaged {
            gateway: gateway.clone(),
        },
    }
}

/// The kinds that translation reads. Others would only use memory.
fn served_kinds() -> Vec<Kind> {
    let all = Kind::ALL.into_iter();
    all.filter(|kind| kind.is_served()).collect()
}

/// Whether the kernel has IPv6, here and so presumably on the Envoys' nodes.
fn has_ipv6() -> bool {
    std::net::TcpListener::bind("[::]:0").is_ok()
}

/// The runner of fleets.
fn runner(
    config: &ServeConfig,
    client: &kube::Client,
    xds: SocketAddr,
    keeper: Option<identity::Handle>,
    looked: watch::Sender<bool>,
    owner: &mpsc::Sender<Message>,
    parts: &mut Parts,
) -> (Box<dyn FleetRunner>, Option<fleets::Provisioner>) {
    match &config.envoys {
        Envoys::Unmanaged {
            addresses: written,
            service,
            ..
        } => {
            let news = Arc::new(FleetUpdates::default());
            if let Some(service) = service {
                let (client, service) = (client.clone(), service.clone());
                let owner = owner.downgrade();
                let news = Arc::clone(&news);
                parts.forever(addresses::follow(client, service, news, owner, looked));
            } else {
                let all = written.iter().map(|text| FleetAddress::parse(text));
                news.put(FleetId::Unmanaged, Some(all.collect()));
                looked.send_replace(true);
            }
            (Box::new(UnmanagedRunner::new(news)), None)
        }
        Envoys::Managed {
            envoy_image,
            sidecar_image,
            xds_host,
            xds_port,
        } => {
            let end = EnvoyEnd {
                host: xds_host
                    .clone()
                    .unwrap_or_else(|| format!("{SERVICE}.{}.svc", config.namespace)),
                port: xds_port.unwrap_or(xds.port()),
                module: config.module,
            };
            let mut settings =
                fleets::FleetsConfig::new(&config.namespace, envoy_image, sidecar_image);
            settings.namespaces.clone_from(&config.watch_namespaces);
            let (provisioner, mut states) = fleets::start(client.clone(), settings);
            let news = Arc::new(FleetUpdates::default());
            let (inbox, owner) = (Arc::clone(&news), owner.downgrade());
            parts.forever(async move {
                while let Some((fleet, state)) = states.recv().await {
                    inbox.put(fleet, state);
                    tell(&owner, Message::News).await;
                }
            });
            let managed = ManagedRunner::new(provisioner.clone(), keeper, news, end, looked);
            (Box::new(managed), Some(provisioner))
        }
    }
}
