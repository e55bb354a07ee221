//! What Envoys say over their streams.
//!
//! In: events of the discovery server. Out: messages to the owner, events for whoever looks on, counts.

use std::sync::Arc;
use std::time::Instant;

use sesame_model::FleetId;
use sesame_translate::fleet::{Rejected, RejectedKind};
use sesame_xds::{self as xds, ResourceType};
use tokio::sync::mpsc;

use crate::event::{Event, millis};
use crate::owner::{Message, Outlets};
use crate::progress::Progress;

/// Envoys that have Sesame's module get what is made for it.
pub(crate) const TAKES_VARIANTS: xds::TakesVariants =
    |first| first.node.as_ref().is_some_and(sesame_envoy::has_module);

/// What is known of Envoys beside what they say themselves.
pub(crate) trait Envoys: Send + Sync {
    /// Whether a fleet is ready as soon as one of its Envoys has acknowledged what it was given; else somebody else tells.
    fn readies(&self) -> bool;

    /// Whether what an Envoy says is of no interest any more.
    fn is_stale(&self, fleet: &FleetId, node_id: &str) -> bool;
}

/// Passes on what streams report, for ever.
pub(crate) async fn hear(
    mut events: xds::Events,
    owner: mpsc::WeakSender<Message>,
    outlets: Outlets,
    envoys: Arc<dyn Envoys>,
) {
    loop {
        match events.next().await {
            xds::Event::Connected { fleet, .. } => {
                tracing::debug!(gateway = %fleet, "Envoy has connected");
                connected(&outlets.progress, &*envoys, &FleetId(fleet.as_str().into()));
            }
            xds::Event::Disconnected { fleet, .. } => {
                tracing::debug!(gateway = %fleet, "Envoy has disconnected");
            }
            xds::Event::Acked {
                fleet,
                node_id,
                revision,
                ..
            } => {
                let fleet = FleetId(fleet.as_str().into());
                if envoys.is_stale(&fleet, &node_id) {
                    continue;
                }
                served(&outlets, &fleet, revision);
                if envoys.readies() {
                    tell(&owner, Message::EnvoyServes(fleet)).await;
                }
            }
            xds::Event::WarmingTimedOut { fleet, .. } => {
                tracing::warn!(
                    gateway = %fleet,
                    "Envoy takes long to take new clusters; what uses them is no longer held back"
                );
            }
            xds::Event::Rejected {
                fleet,
                resource_type,
                name,
                message,
                ..
            } => {
                outlets.metrics.rejection(resource_type.to_string());
                outlets.events.tell(Event::Rejected {
                    gateway: fleet.to_string(),
                    resource: resource_type.to_string(),
                    name: name.to_string(),
                    message: message.to_string(),
                });
                let rejected = rejected(&fleet, resource_type, name);
                let message = Some(message.to_string());
                tell(&owner, Message::Rejection(rejected, message)).await;
            }
            xds::Event::Recovered {
                fleet,
                resource_type,
                name,
            } => {
                outlets.events.tell(Event::Recovered {
                    gateway: fleet.to_string(),
                    resource: resource_type.to_string(),
                    name: name.to_string(),
                });
                let rejected = rejected(&fleet, resource_type, name);
                tell(&owner, Message::Rejection(rejected, None)).await;
            }
        }
    }
}

/// Where Envoys come and go by themselves, what waited for one to come says nothing about how long a change takes.
fn connected(progress: &Progress, envoys: &dyn Envoys, fleet: &FleetId) {
    if !envoys.readies() {
        progress.forget(fleet);
    }
}

fn served(outlets: &Outlets, fleet: &FleetId, revision: u64) {
    for (revision, after) in outlets.progress.acked(fleet, revision, Instant::now()) {
        outlets.metrics.served(after);
        outlets.events.tell(Event::Served {
            revision,
            gateway: fleet.to_string(),
            after_ms: millis(after),
        });
    }
}

fn rejected(fleet: &xds::FleetId, resource_type: ResourceType, name: Arc<str>) -> Rejected {
    let name = match resource_type {
        // It is called as its shard.
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
    Rejected {
        fleet: FleetId(fleet.as_str().into()),
        what,
        name,
    }
}

/// Tells the owner, unless it is gone: then Sesame is about to end.
pub(crate) async fn tell(owner: &mpsc::WeakSender<Message>, message: Message) {
    if let Some(owner) = owner.upgrade() {
        let _ = owner.send(message).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Envoys that come and go by themselves, or that Sesame starts.
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
