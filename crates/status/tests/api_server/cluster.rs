//! An API server, namespaces, and writers that watch them.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use http::{Method, Request};
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sesame_api::{Kind, LiveStatus, ObjectKey, ObjectStatus};
use sesame_status::{Counters, Writer, WriterConfig};
use sesame_testkit::api_server::{ApiServer, Channel};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) const OURS: &str = "projectsesame.io/gateway-controller";
/// The timeout of every wait.
const TIMEOUT: Duration = Duration::from_secs(240);
/// The polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A namespace and a client for it.
pub(crate) struct Cluster {
    pub client: Client,
    pub namespace: String,
}

/// A running writer with its watches. Dropping it simulates a crash.
pub(crate) struct Replica {
    pub writer: Writer,
    pub counters: Arc<Counters>,
    _tasks: JoinSet<()>,
}

/// A live object, with its status as JSON.
#[derive(Deserialize)]
pub(crate) struct Stored {
    pub metadata: Metadata,
    pub status: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub resource_version: String,
}

/// Creates a namespace on the shared server, with the Gateway API installed.
pub(crate) async fn cluster(namespace: &str) -> Cluster {
    let server = ApiServer::shared().await.unwrap();
    cluster_on(server, namespace).await
}

/// Creates a namespace on this server, with the Gateway API installed.
pub(crate) async fn cluster_on(server: &ApiServer, namespace: &str) -> Cluster {
    server.install_definitions(Channel::Standard).await.unwrap();
    let cluster = Cluster {
        client: server.admin().await.unwrap(),
        namespace: namespace.to_owned(),
    };
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    cluster.post("/api/v1/namespaces", &object).await;
    cluster
}

impl Cluster {
    pub(crate) fn key(&self, kind: Kind, name: &str) -> ObjectKey {
        ObjectKey::new(kind, &*self.namespace, name)
    }

    pub(crate) fn route(&self, name: &str) -> ObjectKey {
        self.key(Kind::HTTPRoute, name)
    }

    /// Creates an HTTPRoute with Gateway `g` as its parent.
    pub(crate) async fn create_route(&self, name: &str) {
        let spec = json!({"parentRefs": [{"name": "g"}], "rules": [{}]});
        self.create(Kind::HTTPRoute, name, spec).await;
    }

    pub(crate) async fn create(&self, kind: Kind, name: &str, spec: Value) {
        let object = json!({"apiVersion": kind.api_version(), "kind": kind.as_str(),
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec});
        self.post(&self.collection(kind), &object).await;
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) {
        self.request(Method::POST, path, "application/json", object)
            .await
            .unwrap();
    }

    /// Patches the object as another client, with a merge patch.
    pub(crate) async fn patch(&self, key: &ObjectKey, patch: &Value) {
        let path = format!(
            "{}/{}?fieldManager=user",
            self.collection(key.kind),
            key.name
        );
        let mime = "application/merge-patch+json";
        self.request(Method::PATCH, &path, mime, patch)
            .await
            .unwrap();
    }

    /// Patches the status as another client, with a JSON patch.
    pub(crate) async fn patch_status(
        &self,
        key: &ObjectKey,
        patch: &Value,
    ) -> kube::Result<String> {
        let path = format!(
            "{}/{}/status?fieldManager=other",
            self.collection(key.kind),
            key.name
        );
        self.request(Method::PATCH, &path, "application/json-patch+json", patch)
            .await
    }

    pub(crate) async fn delete(&self, key: &ObjectKey) {
        let path = format!("{}/{}", self.collection(key.kind), key.name);
        self.request(Method::DELETE, &path, "application/json", &json!({}))
            .await
            .unwrap();
    }

    pub(crate) async fn get(&self, key: &ObjectKey) -> Stored {
        let path = format!("{}/{}", self.collection(key.kind), key.name);
        let text = self
            .request(Method::GET, &path, "application/json", &Value::Null)
            .await;
        serde_json::from_str(&text.unwrap()).unwrap()
    }

    pub(crate) async fn status(&self, key: &ObjectKey) -> Value {
        let status = self.get(key).await.status;
        status.map_or(Value::Null, |status| {
            serde_json::from_str(status.get()).unwrap()
        })
    }

