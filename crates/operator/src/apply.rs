//! Writes the objects of an instance.

use std::collections::BTreeSet;

use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::ObjectMeta;

use crate::instance::Instance;
use crate::objects::{self, CONFIGURATION, DesiredObject, FIELD_MANAGER, InstanceKind};

/// Why an object can't be written. The message says how to fix it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    /// It has the name of an object of the instance, but isn't one.
    #[error(
        "{kind} {name} exists but doesn't belong to this configuration: delete it, or create the configuration in another namespace"
    )]
    Foreign { kind: String, name: String },
    /// The object is being deleted.
    #[error("{kind} {name} is being deleted")]
    Deleting { kind: String, name: String },
    #[error("cannot write {kind} {name}: {source}")]
    Request {
        kind: String,
        name: String,
        source: Box<kube::Error>,
    },
}

/// The API for a kind of object, in a namespace or (`None`) in all.
pub(crate) fn api(
    client: &Client,
    kind: InstanceKind,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let resource = kind.resource();
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Whether an object belongs to a configuration.
pub(crate) fn belongs_to(metadata: &ObjectMeta, instance: &Instance) -> bool {
    let annotations = metadata.annotations.as_ref();
    let owner = annotations.and_then(|annotations| annotations.get(CONFIGURATION));
    owner.is_some_and(|owner| *owner == instance.name.to_string())
}

/// Writes an object by server-side apply; without a difference, the API server changes nothing. Never writes an object
/// that doesn't belong to the configuration.
pub(crate) async fn apply(
    client: &Client,
    instance: &Instance,
    desired: &DesiredObject,
) -> Result<DynamicObject, ApplyError> {
    let kind = desired.kind.resource().kind;
    let name = match &desired.namespace {
        Some(namespace) => format!("{namespace}/{}", desired.name),
        None => desired.name.clone(),
    };
    let api = api(client, desired.kind, desired.namespace.as_deref());
    let written = async {
        let found = api.get_metadata_opt(&desired.name).await?;
        if let Some(found) = &found {
            if !belongs_to(&found.metadata, instance) {
                return Ok(Err(ApplyError::Foreign {
                    kind: kind.clone(),
                    name: name.clone(),
                }));
            }
            if found.metadata.deletion_timestamp.is_some() {
                return Ok(Err(ApplyError::Deleting {
                    kind: kind.clone(),
                    name: name.clone(),
                }));
            }
        }
        let params = PatchParams {
            // An object that another client creates in the meantime isn't overwritten.
            force: found.is_some(),
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        api.patch(&desired.name, &params, &Patch::Apply(&desired.object))
            .await
            .map(Ok)
    };
    match written.await {
        Ok(result) => result,
        Err(source) => Err(ApplyError::Request {
            kind,
            name,
            source: Box::new(source),
        }),
    }
}

/// Deletes the instance's objects of a kind, in all namespaces, except the desired ones.
pub(crate) async fn delete_except(
    client: &Client,
    instance: &Instance,
    kind: InstanceKind,
    desired: &[DesiredObject],
) -> Result<(), kube::Error> {
    let kept: BTreeSet<(Option<&str>, &str)> = desired
        .iter()
        .filter(|object| object.kind == kind)
        .map(|object| (object.namespace.as_deref(), &*object.name))
        .collect();
    let selected = ListParams::default().labels(&objects::instance_selector(instance));
    for found in api(client, kind, None)
        .list_metadata(&selected)
        .await?
        .items
    {
        let metadata = found.metadata;
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        let name = name.unwrap_or_default();
        if !kept.contains(&(namespace, name)) && belongs_to(&metadata, instance) {
            delete(
                &api(client, kind, namespace),
                name,
                &DeleteParams::background(),
            )
            .await?;
        }
    }
    Ok(())
}

/// Deletes an object, if it exists.
pub(crate) async fn delete(
    api: &Api<DynamicObject>,
    name: &str,
    params: &DeleteParams,
) -> Result<(), kube::Error> {
    match api.delete(name, params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop),
    }
}
