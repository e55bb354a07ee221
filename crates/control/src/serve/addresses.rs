//! Addresses of unmanaged Envoys.
//!
//! In: a Service from the API server. Out: its addresses.

use std::sync::Arc;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Service;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use sesame_api::NamespacedName;
use sesame_model::{FleetAddress, FleetId};
use tokio::sync::{mpsc, watch};

use super::fleet_updates::FleetUpdates;
use crate::streams::send;
use crate::translator::Message;

/// Watches a Service forever. `observed` becomes true once it has been read or found missing.
pub(super) async fn watch_service(
    client: Client,
    service: NamespacedName,
    updates: Arc<FleetUpdates<Vec<FleetAddress>>>,
    translator: mpsc::WeakSender<Message>,
    observed: watch::Sender<bool>,
) {
    let api: Api<Service> = Api::namespaced(client, &service.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", service.name));
    let events = watcher(api, config).default_backoff();
    pin_mut!(events);
    let mut current = None;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                current = None;
                continue;
            }
            Ok(Event::InitApply(service)) => {
                current = Some(service);
                continue;
            }
            Ok(Event::InitDone) => {}
            Ok(Event::Apply(service)) => current = Some(service),
            Ok(Event::Delete(_)) => current = None,
            Err(error) => {
                tracing::warn!(%service, %error, "cannot watch the Service of the unmanaged Envoys");
                continue;
            }
        }
        let addresses = current.as_ref().map(addresses).unwrap_or_default();
        updates.put(FleetId::Unmanaged, Some(addresses));
        send(&translator, Message::FleetStates).await;
        observed.send_replace(true);
    }
}

/// The addresses of a Service: those of its load balancers, or else its cluster IPs.
fn addresses(service: &Service) -> Vec<FleetAddress> {
    let ingress = service.status.iter().filter_map(|status| {
        let balancer = status.load_balancer.as_ref()?;
        balancer.ingress.as_ref()
    });
    let mut found: Vec<FleetAddress> = ingress
        .flatten()
        .filter_map(|ingress| ingress.ip.as_deref().or(ingress.hostname.as_deref()))
        .map(FleetAddress::parse)
        .collect();
    let spec = service.spec.as_ref();
    let is_load_balancer = spec.and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer");
    if found.is_empty() && !is_load_balancer {
        let cluster_ips = spec.and_then(|spec| spec.cluster_ips.as_ref());
        let cluster_ips = cluster_ips.into_iter().flatten().filter(|ip| *ip != "None");
        found.extend(cluster_ips.map(|ip| FleetAddress::parse(ip)));
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn load_balancer_addresses_are_preferred_to_cluster_ips() {
        let of = |type_: &str, ingress| {
            let service = from_value(json!({
                "metadata": {"name": "envoy"},
                "spec": {"type": type_, "clusterIPs": ["10.0.0.1", "fd00::1"]},
                "status": {"loadBalancer": {"ingress": ingress}},
            }));
            let all = addresses(&service.unwrap());
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let ingress = json!([{"hostname": "lb.example.com"}, {"ip": "192.0.2.1"}]);
        assert_eq!(of("LoadBalancer", ingress), ["192.0.2.1", "lb.example.com"]);
        assert!(of("LoadBalancer", json!([])).is_empty());
        assert_eq!(of("ClusterIP", json!([])), ["10.0.0.1", "fd00::1"]);
    }
}
