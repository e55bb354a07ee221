//! Somebody who watches, and what they know by now; and a cluster to watch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use sesame_api::{Kind, LiveStatus, Object, ObjectKey};
use sesame_sources::change::Change;
use sesame_sources::kube::{Event, KubeConfig, Pace, Trouble, Work, watch};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// What has not come by then does not come. A busy machine needs long.
const PATIENCE: Duration = Duration::from_secs(90);

/// Somebody who watches.
pub(crate) struct Listener {
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
    pub(crate) work: Arc<Work>,
    /// What there is.
    pub(crate) objects: BTreeMap<ObjectKey, Object>,
    pub(crate) live: BTreeMap<ObjectKey, LiveStatus>,
    pub(crate) troubles: Vec<Trouble>,
    /// The release of the CRDs, as they say.
    pub(crate) release: Option<String>,
    /// So many sets were told.
    pub(crate) sets: usize,
    /// What was told of each object, in order: `true` for "it is this", `false` for "it is gone".
    pub(crate) told: Vec<(ObjectKey, bool)>,
}

impl Listener {
    pub(crate) fn new(client: Client, config: KubeConfig) -> Self {
        let work = config.work.clone();
        let (out, events) = mpsc::channel(4);
        let task = tokio::spawn(async move { watch(client, config, out).await.unwrap() });
        Self {
            events,
            task,
            work,
            objects: BTreeMap::new(),
            live: BTreeMap::new(),
            troubles: Vec::new(),
            release: None,
            sets: 0,
            told: Vec::new(),
        }
    }

    /// Listens until this is so.
    pub(crate) async fn until(&mut self, what: &str, so: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !so(self) {
                let event = self.events.recv().await.expect("it watches for ever");
                self.hear(event);
            }
        };
        if timeout(PATIENCE, waiting).await.is_err() {
            panic!(
                "not so after {PATIENCE:?}: {what}; known are {:#?} and {:#?}",
                self.told, self.troubles
            );
        }
    }

    /// Listens until the first set was told.
    pub(crate) async fn synced(&mut self) {
        self.until("everything was told", |known| known.sets > 0)
            .await;
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Set(set) => {
                self.sets += 1;
                for change in set.changes {
                    match change {
                        Change::Upsert(object) => {
                            self.told.push((object.key(), true));
                            self.objects.insert(object.key(), object);
                        }
                        Change::Remove(key) => {
                            self.told.push((key.clone(), false));
                            self.objects.remove(&key);
                        }
                    }
                }
            }
            Event::Live(live) => {
                for (key, live) in live {
                    match live {
                        Some(live) => self.live.insert(key, live),
                        None => self.live.remove(&key),
                    };
                }
            }
            Event::Release(release) => self.release = release,
            Event::Complete => {}
            Event::Trouble(troubles) => self.troubles = troubles,
        }
    }

    /// Whether there is this object.
    pub(crate) fn has(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key)
    }

    /// What is wrong, a word for each: `HTTPRoute: Forbidden`.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let line = |trouble: &Trouble| format!("{}: {}", trouble.place, trouble.reason);
        self.troubles.iter().map(line).collect()
    }

    /// How often this object was told.
    pub(crate) fn times_told(&self, key: &ObjectKey) -> usize {
        self.told.iter().filter(|(told, _)| told == key).count()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// These kinds in one namespace.
pub(crate) fn config(kinds: &[Kind], namespace: Option<&str>) -> KubeConfig {
    KubeConfig {
        namespaces: namespace.map(|name| vec![name.to_owned()]),
        kinds: kinds.to_vec(),
        pace: Pace {
            // Nobody wants to wait for what a test grants.
            forbidden: Duration::from_secs(1),
            discovery: Duration::from_secs(1),
            ..Pace::default()
        },
        work: Arc::default(),
    }
}

/// Writes objects.
#[derive(Clone)]
pub(crate) struct Cluster(pub(crate) Client);

impl Cluster {
    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let text = |field: &str| object[field].as_str().unwrap().to_owned();
        let api_version = text("apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let kind = GroupVersionKind::gvk(group, version, &text("kind"));
        let resource = ApiResource::from_gvk(&kind);
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.0.clone(), namespace, &resource),
            None => Api::all_with(self.0.clone(), &resource),
        }
    }

    /// Makes the object what it is here.
    pub(crate) async fn apply(&self, object: &Value) {
        self.try_apply(object).await.unwrap();
    }

    /// Makes the object what it is here, if its kind is served.
    pub(crate) async fn try_apply(&self, object: &Value) -> kube::Result<()> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("test").force();
        let api = self.api(object);
        api.patch(name, &params, &Patch::Apply(object)).await?;
        Ok(())
    }

    /// Makes a new object, for which the server need not look whether there is one.
    pub(crate) async fn create(&self, object: &Value) {
        let dynamic = serde_json::from_value(object.clone()).unwrap();
        let created = self.api(object);
        created
            .create(&PostParams::default(), &dynamic)
            .await
            .unwrap();
    }

    /// Writes a status.
    pub(crate) async fn write_status(&self, object: &Value, status: Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::default();
        let patch = Patch::Merge(json!({"status": status}));
        let patched = self.api(object);
        patched.patch_status(name, &params, &patch).await.unwrap();
    }

    pub(crate) async fn delete(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let deleted = self.api(object);
        deleted.delete(name, &Default::default()).await.unwrap();
    }

    /// Makes a namespace.
    pub(crate) async fn namespace(&self, name: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.apply(&object).await;
    }
}

pub(crate) fn route(namespace: &str, name: &str, backend: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"rules": [{"backendRefs": [{"name": backend, "port": 80}]}]},
    })
}

pub(crate) fn gateway(namespace: &str, name: &str, secret: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"gatewayClassName": "c", "listeners": [{
            "name": "l", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": secret}]},
        }]},
    })
}

pub(crate) fn secret(namespace: &str, name: &str, content: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": namespace, "name": name},
        "stringData": {"content": content},
    })
}
