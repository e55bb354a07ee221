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
    for (resource, custom) in resources() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let objects = match api.list_metadata(&selected).await {
            // The CRD isn't installed.
            Err(kube::Error::Api(status)) if custom && status.code == 404 => continue,
            list => list?.items,
        };
        found += objects.len();
        for object in objects {
            let metadata = object.metadata;
            let name = metadata.name.unwrap_or_default();
            if metadata.deletion_timestamp.is_some() {
                continue;
            }
            let api: Api<DynamicObject> = match &metadata.namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            match api.delete(&name, &DeleteParams::background()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                result => drop(result?),
            }
        }
    }
    Ok(found)
}

/// The kinds of a fleet's objects, and whether a CRD defines them.
fn resources() -> Vec<(ApiResource, bool)> {
    let secret = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
    let kinds = ObjectKind::ALL
        .iter()
        // The same resource as `Service`.
        .filter(|kind| **kind != ObjectKind::ClusterService);
    kinds
        .map(|kind| (kind.resource(), kind.is_custom()))
        .chain([(secret, false)])
        .collect()
}
