//! Discovers which kinds can be watched: those that CRDs define, and those that only recent Kubernetes releases serve.
//!
//! In: a watch of the CRDs' metadata, and the discovery API. Out: the [`Availability`] of each kind, decided by the
//! [`Catalog`]. If CRDs can't be watched, discovery is polled.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::kube::api::GetParams;
use ::kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sesame_api::{Kind, Release, Serving};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;

use super::backoff::Retries;
use super::catalog::{Availability, Catalog};
use super::error::RequestError;
use super::hub::{FORBIDDEN_GRACE, Message};
use super::parse::Identity;
use super::request;
use super::watcher::{self, Context, Handler, Target};

/// Delay before discovery is repeated while it disagrees with the CRDs.
const SETTLE: Duration = Duration::from_millis(500);

/// Interval at which kinds are discovered that a later Kubernetes release may serve.
const RECENT: Duration = Duration::from_secs(300);

/// The CRD whose annotations give the release of all Gateway API CRDs, since they are installed together.
const RELEASE_CRD: &str = "gatewayclasses.gateway.networking.k8s.io";

/// Availability channels, by kind.
pub(super) type ByKind = BTreeMap<Kind, watch::Sender<Availability>>;

/// Tracks which kinds can be watched until the hub is gone. `missing` is notified when a watcher finds that its kind
/// isn't served.
pub(super) async fn discover(
    context: Context,
    kinds: ByKind,
    missing: Arc<Notify>,
    out: mpsc::Sender<Message>,
) {
    if kinds.is_empty() {
        return;
    }
    let target = Target {
        path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
        metadata_only: true,
        field_selector: None,
    };
    let mut handler = CrdHandler::default();
    let discovery = Discovery {
        context: &context,
        retries: context.retries(),
        catalog: Catalog::default(),
        crds: handler.crds.subscribe(),
        kinds,
        missing,
        out,
    };
    tokio::select! {
        () = watcher::watch(&context, &target, &mut handler) => {}
        _ = discovery.run() => {}
    }
}

struct Discovery<'a> {
    context: &'a Context,
    retries: Retries,
    catalog: Catalog,
    crds: watch::Receiver<Crds>,
    kinds: ByKind,
    missing: Arc<Notify>,
    out: mpsc::Sender<Message>,
}

