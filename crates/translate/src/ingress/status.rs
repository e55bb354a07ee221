//! The status of Ingresses: the fleet's addresses.

use std::sync::Arc;

use sesame_api::{IngressStatus, LoadBalancerStatus, ObjectKey, ObjectStatus};
use sesame_engine::{Builder, Table};

use super::Read;

/// Declares the statuses, which share one value.
pub(super) fn stages(
    b: &mut Builder,
    read: Read,
    addresses: Table<(), LoadBalancerStatus>,
) -> Table<ObjectKey, ObjectStatus> {
    let status: Table<(), Arc<IngressStatus>> =
        b.derive("ingress addresses", addresses, move |reader, ()| {
            let load_balancer = LoadBalancerStatus::clone(&*reader.get(addresses, &())?);
            Some(Arc::new(IngressStatus { load_balancer }))
        });
    b.derive("ingress status", read.ours, move |reader, _: &ObjectKey| {
        let status = reader.get(status, &())?;
        Some(ObjectStatus::Ingress(Arc::clone(&status)))
    })
}
