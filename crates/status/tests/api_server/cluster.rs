//! An API server, a namespace in it, and a writer that sees what stands there.

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
use sesame_status::{Config, Counters, Writer};
use sesame_testkit::api_server::{ApiServer, Channel};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) const OURS: &str = "projectsesame.io/gateway-controller";
/// What takes longer will never be.
const PATIENCE: Duration = Duration::from_secs(240);
/// Between looks at something that is awaited.
const PAUSE: Duration = Duration::from_millis(10);

/// A namespace, as somebody with these rights sees it.
pub(crate) struct Cluster {
    pub client: Client,
    pub namespace: String,
}

/// A writer at work, fed by watches. Dropping it ends it as a crash would.
pub(crate) struct Replica {
    pub writer: Writer,
    pub counters: Arc<Counters>,
    _tasks: JoinSet<()>,
}

/// An object as the server has it, with the text of its status.
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

/// The shared server with the Gateway API, and a new namespace in it.
pub(crate) async fn cluster(namespace: &str) -> Cluster {
    let server = ApiServer::shared().await.unwrap();
    on(server, namespace).await
}

/// A new namespace on this server, with the Gateway API.
pub(crate) async fn on(server: &ApiServer, namespace: &str) -> Cluster {
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

    /// Creates an HTTPRoute to the Gateway `g`.
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
        self.ask(Method::POST, path, "application/json", object)
            .await
            .unwrap();
    }

    /// A merge patch of the object itself, by someone else.
    pub(crate) async fn patch(&self, key: &ObjectKey, patch: &Value) {
        let path = format!(
            "{}/{}?fieldManager=user",
            self.collection(key.kind),
            key.name
        );
        let mime = "application/merge-patch+json";
        self.ask(Method::PATCH, &path, mime, patch).await.unwrap();
    }

    /// A patch of the status, by someone else: JSON patch, so that lists can grow.
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
        self.ask(Method::PATCH, &path, "application/json-patch+json", patch)
            .await
    }

    pub(crate) async fn delete(&self, key: &ObjectKey) {
        let path = format!("{}/{}", self.collection(key.kind), key.name);
        self.ask(Method::DELETE, &path, "application/json", &json!({}))
            .await
            .unwrap();
    }

    pub(crate) async fn get(&self, key: &ObjectKey) -> Stored {
        let path = format!("{}/{}", self.collection(key.kind), key.name);
        let text = self
            .ask(Method::GET, &path, "application/json", &Value::Null)
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

    pub(crate) async fn ask(
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

    /// A writer that sees HTTPRoutes and Gateways of the namespace, and writes with these rights.
    pub(crate) fn replica(&self, client: &Client) -> Replica {
        let counters = Arc::new(Counters::default());
        let (writer, task) =
            sesame_status::start(client.clone(), Config::new(OURS), counters.clone());
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

    /// A writer that leads, and to which everything has been said.
    pub(crate) fn leader(&self, says: &[(ObjectKey, ObjectStatus)]) -> Replica {
        let replica = self.replica(&self.client);
        for (key, status) in says {
            replica.says(key, status);
        }
        replica.writer.complete();
        replica.writer.lead(true);
        replica
    }
}

impl Replica {
    pub(crate) fn says(&self, key: &ObjectKey, status: &ObjectStatus) {
        self.writer.desired(key.clone(), Some(status.clone()));
    }

    /// Waits until nothing is left to do and everything that there is has been looked at so often.
    pub(crate) async fn rests(&self, looks: u64) {
        let (counters, writer) = (&self.counters, &self.writer);
        let rests = || counters.looks() >= looks && counters.waiting() == 0;
        until("the writer rests", async || {
            rests() && writer.troubles().is_empty()
        })
        .await;
    }
}

/// Shows the writer what stands there.
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
                writer.live(key, Some(live(object)));
            }
            Ok(Event::Delete(object)) => {
                let key = ObjectKey::new(kind, &*cluster.namespace, object.name_any());
                writer.live(key, None);
            }
            Ok(Event::Init | Event::InitDone) => {}
            // The server is away.
            Err(_) => sleep(PAUSE).await,
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

/// Waits until something is so.
pub(crate) async fn until(what: &str, is: impl AsyncFn() -> bool) {
    let wait = async {
        while !is().await {
            sleep(PAUSE).await;
        }
    };
    let waited = timeout(PATIENCE, wait).await;
    assert!(waited.is_ok(), "never: {what}");
}

/// A condition without a time.
pub(crate) fn condition(type_: &str, status: &str, generation: i64) -> Value {
    json!({"type": type_, "status": status, "observedGeneration": generation,
        "reason": "Accepted", "message": "said by us"})
}

/// What we say of a route at these parents.
pub(crate) fn route_status(parents: &[&str], generation: i64) -> ObjectStatus {
    let parents = parents.iter().map(|parent| {
        json!({"parentRef": {"name": parent}, "controllerName": OURS,
            "conditions": [condition("Accepted", "True", generation)]})
    });
    let status = json!({"parents": parents.collect::<Vec<_>>()});
    ObjectStatus::Route(Arc::new(serde_json::from_value(status).unwrap()))
}

/// What we say of a Gateway with one listener `http`.
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

/// Our entries in the status of a route: parent and generation of each.
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