impl Discovery<'_> {
    /// Returns an error when the hub is gone.
    async fn run(mut self) -> Result<(), SendError<Message>> {
        let kinds: Vec<Kind> = self.kinds.keys().copied().collect();
        let mut last = Crds::default();
        loop {
            let crds = self.crds.borrow_and_update().clone();
            if crds.release != last.release {
                let message = Message::Release(crds.release.clone());
                self.out.send(message).await?;
            }
            if crds.changes != last.changes {
                self.catalog.touch();
            }
            self.catalog.set_crds(crds.names.clone());
            last = crds;
            let delay = match self.served().await {
                Ok(served) => {
                    self.retries.succeeded();
                    self.catalog.set_served(served);
                    self.out.send(Message::Discovery(Ok(()))).await?;
                    self.announce().await?;
                    match self.catalog.settling(&kinds) {
                        true => SETTLE,
                        false if last.names.is_none() => self.context.retry.discovery,
                        false if self.lacks_recent() => RECENT,
                        false => Duration::MAX,
                    }
                }
                Err(error) => {
                    let (delay, _) = self.retries.failed(&error, Instant::now());
                    self.out.send(Message::Discovery(Err(error))).await?;
                    delay
                }
            };
            tokio::select! {
                changed = self.crds.changed() => if changed.is_err() {
                    return Ok(());
                },
                () = self.missing.notified() => {
                    self.catalog.touch();
                    // The watcher retries too, and notifies each time.
                    sleep(SETTLE).await;
                }
                () = sleep(delay) => {}
            }
        }
    }

    /// Whether the API server lacks a kind that a later release serves.
    fn lacks_recent(&self) -> bool {
        let mut kinds = self.kinds.iter();
        kinds.any(|(kind, availability)| {
            kind.info().serving == Serving::Recent
                && *availability.borrow() == Availability::NotInstalled
        })
    }

    /// Announces changes.
    async fn announce(&self) -> Result<(), SendError<Message>> {
        for (&kind, sender) in &self.kinds {
            let availability = self.catalog.availability(kind);
            if availability == Availability::Unknown || *sender.borrow() == availability {
                continue;
            }
            // While a cluster is upgraded, its API servers may differ.
            let served = matches!(*sender.borrow(), Availability::Served(_));
            let recent = kind.info().serving == Serving::Recent;
            if recent && served && !self.catalog.is_stable() {
                continue;
            }
            tracing::debug!(%kind, ?availability, "discovered kind");
            // Notify the hub first, since the watcher may stop.
            let message = Message::Kind(kind, availability.clone());
            self.out.send(message).await?;
            sender.send_replace(availability);
        }
        Ok(())
    }

    /// The served versions of each resource in the groups of the kinds.
    async fn served(&self) -> Result<BTreeMap<String, Vec<String>>, RequestError> {
        let mut served: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let groups: BTreeSet<&str> = self.kinds.keys().map(|kind| kind.group()).collect();
        for group in groups {
            let found = self.get::<Group>("/apis", group).await?;
            let path = format!("/apis/{group}");
            for GroupVersion { version } in found.into_iter().flat_map(|found| found.versions) {
                let list = self.get::<ResourceList>(&path, &version).await?;
                for Resource { name } in list.into_iter().flat_map(|list| list.resources) {
                    // Subresources contain a slash.
                    if !name.contains('/') {
                        let resource = format!("{name}.{group}");
                        served.entry(resource).or_default().push(version.clone());
                    }
                }
            }
        }
        Ok(served)
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
    ) -> Result<Option<T>, RequestError> {
        self.context.counters.count_discovery();
        let request = Request::new(path).get(name, &GetParams::default())?;
        match request::text(&self.context.client, request).await {
            Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
            Err(RequestError::Missing) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[derive(Deserialize)]
struct Group {
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

#[derive(Deserialize)]
struct ResourceList {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
}

/// The CRDs in the groups listed in the table of kinds.
#[derive(Clone, Debug, Default)]
struct Crds {
    /// Their names; `None` if unknown or CRDs can't be watched.
    names: Option<BTreeSet<String>>,
    /// Number of changes since the first list.
    changes: u64,
    release: Option<Release>,
}

/// Keeps [`Crds`] up to date.
#[derive(Default)]
struct CrdHandler {
    names: BTreeSet<String>,
    listing: BTreeSet<String>,
    /// Whether the latest list is complete.
    listed: bool,
    forbidden: bool,
    crds: watch::Sender<Crds>,
}

impl CrdHandler {
    fn name(text: &str) -> Option<String> {
        let name = Identity::of(text).ok()?.name;
        let (_, group) = name.split_once('.')?;
        let known = |kind: &Kind| kind.info().serving == Serving::WithCrd && kind.group() == group;
        Kind::ALL.iter().any(known).then_some(name)
    }

    fn changed(&self) {
        self.crds.send_modify(|crds| {
            crds.changes += u64::from(crds.names.is_some());
            crds.names = Some(self.names.clone());
        });
    }
}

/// The release in a CRD's annotations.
fn release(text: &str) -> Option<Release> {
    #[derive(Deserialize)]
    struct Crd {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        annotations: BTreeMap<String, String>,
    }
    let annotations = serde_json::from_str::<Crd>(text).ok()?.metadata.annotations;
    Release::of(|name| annotations.get(name).map(String::as_str))
}

impl Handler for CrdHandler {
    fn list_begins(&mut self) {
        self.listed = false;
        self.listing.clear();
    }

    fn applied(&mut self, text: &str) {
        let Some(name) = Self::name(text) else {
            return;
        };
        if name == RELEASE_CRD {
            let release = release(text);
            self.crds.send_if_modified(|crds| {
                let before = mem::replace(&mut crds.release, release);
                before != crds.release
            });
        }
        if self.listed {
            self.names.insert(name);
            self.changed();
        } else {
            self.listing.insert(name);
        }
    }

    fn deleted(&mut self, text: &str) {
        if let Some(name) = Self::name(text)
            && self.names.remove(&name)
        {
            self.changed();
        }
    }

    fn list_ends(&mut self) {
        self.listed = true;
        let listed = mem::take(&mut self.listing);
        if self.crds.borrow().names.is_none() || listed != self.names {
            self.names = listed;
            self.changed();
        }
    }

    fn connected(&mut self) {}

    fn failed(&mut self, error: RequestError, duration: Duration) {
        if let RequestError::Forbidden(message) = error
            && duration >= FORBIDDEN_GRACE
            && !mem::replace(&mut self.forbidden, true)
        {
            tracing::info!("cannot watch CRDs ({message}); polling discovery instead");
            let forget = |crds: &mut Crds| crds.names.take().is_some();
            self.crds.send_if_modified(forget);
        }
    }

    async fn flush(&mut self) -> bool {
        true
    }
}
