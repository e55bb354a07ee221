//! Translates Ingresses into rules, hosts and listeners of the default fleet.

use sesame_api::{Ingress, ObjectKey, ObjectStatus};
use sesame_engine::{Builder, Index, Table};
use sesame_model::{CertificateKey, ClusterKey};

use crate::inputs::Inputs;
use crate::shared::default_fleet::{Contribution, Sources};

/// The objects that Ingresses refer to.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    /// The clusters of their backends.
    pub(crate) by_backend: Index<ObjectKey, Ingress, ClusterKey>,
    /// Their certificates.
    pub(crate) by_secret: Index<ObjectKey, Ingress, CertificateKey>,
}

/// Declares what Ingresses refer to.
pub(crate) fn read(b: &mut Builder, inputs: &Inputs) -> Read {
    Read {
        by_backend: b.index(inputs.ingresses, "ingresses by backend", |_, _| Vec::new()),
        by_secret: b.index(inputs.ingresses, "ingresses by secret", |_, _| Vec::new()),
    }
}

/// Declares the stages.
pub(crate) fn stages(
    b: &mut Builder,
    inputs: &Inputs,
    _read: Read,
    _sources: Sources,
) -> Contribution {
    let source = inputs.ingresses;
    Contribution {
        points: b.derive("ingress points", source, |_, _: &ObjectKey| None),
        terminations: b.derive("ingress terminations", source, |_, _: &ObjectKey| None),
        rules: b.derive("ingress rules", source, |_, _: &ObjectKey| None),
        attachments: b.derive("ingress attachments", source, |_, _: &ObjectKey| None),
        backends: b.derive("ingress connections", source, |_, _: &ObjectKey| None),
    }
}

/// Declares the statuses.
pub(crate) fn statuses(b: &mut Builder, inputs: &Inputs) -> Table<ObjectKey, ObjectStatus> {
    b.derive("ingress status", inputs.ingresses, |_, _: &ObjectKey| None)
}
