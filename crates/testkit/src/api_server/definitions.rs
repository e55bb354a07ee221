//! The Gateway API CRDs on a test's API server.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind, Request, TypeMeta};
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use tokio::time::sleep;

use super::{PAUSE, places};

/// How long the server may take to serve a CRD's kind.
const PATIENCE: Duration = Duration::from_secs(60);

/// A set of CRDs: a release channel of the Gateway API, an earlier release, or those in `deploy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Stable kinds and fields.
    Standard,
    /// All kinds and fields. A server with these CRDs rejects the standard channel.
    Experimental,
    /// XListenerSet, which only earlier releases include.
    Early,
    /// Sesame's own kinds.
    Sesame,
    /// Sesame's own kinds, in Contour's API group.
    Contour,
}

impl Channel {
    /// The name of the channel's directory.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Experimental => "experimental",
            Self::Early => "early",
            Self::Sesame | Self::Contour => "crds",
        }
    }
}

pub(super) async fn install(client: &Client, channel: Channel) -> Result<()> {
    let parent = match channel {
        Channel::Sesame | Channel::Contour => places::deployed(),
        Channel::Standard | Channel::Experimental | Channel::Early => places::definitions()?,
    };
    let objects = read(&parent.join(channel.folder()), |text| match channel {
        Channel::Contour => text.replace("projectsesame.io", "projectcontour.io"),
        _ => text,
    })?;
    for object in &objects {
        let api = api(client, object)?;
        let params = PatchParams::apply("sesame-tests").force();
        api.patch(&object.name_any(), &params, &Patch::Apply(object))
            .await
            .with_context(|| format!("{} is rejected", object.name_any()))?;
    }
    let until = Instant::now() + PATIENCE;
    let is_definition = |types: &TypeMeta| types.kind == "CustomResourceDefinition";
    for object in &objects {
        if !object.types.as_ref().is_some_and(is_definition) {
            continue;
        }
        while let Err(error) = list(client, &object.data["spec"]).await {
            if Instant::now() > until {
                let name = object.name_any();
                return Err(error).context(format!("{name} is not served after {PATIENCE:?}"));
            }
            sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Lists a CRD's objects in each served version. Keeps failing for a while after the CRD is established.
async fn list(client: &Client, spec: &Value) -> Result<()> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("an invalid CRD");
    let (group, plural) = (text(&spec["group"])?, text(&spec["names"]["plural"])?);
    let versions = spec["versions"].as_array().context("an invalid CRD")?;
    for version in versions.iter().filter(|version| version["served"] == true) {
        let version = text(&version["name"])?;
        let request = Request::new(format!("/apis/{group}/{version}/{plural}"));
        let request = request.list(&ListParams::default().limit(1))?;
        client.request_text(request).await?;
    }
    Ok(())
}

fn api(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let types = object.types.as_ref().context("an object without a kind")?;
    let kind = GroupVersionKind::try_from(types)?;
    Ok(Api::all_with(client.clone(), &ApiResource::from_gvk(&kind)))
}

/// All objects in a directory's YAML files, after applying `change` to each file's text.
fn read(folder: &Path, change: impl Fn(String) -> String) -> Result<Vec<DynamicObject>> {
    let unreadable = || format!("can't read {}", folder.display());
    let mut paths = fs::read_dir(folder)
        .with_context(unreadable)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .with_context(unreadable)?;
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "yaml")
            && !path.ends_with("kustomization.yaml")
    });
    paths.sort();
    let mut objects = Vec::new();
    for path in paths {
        let text = change(fs::read_to_string(&path).with_context(unreadable)?);
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
            .with_context(|| format!("{} is not valid YAML", path.display()))?;
        for document in documents.into_iter().filter(Value::is_object) {
            objects.push(serde_json::from_value(document)?);
        }
    }
    Ok(objects)
}
