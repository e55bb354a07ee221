//! Starts a replica.
//!
//! In: settings. Out: all parts, started and connected.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sesame_fleet::kube as fleets;
use sesame_fleet::kube::identity;
use sesame_fleet::kube::pod_services::{self, PodServiceFailures};
use sesame_model::{FleetAddress, FleetId};
use sesame_sources::kube::{self as source, WatchConfig};
use sesame_status::Counters;
use sesame_translate::settings::{CONTROLLER_NAME, Settings};
use sesame_xds::{self as xds, tls};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::class_finalizers::ClassFinalizers;
use super::fleet_updates::FleetUpdates;
use super::health::Health;
use super::kube_events::{self, EventWriter};
use super::leadership::{self, Leadership};
use super::managed::{ManagedRunner, XdsTarget};
use super::server_identity;
use super::unmanaged::UnmanagedRunner;
use super::{Envoys, SERVICE, Serve, ServeConfig, addresses, configuration, feed, upgrades};
use crate::admin::{self, Pages, Readiness};
use crate::cluster::{self, ClusterError};
use crate::core::Core;
use crate::event::EventSender;
use crate::liveness;
use crate::metrics::{Metrics, ReplicaMetrics};
use crate::runner::FleetRunner;
use crate::running::{RunError, Running, Tasks};
use crate::streams::{self, send};
use crate::translator::{Message, Translator, TranslatorOutputs};

/// Capacity of the translator's message queue; senders wait when it is full.
const MESSAGES: usize = 4096;
/// Capacity of the event queue.
const EVENTS: usize = 1024;
/// Capacity of the queue of watch events; the source coalesces further changes.
const WATCH_EVENTS: usize = 64;
/// Timeout for connecting to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a shutdown waits for the tasks.
pub(super) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long Envoys take to replace a listener and drain its connections: the default drain time plus a margin.
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
    #[error("cannot start the translator thread: {0}")]
    Thread(io::Error),
}

/// Spawns the tasks of a replica.
pub(super) struct Spawner {
    tasks: Tasks,
    stop: CancellationToken,
}

