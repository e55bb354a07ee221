//! The SesameConfiguration of an instance in a cluster.
//!
//! In: its name, or its file. Out: the object, once it exists and is valid. A replica can't start without it, since it
//! also sets the mode; later changes arrive like those of other objects.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::api::{Api, DynamicObject};
use sesame_api::{Kind, NamespacedName, Object, SesameConfiguration};
use sesame_sources::change::Change;
use sesame_sources::files::{self, ChangeSet, FilesConfig};
use sesame_translate::configuration;
use sesame_translate::settings::Settings;
use tokio::sync::mpsc;

use super::StartError;
use super::start;
use crate::admin;
use crate::cluster;
use crate::streams::send;
use crate::translator::Message;

/// The time between reads while the object is missing or invalid.
const INTERVAL: Duration = Duration::from_secs(1);

/// Capacity of the queue of file changes.
const CHANGES: usize = 2;

/// Waits until a SesameConfiguration exists and is valid. Meanwhile, `probes` serves `/healthz` and `/readyz`.
///
/// # Errors
/// If no API server is configured, or `probes` is in use.
pub async fn await_configuration(
    kubeconfig: Option<&Path>,
    name: &NamespacedName,
    started: &Settings,
    probes: Option<SocketAddr>,
) -> Result<SesameConfiguration, StartError> {
    let client = cluster::client(cluster::connect(kubeconfig).await?)?;
    let waiting = async {
        let mut logged = None;
        loop {
            let why = match read(&client, name).await {
                Ok(found) => match configuration::settings(started, &found) {
                    Ok(_) => return found,
                    Err(errors) => {
                        let errors: Vec<String> =
                            errors.iter().map(|error| format!("spec.{error}")).collect();
                        format!("it is invalid: {}", errors.join(", "))
                    }
                },
                Err(why) => why,
            };
            if logged.as_ref() != Some(&why) {
                tracing::warn!("waiting for SesameConfiguration {name}: {why}");
                logged = Some(why);
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    let Some(listener) = start::listen_if("--probes", probes)? else {
        return Ok(waiting.await);
    };
    let message = format!("waiting for SesameConfiguration {name}; see the log for the reason\n");
    let pages = admin::serve(listener, admin::waiting(message));
    tokio::select! {
        found = waiting => Ok(found),
        // The pages are served until the future is dropped.
        found = async { pages.await; std::future::pending().await } => Ok(found),
    }
}

/// Reads the object. The error is the reason for the log.
async fn read(client: &kube::Client, name: &NamespacedName) -> Result<SesameConfiguration, String> {
    let resource = cluster::resource(Kind::SesameConfiguration);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &name.namespace, &resource);
    let found = match api.get(&name.name).await {
        Ok(found) => found,
        Err(kube::Error::Api(status)) if status.code == 404 => {
            return Err("it doesn't exist; create it".to_owned());
        }
        Err(error) => return Err(format!("it can't be read: {error}")),
    };
    let value = serde_json::to_value(found).map_err(|error| error.to_string())?;
    match Object::decode_admitted(value) {
        Ok(Some(Object::SesameConfiguration(found))) => Ok(*found),
        Ok(_) => Err("its version isn't supported".to_owned()),
        Err(error) => Err(format!("it is invalid: {error}")),
    }
}

/// Forwards changes to a file. Never returns: the file may be the last source of changes.
pub(super) async fn watch(file: PathBuf, translator: mpsc::WeakSender<Message>) {
    let (sets, mut changes) = mpsc::channel::<ChangeSet>(CHANGES);
    let forward = async {
        let mut logged = BTreeSet::new();
        while let Some(set) = changes.recv().await {
            let errors: BTreeSet<String> = set.errors.iter().map(ToString::to_string).collect();
            for new in errors.difference(&logged) {
                tracing::warn!("keeping the last valid configuration: {new}");
            }
            logged = errors;
            for change in set.changes {
                if let Change::Upsert(Object::SesameConfiguration(changed)) = change {
                    send(&translator, Message::Configuration(changed)).await;
                }
            }
        }
    };
    let (watched, ()) = tokio::join!(files::watch(FilesConfig::new([file]), sets), forward);
    if let Err(error) = watched {
        tracing::warn!("cannot watch the configuration file; changes will not be applied: {error}");
    }
    std::future::pending().await
}
