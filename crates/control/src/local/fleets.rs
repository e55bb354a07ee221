//! The Envoys of a local run.
//!
//! In: commands to start and stop, process events. Out: calls to the supervisor, messages to the translator, events.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message as _;
use sesame_envoy::{Admin, BootstrapOptions, HeapLimit, MAX_CONNECTIONS, XdsAddress};
use sesame_fleet::local::{self as processes, BootstrapFormat, EnvoySpec, Supervisor};
use sesame_model::FleetId;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::runner::FleetCommand;
use crate::event::{RunEvent, millis};
use crate::streams::{StreamPolicy, send};
use crate::translator::{Message, TranslatorOutputs};

/// How to start Envoys.
#[derive(Clone, Debug)]
pub(crate) struct LaunchConfig {
    /// The socket of the xDS server.
    pub(crate) xds_socket: PathBuf,
    /// Worker threads of each Envoy; `None` means one per CPU.
    pub(crate) concurrency: Option<u32>,
    /// Heap limit of each Envoy.
    pub(crate) heap_limit: Option<HeapLimit>,
    /// Generations of the Envoys.
    pub(crate) generations: Arc<Generations>,
}

/// Numbers the Envoys of each fleet, to distinguish a draining Envoy from its successor.
#[derive(Debug, Default)]
pub(crate) struct Generations {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    /// For each fleet that runs or drains, the number of its latest start or stop.
    by_fleet: BTreeMap<FleetId, u64>,
}

impl Generations {
    /// Prefix of the node IDs assigned here.
    const PREFIX: &str = "local-";

    /// A new number for the fleet. Its earlier Envoys become stale.
    fn next(&self, fleet: &FleetId) -> u64 {
        let mut inner = self.lock();
        inner.last += 1;
        let number = inner.last;
        inner.by_fleet.insert(fleet.clone(), number);
        number
    }

    /// A node ID with a new number.
    fn node_id(&self, fleet: &FleetId) -> String {
        format!("{}{}", Self::PREFIX, self.next(fleet))
    }

    /// Records that the stop with this number is complete. Removes the fleet unless it has been started since.
    fn stopped(&self, fleet: &FleetId, number: u64) {
        let mut inner = self.lock();
        if inner.by_fleet.get(fleet) == Some(&number) {
            inner.by_fleet.remove(fleet);
        }
    }

    // The lock guards plain inserts and removals: a panic elsewhere leaves a consistent state.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamPolicy for Generations {
    fn ack_means_ready(&self) -> bool {
        true
    }

    /// Whether the Envoy has been stopped. Node IDs without the prefix aren't stale: Sesame didn't start these Envoys.
    fn is_stale(&self, fleet: &FleetId, node_id: &str) -> bool {
        let number = node_id.strip_prefix(Self::PREFIX);
        let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) else {
            return false;
        };
        self.lock().by_fleet.get(fleet) != Some(&number)
    }
}

/// Executes commands until all senders are gone.
pub(crate) async fn supervise(
    mut commands: mpsc::UnboundedReceiver<FleetCommand>,
    supervisor: Arc<Supervisor>,
    translator: mpsc::WeakSender<Message>,
    launch: LaunchConfig,
) {
    let mut stopping = JoinSet::new();
    while let Some(command) = commands.recv().await {
        match command {
            FleetCommand::Start(fleet) => supervisor.ensure(spec(&supervisor, &fleet, &launch)),
            FleetCommand::Stop(fleet) => {
                // Not in the task: otherwise the fleet's next start could overtake this stop.
                let stopped = supervisor.stop(&fleet);
                let (translator, generations) =
                    (translator.clone(), Arc::clone(&launch.generations));
                let number = generations.next(&fleet);
                stopping.spawn(async move {
                    stopped.await;
                    generations.stopped(&fleet, number);
                    send(&translator, Message::FleetStopped(fleet)).await;
                });
            }
        }
        while stopping.try_join_next().is_some() {}
    }
}