impl Spawner {
    /// Spawns a task that runs until shutdown. Ending earlier is a failure.
    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
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
    /// Starts a replica. Must be called within a Tokio runtime with IO and time. Waits until the API server
    /// responds.
    ///
    /// # Errors
    /// If the settings can't be used: no API server is configured, an address is in use, or a file is missing.
    pub async fn start(config: ServeConfig) -> Result<Self, StartError> {
        let begin = Instant::now();
        let client = client(config.kubeconfig.as_deref()).await?;
        let discovery = listen("--xds", config.xds)?;
        let probes = listen_if("--probes", config.probes)?;
        let metrics = listen_if("--metrics", config.metrics)?;
        let admin = listen_if("--admin", config.admin)?;
        let local_address = |listener: &Option<TcpListener>| {
            let listener = listener.as_ref();
            listener.and_then(|listener| listener.local_addr().ok())
        };
        let (probes_address, admin_address) = (local_address(&probes), local_address(&admin));
        let metrics_address = local_address(&metrics);
        let xds_address = discovery.local_addr().unwrap_or(config.xds);

        let stop = CancellationToken::new();
        let step_down = CancellationToken::new();
        let mut spawner = Spawner {
            tasks: Tasks::new(),
            stop: stop.clone(),
        };
        let counters = Arc::new(Counters::default());
        let (statuses, status_writer) = sesame_status::start(
            client.clone(),
            sesame_status::WriterConfig {
                unwritten: config.contour.unwritten(),
                ..sesame_status::WriterConfig::new(CONTROLLER_NAME)
            },
            Arc::clone(&counters),
        );
        spawner.spawn(status_writer.run(stop.clone()));

        let (pod_services, pod_service_failures) = pod_services::start(client.clone());
        let class_finalizers = ClassFinalizers::new();

        let (identity, identities) = server_identity::start(&config, &client, &mut spawner).await?;
        let election = leadership::start(&config, &client, &step_down, &mut spawner);
        let is_leader = election.is_leader;
        let identity_failure = identities.as_ref().map(identity::Handle::failure);
        let health = Arc::new(Health::new(
            statuses.clone(),
            identity.clone(),
            identity_failure,
            election.failure,
            is_leader.clone(),
        ));

        let registry = xds::Registry::new(xds::ServerConfig {
            authorize: Some(tls::authorize(&identity)),
            supports_variants: config.module.then_some(streams::SUPPORTS_VARIANTS),
            limits: xds::Limits {
                clusters_removed_immediately: sesame_envoy::names::is_destination,
                ..xds::Limits::default()
            },
        });
        let (events, event_receiver) = EventSender::new(EVENTS, kube_events::is_reportable);
        let (logging, logging_receiver) = watch::channel(config.settings.logging.clone());
        let outputs = TranslatorOutputs {
            registry: registry.clone(),
            status_store: Arc::default(),
            progress: Arc::default(),
            metrics: Arc::new(Metrics::of_replica(
                registry.clone(),
                ReplicaMetrics {
                    counters,
                    health: Arc::clone(&health),
                    refusals: identity.refusals().clone(),
                },
            )),
            events,
            statuses: Some(statuses.clone()),
            pod_services: Some(pod_services.clone()),
            class_finalizers: Some(class_finalizers.clone()),
            logging: Arc::new(logging),
            drain: DRAIN,
            shutdown: stop.clone(),
        };
        let (to_translator, messages) = mpsc::channel(MESSAGES);
        let (observed_sender, all_observed) = watch::channel(false);
        let (runner, provisioner) = runner(
            &config,
            &client,
            xds_address,
            identities.clone(),
            observed_sender,
            &to_translator,
            &mut spawner,
        );
        let settings = Settings {
            ipv6: has_ipv6(),
            ..config.settings.clone()
        };
        let core = Core::in_cluster(settings, config.sharding);
        let translator = Translator::new(core, runner, outputs.clone(), begin);
        let translator = translator.spawn(messages).map_err(StartError::Thread)?;
        let weak_translator = to_translator.downgrade();

        let event_writer = EventWriter::new(
            client.clone(),
            config.replica.clone(),
            weak_translator.clone(),
            Arc::clone(&health),
        );
        let status_store = Arc::clone(&outputs.status_store);
        spawner.spawn(event_writer.clone().report(event_receiver));
        spawner.spawn(event_writer.report_notices(status_store));
        spawner.spawn(streams::forward_events(
            registry.events(),
            weak_translator.clone(),
            outputs.clone(),
            Arc::new(leadership::ClusterEnvoys),
        ));
        spawner.spawn(forward_failures(
            pod_service_failures,
            weak_translator.clone(),
        ));
        let (watch_sender, watch_events) = mpsc::channel(WATCH_EVENTS);
        let watch_config = WatchConfig {
            namespaces: config.watch_namespaces.clone(),
            kinds: source::kinds(config.contour.reads()),
            secrets: config.settings.ingress.secrets().cloned().collect(),
            ..WatchConfig::default()
        };
        spawner.tasks.spawn({
            let client = client.clone();
            let stop = stop.clone();
            async move {
                tokio::select! {
                    done = source::watch(client, watch_config, watch_sender) => Ok(done?),
                    () = stop.cancelled() => Ok(()),
                }
            }
        });
        if let Some(file) = &config.configuration_file {
            let watched = configuration::watch(file.clone(), weak_translator.clone());
            spawner.spawn(watched);
        }
        spawner.spawn(feed::forward(
            watch_events,
            to_translator.clone(),
            statuses.clone(),
            Arc::clone(&health),
        ));
        spawner.spawn(class_finalizers.write(client.clone(), is_leader.clone()));
        spawner.spawn(leadership::propagate(Leadership {
            is_leader,
            all_observed,
            translator: weak_translator.clone(),
            health: Arc::clone(&health),
            statuses,
            pod_services,
            provisioner,
            identities,
        }));
        let serving = stop.clone().cancelled_owned();
        spawner.tasks.spawn({
            // An Envoy that connects before its fleet is published waits for it.
            async move { Ok(registry.serve_tls(discovery, &identity, serving).await?) }
        });
        let (liveness, pings) = liveness::start(weak_translator.clone());
        spawner.spawn(pings);
        let pages = Pages {
            outputs,
            translator: weak_translator,
            liveness,
            readiness: Readiness::Serve(health),
        };
        let probe_pages = match metrics {
            Some(_) => admin::probes(pages.clone()),
            None => admin::probes(pages.clone()).merge(admin::metrics_page(pages.clone())),
        };
        for (listener, router) in [
            (probes, probe_pages),
            (metrics, admin::metrics_page(pages.clone())),
            (admin, admin::pages(pages)),
        ] {
            if let Some(listener) = listener {
                spawner.spawn(admin::serve(listener, router));
            }
        }
        Ok(Self {
            xds: xds_address,
            probes: probes_address,
            metrics: metrics_address,
            logging: logging_receiver,
            admin: admin_address,
            step_down,
            stop,
            stepped_down: election.stepped_down,
            running: Running::new(spawner.tasks, translator),
        })
    }
}

