//! Selects the Gateway of the unmanaged fleet, by name or by age.
//!
//! The statuses of other Gateways name the served Gateway.

use std::sync::Arc;

use jiff::Timestamp;
use sesame_api::{NamespacedName, ObjectKey, reason};
use sesame_engine::{Builder, Reader, Table};

use crate::inputs::Inputs;
use crate::problem::Problem;
use crate::settings::{Mode, Settings};

/// Reason for Accepted=False on Gateways that aren't served, and on their routes. The spec has no such reason: the
/// objects are valid.
pub(crate) const NOT_SERVED: &str = "NotServed";

/// The stages that select the served Gateway in [`Mode::Unmanaged`].
#[derive(Clone, Copy)]
pub(crate) struct Served {
    oldest_class: Table<(), Arc<str>>,
    oldest_gateway: Table<(), NamespacedName>,
}

/// Creation time and class of a Gateway.
#[derive(Clone, Debug, PartialEq)]
struct Created {
    class: Arc<str>,
    /// `None` counts as older than any time.
    time: Option<Timestamp>,
}

impl Served {
    /// Declares the stages. Their tables are empty in other modes.
    pub(crate) fn declare(b: &mut Builder, inputs: &Inputs) -> Self {
        let settings = inputs.settings;
        let (classes, gateways) = (inputs.gateway_classes, inputs.gateways);
        let class_times: Table<ObjectKey, Option<Timestamp>> =
            b.derive("class creation time", classes, move |reader, name| {
                let settings = reader.get(settings, &()).filter(|s| chooses_oldest(s))?;
                let class = reader.get(classes, name)?;
                let ours = settings.controls(&class);
                ours.then_some(class.meta.creation_timestamp)
            });
        let our_classes = b.index(class_times, "our classes", |_, _| vec![()]);
        let oldest_class: Table<(), Arc<str>> =
            b.derive("oldest class", our_classes, move |reader, ()| {
                let classes = reader.by(our_classes, &());
                let oldest = classes.iter().min_by_key(|(name, time)| (**time, name));
                oldest.map(|(key, _)| Arc::clone(&key.name))
            });
        let times: Table<ObjectKey, Created> =
            b.derive("gateway creation time", gateways, move |reader, name| {
                reader.get(settings, &()).filter(|s| chooses_oldest(s))?;
                let gateway = reader.get(gateways, name)?;
                Some(Created {
                    class: gateway.spec.gateway_class_name.clone(),
                    time: gateway.meta.creation_timestamp,
                })
            });
        let by_class = b.index(times, "gateway creation times by class", |_, created| {
            vec![Arc::clone(&created.class)]
        });
        let oldest_gateway: Table<(), NamespacedName> =
            b.derive("oldest gateway", oldest_class, move |reader, ()| {
                let class = reader.get(oldest_class, &())?;
                let gateways = reader.by(by_class, &class);
                let oldest = gateways
                    .iter()
                    .min_by_key(|(name, created)| (created.time, name));
                oldest.map(|(key, _)| key.namespaced_name())
            });
        Self {
            oldest_class,
            oldest_gateway,
        }
    }

    /// Why the served Gateway can't have this class.
    pub(crate) fn refusal_of_class(
        self,
        reader: &mut Reader<'_>,
        mode: &Mode,
        name: &Arc<str>,
    ) -> Option<Problem> {
        if *mode != (Mode::Unmanaged { gateway: None }) {
            return None;
        }
        let oldest = reader.get(self.oldest_class, &())?;
        (*oldest != *name).then(|| {
            Problem::new(
                reason::gateway_class::UNSUPPORTED,
                format!(
                    "the unmanaged fleet serves only one Gateway, and it must use the oldest GatewayClass ({oldest})"
                ),
            )
        })
    }

    /// Why a Gateway isn't served, if another one is.
    pub(crate) fn refusal(
        self,
        reader: &mut Reader<'_>,
        mode: &Mode,
        key: &ObjectKey,
    ) -> Option<Problem> {
        let name = &key.namespaced_name();
        let chosen = match mode {
            Mode::Local | Mode::Managed => return None,
            Mode::Unmanaged { gateway } => gateway,
        };
        let served = match chosen {
            Some(served) if served == name => return None,
            Some(served) => format!("Gateway {served}, selected in Sesame's settings"),
            None => match reader.get(self.oldest_gateway, &()) {
                Some(served) if *served == *name => return None,
                Some(served) => {
                    format!("Gateway {served}, the oldest Gateway of the oldest GatewayClass")
                }
                // One of our classes exists, since the Gateway is ours.
                None => match reader.get(self.oldest_class, &()) {
                    Some(class) => {
                        format!(
                            "Gateways of the oldest GatewayClass, {class}; that class has no Gateway yet"
                        )
                    }
                    None => "one Gateway".to_owned(),
                },
            },
        };
        Some(Problem::new(
            NOT_SERVED,
            format!("the unmanaged fleet serves only {served}"),
        ))
    }
}

fn chooses_oldest(settings: &Settings) -> bool {
    settings.mode == Mode::Unmanaged { gateway: None }
}
