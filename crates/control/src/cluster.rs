//! Reads the statuses of a cluster's objects.
//!
//! In: an API server. Out: a [`StatusStore`] as in a local run, containing the objects' own statuses. Nothing is
//! translated.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::Value;
use sesame_api::{
    Condition, ConditionStatus, IngressClass, Kind, Object, ObjectStatus, ParentReference,
    RouteParentStatus, condition,
};
use sesame_translate::settings::INGRESS_CONTROLLER;

use crate::status_store::{StatusStore, is_shown};

/// Page size of lists from the API server, in objects.
const PAGE: u32 = 500;

/// Which namespaces to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces.
    All,
    /// This namespace.
    Namespace(String),
    /// The namespace of the current context.
    Current,
}

/// Why the statuses can't be read. The message says how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No API server is configured.
    #[error("no API server is configured: {0}; set --kubeconfig or KUBECONFIG")]
    Kubeconfig(String),
    /// A request failed, or the response is invalid.
    #[error("cannot list {kind}s: {source}")]
    List {
        /// The listed kind.
        kind: Kind,
        /// The cause.
        source: Box<kube::Error>,
    },
}

/// Resolves the address of the API server, and the credentials for it.
///
/// # Errors
/// If no API server is configured.
pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<kube::Config, ClusterError> {
    let kubeconfig_error = |error: &dyn std::error::Error| ClusterError::Kubeconfig(chain(error));
    match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(|error| kubeconfig_error(&error))?;
            let options = KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(file, &options).await;
            config.map_err(|error| kubeconfig_error(&error))
        }
        None => kube::Config::infer()
            .await
            .map_err(|error| kubeconfig_error(&error)),
    }
}

/// # Errors
/// If the configuration of the API server is invalid.
pub(crate) fn client(config: kube::Config) -> Result<Client, ClusterError> {
    Client::try_from(config).map_err(|error| ClusterError::Kubeconfig(chain(&error)))
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

/// Reads Gateways, ListenerSets, routes, Ingresses, HTTPProxies and ExtensionServices with their statuses.
/// `ingress_class` is the name of the ingress class that Sesame implements: Ingresses and HTTPProxies of other
/// controllers aren't included. `contour` includes Contour's objects.
///
/// # Errors
/// If no API server is configured, or a request fails.
pub async fn status_store(
    kubeconfig: Option<&Path>,
    scope: &Scope,
    ingress_class: &str,
    contour: bool,
) -> Result<StatusStore, ClusterError> {
    let config = connect(kubeconfig).await?;
    let namespace = match scope {
        Scope::All => None,
        Scope::Namespace(namespace) => Some(namespace.clone()),
        Scope::Current => Some(config.default_namespace.clone()),
    };
    let client = client(config)?;
    let status_store = StatusStore::default();
    let now = jiff::Timestamp::now();
    let classes = Classes::read(&client, ingress_class).await?;
    let kinds = sesame_sources::kube::kinds(contour).into_iter();
    for kind in kinds.filter(|kind| is_shown(*kind)) {
        for mut object in list(&client, kind, namespace.as_deref()).await? {
            if contour {
                object.adopt_contour();
            }
            if classes.include(&object) {
                status_store.upsert(&object);
                status_store.set(&object.key(), status(&object), now);
            }
        }
    }
    Ok(status_store)
}

/// The ingress classes that Sesame implements.
#[derive(Debug)]
struct Classes {
    /// The name in the settings.
    name: Arc<str>,
    /// This name, and those of the IngressClasses whose controller is Sesame.
    names: BTreeSet<Arc<str>>,
    /// Whether one of these classes is a default class.
    default: bool,
}

impl Classes {
    async fn read(client: &Client, name: &str) -> Result<Self, ClusterError> {
        let classes = list(client, Kind::IngressClass, None).await?;
        Ok(Self::of(&classes, name))
    }

    fn of(classes: &[Object], name: &str) -> Self {
        let mut ours = Self {
            name: name.into(),
            names: BTreeSet::from([name.into()]),
            default: false,
        };
        for class in classes {
            if let Object::IngressClass(class) = class
                && (*class.meta.name == *name
                    || class.spec.controller.as_deref() == Some(INGRESS_CONTROLLER))
            {
                let default = class.meta.annotations.get(IngressClass::DEFAULT);
                ours.default |= default.is_some_and(|default| default == "true");
                ours.names.insert(Arc::clone(&class.meta.name));
            }
        }
        ours
    }

    /// Whether to include an object; false if it belongs to another ingress controller.
    fn include(&self, object: &Object) -> bool {
        match object {
            Object::Ingress(ingress) => {
                let field = ingress.spec.ingress_class_name.as_ref();
                let class = ingress.meta.ingress_class(field);
                class.map_or(self.default, |class| self.names.contains(&class))
            }
            Object::HTTPProxy(proxy) | Object::ContourHTTPProxy(proxy) => {
                let field = proxy.spec.ingress_class_name.as_ref();
                let class = proxy.meta.ingress_class(field);
                class.is_none_or(|class| *class == *self.name)
            }
            _ => true,
        }
    }
}

/// The API resource of a kind.
pub(crate) fn resource(kind: Kind) -> ApiResource {
    let (group, version) = kind.api_version().split_once('/').unwrap_or(("", "v1"));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: kind.api_version().to_owned(),
        kind: kind.as_str().to_owned(),
        plural: kind.plural().to_owned(),
    }
}

