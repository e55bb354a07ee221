//! The status of Ingresses: the addresses of the fleet.

use std::sync::Arc;

use sesame_api::{IngressStatus, ObjectKey, ObjectStatus};
use sesame_engine::{Builder, Table};

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
            let load_balancer = default_fleet::load_balancer(reader, &inputs);
            Some(Arc::new(IngressStatus { load_balancer }))
        });
    b.derive("ingress status", read.ours, move |reader, _: &ObjectKey| {
        let status = reader.get(status, &())?;
        Some(ObjectStatus::Ingress(Arc::clone(&status)))
    })
}