    fn collection(&self, kind: Kind) -> String {
        let (version, plural) = (kind.api_version(), kind.plural());
        match kind.namespaced() {
            true => format!("/apis/{version}/namespaces/{}/{plural}", self.namespace),
            false => format!("/apis/{version}/{plural}"),
        }
    }

    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        mime: &str,
        body: &Value,
    ) -> kube::Result<String> {
        let body = match body {
            Value::Null => Vec::new(),
            body => serde_json::to_vec(body).unwrap(),
        };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", mime).body(body).unwrap();
        self.client.request_text(request).await
    }

    /// Starts a writer that watches the namespace's HTTPRoutes and Gateways, with this client's permissions.
    pub(crate) fn replica(&self, client: &Client) -> Replica {
        let counters = Arc::new(Counters::default());
        let (writer, task) =
            sesame_status::start(client.clone(), WriterConfig::new(OURS), counters.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(CancellationToken::new()));
        for kind in [Kind::HTTPRoute, Kind::Gateway] {
            let cluster = Cluster {
                client: self.client.clone(),
                namespace: self.namespace.clone(),
            };
            tasks.spawn(watch(cluster, kind, writer.clone()));
        }
        Replica {
            writer,
            counters,
            _tasks: tasks,
        }
    }

    /// Starts a writer that leads and has all desired statuses.
    pub(crate) fn leader(&self, desired: &[(ObjectKey, ObjectStatus)]) -> Replica {
        let replica = self.replica(&self.client);
        for (key, status) in desired {
            replica.set_desired(key, status);
        }
        replica.writer.mark_complete();
        replica.writer.set_leading(true);
        replica
    }
}

impl Replica {
    pub(crate) fn set_desired(&self, key: &ObjectKey, status: &ObjectStatus) {
        self.writer.set_desired(key.clone(), Some(status.clone()));
    }

    /// Waits until this many comparisons have been made and no writes are left.
    pub(crate) async fn settle(&self, comparisons: u64) {
        let (counters, writer) = (&self.counters, &self.writer);
        let settled = || counters.comparisons() >= comparisons && counters.waiting() == 0;
        until("no writes are left", async || {
            settled() && writer.failures().is_empty()
        })
        .await;
    }
}

/// Forwards live statuses to the writer.
async fn watch(cluster: Cluster, kind: Kind, writer: Writer) {
    let (group, version) = kind.api_version().split_once('/').unwrap();
    let kind_ = GroupVersionKind::gvk(group, version, kind.as_str());
    let resource = ApiResource::from_gvk_with_plural(&kind_, kind.plural());
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client, &cluster.namespace, &resource);
    let mut events = watcher(api, watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                let key = ObjectKey::new(kind, &*cluster.namespace, object.name_any());
                writer.set_live(key, Some(live(object)));
            }
            Ok(Event::Delete(object)) => {
                let key = ObjectKey::new(kind, &*cluster.namespace, object.name_any());
                writer.set_live(key, None);
            }
            Ok(Event::Init | Event::InitDone) => {}
            // The server is unavailable.
            Err(_) => sleep(POLL_INTERVAL).await,
        }
    }
}

fn live(object: DynamicObject) -> LiveStatus {
    let status = object.data.get("status").map(Value::to_string);
    LiveStatus {
        uid: object.metadata.uid.unwrap().into(),
        resource_version: object.metadata.resource_version.unwrap().into(),
        generation: object.metadata.generation.unwrap(),
        status: status.map(|text| RawValue::from_string(text).unwrap()),
    }
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let poll = async {
        while !condition().await {
            sleep(POLL_INTERVAL).await;
        }
    };
    let result = timeout(TIMEOUT, poll).await;
    assert!(result.is_ok(), "never: {what}");
}

/// A condition without a time.
pub(crate) fn condition(type_: &str, status: &str, generation: i64) -> Value {
    json!({"type": type_, "status": status, "observedGeneration": generation,
        "reason": "Accepted", "message": "ours"})
}

/// The desired status of a route with these parents.
pub(crate) fn route_status(parents: &[&str], generation: i64) -> ObjectStatus {
    let parents = parents.iter().map(|parent| {
        json!({"parentRef": {"name": parent}, "controllerName": OURS,
            "conditions": [condition("Accepted", "True", generation)]})
    });
    let status = json!({"parents": parents.collect::<Vec<_>>()});
    ObjectStatus::Route(Arc::new(serde_json::from_value(status).unwrap()))
}

/// The desired status of a Gateway with one listener `http`.
pub(crate) fn gateway_status(routes: i32, generation: i64) -> ObjectStatus {
    let conditions = || {
        json!([
            condition("Accepted", "True", generation),
            condition("Programmed", "True", generation)
        ])
    };
    let status = json!({
        "addresses": [{"type": "IPAddress", "value": "10.0.0.1"}],
        "conditions": conditions(),
        "listeners": [{"name": "http", "attachedRoutes": routes, "conditions": conditions(),
            "supportedKinds": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}]}],
    });
    ObjectStatus::Gateway(Arc::new(serde_json::from_value(status).unwrap()))
}

/// The spec of a Gateway with one listener `http`.
pub(crate) fn gateway_spec() -> Value {
    json!({"gatewayClassName": "sesame",
        "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]})
}

/// Our entries in a route's status: the parent and generation of each.
pub(crate) fn our_parents(status: &Value) -> Vec<(String, i64)> {
    let parents = status["parents"].as_array().cloned().unwrap_or_default();
    let ours = parents
        .iter()
        .filter(|entry| entry["controllerName"] == OURS);
    ours.map(|entry| {
        let name = entry["parentRef"]["name"].as_str().unwrap().to_owned();
        (
            name,
            entry["conditions"][0]["observedGeneration"]
                .as_i64()
                .unwrap(),
        )
    })
    .collect()
}
