//! Removes all fleets of an instance of Sesame that no longer runs.

use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

use super::kind::ObjectKind;
use super::labels;

/// Deletes the objects of all fleets, in all namespaces, and returns how many objects it found: zero once the fleets are
/// gone. `instance` is the namespace of the instance.
///
/// # Errors
/// If a request fails.
pub async fn remove_fleets(client: &Client, instance: &str) -> Result<usize, kube::Error> {
    let selected = ListParams::default().labels(&labels::instance_selector(instance));
    let mut found = 0;
    for resource in resources() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        for object in api.list_metadata(&selected).await?.items {
            found += 1;
            let metadata = object.metadata;
            let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) else {
                continue;
            };
            if metadata.deletion_timestamp.is_some() {
                continue;
            }
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), namespace, &resource);
            match api.delete(name, &DeleteParams::background()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                result => drop(result?),
            }
        }
    }
    Ok(found)
}

/// The kinds of a fleet's objects.
fn resources() -> Vec<ApiResource> {
    let secret = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
    let kinds = ObjectKind::ALL
        .iter()
        // The same resource as `Service`.
        .filter(|kind| **kind != ObjectKind::ClusterService);
    kinds.map(|kind| kind.resource()).chain([secret]).collect()
}
