//! The API server and its client.
//!
//! In: objects. Out: results and watch events.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::stream::{self, StreamExt, TryStreamExt};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::Value;
use sesame_testkit::api_server::{ApiServer, Channel};
use tempfile::TempDir;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::site;

/// Concurrent requests when writing many objects.
const AT_ONCE: usize = 48;
/// Threads for the bench's requests.
const THREADS: usize = 2;
/// Time limit for waiting.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two checks.
const PAUSE: Duration = Duration::from_millis(20);
/// Duration of a watch in seconds: the client library's maximum.
const WATCH_SECONDS: u32 = 290;
/// Capacity of a watch's queue.
const EVENTS: usize = 1024;

/// A running API server.
pub(crate) struct Cluster {
    /// Stopped on drop.
    _server: ApiServer,
    client: Client,
    /// Whether HTTPProxies are written and watched instead of HTTPRoutes.
    pub(crate) proxies: bool,
    files: TempDir,
    runtime: Runtime,
}

/// Writes objects from another thread.
#[derive(Clone)]
pub(crate) struct Writer {
    client: Client,
    proxies: bool,
    runtime: Handle,
}

/// A write.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Create(Value),
    /// A merge patch: lists are replaced.
    Change(Value),
    Delete(Value),
}

/// A watch event.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) at: Instant,
    /// Whether the object was modified, not added or deleted.
    pub(crate) changed: bool,
    pub(crate) object: DynamicObject,
}

impl Cluster {
    /// Starts an API server with the Gateway API and Sesame's kinds.
    pub(crate) fn start(proxies: bool) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("cluster")
            .enable_all()
            .build()?;
        let (server, client) = runtime.block_on(async {
            let server = ApiServer::start().await?;
            server.install_definitions(Channel::Standard).await?;
            server.install_definitions(Channel::Sesame).await?;
            let client = server.admin().await?;
            anyhow::Ok((server, client))
        })?;
        let files = tempfile::tempdir()?;
        std::fs::write(files.path().join("kubeconfig"), server.kubeconfig(None)?)?;
        Ok(Self {
            _server: server,
            client,
            proxies,
            files,
            runtime,
        })
    }

    /// Path of an admin kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.files.path().join("kubeconfig")
    }

    /// A folder for the run's files.
    pub(crate) fn folder(&self) -> &Path {
        self.files.path()
    }

    pub(crate) fn runtime(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Writes all objects, in any order.
    pub(crate) fn write_all(&self, writes: impl IntoIterator<Item = Write>) -> Result<()> {
        let writes: Vec<Write> = writes.into_iter().map(|one| self.form(one)).collect();
        let all = stream::iter(writes)
            .map(|one| {
                let sent = tokio::spawn(write(self.client.clone(), one));
                async { sent.await? }
            })
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>();
        self.runtime.block_on(all)
    }

    /// A writer for use in another thread.
    pub(crate) fn writer(&self) -> Writer {
        Writer {
            client: self.client.clone(),
            proxies: self.proxies,
            runtime: self.runtime.handle().clone(),
        }
    }

    /// Starts a write.
    pub(crate) fn begin(&self, one: Write) -> JoinHandle<Result<()>> {
        self.runtime
            .spawn(write(self.client.clone(), self.form(one)))
    }

    fn form(&self, one: Write) -> Write {
        one.form(self.proxies)
    }

    /// Waits for a write started by [`Cluster::begin`].
    pub(crate) fn finish(&self, begun: JoinHandle<Result<()>>) -> Result<()> {
        self.runtime.block_on(begun)?
    }

    /// Waits until an object exists and `wanted` holds for it.
    pub(crate) fn until(
        &self,
        like: &Value,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let api = api(&self.client, like)?;
        let name = name(like)?;
        let begin = Instant::now();
        loop {
            if let Some(object) = self.runtime.block_on(api.get_opt(name))? {
                let value = serde_json::to_value(object)?;
                if wanted(&value) {
                    return Ok(value);
                }
            }
            if begin.elapsed() > PATIENCE {
                bail!("timeout after {PATIENCE:?}; expected: {what}");
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Watches objects of this kind in this namespace from now on, on the given runtime.
    pub(crate) fn watch(&self, like: &Value, runtime: &Handle) -> Result<mpsc::Receiver<Observed>> {
        let api = api(&self.client, &site::form(like.clone(), self.proxies))?;
        // The watch starts at this version, so it doesn't miss later writes.
        let listed = self
            .runtime
            .block_on(api.list_metadata(&Default::default()))?;
        let from = listed
            .metadata
            .resource_version
            .context("a list has no resourceVersion")?;
        let (sender, events) = mpsc::channel(EVENTS);
        runtime.spawn(follow(api, from, sender));
        Ok(events)
    }
}

impl Writer {
    /// Writes and waits for the API server's response.
    pub(crate) fn write(&self, one: Write) -> Result<()> {
        self.runtime
            .block_on(write(self.client.clone(), one.form(self.proxies)))
    }
}

impl Write {
    fn form(self, proxies: bool) -> Self {
        match self {
            Self::Create(value) => Self::Create(site::form(value, proxies)),
            Self::Change(value) => Self::Change(site::form(value, proxies)),
            Self::Delete(value) => Self::Delete(site::form(value, proxies)),
        }
    }
}

/// Forwards events until the receiver is dropped.
async fn follow(
    api: Api<DynamicObject>,
    mut from: String,
    sender: mpsc::Sender<Observed>,
) -> Result<()> {
    let params = WatchParams::default().timeout(WATCH_SECONDS);
    loop {
        let mut events = api.watch(&params, &from).await?.boxed();
        while let Some(event) = events.try_next().await? {
            let (changed, object) = match event {
                WatchEvent::Modified(object) => (true, object),
                WatchEvent::Added(object) | WatchEvent::Deleted(object) => (false, object),
                WatchEvent::Bookmark(mark) => {
                    from = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => bail!("a watch failed: {}", status.message),
            };
            if let Some(version) = &object.metadata.resource_version {
                from.clone_from(version);
            }
            let at = Instant::now();
            let one = Observed {
                at,
                changed,
                object,
            };
            if sender.send(one).await.is_err() {
                return Ok(());
            }
        }
    }
}

async fn write(client: Client, one: Write) -> Result<()> {
    let (Write::Create(value) | Write::Change(value) | Write::Delete(value)) = &one;
    let (api, name) = (api(&client, value)?, name(value)?);
    let rejected = || format!("the API server rejected {name}");
    match &one {
        Write::Create(value) => {
            let object = serde_json::from_value(value.clone())?;
            let params = PostParams::default();
            api.create(&params, &object).await.with_context(rejected)?;
        }
        Write::Change(value) => {
            let params = PatchParams::default();
            let patch = Patch::Merge(value);
            api.patch(name, &params, &patch)
                .await
                .with_context(rejected)?;
        }
        Write::Delete(_) => {
            let params = DeleteParams::default();
            api.delete(name, &params).await.with_context(rejected)?;
        }
    }
    Ok(())
}

fn name(value: &Value) -> Result<&str> {
    let name = value["metadata"]["name"].as_str();
    name.context("an object has no name")
}

fn api(client: &Client, like: &Value) -> Result<Api<DynamicObject>> {
    let types = serde_json::from_value(serde_json::json!({
        "apiVersion": like["apiVersion"], "kind": like["kind"],
    }))?;
    let kind = GroupVersionKind::try_from(&types)?;
    let resource = ApiResource::from_gvk(&kind);
    Ok(match like["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}
