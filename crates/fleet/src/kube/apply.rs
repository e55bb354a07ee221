//! Writes the objects of fleets.
//!
//! In: a job. Out: the outcome of each of its actions. An existing object that isn't Sesame's is left alone.

use std::time::Duration;

use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use kube::{Client, Error};
use serde_json::Value;
use sesame_model::GatewayOwner;
use tokio::time::timeout;

use super::fingerprint::{FIELD_MANAGER, Fingerprint};
use super::fleet::{Action, Outcome, foreign};
use super::fleets::Job;
use super::kind::Kind;
use super::seen::{FleetKey, Seen};
use super::spec::FleetsConfig;

/// The field manager of `spec.replicas` until an autoscaler takes over.
const SCALE_MANAGER: &str = "sesame-scale";

/// The timeout of each action.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs all actions of a job, even if some fail.
pub(super) async fn work(
    client: &Client,
    config: &FleetsConfig,
    job: Job,
) -> (FleetKey, Vec<Outcome>) {
    let mut outcomes = Vec::with_capacity(job.actions.len());
    let writer = Writer {
        client,
        config,
        key: &job.key,
        owner: job.owner.as_ref(),
    };
    for action in job.actions {
        let kind = action.kind();
        let outcome = match timeout(TIMEOUT, writer.act(action)).await {
            Ok(outcome) => outcome,
            Err(_) => Some(Outcome::Stumbled(
                kind,
                format!("no answer from the API server about {}", writer.named(kind)),
            )),
        };
        outcomes.extend(outcome);
    }
    (job.key, outcomes)
}

struct Writer<'a> {
    client: &'a Client,
    config: &'a FleetsConfig,
    key: &'a FleetKey,
    owner: Option<&'a GatewayOwner>,
}

impl Writer<'_> {
    async fn act(&self, action: Action) -> Option<Outcome> {
        let kind = action.kind();
        let (done, verb) = match action {
            Action::Apply {
                object, said, uid, ..
            } => (self.apply(kind, object, said, uid).await, "apply"),
            Action::Scale(object) => (self.scale(&object).await, "scale"),
            Action::Delete { uid, .. } => (self.delete(kind, uid).await, "delete"),
        };
        done.unwrap_or_else(|error| {
            let message = self.sentence(kind, verb, &error);
            tracing::warn!("{message}");
            Some(match is_transient(&error) {
                true => Outcome::Stumbled(kind, message),
                false => Outcome::Failed(kind, message),
            })
        })
    }

    async fn apply(
        &self,
        kind: Kind,
        mut object: Value,
        said: Fingerprint,
        uid: Option<String>,
    ) -> Result<Option<Outcome>, Error> {
        let uid = match uid {
            Some(uid) => Some(uid),
            // Watches select by our labels, so an object without them isn't seen.
            None => match self.api(kind).get_opt(&self.key.name).await? {
                None => None,
                Some(found) => match self.ours(kind, found) {
                    Some(Seen { deleting: true, .. }) => {
                        let message = format!("{} is being deleted", self.named(kind));
                        return Ok(Some(Outcome::Failed(kind, message)));
                    }
                    Some(seen) => Some(seen.uid),
                    None => return Ok(Some(Outcome::Failed(kind, foreign(kind, self.key)))),
                },
            },
        };
        // With a uid the patch applies to the known object only. Without one, an object created meanwhile is not overwritten.
        let params = PatchParams {
            force: uid.is_some(),
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        if let Some(uid) = uid {
            object["metadata"]["uid"] = Value::String(uid);
        }
        let patch = Patch::Apply(&object);
        let there = self
            .api(kind)
            .patch(&self.key.name, &params, &patch)
            .await?;
        let seen = Seen::of(kind, there, self.config);
        Ok(seen.map(|(_, seen)| Outcome::Applied(kind, said, seen)))
    }

    fn ours(&self, kind: Kind, found: DynamicObject) -> Option<Seen> {
        let (_, seen) = Seen::of(kind, found, self.config)?;
        seen.is_ours(self.owner).then_some(seen)
    }

    async fn scale(&self, object: &Value) -> Result<Option<Outcome>, Error> {
        let params = PatchParams::apply(SCALE_MANAGER).force();
        self.api(Kind::Deployment)
            .patch(&self.key.name, &params, &Patch::Apply(object))
            .await?;
        Ok(None)
    }

    async fn delete(&self, kind: Kind, uid: String) -> Result<Option<Outcome>, Error> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(uid),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.api(kind).delete(&self.key.name, &params).await {
            Ok(_) => Ok(Some(Outcome::Deleted(kind))),
            // It is gone, or another object has its name.
            Err(Error::Api(status)) if matches!(status.code, 404 | 409) => {
                Ok(Some(Outcome::Deleted(kind)))
            }
            Err(error) => Err(error),
        }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.key.namespace, &kind.resource())
    }

    fn named(&self, kind: Kind) -> String {
        format!("{} {}/{}", kind.name(), self.key.namespace, self.key.name)
    }

    fn sentence(&self, kind: Kind, verb: &str, error: &Error) -> String {
        let named = self.named(kind);
        match error {
            Error::Api(status) if status.code == 403 => {
                format!("not allowed to {verb} {named}: {}", status.message)
            }
            Error::Api(status) if status.code == 422 => {
                format!("the API server rejects {named}: {}", status.message)
            }
            Error::Api(status) => {
                format!(
                    "cannot {verb} {named}: {} ({})",
                    status.message, status.code
                )
            }
            other => format!("cannot {verb} {named}: {other}"),
        }
    }
}

/// Whether a retry may succeed: a conflict, or the API server is busy or unavailable.
fn is_transient(error: &Error) -> bool {
    match error {
        Error::Api(status) => matches!(status.code, 401 | 409 | 429 | 500..),
        _ => true,
    }
}

impl Action {
    fn kind(&self) -> Kind {
        match self {
            Self::Apply { kind, .. } | Self::Delete { kind, .. } => *kind,
            Self::Scale(_) => Kind::Deployment,
        }
    }
}
