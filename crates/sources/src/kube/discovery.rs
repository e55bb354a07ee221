//! Asking which kinds of the Gateway API there are, and when to ask again.
//!
//! In: a watch of the CRDs' metadata, and discovery. Out: for each kind whether, and in which version, it can be watched. Where CRDs
//! can't be watched, discovery is asked every few seconds. The decisions are [`Catalog`]'s.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ::kube::api::GetParams;
use ::kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sesame_api::{GATEWAY_GROUP, Kind};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep, timeout};

use super::catalog::{Availability, Catalog};
use super::failure::Failure;
use super::follow::{Listener, Means, Target, follow};
use super::hub::{ATTEMPTS, Kinds, Message};
use super::reading::Identity;

/// Between two looks while something changes.
const SETTLE: Duration = Duration::from_millis(500);

/// Whom to tell of each kind.
pub(super) type ByKind = BTreeMap<Kind, watch::Sender<Availability>>;

/// Watches which kinds there are, for ever. `doubt`: somebody found that a kind is not where it was.
pub(super) async fn discover(
    means: Means,
    kinds: ByKind,
    doubt: Arc<Notify>,
    out: mpsc::Sender<Message>,
) {
    if kinds.is_empty() {
        return;
    }
    let (tell, mut crds) = watch::channel(Crds::default());
    let target = Target {
        path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
        metadata_only: true,
        fields: None,
    };
    let mut listener = CrdListener {
        names: BTreeSet::new(),
        listing: BTreeSet::new(),
        synced: false,
        tell,
    };
    let watching = follow(&means, &target, 0, &mut listener);
    let looking = look_for_ever(&means, &kinds, &doubt, &mut crds, &out);
    // The first ends only when nobody listens, which is when the second ends.
    tokio::select! {
        () = watching => {}
        () = looking => {}
    }
}

async fn look_for_ever(
    means: &Means,
    kinds: &ByKind,
    doubt: &Notify,
    crds: &mut watch::Receiver<Crds>,
    out: &mpsc::Sender<Message>,
) {
    let all: Vec<Kind> = kinds.keys().copied().collect();
    let mut catalog = Catalog::default();
    let mut failures = 0;
    let mut changes = 0;
    let mut release = None;
    loop {
        let known = crds.borrow().release.clone();
        if known != release {
            release.clone_from(&known);
            if out.send(Message::Release(known)).await.is_err() {
                return;
            }
        }
        {
            let crds = crds.borrow_and_update();
            catalog.set_crds(crds.names.clone());
            if crds.changes != changes {
                changes = crds.changes;
                catalog.touch();
            }
        }
        let wait = match look(means).await {
            Ok(served) => {
                failures = 0;
                catalog.set_served(served);
                let told = out.send(Message::Discovery(Ok(()))).await;
                if told.is_err() || !tell(&catalog, kinds, out).await {
                    return;
                }
                match catalog.settling(&all) {
                    true => Some(SETTLE),
                    // What CRDs there are is not known: only asking tells.
                    false if crds.borrow().names.is_none() => Some(means.pace.discovery),
                    false => None,
                }
            }
            Err(failure) => {
                failures += 1;
                let wait = means.pace.after(&failure, failures, 1);
                let message = Message::Discovery(Err(failure));
                if out.send(message).await.is_err() {
                    return;
                }
                Some(wait)
            }
        };
        let doubted = tokio::select! {
            changed = crds.changed() => {
                if changed.is_err() {
                    return;
                }
                false
            }
            () = doubt.notified() => true,
            () = async {
                match wait {
                    Some(wait) => sleep(wait).await,
                    None => std::future::pending().await,
                }
            } => false,
        };
        if doubted {
            catalog.touch();
            // Those who doubt ask themselves again and again.
            sleep(SETTLE).await;
        }
    }
}

