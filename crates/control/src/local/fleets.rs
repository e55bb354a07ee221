//! The Envoys of a local run.
//!
//! In: orders to start and stop, events of processes and streams. Out: orders to the supervisor, messages to the owner,
//! events. It decides nothing about ports or resources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message as _;
use sesame_envoy::{Admin, BootstrapOptions, MAX_CONNECTIONS, XdsAddress};
use sesame_fleet::local::{self as processes, BootstrapFormat, EnvoySpec, Supervisor};
use sesame_model::FleetId;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::runner::Order;
use crate::event::{RunEvent, millis};
use crate::owner::{Message, Outputs};
use crate::streams::{Envoys, tell};

/// How to start Envoys.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The socket of the discovery server.
    pub(crate) xds_socket: PathBuf,
    /// Worker threads of each; `None`: one for each processor.
    pub(crate) concurrency: Option<u32>,
    /// Records each start.
    pub(crate) starts: Arc<Starts>,
}

/// The latest Envoy of each fleet: while one drains, its successor counts.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    inner: Mutex<Numbers>,
}

#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    /// The number of the last start or stop of each fleet that runs or is ending.
    of: BTreeMap<FleetId, u64>,
}

impl Starts {
    /// Prefix of the node IDs assigned here.
    const PREFIX: &str = "local-";

    /// Makes earlier Envoys of the fleet stale. The new number is greater than all earlier ones.
    fn next(&self, fleet: &FleetId) -> u64 {
        let mut inner = self.lock();
        inner.last += 1;
        let number = inner.last;
        inner.of.insert(fleet.clone(), number);
        number
    }

    /// The node ID of an Envoy that starts now.
    fn node_id(&self, fleet: &FleetId) -> String {
        format!("{}{}", Self::PREFIX, self.next(fleet))
    }

    /// The stop with that number is done. Forgets the fleet unless it has been started since.
    fn ended(&self, fleet: &FleetId, number: u64) {
        let mut inner = self.lock();
        if inner.of.get(fleet) == Some(&number) {
            inner.of.remove(fleet);
        }
    }

    // The lock guards plain inserts and removals: a panic elsewhere leaves a consistent state.
    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Envoys for Starts {
    fn readies(&self) -> bool {
        true
    }

    /// An Envoy that was stopped. Node IDs without the prefix aren't stale: such Envoys weren't started here.
    fn is_stale(&self, fleet: &FleetId, node_id: &str) -> bool {
        let number = node_id.strip_prefix(Self::PREFIX);
        let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) else {
            return false;
        };
        self.lock().of.get(fleet) != Some(&number)
    }
}

/// Starts and stops Envoys as ordered, until all senders of orders are gone.
pub(crate) async fn keep(
    mut orders: mpsc::UnboundedReceiver<Order>,
    supervisor: Arc<Supervisor>,
    owner: mpsc::WeakSender<Message>,
    launch: Launch,
) {
    let mut stopping = JoinSet::new();
    while let Some(order) = orders.recv().await {
        match order {
            Order::Start(fleet) => supervisor.ensure(spec(&supervisor, &fleet, &launch)),
            Order::Stop(fleet) => {
                // Called outside the task, or the stop could come after the next start of the same fleet.
                let stopped = supervisor.stop(&fleet);
                let (owner, starts) = (owner.clone(), Arc::clone(&launch.starts));
                let number = starts.next(&fleet);
                stopping.spawn(async move {
                    stopped.await;
                    starts.ended(&fleet, number);
                    tell(&owner, Message::FleetEnded(fleet)).await;
                });
            }
        }
        while stopping.try_join_next().is_some() {}
    }
}

fn spec(supervisor: &Supervisor, fleet: &FleetId, launch: &Launch) -> EnvoySpec {
    let admin_socket = supervisor.dir(fleet).admin_socket();
    let bootstrap = sesame_envoy::bootstrap(&BootstrapOptions {
        fleet: fleet.clone(),
        node_id: launch.starts.node_id(fleet),
        xds: XdsAddress::Unix(launch.xds_socket.clone()),
        admin: Admin::Unix(admin_socket.clone()),
        max_connections: MAX_CONNECTIONS,
        memory_limit: None,
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

/// Passes on events of processes, until the supervisor is gone.
pub(crate) async fn hear_processes(
    mut events: processes::ProcessEvents,
    owner: mpsc::WeakSender<Message>,
    outputs: Outputs,
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
                tracing::debug!(gateway, ?after, "Envoy has its first configuration");
                continue;
            }
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
                let ending = outputs.ending.is_cancelled() || !running.borrow().contains(&fleet);
                log(&gateway, &line, ending);
                continue;
            }
        };
        outputs.events.send(event);
        // After the event, before its consequences.
        if let Some(fleet) = down {
            tell(&owner, Message::EnvoyDown(fleet)).await;
        }
    }
}

/// Logs a line of an Envoy's log. Lines of an Envoy that was stopped are logged at debug level only.
fn log(gateway: &str, line: &processes::Line, ending: bool) {
    use processes::Level;
    let (component, message) = (&line.component, &line.message);
    match line.level {
        _ if ending => tracing::debug!(target: "envoy", gateway, component, "{message}"),
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
    fn only_the_latest_envoy_of_a_fleet_counts() {
        let starts = Starts::default();
        let [a, b] = ["a", "b"].map(|name| FleetId::of_gateway("ns", name));
        let first = starts.node_id(&a);
        let other = starts.node_id(&b);
        assert!(first != other);
        assert!(!starts.is_stale(&a, &first) && !starts.is_stale(&b, &other));
        assert!(!starts.is_stale(&a, "another-node"));
        // The first one drains.
        let stop = starts.next(&a);
        assert!(starts.is_stale(&a, &first));
        let second = starts.node_id(&a);
        assert!(starts.is_stale(&a, &first) && !starts.is_stale(&a, &second));
        // The end of the first doesn't concern the second.
        starts.ended(&a, stop);
        assert!(!starts.is_stale(&a, &second) && !starts.is_stale(&b, &other));
        let stop = starts.next(&a);
        starts.ended(&a, stop);
        assert!(starts.is_stale(&a, &second));
        assert_eq!(starts.lock().of.len(), 1);
    }
}
