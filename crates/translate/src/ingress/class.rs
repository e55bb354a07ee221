//! Which Ingresses are ours.

use std::sync::Arc;

use sesame_api::{Ingress, IngressClass};
use sesame_engine::{Builder, Reader, Table};

use crate::inputs::Inputs;
use crate::settings::{INGRESS_CONTROLLER, Mode, Settings};

/// The tables that determine whether an Ingress is ours.
#[derive(Clone, Copy)]
pub(super) struct Classes {
    settings: Table<(), Settings>,
    /// Our IngressClasses.
    ours: Table<Arc<str>, ()>,
    /// Whether a default IngressClass is ours; a row exists only if there is a default.
    default: Table<(), bool>,
}

/// Declares the tables. Ingresses read these instead of the IngressClasses, so that changed labels don't affect them.
pub(super) fn stages(b: &mut Builder, inputs: &Inputs) -> Classes {
    let (settings, classes) = (inputs.settings, inputs.ingress_classes);
    let ours = b.derive(
        "our ingress_classes",
        classes,
        move |reader, name: &Arc<str>| {
            let class = reader.get(classes, name)?;
            let settings = reader.get(settings, &())?;
            let named = settings.ingress.classes.contains(name);
            let controlled = !settings.ingress.only_classes
                && class.spec.controller.as_deref() == Some(INGRESS_CONTROLLER);
            (named || controlled).then_some(())
        },
    );
    let by_default = b.index(
        classes,
        "default ingress_classes",
        |_, class: &IngressClass| {
            let annotation = class.meta.annotations.get(IngressClass::DEFAULT);
            let default = annotation.is_some_and(|text| text == "true");
            Vec::from_iter(default.then_some(()))
        },
    );
    let default = b.derive("default ingress_class", by_default, move |reader, ()| {
        let names = reader.keys(by_default, &());
        Some(names.iter().any(|name| reader.exists(ours, name)))
    });
    Classes {
        settings,
        ours,
        default,
    }
}

/// Whether an Ingress belongs to one of our classes.
pub(super) fn is_ours(reader: &mut Reader<'_>, classes: Classes, ingress: &Ingress) -> bool {
    let Some(settings) = reader.get(classes.settings, &()) else {
        return false;
    };
    let field = ingress.spec.ingress_class_name.as_ref();
    match ingress.meta.ingress_class(field) {
        Some(name) => {
            settings.ingress.classes.contains(&name) || reader.exists(classes.ours, &name)
        }
        // A cluster without a default IngressClass may have other controllers that serve such Ingresses.
        None => match reader.get(classes.default, &()) {
            Some(ours) => *ours,
            None => settings.mode == Mode::Local,
        },
    }
}