/// Tells what is new of each kind. False: nobody listens.
async fn tell(catalog: &Catalog, kinds: &ByKind, out: &mpsc::Sender<Message>) -> bool {
    for (&kind, channel) in kinds {
        let availability = catalog.availability(kind);
        if availability == Availability::Unknown || *channel.borrow() == availability {
            continue;
        }
        let message = match &availability {
            Availability::Unknown => continue,
            Availability::Served(_) => Kinds::Served,
            Availability::NotInstalled => Kinds::NotInstalled,
            Availability::OtherVersion(versions) => Kinds::OtherVersion(versions.clone()),
        };
        tracing::debug!(%kind, ?availability, "discovered");
        // First the trouble: who listens may stop because of it.
        if out.send(Message::Kind(kind, message)).await.is_err() {
            return false;
        }
        channel.send_replace(availability);
    }
    true
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

#[derive(Deserialize)]
struct Resources {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
}

/// What the server serves of the Gateway API: versions by resource.
async fn look(means: &Means) -> Result<BTreeMap<String, Vec<String>>, Failure> {
    let mut served: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let Some(group) = get::<Group>(means, "/apis", GATEWAY_GROUP).await? else {
        return Ok(served);
    };
    for GroupVersion { version } in group.versions {
        let path = format!("/apis/{GATEWAY_GROUP}");
        let resources = get::<Resources>(means, &path, &version).await?;
        for Resource { name } in resources.into_iter().flat_map(|found| found.resources) {
            // Those with a slash are parts of others, as `gateways/status`.
            if !name.contains('/') {
                served.entry(name).or_default().push(version.clone());
            }
        }
    }
    Ok(served)
}

/// How long discovery may take; it is small.
const PATIENCE: Duration = Duration::from_secs(15);

async fn get<T: DeserializeOwned>(
    means: &Means,
    path: &str,
    name: &str,
) -> Result<Option<T>, Failure> {
    means.work.count_look();
    let request = Request::new(path).get(name, &GetParams::default());
    let Ok(request) = request else {
        return Ok(None);
    };
    match timeout(PATIENCE, means.client.request::<T>(request)).await {
        Ok(Ok(found)) => Ok(Some(found)),
        Ok(Err(error)) => match Failure::of(&error) {
            Failure::Missing => Ok(None),
            failure => Err(failure),
        },
        Err(_) => Err(Failure::Unreachable(format!("{path}/{name}: no answer"))),
    }
}

/// The Gateway API's CRDs.
#[derive(Clone, Debug, Default)]
struct Crds {
    /// Their names; `None`: not known.
    names: Option<BTreeSet<String>>,
    /// Counts what happened to them.
    changes: u64,
    /// The release that they are of, as they say.
    release: Option<String>,
}

/// The CRD that is asked of which release all are: they are installed together.
const ASKED: &str = "gatewayclasses.gateway.networking.k8s.io";

/// The annotation that says it.
const RELEASE: &str = "gateway.networking.k8s.io/bundle-version";

/// The annotations of a CRD.
#[derive(Deserialize)]
struct Annotated {
    metadata: Annotations,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The release that a CRD says it is of.
fn release(text: &str) -> Option<String> {
    let mut read = serde_json::from_str::<Annotated>(text).ok()?;
    read.metadata.annotations.remove(RELEASE)
}

struct CrdListener {
    names: BTreeSet<String>,
    listing: BTreeSet<String>,
    synced: bool,
    tell: watch::Sender<Crds>,
}

impl CrdListener {
    fn name(text: &str) -> Option<String> {
        let name = Identity::of(text).ok()?.name;
        let (_, group) = name.split_once('.')?;
        (group == GATEWAY_GROUP).then_some(name)
    }

    fn changed(&self) {
        self.tell.send_modify(|crds| {
            crds.names = Some(self.names.clone());
            crds.changes += 1;
        });
    }
}

impl Listener for CrdListener {
    fn begin(&mut self) {
        self.synced = false;
        self.listing.clear();
    }

    fn exists(&mut self, text: &str) {
        let Some(name) = Self::name(text) else {
            return;
        };
        if name == ASKED {
            let release = release(text);
            self.tell.send_if_modified(|crds| {
                let differs = crds.release != release;
                crds.release = release;
                differs
            });
        }
        if self.synced {
            self.names.insert(name);
            self.changed();
        } else {
            self.listing.insert(name);
        }
    }

    fn gone(&mut self, text: &str) {
        if let Some(name) = Self::name(text)
            && self.names.remove(&name)
        {
            self.changed();
        }
    }

    fn synced(&mut self) {
        self.synced = true;
        let listed = std::mem::take(&mut self.listing);
        let first = self.tell.borrow().names.is_none();
        if first || listed != self.names {
            self.names = listed;
            self.tell.send_modify(|crds| {
                crds.names = Some(self.names.clone());
                // At the start nothing has happened to them.
                crds.changes += u64::from(!first);
            });
        }
    }

    fn connected(&mut self) {}

    fn failed(&mut self, failure: Failure, attempts: u32) {
        // A server that has just started forbids everything for a moment.
        if let Failure::Forbidden(text) = failure
            && attempts == ATTEMPTS
        {
            tracing::info!(%text, "CRDs can't be watched; discovery is asked every few seconds");
            self.tell
                .send_if_modified(|crds| crds.names.take().is_some());
        }
    }

    async fn flush(&mut self) -> bool {
        true
    }
}
