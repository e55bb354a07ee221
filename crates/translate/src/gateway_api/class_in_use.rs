//! Whether Gateways refer to a GatewayClass: in a cluster, a finalizer keeps such a class.

use std::sync::Arc;

use sesame_api::{Gateway, ObjectKey};
use sesame_engine::{Builder, Table};

use super::class;
use crate::inputs::Inputs;

/// A GatewayClass of this instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassInUse {
    /// The UID of the GatewayClass.
    pub uid: Arc<str>,
    /// Whether a Gateway refers to it.
    pub in_use: bool,
}

/// Declares the table of this instance's GatewayClasses.
pub(crate) fn classes_in_use(b: &mut Builder, inputs: &Inputs) -> Table<ObjectKey, ClassInUse> {
    let inputs = *inputs;
    let gateways = b.index(
        inputs.gateways,
        "gateways by class",
        |_, gateway: &Gateway| vec![class::key(&gateway.spec.gateway_class_name)],
    );
    b.derive(
        "class in use",
        inputs.gateway_classes,
        move |reader, key: &ObjectKey| {
            let settings = reader.get(inputs.settings, &())?;
            let class = reader.get(inputs.gateway_classes, key)?;
            settings.controls(&class).then(|| ClassInUse {
                uid: class.meta.uid.as_str().into(),
                in_use: reader.count(gateways, key) > 0,
            })
        },
    )
}