fn spec(supervisor: &Supervisor, fleet: &FleetId, launch: &LaunchConfig) -> EnvoySpec {
    let admin_socket = supervisor.dir(fleet).admin_socket();
    let bootstrap = sesame_envoy::bootstrap(&BootstrapOptions {
        fleet: fleet.clone(),
        node_id: launch.generations.node_id(fleet),
        xds: XdsAddress::Unix(launch.xds_socket.clone()),
        admin: Admin::Unix(admin_socket.clone()),
        readiness: None,
        max_connections: MAX_CONNECTIONS,
        heap_limit: launch.heap_limit,
        module: supervisor.has_module(),
    });
    EnvoySpec {
        fleet: fleet.clone(),
        bootstrap: bootstrap.encode_to_vec(),
        format: BootstrapFormat::Protobuf,
        concurrency: launch.concurrency,
        admin_socket,
    }
}

/// Forwards process events until the supervisor is gone.
pub(crate) async fn forward_process_events(
    mut events: processes::ProcessEvents,
    translator: mpsc::WeakSender<Message>,
    outputs: TranslatorOutputs,
    running: watch::Receiver<BTreeSet<FleetId>>,
) {
    while let Some(event) = events.recv().await {
        let fleet = event.fleet().clone();
        let gateway = fleet.to_string();
        let mut down = None;
        let event = match event {
            processes::ProcessEvent::Started { pid, attempt, .. } => {
                outputs.metrics.envoy_started();
                RunEvent::EnvoyStarted {
                    gateway,
                    pid,
                    attempt,
                }
            }
            processes::ProcessEvent::Ready { after, .. } => {
                tracing::debug!(gateway, ?after, "Envoy received its first configuration");
                continue;
            }
            processes::ProcessEvent::Hung { unresponsive, .. } => RunEvent::EnvoyHung {
                gateway,
                unresponsive_ms: millis(unresponsive),
            },
            processes::ProcessEvent::Exited {
                status,
                uptime,
                restart_in,
                ..
            } => {
                outputs.metrics.envoy_exited();
                down = Some(fleet);
                RunEvent::EnvoyExited {
                    gateway,
                    status: status.to_string(),
                    uptime_ms: millis(uptime),
                    restart_in_ms: restart_in.map(millis),
                }
            }
            processes::ProcessEvent::Failed {
                message, retry_in, ..
            } => {
                down = Some(fleet);
                RunEvent::EnvoyFailed {
                    gateway,
                    message,
                    retry_in_ms: millis(retry_in),
                }
            }
            processes::ProcessEvent::Log { line, .. } => {
                let stopping =
                    outputs.shutdown.is_cancelled() || !running.borrow().contains(&fleet);
                log(&gateway, &line, stopping);
                continue;
            }
        };
        outputs.events.send(event);
        // Sent after the event, so that the event precedes the resulting changes.
        if let Some(fleet) = down {
            send(&translator, Message::EnvoyDown(fleet)).await;
        }
    }
}

/// Logs a line of an Envoy's log, at debug level if the Envoy is being stopped.
fn log(gateway: &str, line: &processes::Line, stopping: bool) {
    use processes::Level;
    let (component, message) = (&line.component, &line.message);
    match line.level {
        _ if stopping => tracing::debug!(target: "envoy", gateway, component, "{message}"),
        Level::Trace => tracing::trace!(target: "envoy", gateway, component, "{message}"),
        Level::Debug => tracing::debug!(target: "envoy", gateway, component, "{message}"),
        Level::Info => tracing::info!(target: "envoy", gateway, component, "{message}"),
        Level::Warning => tracing::warn!(target: "envoy", gateway, component, "{message}"),
        Level::Error | Level::Critical => {
            tracing::error!(target: "envoy", gateway, component, "{message}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_envoy_of_a_fleet_is_current() {
        let generations = Generations::default();
        let [a, b] = ["a", "b"].map(|name| FleetId::of_gateway("ns", name));
        let first = generations.node_id(&a);
        let other = generations.node_id(&b);
        assert!(first != other);
        assert!(!generations.is_stale(&a, &first) && !generations.is_stale(&b, &other));
        assert!(!generations.is_stale(&a, "another-node"));
        // The first Envoy drains.
        let stop = generations.next(&a);
        assert!(generations.is_stale(&a, &first));
        let second = generations.node_id(&a);
        assert!(generations.is_stale(&a, &first) && !generations.is_stale(&a, &second));
        // The first Envoy's exit doesn't affect the second.
        generations.stopped(&a, stop);
        assert!(!generations.is_stale(&a, &second) && !generations.is_stale(&b, &other));
        let stop = generations.next(&a);
        generations.stopped(&a, stop);
        assert!(generations.is_stale(&a, &second));
        assert_eq!(generations.lock().by_fleet.len(), 1);
    }
}
