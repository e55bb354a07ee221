//! A SesameConfiguration as the operator reads it, and its finalizer.

use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use serde_json::json;
use sesame_api::{
    Condition, ConfigurationSpec, Kind, NamespacedName, Object, condition::configuration::AVAILABLE,
};
use sesame_fleet::kube::names;

/// The finalizer of a configuration with an instance.
pub(crate) const FINALIZER: &str = "projectsesame.io/instance";

/// A SesameConfiguration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Instance {
    pub(crate) name: NamespacedName,
    pub(crate) uid: String,
    pub(crate) created: Option<Timestamp>,
    pub(crate) generation: i64,
    /// The settings, or why they can't be read.
    pub(crate) spec: Result<ConfigurationSpec, String>,
    /// Its current condition.
    pub(crate) available: Option<Condition>,
    pub(crate) deleting: bool,
    pub(crate) finalizers: Vec<String>,
    pub(crate) resource_version: String,
}

impl Instance {
    pub(crate) fn read(object: &DynamicObject) -> Self {
        let metadata = &object.metadata;
        let decoded = serde_json::to_value(object)
            .map_err(|error| error.to_string())
            .and_then(|value| Object::decode_admitted(value).map_err(|error| error.to_string()));
        let (spec, available) = match decoded {
            Ok(Some(Object::SesameConfiguration(found))) => {
                let mut conditions = found.status.conditions.into_iter();
                let available = conditions.find(|condition| condition.type_ == AVAILABLE);
                (Ok(found.spec), available)
            }
            Ok(_) => (Err("its version isn't supported".to_owned()), None),
            Err(error) => (Err(error), None),
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self {
            name: NamespacedName::new(text(&metadata.namespace), text(&metadata.name)),
            uid: text(&metadata.uid),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            generation: metadata.generation.unwrap_or_default(),
            spec,
            available,
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            resource_version: text(&metadata.resource_version),
        }
    }

    /// Whether the configuration describes an instance. An unreadable one keeps its instance.
    pub(crate) fn is_desired(&self) -> bool {
        let described = match &self.spec {
            Ok(spec) => spec.describes_instance(),
            Err(_) => self.is_installed(),
        };
        described && !self.deleting
    }

    /// Whether objects of an instance may exist.
    pub(crate) fn is_installed(&self) -> bool {
        self.finalizers.iter().any(|name| name == FINALIZER)
    }

    /// Adds or removes the finalizer.
    pub(crate) async fn set_finalizer(
        &self,
        client: &Client,
        present: bool,
    ) -> Result<(), kube::Error> {
        let others = self.finalizers.iter().filter(|name| *name != FINALIZER);
        let ours = present.then_some(FINALIZER);
        let finalizers: Vec<&str> = others.map(String::as_str).chain(ours).collect();
        // The resource version prevents the loss of a finalizer that another client adds in the meantime.
        let patch = json!({
            "metadata": {
                "resourceVersion": self.resource_version,
                "finalizers": finalizers,
            },
        });
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &self.name.namespace, &resource());
        let params = PatchParams::default();
        match api
            .patch_metadata(&self.name.name, &params, &Patch::Merge(&patch))
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            result => result.map(drop),
        }
    }

    /// The name as the value of a label.
    pub(crate) fn label_value(&self) -> String {
        names::label_value(&self.name.name)
    }
}

/// The reference to a configuration, for the controller's queue.
pub(crate) fn object_ref(name: &NamespacedName) -> ObjectRef<DynamicObject> {
    ObjectRef::new_with(&name.name, resource()).within(&name.namespace)
}

/// The API resource of SesameConfigurations.
pub(crate) fn resource() -> kube::api::ApiResource {
    let kind = Kind::SesameConfiguration;
    let (group, version) = kind.api_version().split_once('/').unwrap_or_default();
    kube::api::ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: kind.api_version().to_owned(),
        kind: kind.as_str().to_owned(),
        plural: kind.plural().to_owned(),
    }
}
