//! The `instance` section of SesameConfigurations.

use crate::configuration::{EnvoyNamespace, InstanceConfiguration};

use super::configuration::{amounts, object_name, toleration};
use super::{Check, at, each, ensure, known, optional};

/// The maximum number of replicas of Sesame.
const MAX_REPLICAS: u32 = 16;

pub(super) fn instance(instance: &InstanceConfiguration) -> Check {
    optional("replicas", instance.replicas.as_ref(), |count| {
        let fits = (1..=MAX_REPLICAS).contains(count);
        ensure(fits, &format!("expected a number from 1 to {MAX_REPLICAS}"))
    })?;
    let namespace = instance.envoy_namespace.as_ref();
    known("envoyNamespace", namespace, EnvoyNamespace::KNOWN)?;
    optional("resources", instance.resources.as_ref(), |resources| {
        at("requests", amounts(&resources.requests))?;
        at("limits", amounts(&resources.limits))
    })?;
    let tolerations = instance.tolerations.as_deref().unwrap_or_default();
    each("tolerations", tolerations, 64, toleration)?;
    let class = instance.priority_class_name.as_deref();
    optional("priorityClassName", class, object_name)?;
    let secrets = instance.image_pull_secrets.as_deref().unwrap_or_default();
    each("imagePullSecrets", secrets, 16, |name| object_name(name))
}