async fn list(
    client: &Client,
    kind: Kind,
    namespace: Option<&str>,
) -> Result<Vec<Object>, ClusterError> {
    let resource = resource(kind);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let mut objects = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = match api.list(&page).await {
            Ok(list) => list,
            // The cluster lacks the CRD.
            Err(kube::Error::Api(status)) if kind != Kind::Gateway && status.code == 404 => {
                return Ok(objects);
            }
            // Few users have permission to read these kinds.
            Err(kube::Error::Api(status)) if status.code == 403 && is_optional(kind) => {
                return Ok(objects);
            }
            Err(source) => {
                let source = Box::new(source);
                return Err(ClusterError::List { kind, source });
            }
        };
        for item in list.items {
            objects.extend(decode(kind, &item));
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(objects),
        }
    }
}

/// Whether this kind is skipped if the user isn't allowed to read it.
fn is_optional(kind: Kind) -> bool {
    kind.is_of_contour()
        || matches!(
            kind,
            Kind::XListenerSet | Kind::HTTPProxy | Kind::ExtensionService | Kind::IngressClass
        )
}

/// Decodes an object; `None` if it is invalid, since Sesame doesn't write statuses of invalid objects.
fn decode(kind: Kind, item: &DynamicObject) -> Option<Object> {
    let mut value = serde_json::to_value(item).ok()?;
    // List items lack `apiVersion` and `kind`.
    value["apiVersion"] = Value::from(kind.api_version());
    value["kind"] = Value::from(kind.as_str());
    Object::decode_admitted(value).ok().flatten()
}

/// The object's status. Parents without a status get a pending one.
fn status(object: &Object) -> Option<ObjectStatus> {
    if let Object::Gateway(gateway) = object {
        return Some(ObjectStatus::Gateway(gateway.status.clone().into()));
    }
    if let Some(set) = object.as_listener_set() {
        return Some(ObjectStatus::ListenerSet(set.status.clone().into()));
    }
    match object {
        Object::Ingress(ingress) => {
            return Some(ObjectStatus::Ingress(ingress.status.clone().into()));
        }
        Object::HTTPProxy(proxy) | Object::ContourHTTPProxy(proxy) => {
            return Some(ObjectStatus::HttpProxy(proxy.status.clone().into()));
        }
        Object::ExtensionService(extension) | Object::ContourExtensionService(extension) => {
            return Some(ObjectStatus::Conditions(extension.status.clone().into()));
        }
        _ => {}
    }
    let route = object.as_route()?;
    let mut status = route.status.clone();
    for parent in route.parent_refs {
        if !status
            .parents
            .iter()
            .any(|entry| entry.parent_ref == *parent)
        {
            status.parents.push(pending_parent(parent));
        }
    }
    Some(ObjectStatus::Route(status.into()))
}

