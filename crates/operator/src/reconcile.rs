//! The controller: reconciles configurations when they or the objects of their instances change.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use sesame_api::{Condition, ConfigurationSpec, NamespacedName};

use crate::OperatorConfig;
use crate::apply::{self, ApplyError};
use crate::conflict;
use crate::instance::{self, Instance};
use crate::objects::{self, CONFIGURATION, InstanceKind, NAME};
use crate::removal;
use crate::status;

/// How soon a failed or blocked step is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// How long changes are collected: a rollout changes a Deployment many times, and each reconciliation reads and writes all
/// objects of an instance.
const DEBOUNCE: Duration = Duration::from_millis(300);

/// How soon a removal continues: most of its steps cause no event.
const REMOVAL_RETRY: Duration = Duration::from_secs(1);

struct Context {
    client: Client,
    config: OperatorConfig,
    configurations: Store<DynamicObject>,
}

/// Runs instances until dropped.
pub async fn run(client: Client, config: OperatorConfig) {
    let resource = instance::resource();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut controller = Controller::new_with(api, watcher::Config::default(), resource)
        .with_config(controller::Config::default().debounce(DEBOUNCE));
    for kind in InstanceKind::ALL {
        let resource = kind.resource();
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let selected = watcher::Config::default().labels(&objects::selector());
        controller = controller.watches_with(api, resource, selected, |object| owner(&object));
    }
    let context = Arc::new(Context {
        client,
        config,
        configurations: controller.store(),
    });
    let mut results = pin!(controller.run(reconcile, |_, _, _| Action::requeue(RETRY), context));
    while let Some(result) = results.next().await {
        if let Err(error) = result {
            tracing::warn!("{error}");
        }
    }
}

/// The configuration that an object belongs to.
fn owner(object: &DynamicObject) -> Option<ObjectRef<DynamicObject>> {
    let annotations = object.metadata.annotations.as_ref()?;
    let (namespace, name) = annotations.get(CONFIGURATION)?.split_once('/')?;
    Some(instance::object_ref(&NamespacedName::new(namespace, name)))
}

async fn reconcile(
    object: Arc<DynamicObject>,
    context: Arc<Context>,
) -> Result<Action, kube::Error> {
    let instance = Instance::read(&object);
    match (instance.is_desired(), instance.is_installed()) {
        (true, _) => context.run(&instance).await,
        (false, true) => context.remove(&instance).await,
        // It has no instance, or other finalizers are still working.
        (false, false) => Ok(Action::await_change()),
    }
}

impl Context {
    async fn run(&self, instance: &Instance) -> Result<Action, kube::Error> {
        let (condition, action) = match &instance.spec {
            Ok(spec) => self.install(instance, spec).await?,
            Err(error) => {
                let message =
                    format!("The spec can't be read, so the instance isn't changed: {error}.");
                (
                    status::condition(instance, false, "Invalid", message),
                    Action::await_change(),
                )
            }
        };
        status::write(&self.client, instance, condition).await?;
        Ok(action)
    }

    /// Creates or updates the objects.
    async fn install(
        &self,
        instance: &Instance,
        spec: &ConfigurationSpec,
    ) -> Result<(Condition, Action), kube::Error> {
        let all = self.configurations.state();
        let all: Vec<Instance> = all.iter().map(|object| Instance::read(object)).collect();
        if let Some(message) = conflict::conflict(instance, &all) {
            let condition = status::condition(instance, false, "Conflict", message);
            return Ok((condition, Action::requeue(RETRY)));
        }
        if !instance.is_installed() {
            instance.set_finalizer(&self.client, true).await?;
        }
        let desired = objects::objects(&self.config, instance, spec);
        let mut deployment = None;
        for object in &desired {
            match apply::apply(&self.client, instance, object).await {
                Ok(written) if object.kind == InstanceKind::Deployment => {
                    deployment = Some(written)
                }
                Ok(_) => {}
                Err(error) => {
                    let reason = match error {
                        ApplyError::Foreign { .. } => "ObjectExists",
                        ApplyError::Deleting { .. } | ApplyError::Request { .. } => "Failed",
                    };
                    let condition = status::condition(instance, false, reason, format!("{error}."));
                    return Ok((condition, Action::requeue(RETRY)));
                }
            }
        }
        // The namespaces to watch may have changed, and a NetworkPolicy is optional.
        for kind in [
            InstanceKind::RoleBinding,
            InstanceKind::ClusterRoleBinding,
            InstanceKind::NetworkPolicy,
        ] {
            apply::delete_except(&self.client, instance, kind, &desired).await?;
        }
        let deployment = deployment.and_then(|written| written.try_parse().ok());
        let condition = match deployment {
            Some(deployment) => status::of_deployment(instance, &deployment),
            None => status::condition(
                instance,
                false,
                "Failed",
                format!("The API server returned an invalid Deployment {NAME}."),
            ),
        };
        Ok((condition, Action::await_change()))
    }

    async fn remove(&self, instance: &Instance) -> Result<Action, kube::Error> {
        match removal::remove(&self.client, instance).await {
            Ok(Some(waiting)) => {
                let condition = status::condition(instance, false, "Removing", waiting);
                status::write(&self.client, instance, condition).await?;
                Ok(Action::requeue(REMOVAL_RETRY))
            }
            Ok(None) => {
                instance.set_finalizer(&self.client, false).await?;
                Ok(Action::await_change())
            }
            Err(error) => {
                let message = format!("The instance can't be removed: {error}.");
                let condition = status::condition(instance, false, "Failed", message);
                status::write(&self.client, instance, condition).await?;
                Err(error)
            }
        }
    }
}
