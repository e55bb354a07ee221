//! Removes an instance.

use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use sesame_fleet::kube::{identity, release_classes, remove_fleets};

use crate::apply::{self, belongs_to};
use crate::instance::Instance;
use crate::objects::{self, InstanceKind, NAME};

/// Groups, kinds and names of the objects that an instance creates for itself: its CAs, the certificates of the xDS server and of
/// Envoys that run outside Sesame, and the Lease of its replicas.
const OF_INSTANCE: [(&str, &str, &str); 4] = [
    ("", "Secret", identity::CA_SECRET),
    ("", "Secret", identity::SERVER_SECRET),
    ("", "Secret", "sesame-envoy"),
    ("coordination.k8s.io", "Lease", "sesame-leader"),
];

/// Takes the next steps of a removal. Returns what it waits for; `None` once everything is gone. Sesame ends first, since
/// it would restore the objects of its fleets.
pub(crate) async fn remove(
    client: &Client,
    instance: &Instance,
) -> Result<Option<&'static str>, kube::Error> {
    let namespace = &*instance.name.namespace;
    let deployments = apply::api(client, InstanceKind::Deployment, Some(namespace));
    if let Some(found) = deployments.get_metadata_opt(NAME).await?
        && belongs_to(&found.metadata, instance)
    {
        apply::delete(&deployments, NAME, &DeleteParams::background()).await?;
    }
    // Pods end later than their Deployment.
    let pods = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let pods: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &pods);
    let selected = ListParams::default().labels(&objects::pod_selector(instance));
    if !pods.list_metadata(&selected).await?.items.is_empty() {
        return Ok(Some("Waiting for the pods of Sesame to end."));
    }
    if remove_fleets(client, namespace).await? > 0 {
        return Ok(Some("Waiting for the objects of the Envoys to be deleted."));
    }
    remove_own(client, namespace).await?;
    if let Ok(spec) = &instance.spec
        && let Some(gateway) = &spec.gateway
    {
        release_classes(client, &gateway.controller_name).await?;
    }
    remove_installed(client, instance).await?;
    Ok(None)
}

/// Removes the objects that Sesame created for itself.
pub(crate) async fn remove_own(client: &Client, namespace: &str) -> Result<(), kube::Error> {
    for (group, kind, name) in OF_INSTANCE {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        apply::delete(&api, name, &DeleteParams::background()).await?;
    }
    Ok(())
}

/// Removes the objects that the operator created, in the reverse of the order in which it writes them.
pub(crate) async fn remove_installed(
    client: &Client,
    instance: &Instance,
) -> Result<(), kube::Error> {
    for kind in InstanceKind::ALL.into_iter().rev() {
        apply::delete_except(client, instance, kind, &[]).await?;
    }
    Ok(())
}