/// Forwards failed writes of XBackends' Services.
async fn forward_failures(mut failures: PodServiceFailures, translator: mpsc::WeakSender<Message>) {
    while let Some((id, message)) = failures.recv().await {
        send(&translator, Message::PodServiceFailure(id, message)).await;
    }
}

fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    sesame_http::listen(address).map_err(|reason| StartError::Listen {
        flag,
        address,
        reason,
    })
}

pub(crate) fn listen_if(
    flag: &'static str,
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, StartError> {
    match address {
        Some(address) => Ok(Some(listen(flag, address)?)),
        None => Ok(None),
    }
}

/// A client for watches and other requests.
pub(crate) async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client, StartError> {
    let mut client_config = cluster::connect(kubeconfig).await?;
    // Watches are silent for minutes, and other requests have their own timeouts.
    client_config.read_timeout = None;
    // Short, so that broken watches are retried soon.
    client_config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Each part has its own retries.
    client_config.default_retry = false;
    Ok(cluster::client(client_config)?)
}

/// Whether this node has IPv6. Envoys' nodes are assumed to match.
fn has_ipv6() -> bool {
    std::net::TcpListener::bind("[::]:0").is_ok()
}

/// The runner of fleets.
fn runner(
    config: &ServeConfig,
    client: &kube::Client,
    xds: SocketAddr,
    identities: Option<identity::Handle>,
    all_observed: watch::Sender<bool>,
    translator: &mpsc::Sender<Message>,
    spawner: &mut Spawner,
) -> (Box<dyn FleetRunner>, Option<fleets::Provisioner>) {
    match &config.envoys {
        Envoys::Unmanaged {
            addresses: configured,
            service,
            ..
        } => {
            let updates = Arc::new(FleetUpdates::default());
            if let Some(service) = service {
                let (client, service) = (client.clone(), service.clone());
                let translator = translator.downgrade();
                let updates = Arc::clone(&updates);
                spawner.spawn(addresses::watch_service(
                    client,
                    service,
                    updates,
                    translator,
                    all_observed,
                ));
            } else {
                let all = configured.iter().map(|text| FleetAddress::parse(text));
                updates.put(FleetId::Unmanaged, Some(all.collect()));
                all_observed.send_replace(true);
            }
            (Box::new(UnmanagedRunner::new(updates)), None)
        }
        Envoys::Managed {
            envoy_image,
            sidecar_image,
            own_namespace,
            xds_host,
            xds_port,
        } => {
            let target = XdsTarget {
                host: xds_host
                    .clone()
                    .unwrap_or_else(|| format!("{SERVICE}.{}.svc", config.namespace)),
                port: xds_port.unwrap_or(xds.port()),
                module: config.module,
            };
            let mut settings =
                fleets::FleetsConfig::new(&config.namespace, envoy_image, sidecar_image);
            settings.namespaces = config.fleet_namespaces();
            settings.own_namespace = *own_namespace;
            let (provisioner, mut states) = fleets::start(client.clone(), settings);
            let updates = Arc::new(FleetUpdates::default());
            let (queue, translator) = (Arc::clone(&updates), translator.downgrade());
            spawner.spawn(upgrades::watch_own(
                client.clone(),
                config.namespace.clone(),
                config.replica.clone(),
                provisioner.clone(),
            ));
            let progress = provisioner.upgrade_progress();
            spawner.spawn(upgrades::report(progress, translator.clone()));
            spawner.spawn(async move {
                while let Some((fleet, state)) = states.recv().await {
                    queue.put(fleet, state);
                    send(&translator, Message::FleetStates).await;
                }
            });
            let managed = ManagedRunner::new(
                provisioner.clone(),
                identities,
                updates,
                target,
                all_observed,
            );
            (Box::new(managed), Some(provisioner))
        }
    }
}
