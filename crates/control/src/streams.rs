//! Handles events from Envoys' xDS streams.
//!
//! In: events from the xDS server. Out: messages to the translator, events, metrics.

use std::sync::Arc;
use std::time::Instant;

use sesame_model::FleetId;
use sesame_translate::fleet::{Rejected, RejectedKind};
use sesame_xds::{self as xds, ClientId, ResourceType, XdsEvent};
use tokio::sync::mpsc;

use crate::event::{RunEvent, millis};
use crate::progress::Progress;
use crate::translator::{Message, Rejection, TranslatorOutputs};

/// Envoys that have loaded Sesame's module get the resource variants written for that module.
pub(crate) const SUPPORTS_VARIANTS: xds::SupportsVariants = sesame_envoy::has_module;

/// How the stream events of Envoys are interpreted.
pub(crate) trait StreamPolicy: Send + Sync {
    /// Whether an Envoy's ACK makes its fleet ready; otherwise the fleet runner reports readiness.
    fn ack_means_ready(&self) -> bool;

    /// Whether to ignore this Envoy's ACKs.
    fn is_stale(&self, fleet: &FleetId, node_id: &str) -> bool;
}

/// Forwards stream events forever.
pub(crate) async fn forward_events(
    mut events: xds::EventReceiver,
    translator: mpsc::WeakSender<Message>,
    outputs: TranslatorOutputs,
    policy: Arc<dyn StreamPolicy>,
) {
    loop {
        match events.next().await {
            XdsEvent::Connected(ClientId { fleet, .. }) => {
                tracing::debug!(gateway = %fleet, "Envoy connected");
                if let Some(fleet) = parse_fleet(&fleet) {
                    connected(&outputs.progress, &*policy, &fleet);
                }
            }
            XdsEvent::Disconnected(ClientId { fleet, .. }) => {
                tracing::debug!(gateway = %fleet, "Envoy disconnected");
            }
            XdsEvent::Acked { client, revision } => {
                let Some(fleet) = parse_fleet(&client.fleet) else {
                    continue;
                };
                if policy.is_stale(&fleet, &client.node_id) {
                    continue;
                }
                served(&outputs, &fleet, revision);
                send(&translator, Message::Acked(fleet.clone(), revision)).await;
                if policy.ack_means_ready() {
                    send(&translator, Message::EnvoyReady(fleet)).await;
                }
            }
            XdsEvent::WarmingTimedOut(ClientId { fleet, .. }) => {
                tracing::warn!(
                    gateway = %fleet,
                    "Envoy is slow to warm new clusters; sending the resources that use them anyway"
                );
            }
            XdsEvent::Rejected {
                fleet,
                rejection,
                body,
                last_good,
            } => {
                let xds::Rejection {
                    resource_type,
                    name,
                    message,
                    ..
                } = rejection;
                outputs.metrics.rejection(resource_type.to_string());
                outputs.events.send(RunEvent::Rejected {
                    gateway: fleet.to_string(),
                    resource: resource_type.to_string(),
                    name: name.to_string(),
                    message: message.to_string(),
                });
                let Some(fleet) = parse_fleet(&fleet) else {
                    continue;
                };
                let rejected = rejected(fleet, resource_type, name);
                let rejection = Rejection {
                    message: message.to_string(),
                    body,
                    last_good,
                };
                send(&translator, Message::Rejection(rejected, Some(rejection))).await;
            }
            XdsEvent::Recovered {
                fleet,
                resource_type,
                name,
            } => {
                outputs.events.send(RunEvent::Recovered {
                    gateway: fleet.to_string(),
                    resource: resource_type.to_string(),
                    name: name.to_string(),
                });
                let Some(fleet) = parse_fleet(&fleet) else {
                    continue;
                };
                let rejected = rejected(fleet, resource_type, name);
                send(&translator, Message::Rejection(rejected, None)).await;
            }
        }
    }
}

/// If Sesame doesn't start the Envoys, the time until an Envoy connects isn't included in a change's delay.
fn connected(progress: &Progress, policy: &dyn StreamPolicy, fleet: &FleetId) {
    if !policy.ack_means_ready() {
        progress.forget(fleet);
    }
}

fn served(outputs: &TranslatorOutputs, fleet: &FleetId, revision: u64) {
    for (revision, after) in outputs.progress.acked(fleet, revision, Instant::now()) {
        outputs.metrics.served(after);
        outputs.events.send(RunEvent::Served {
            revision,
            gateway: fleet.to_string(),
            after_ms: millis(after),
        });
    }
}

fn rejected(fleet: FleetId, resource_type: ResourceType, name: Arc<str>) -> Rejected {
    let name = match resource_type {
        // The resource is named after its shard.
        ResourceType::ScopedRoute => format!("{name}#scope").into(),
        _ => name,
    };
    let kind = match resource_type {
        ResourceType::Cluster => RejectedKind::Cluster,
        ResourceType::Endpoint => RejectedKind::Endpoints,
        ResourceType::Secret => RejectedKind::Secret,
        ResourceType::Listener => RejectedKind::Listener,
        ResourceType::ScopedRoute | ResourceType::Route => RejectedKind::Routes,
    };
    Rejected {
        fleet,
        what: kind,
        name,
    }
}

/// The fleet in an Envoy's `node.cluster`; `None` if the name is invalid.
fn parse_fleet(name: &xds::FleetId) -> Option<FleetId> {
    name.as_str().parse().ok()
}

/// Sends a message to the translator. Does nothing if the translator has exited, which means that Sesame is shutting
/// down.
pub(crate) async fn send(translator: &mpsc::WeakSender<Message>, message: Message) {
    if let Some(translator) = translator.upgrade() {
        let _ = translator.send(message).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestPolicy {
        started_by_sesame: bool,
    }

    impl StreamPolicy for TestPolicy {
        fn ack_means_ready(&self) -> bool {
            self.started_by_sesame
        }

        fn is_stale(&self, _fleet: &FleetId, _node_id: &str) -> bool {
            false
        }
    }

    #[test]
    fn connect_time_counts_only_for_envoys_started_by_sesame() {
        let fleet = FleetId::of_gateway("ns", "web");
        for (started_by_sesame, counted) in [(false, 0), (true, 1)] {
            let progress = Progress::default();
            progress.sent(&fleet, 1, Instant::now());
            connected(&progress, &TestPolicy { started_by_sesame }, &fleet);
            assert_eq!(progress.acked(&fleet, 1, Instant::now()).len(), counted);
        }
    }
}
