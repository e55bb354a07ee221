//! Removes what an installation left behind, when neither Sesame nor the operator runs.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use sesame_api::GatewayConfiguration;
use sesame_fleet::kube::{release_classes, remove_fleets};

use crate::apply;
use crate::instance::{self, Instance};
use crate::objects::{InstanceKind, NAME};
use crate::removal;

/// The interval between polls of the remaining objects.
const PAUSE: Duration = Duration::from_millis(500);

/// Why an uninstallation failed. The message says how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// Sesame would restore what is removed.
    #[error(
        "Sesame still runs in namespace {0}; delete it first: kubectl --namespace {0} delete deployment {NAME}"
    )]
    Running(String),
    /// A request failed.
    #[error("the API server rejected a request: {0}")]
    Request(#[from] kube::Error),
}

/// Removes the Envoys, certificates and finalizers of the instance in a namespace. Reports the number of objects of Envoys
/// that remain. Releases the GatewayClasses with the controller names of the namespace's configurations; without any, those with the
/// default one.
///
/// # Errors
/// If Sesame still runs, or a request fails.
pub async fn uninstall(
    client: &Client,
    namespace: &str,
    mut remaining: impl FnMut(usize),
) -> Result<(), UninstallError> {
    let deployments = apply::api(client, InstanceKind::Deployment, Some(namespace));
    if deployments.get_metadata_opt(NAME).await?.is_some() {
        return Err(UninstallError::Running(namespace.to_owned()));
    }
    loop {
        let found = remove_fleets(client, namespace).await?;
        remaining(found);
        if found == 0 {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    removal::remove_own(client, namespace).await?;
    let mut controllers = BTreeSet::new();
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &instance::resource());
    let configurations = match api.list(&ListParams::default()).await {
        // The CRD isn't installed.
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        list => list?.items,
    };
    for configuration in configurations {
        let instance = Instance::read(&configuration);
        if let Ok(spec) = &instance.spec
            && let Some(gateway) = &spec.gateway
        {
            controllers.insert(gateway.controller_name.to_string());
        }
        if instance.is_installed() {
            removal::remove_installed(client, &instance).await?;
            instance.set_finalizer(client, false).await?;
        }
    }
    // The instance had no configuration.
    if controllers.is_empty() {
        controllers.insert(GatewayConfiguration::DEFAULT_CONTROLLER_NAME.to_owned());
    }
    for controller in controllers {
        release_classes(client, &controller).await?;
    }
    Ok(())
}
