//! Which Gateway is served where somebody else runs the Envoys: one, since there is one fleet.
//!
//! Everybody else is told whose fleet it is. Age is looked at only where nobody was chosen by name, and only of who comes
//! and goes: an edit of a Gateway asks nobody's age.

use std::sync::Arc;

use jiff::Timestamp;
use sesame_api::{NamespacedName, reason};
use sesame_engine::{Builder, Reader, Table};

use super::class::CONTROLLER_NAME;
use super::problem::Problem;
use crate::pipeline::Inputs;
use crate::settings::Mode;

/// Reason of Accepted=False of a Gateway, and of a route at it, that is not the one served. The spec has none for it: nothing is
/// wrong with the object.
pub(crate) const NOT_SERVED: &str = "NotServed";

/// Which Gateways are served.
#[derive(Clone)]
pub(crate) enum Served {
    /// All of ours.
    All,
    /// The one of that name.
    Named(NamespacedName),
    /// The oldest of the oldest class.
    Oldest {
        class: Table<(), Arc<str>>,
        gateway: Table<(), NamespacedName>,
    },
}

/// When a Gateway was made, and for which class.
#[derive(Clone, Debug, PartialEq)]
struct Birth {
    class: Arc<str>,
    /// None counts as older than any.
    time: Option<Timestamp>,
}

impl Served {
    /// Declares the stages that are needed.
    pub(crate) fn declare(b: &mut Builder, inputs: &Inputs, mode: &Mode) -> Self {
        match mode {
            Mode::Local | Mode::Managed => Self::All,
            Mode::Unmanaged {
                gateway: Some(gateway),
            } => Self::Named(gateway.clone()),
            Mode::Unmanaged { gateway: None } => Self::declare_oldest(b, inputs),
        }
    }

    fn declare_oldest(b: &mut Builder, inputs: &Inputs) -> Self {
        let (classes, gateways) = (inputs.gateway_classes, inputs.gateways);
        let class_births: Table<Arc<str>, Option<Timestamp>> =
            b.derive("birth of class", classes, move |reader, name| {
                let class = reader.get(classes, name)?;
                let ours = &*class.spec.controller_name == CONTROLLER_NAME;
                ours.then_some(class.meta.creation_timestamp)
            });
        let our_classes = b.index(class_births, "classes of ours", |_, _| vec![()]);
        let oldest_class: Table<(), Arc<str>> =
            b.derive("oldest class", our_classes, move |reader, ()| {
                let classes = reader.by(our_classes, &());
                let oldest = classes.iter().min_by_key(|(name, born)| (**born, name));
                oldest.map(|(name, _)| name.clone())
            });
        let births: Table<NamespacedName, Birth> =
            b.derive("birth of gateway", gateways, move |reader, name| {
                let gateway = reader.get(gateways, name)?;
                Some(Birth {
                    class: gateway.spec.gateway_class_name.clone(),
                    time: gateway.meta.creation_timestamp,
                })
            });
        let by_class = b.index(births, "births by class", |_, birth| {
            vec![Arc::clone(&birth.class)]
        });
        let oldest_gateway: Table<(), NamespacedName> =
            b.derive("oldest gateway", oldest_class, move |reader, ()| {
                let class = reader.get(oldest_class, &())?;
                let gateways = reader.by(by_class, &class);
                let oldest = gateways
                    .iter()
                    .min_by_key(|(name, birth)| (birth.time, name));
                oldest.map(|(name, _)| name.clone())
            });
        Self::Oldest {
            class: oldest_class,
            gateway: oldest_gateway,
        }
    }

    /// Why a class of ours is not that of the Gateway that is served, if that depends on classes.
    pub(crate) fn refusal_of_class(
        &self,
        reader: &mut Reader<'_>,
        name: &Arc<str>,
    ) -> Option<Problem> {
        let Self::Oldest { class, .. } = self else {
            return None;
        };
        let oldest = reader.get(*class, &())?;
        (*oldest != *name).then(|| {
            Problem::new(
                reason::gateway_class::UNSUPPORTED,
                format!(
                    "there is one set of Envoys, for a Gateway of the oldest GatewayClass, and that is {oldest}"
                ),
            )
        })
    }

    /// Why a Gateway of ours is not served, if it is another's turn.
    pub(crate) fn refusal(
        &self,
        reader: &mut Reader<'_>,
        name: &NamespacedName,
    ) -> Option<Problem> {
        let because = match self {
            Self::All => return None,
            Self::Named(served) if served == name => return None,
            Self::Named(served) => format!("Gateway {served}, which Sesame was started for"),
            Self::Oldest { class, gateway } => match reader.get(*gateway, &()) {
                Some(served) if *served == *name => return None,
                Some(served) => {
                    format!("Gateway {served}, the oldest of the oldest GatewayClass")
                }
                // There is a class of ours, since the Gateway is ours.
                None => match reader.get(*class, &()) {
                    Some(class) => {
                        format!("a Gateway of the oldest GatewayClass, {class}, which has none")
                    }
                    None => "nobody".to_owned(),
                },
            },
        };
        Some(Problem::new(
            NOT_SERVED,
            format!("there is one set of Envoys, and it serves {because}"),
        ))
    }
}
