//! The finalizer that keeps a GatewayClass while Gateways refer to it: deleting the class would delete their Envoys.
//!
//! It belongs to a field manager of its own, so a write needs no knowledge of the object's other finalizers.

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

/// The finalizer, as the Gateway API names it.
const FINALIZER: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";

const FIELD_MANAGER: &str = "sesame-gateway-exists";

/// Adds or removes the finalizer, unless the class with this UID is gone or is being deleted.
///
/// # Errors
/// If the request fails.
pub async fn set_class_finalizer(
    client: &Client,
    name: &str,
    uid: &str,
    present: bool,
) -> Result<(), kube::Error> {
    let resource = resource();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let finalizers = present.then_some(FINALIZER);
    let object = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": { "name": name, "uid": uid, "finalizers": Vec::from_iter(finalizers) },
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    match api.patch(name, &params, &Patch::Apply(&object)).await {
        // 409: another class has the name. 422: no finalizer can be added to a class that is being deleted.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(()),
        result => result.map(drop),
    }
}

/// Removes the finalizer from all classes of a controller that no longer runs.
///
/// # Errors
/// If a request fails.
pub async fn release_classes(client: &Client, controller_name: &str) -> Result<(), kube::Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    let classes = match api.list(&ListParams::default()).await {
        // The Gateway API isn't installed.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        list => list?.items,
    };
    for class in classes {
        let finalizers = class.metadata.finalizers.iter().flatten();
        let held = finalizers.into_iter().any(|name| name == FINALIZER);
        let (Some(name), Some(uid)) = (&class.metadata.name, &class.metadata.uid) else {
            continue;
        };
        if held && class.data["spec"]["controllerName"] == controller_name {
            set_class_finalizer(client, name, uid, false).await?;
        }
    }
    Ok(())
}

fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "GatewayClass");
    ApiResource::from_gvk_with_plural(&kind, "gatewayclasses")
}
