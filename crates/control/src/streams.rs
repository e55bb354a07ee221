//! Events of Envoys' xDS streams.
//!
//! In: events of the discovery server. Out: messages to the owner, events, metrics.

use std::sync::Arc;
use std::time::Instant;

use sesame_model::FleetId;
use sesame_translate::fleet::{Rejected, RejectedKind};
use sesame_xds::{self as xds, ClientId, ResourceType, XdsEvent};
use tokio::sync::mpsc;

use crate::event::{RunEvent, millis};
use crate::owner::{Message, Outputs};
use crate::progress::Progress;

/// Envoys with Sesame's module get the resource variants for it.
pub(crate) const SUPPORTS_VARIANTS: xds::SupportsVariants =
    |first| first.node.as_ref().is_some_and(sesame_envoy::has_module);

/// Properties of a runner's Envoys.
pub(crate) trait Envoys: Send + Sync {
    /// Whether an acknowledgement of one Envoy makes its fleet ready; if not, readiness comes from elsewhere.
    fn readies(&self) -> bool;

    /// Whether messages of this Envoy are to be ignored.
    fn is_stale(&self, fleet: &FleetId, node_id: &str) -> bool;
}

/// Passes on events of streams, forever.
pub(crate) async fn hear(
    mut events: xds::EventReceiver,
    owner: mpsc::WeakSender<Message>,
    outputs: Outputs,
    envoys: Arc<dyn Envoys>,
) {
    loop {
        match events.next().await {
            XdsEvent::Connected(ClientId { fleet, .. }) => {
                tracing::debug!(gateway = %fleet, "Envoy has connected");
                if let Some(fleet) = fleet_of(&fleet) {
                    connected(&outputs.progress, &*envoys, &fleet);
                }
            }
            XdsEvent::Disconnected(ClientId { fleet, .. }) => {
                tracing::debug!(gateway = %fleet, "Envoy has disconnected");
            }
            XdsEvent::Acked { client, revision } => {
                let Some(fleet) = fleet_of(&client.fleet) else {
                    continue;
                };
                if envoys.is_stale(&fleet, &client.node_id) {
                    continue;
                }
                served(&outputs, &fleet, revision);
                if envoys.readies() {
                    tell(&owner, Message::EnvoyServes(fleet)).await;
                }
            }
            XdsEvent::WarmingTimedOut(ClientId { fleet, .. }) => {
                tracing::warn!(
                    gateway = %fleet,
                    "Envoy is slow to warm new clusters; resources that use them are no longer held back"
                );
            }
            XdsEvent::Rejected { fleet, rejection } => {
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
                let Some(fleet) = fleet_of(&fleet) else {
                    continue;
                };
                let rejected = rejected(fleet, resource_type, name);
                let message = Some(message.to_string());
                tell(&owner, Message::Rejection(rejected, message)).await;
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
                let Some(fleet) = fleet_of(&fleet) else {
                    continue;
                };
                let rejected = rejected(fleet, resource_type, name);
                tell(&owner, Message::Rejection(rejected, None)).await;
            }
        }
    }
}

/// Where Envoys aren't started by Sesame, the wait for an Envoy to connect is no measure of a change's delay.
fn connected(progress: &Progress, envoys: &dyn Envoys, fleet: &FleetId) {
    if !envoys.readies() {
        progress.forget(fleet);
    }
}

fn served(outputs: &Outputs, fleet: &FleetId, revision: u64) {
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
        // The resource has the name of its shard.
        ResourceType::ScopedRoute => format!("{name}#scope").into(),
        _ => name,
    };
    let what = match resource_type {
        ResourceType::Cluster => RejectedKind::Cluster,
        ResourceType::Endpoint => RejectedKind::Endpoints,
        ResourceType::Secret => RejectedKind::Secret,
        ResourceType::Listener => RejectedKind::Listener,
        ResourceType::ScopedRoute | ResourceType::Route => RejectedKind::Routes,
    };
    Rejected { fleet, what, name }
}

/// The fleet that an Envoy claims as `node.cluster`; `None` if the name is invalid.
fn fleet_of(claimed: &xds::FleetId) -> Option<FleetId> {
    claimed.as_str().parse().ok()
}

/// Sends a message to the owner, unless it is gone: then Sesame is shutting down.
pub(crate) async fn tell(owner: &mpsc::WeakSender<Message>, message: Message) {
    if let Some(owner) = owner.upgrade() {
        let _ = owner.send(message).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Envoys that Sesame starts (false), or doesn't (true).
    struct Moving(bool);

    impl Envoys for Moving {
        fn readies(&self) -> bool {
            !self.0
        }

        fn is_stale(&self, _fleet: &FleetId, _node_id: &str) -> bool {
            false
        }
    }

    #[test]
    fn what_waits_for_an_envoy_to_come_is_not_counted_where_nobody_makes_it_come() {
        let fleet = FleetId::of_gateway("ns", "web");
        for (by_themselves, counted) in [(true, 0), (false, 1)] {
            let progress = Progress::default();
            progress.sent(&fleet, 1, Instant::now());
            connected(&progress, &Moving(by_themselves), &fleet);
            assert_eq!(progress.acked(&fleet, 1, Instant::now()).len(), counted);
        }
    }
}
