//! The condition `Available` of a SesameConfiguration.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::json;
use sesame_api::condition::configuration::AVAILABLE;
use sesame_api::{Condition, ConditionStatus};

use crate::instance::{self, Instance};
use crate::objects::{FIELD_MANAGER, NAME};

/// The state of an instance's Deployment.
pub(crate) fn of_deployment(instance: &Instance, deployment: &Deployment) -> Condition {
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let current = status.observed_generation == deployment.metadata.generation;
    let count = |count: Option<i32>| count.unwrap_or_default();
    let (updated, available) = (
        count(status.updated_replicas),
        count(status.available_replicas),
    );
    let total = count(status.replicas);
    if current && updated >= wanted && available >= wanted && total == updated {
        let message = format!("{available} of {wanted} replicas are available.");
        return condition(instance, true, "Available", message);
    }
    let message = format!(
        "{available} of {wanted} replicas are available, {updated} of them with the current settings; if this persists, see \
         `kubectl -n {} describe deployment {NAME}`.",
        instance.name.namespace
    );
    // During a rollout, the old replicas serve.
    match available {
        0 => condition(instance, false, "Unavailable", message),
        _ => condition(instance, true, "Progressing", message),
    }
}

/// A condition.
pub(crate) fn condition(
    instance: &Instance,
    holds: bool,
    reason: &'static str,
    message: impl Into<String>,
) -> Condition {
    Condition::new(
        AVAILABLE,
        holds,
        reason,
        message.into(),
        instance.generation,
    )
}

/// Writes the condition if it differs from the current one. The instance writes the other conditions.
pub(crate) async fn write(
    client: &Client,
    instance: &Instance,
    mut condition: Condition,
) -> Result<(), kube::Error> {
    let before = instance.available.as_ref();
    let since = before.filter(|before| before.status == condition.status);
    condition.last_transition_time = since
        .and_then(|before| before.last_transition_time)
        // Kubernetes stores whole seconds.
        .or_else(|| Timestamp::from_second(Timestamp::now().as_second()).ok());
    if before == Some(&condition) {
        return Ok(());
    }
    if condition.status == ConditionStatus::False {
        tracing::warn!(configuration = %instance.name, reason = &*condition.reason, "{}", condition.message);
    }
    let namespace = &instance.name.namespace;
    let resource = instance::resource();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let status = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": { "name": &*instance.name.name },
        "status": { "conditions": [condition] },
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let written = api
        .patch_status(&instance.name.name, &params, &Patch::Apply(&status))
        .await;
    match written {
        // The configuration is gone.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        written => written.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn status(status: Value) -> (ConditionStatus, String, String) {
        let object = json!({
            "apiVersion": "projectsesame.io/v1alpha1",
            "kind": "SesameConfiguration",
            "metadata": { "name": "sesame", "namespace": "a", "generation": 3 },
            "spec": { "instance": {} },
        });
        let instance = Instance::read(&serde_json::from_value(object).unwrap());
        let deployment = json!({
            "metadata": { "generation": 2 },
            "spec": { "replicas": 2, "selector": {}, "template": {} },
            "status": status,
        });
        let condition = of_deployment(&instance, &serde_json::from_value(deployment).unwrap());
        assert_eq!(condition.observed_generation, 3);
        (
            condition.status,
            condition.reason.into_owned(),
            condition.message.into_owned(),
        )
    }

    #[test]
    fn an_instance_is_available_once_its_rollout_is_complete() {
        let complete = json!({
            "observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
        });
        let mut stale = complete.clone();
        stale["observedGeneration"] = json!(1);
        let mut surplus = complete.clone();
        surplus["replicas"] = json!(3);
        assert_eq!(status(complete).1, "Available");
        assert_eq!(status(stale).1, "Progressing");
        assert_eq!(status(surplus).1, "Progressing");
        let (holds, reason, message) = status(json!({}));
        assert_eq!((holds, &*reason), (ConditionStatus::False, "Unavailable"));
        assert!(
            message.contains("kubectl -n a describe deployment sesame"),
            "{message}"
        );
    }
}
