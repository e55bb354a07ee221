//! A subscriber that tracks the state resulting from watch events, and a cluster to watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use sesame_api::{Kind, LiveStatus, Object, ObjectKey, Release};
use sesame_sources::change::Change;
use sesame_sources::kube::{Counters, RetryDelays, WatchConfig, WatchEvent, WatchFailure, watch};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Generous, for busy machines.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Receives watch events and tracks the resulting state.
pub(crate) struct Subscriber {
    events: mpsc::Receiver<WatchEvent>,
    task: JoinHandle<()>,
    pub(crate) counters: Arc<Counters>,
    /// The current state.
    pub(crate) objects: BTreeMap<ObjectKey, Object>,
    pub(crate) statuses: BTreeMap<ObjectKey, LiveStatus>,
    pub(crate) failures: Vec<WatchFailure>,
    /// The release of the CRDs.
    pub(crate) release: Option<Release>,
    /// The kinds that aren't served.
    pub(crate) absent: BTreeSet<Kind>,
    /// Number of change sets.
    pub(crate) sets: usize,
    /// All changes in order: `true` for an upsert, `false` for a removal.
    pub(crate) changes: Vec<(ObjectKey, bool)>,
}

impl Subscriber {
    pub(crate) fn new(client: Client, config: WatchConfig) -> Self {
        let counters = config.counters.clone();
        let (out, events) = mpsc::channel(4);
        let task = tokio::spawn(async move { watch(client, config, out).await.unwrap() });
        Self {
            events,
            task,
            counters,
            objects: BTreeMap::new(),
            statuses: BTreeMap::new(),
            failures: Vec::new(),
            release: None,
            absent: BTreeSet::new(),
            sets: 0,
            changes: Vec::new(),
        }
    }

    /// Receives events until the condition holds.
    pub(crate) async fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !condition(self) {
                let event = self.events.recv().await.expect("the watch ended");
                self.receive(event);
            }
        };
        if timeout(TIMEOUT, waiting).await.is_err() {
            panic!(
                "no {what} after {TIMEOUT:?}; received {:#?} and {:#?}",
                self.changes, self.failures
            );
        }
    }

    /// Receives events until the first change set.
    pub(crate) async fn synced(&mut self) {
        self.until("first set", |received| received.sets > 0).await;
    }

    fn receive(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Changes(set) => {
                self.sets += 1;
                for change in set.changes {
                    match change {
                        Change::Upsert(object) => {
                            self.changes.push((object.key(), true));
                            self.objects.insert(object.key(), object);
                        }
                        Change::Remove(key) => {
                            self.changes.push((key.clone(), false));
                            self.objects.remove(&key);
                        }
                    }
                }
            }
            WatchEvent::Statuses(statuses) => {
                for (key, status) in statuses {
                    match status {
                        Some(status) => self.statuses.insert(key, status),
                        None => self.statuses.remove(&key),
                    };
                }
            }
            WatchEvent::Release(release) => self.release = release,
            WatchEvent::Absent(kinds) => self.absent = kinds,
            WatchEvent::FleetOwnersKnown => {}
            WatchEvent::Failures(failures) => self.failures = failures,
        }
    }

    /// Whether the object exists.
    pub(crate) fn has(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key)
    }

    /// Subject and reason of each failure: `HTTPRoute: Forbidden`.
    pub(crate) fn failing(&self) -> Vec<String> {
        let line = |failure: &WatchFailure| format!("{}: {}", failure.subject, failure.reason);
        self.failures.iter().map(line).collect()
    }

    /// Number of changes to the object.
    pub(crate) fn changes_of(&self, key: &ObjectKey) -> usize {
        self.changes
            .iter()
            .filter(|(changed, _)| changed == key)
            .count()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Watches these kinds, in one or all namespaces.
pub(crate) fn config(kinds: &[Kind], namespace: Option<&str>) -> WatchConfig {
    WatchConfig {
        namespaces: namespace.map(|name| vec![name.to_owned()]),
        kinds: kinds.to_vec(),
        retry: RetryDelays {
            // Tests grant permissions later.
            forbidden: Duration::from_secs(1),
            discovery: Duration::from_secs(1),
            ..RetryDelays::default()
        },
        counters: Arc::default(),
        ..WatchConfig::default()
    }
}

/// A client for writing objects.
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

    /// Applies the object.
    pub(crate) async fn apply(&self, object: &Value) {
        self.try_apply(object).await.unwrap();
    }

    /// Applies the object. Fails if its kind isn't served.
    pub(crate) async fn try_apply(&self, object: &Value) -> kube::Result<()> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("test").force();
        let api = self.api(object);
        api.patch(name, &params, &Patch::Apply(object)).await?;
        Ok(())
    }

    /// Creates the object.
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

    /// Creates a namespace.
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
