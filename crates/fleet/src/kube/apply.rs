//! Writes fleets' objects.
//!
//! In: a job. Out: the outcome of each of its actions. An existing object that Sesame didn't create is never modified.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use kube::{Client, Error};
use serde_json::Value;
use sesame_model::GatewayOwner;
use tokio::time::timeout;

use super::fingerprint::{FIELD_MANAGER, Fingerprint};
use super::fleet::{Action, Outcome, foreign_message};
use super::fleets::Job;
use super::kind::ObjectKind;
use super::observed::{FleetKey, ObservedObject};
use super::spec::FleetsConfig;

/// The field manager for `spec.replicas` until an autoscaler takes over.
const SCALE_MANAGER: &str = "sesame-scale";

/// The timeout of each action.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs all actions of a job, even if some fail.
pub(super) async fn run(
    client: &Client,
    config: &FleetsConfig,
    job: Job,
) -> (FleetKey, Vec<Outcome>) {
    let mut outcomes = Vec::with_capacity(job.actions.len());
    let executor = Executor {
        client,
        config,
        key: &job.key,
        owner: job.owner.as_ref(),
    };
    for action in job.actions {
        let kind = action.kind();
        let outcome = match timeout(TIMEOUT, executor.execute(action)).await {
            Ok(outcome) => outcome,
            Err(_) => Some(Outcome::Transient(
                kind,
                format!(
                    "no response from the API server for {}",
                    executor.object_name(kind)
                ),
            )),
        };
        outcomes.extend(outcome);
    }
    (job.key, outcomes)
}

struct Executor<'a> {
    client: &'a Client,
    config: &'a FleetsConfig,
    key: &'a FleetKey,
    owner: Option<&'a GatewayOwner>,
}

impl Executor<'_> {
    async fn execute(&self, action: Action) -> Option<Outcome> {
        let kind = action.kind();
        let (result, verb) = match action {
            Action::Apply {
                object,
                fingerprint,
                uid,
                ..
            } => (self.apply(kind, object, fingerprint, uid).await, "apply"),
            Action::Scale(object) => (self.scale(&object).await, "scale"),
            Action::Delete { uid, .. } => (self.delete(kind, uid).await, "delete"),
        };
        result.unwrap_or_else(|error| {
            let message = error_message(&self.object_name(kind), verb, &error);
            tracing::warn!("{message}");
            Some(match is_transient(&error) {
                true => Outcome::Transient(kind, message),
                false => Outcome::Failed(kind, message),
            })
        })
    }

    async fn apply(
        &self,
        kind: ObjectKind,
        object: Value,
        fingerprint: Fingerprint,
        uid: Option<String>,
    ) -> Result<Option<Outcome>, Error> {
        let uid = match uid {
            Some(uid) => Some(uid),
            // Watches select by our labels, so an existing object without them isn't observed.
            None => match self.api(kind).get_opt(&self.key.object_name(kind)).await? {
                None => None,
                Some(found) => match self.adoptable(kind, found) {
                    Some(ObservedObject { deleting: true, .. }) => {
                        let message = format!("{} is being deleted", self.object_name(kind));
                        return Ok(Some(Outcome::Failed(kind, message)));
                    }
                    Some(observed) => Some(observed.uid),
                    None => {
                        return Ok(Some(Outcome::Failed(kind, foreign_message(kind, self.key))));
                    }
                },
            },
        };
        let name = self.key.object_name(kind);
        let stored = apply(&self.api(kind), &name, object, uid).await?;
        let observed = ObservedObject::read(kind, stored, self.config);
        Ok(observed.map(|(_, _, observed)| Outcome::Applied(kind, fingerprint, observed)))
    }

    /// The object, if Sesame may write it.
    fn adoptable(&self, kind: ObjectKind, found: DynamicObject) -> Option<ObservedObject> {
        let (_, _, observed) = ObservedObject::read(kind, found, self.config)?;
        observed.is_ours(self.owner).then_some(observed)
    }

    async fn scale(&self, object: &Value) -> Result<Option<Outcome>, Error> {
        let params = PatchParams::apply(SCALE_MANAGER).force();
        self.api(ObjectKind::Deployment)
            .patch(&self.key.name, &params, &Patch::Apply(object))
            .await?;
        Ok(None)
    }

    async fn delete(&self, kind: ObjectKind, uid: String) -> Result<Option<Outcome>, Error> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(uid),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self
            .api(kind)
            .delete(&self.key.object_name(kind), &params)
            .await
        {
            Ok(_) => Ok(Some(Outcome::Deleted(kind))),
            // The object is gone, or another object has its name.
            Err(Error::Api(status)) if matches!(status.code, 404 | 409) => {
                Ok(Some(Outcome::Deleted(kind)))
            }
            Err(error) => Err(error),
        }
    }

    fn api(&self, kind: ObjectKind) -> Api<DynamicObject> {
        let (client, resource) = (self.client.clone(), kind.resource());
        match kind.is_cluster_scoped() {
            true => Api::all_with(client, &resource),
            false => Api::namespaced_with(client, &self.key.namespace, &resource),
        }
    }

    fn object_name(&self, kind: ObjectKind) -> String {
        self.key.description(kind)
    }
}

/// Applies an object. With a UID, the patch applies to that object only. Without one, an object created in the meantime
/// is not overwritten.
pub(super) async fn apply<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    name: &str,
    mut object: Value,
    uid: Option<String>,
) -> Result<K, Error> {
    let params = PatchParams {
        force: uid.is_some(),
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    if let Some(uid) = uid {
        object["metadata"]["uid"] = Value::String(uid);
    }
    api.patch(name, &params, &Patch::Apply(&object)).await
}

/// Why a request for an object, such as `Service a/b`, failed.
pub(super) fn error_message(object: &str, verb: &str, error: &Error) -> String {
    match error {
        Error::Api(status) if status.code == 403 => {
            format!("not allowed to {verb} {object}: {}", status.message)
        }
        Error::Api(status) if status.code == 422 => {
            format!("the API server rejected {object}: {}", status.message)
        }
        Error::Api(status) => {
            format!(
                "cannot {verb} {object}: {} ({})",
                status.message, status.code
            )
        }
        other => format!("cannot {verb} {object}: {other}"),
    }
}

/// Whether a retry may succeed: after a conflict, or if the API server is busy or unavailable.
pub(super) fn is_transient(error: &Error) -> bool {
    match error {
        Error::Api(status) => matches!(status.code, 401 | 409 | 429 | 500..),
        _ => true,
    }
}

impl Action {
    fn kind(&self) -> ObjectKind {
        match self {
            Self::Apply { kind, .. } | Self::Delete { kind, .. } => *kind,
            Self::Scale(_) => ObjectKind::Deployment,
        }
    }
}