fn pending_parent(parent: &ParentReference) -> RouteParentStatus {
    let accepted = Condition::new(
        condition::route::ACCEPTED,
        ConditionStatus::Unknown,
        "Pending",
        "no controller has reported a status yet: check that the parent exists and its controller is running",
        0,
    );
    RouteParentStatus {
        parent_ref: parent.clone(),
        controller_name: "".into(),
        conditions: Box::new([accepted]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::status_store::Severity;

    #[test]
    fn objects_of_other_ingress_controllers_are_not_shown() {
        let object = |value| Object::decode(value).unwrap().unwrap();
        let class = |name: &str, controller: &str, default: &str| {
            object(json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
                "metadata": {"name": name, "annotations": {IngressClass::DEFAULT: default}},
                "spec": {"controller": controller},
            }))
        };
        let ingress = |class: Option<&str>| {
            object(json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
                "metadata": {"name": "a", "namespace": "ns"},
                "spec": {
                    "ingressClassName": class,
                    "defaultBackend": {"service": {"name": "a", "port": {"number": 80}}},
                },
            }))
        };
        let proxy = |class: Option<&str>| {
            object(json!({
                "apiVersion": "projectsesame.io/v1", "kind": "HTTPProxy",
                "metadata": {"name": "a", "namespace": "ns"},
                "spec": {
                    "ingressClassName": class,
                    "virtualhost": {"fqdn": "a.example"},
                    "routes": [{"services": [{"name": "a", "port": 80}]}],
                },
            }))
        };
        let classes = [
            class("edge", INGRESS_CONTROLLER, "false"),
            class("other", "example.com/other", "true"),
        ];
        let ours = Classes::of(&classes, "sesame");
        assert!(ours.include(&ingress(Some("sesame"))) && ours.include(&ingress(Some("edge"))));
        assert!(!ours.include(&ingress(Some("other"))) && !ours.include(&ingress(None)));
        assert!(ours.include(&proxy(None)) && ours.include(&proxy(Some("sesame"))));
        assert!(!ours.include(&proxy(Some("other"))));
        let ours = Classes::of(&[class("edge", INGRESS_CONTROLLER, "true")], "sesame");
        assert!(ours.include(&ingress(None)));
    }

    #[test]
    fn a_parent_without_a_status_is_shown_as_waiting() {
        let parent =
            json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"});
        let route = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "shop", "namespace": "ns"},
            "spec": {"parentRefs": [parent, {"name": "other"}]},
            "status": {"parents": [{"parentRef": parent, "controllerName": "x/y", "conditions": [
                {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]},
        });
        let object = Object::decode(route).unwrap().unwrap();
        let status_store = StatusStore::default();
        status_store.upsert(&object);
        status_store.set(&object.key(), status(&object), jiff::Timestamp::UNIX_EPOCH);
        let overview = status_store.overview(10, 0);
        let severities: Vec<Severity> = overview.routes[0]
            .parents
            .iter()
            .map(|p| p.severity)
            .collect();
        assert_eq!(severities, [Severity::Ok, Severity::Waiting]);
    }

    #[test]
    fn what_envoy_rejected_is_shown() {
        let condition = |type_: &str, status: &str, reason: &str| {
            json!([{
                "type": type_, "status": status, "reason": reason, "message": "Envoy rejected it",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }])
        };
        let metadata = json!({"name": "a", "namespace": "ns"});
        let gateway = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": metadata,
            "spec": {
                "gatewayClassName": "sesame",
                "listeners": [{"name": "web", "port": 80, "protocol": "HTTP"}],
            },
            "status": {"listeners": [{
                "name": "web", "attachedRoutes": 0, "supportedKinds": [],
                "conditions": condition("Programmed", "False", "Invalid"),
            }]},
        });
        let parent = json!({"name": "a"});
        let route = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": metadata,
            "spec": {"parentRefs": [parent]},
            "status": {"parents": [{
                "parentRef": parent, "controllerName": "x/y",
                "conditions": condition("PartiallyInvalid", "True", "RejectedByEnvoy"),
            }]},
        });
        let status_store = StatusStore::default();
        for object in [gateway, route] {
            let object = Object::decode(object).unwrap().unwrap();
            status_store.upsert(&object);
            status_store.set(&object.key(), status(&object), jiff::Timestamp::UNIX_EPOCH);
        }
        let overview = status_store.overview(10, 0);
        let listener = &overview.gateways[0].listeners[0];
        let parent = &overview.routes[0].parents[0];
        for shown in [
            (listener.severity, listener.message.as_deref()),
            (parent.severity, parent.message.as_deref()),
        ] {
            assert_eq!(shown, (Severity::Error, Some("Envoy rejected it")));
        }
    }
}
