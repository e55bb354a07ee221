//! The status of Ingresses: the addresses of the fleet.

use std::sync::Arc;

use sesame_api::{IngressStatus, LoadBalancerIngress, LoadBalancerStatus, ObjectKey, ObjectStatus};
use sesame_engine::{Builder, Table};
use sesame_model::FleetAddress;

use super::Read;
use crate::inputs::Inputs;
use crate::shared::default_fleet;

/// Declares the statuses, which share one value.
pub(super) fn stages(
    b: &mut Builder,
    inputs: &Inputs,
    read: Read,
) -> Table<ObjectKey, ObjectStatus> {
    let inputs = *inputs;
    let status: Table<(), Arc<IngressStatus>> =
        b.derive("ingress addresses", inputs.settings, move |reader, ()| {
            let addresses = default_fleet::addresses(reader, &inputs);
            let ingress = addresses.iter().map(address).collect();
            let load_balancer = LoadBalancerStatus { ingress };
            Some(Arc::new(IngressStatus { load_balancer }))
        });
    b.derive("ingress status", read.ours, move |reader, _: &ObjectKey| {
        let status = reader.get(status, &())?;
        Some(ObjectStatus::Ingress(Arc::clone(&status)))
    })
}

fn address(address: &FleetAddress) -> LoadBalancerIngress {
    let mut ingress = LoadBalancerIngress::default();
    match address {
        FleetAddress::Ip(ip) => ingress.ip = Some(ip.to_string()),
        FleetAddress::Hostname(name) => ingress.hostname = Some(name.clone()),
    }
    ingress
}
