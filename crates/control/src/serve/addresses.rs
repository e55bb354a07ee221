//! Addresses of unmanaged Envoys.
//!
//! In: a Service from the API server, or addresses from the operator. Out: addresses.

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
use crate::owner::Message;
use crate::streams::tell;

/// Watches a Service forever. `looked` becomes true when it has been read or found missing.
pub(super) async fn follow(
    client: Client,
    service: NamespacedName,
    news: Arc<FleetUpdates<Vec<FleetAddress>>>,
    owner: mpsc::WeakSender<Message>,
    looked: watch::Sender<bool>,
) {
    let api: Api<Service> = Api::namespaced(client, &service.namespace);
    let only = watcher::Config::default().fields(&format!("metadata.name={}", service.name));
    let events = watcher(api, only).default_backoff();
    pin_mut!(events);
    let mut seen = None;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                seen = None;
                continue;
            }
            Ok(Event::InitApply(service)) => {
                seen = Some(service);
                continue;
            }
            Ok(Event::InitDone) => {}
            Ok(Event::Apply(service)) => seen = Some(service),
            Ok(Event::Delete(_)) => seen = None,
            Err(error) => {
                tracing::warn!(%service, %error, "the Envoys' Service can't be watched");
                continue;
            }
        }
        let addresses = seen.as_ref().map(addresses).unwrap_or_default();
        news.put(FleetId::Unmanaged, Some(addresses));
        tell(&owner, Message::News).await;
        looked.send_replace(true);
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
    let balanced = spec.and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer");
    if found.is_empty() && !balanced {
        let inside = spec.and_then(|spec| spec.cluster_ips.as_ref());
        let real = inside.into_iter().flatten().filter(|ip| *ip != "None");
        found.extend(real.map(|ip| FleetAddress::parse(ip)));
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
    fn a_load_balancer_counts_and_else_the_address_inside() {
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
