//! Writing a fleet's objects.
//!
//! In: a job. Out: what came of each of its actions. It decides one thing only: that what is there and isn't ours is left
//! alone.

use std::time::Duration;

use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use kube::{Client, Error};
use serde_json::Value;
use tokio::time::timeout;

use super::fingerprint::{FIELD_MANAGER, Fingerprint};
use super::fleet::{Action, Outcome, foreign};
use super::fleets::Job;
use super::kind::Kind;
use super::seen::{Place, Seen};
use super::spec::Config;

/// Who says how many Envoys there are until an autoscaler does.
const SCALE_MANAGER: &str = "sesame-scale";

/// Each request is given up after this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Does a job. One action's failure doesn't keep the others from being tried.
pub(super) async fn work(client: &Client, config: &Config, job: Job) -> (Place, Vec<Outcome>) {
    let mut outcomes = Vec::with_capacity(job.actions.len());
    let writer = Writer {
        client,
        config,
        place: &job.place,
        gateway: job
            .gateway
            .as_ref()
            .map(|(name, uid)| (&**name, uid.as_str())),
    };
    for action in job.actions {
        let kind = action.kind();
        let outcome = match timeout(PATIENCE, writer.act(action)).await {
            Ok(outcome) => outcome,
            Err(_) => Some(Outcome::Stumbled(
                kind,
                format!("the API server doesn't answer about {}", writer.named(kind)),
            )),
        };
        outcomes.extend(outcome);
    }
    (job.place, outcomes)
}

struct Writer<'a> {
    client: &'a Client,
    config: &'a Config,
    place: &'a Place,
    gateway: Option<(&'a str, &'a str)>,
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
            Some(match passes(&error) {
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
            // Watches show what has our labels only.
            None => match self.api(kind).get_opt(&self.place.name).await? {
                None => None,
                Some(found) => match self.ours(kind, found) {
                    Some(Seen { deleting: true, .. }) => {
                        let message = format!("{} is being deleted", self.named(kind));
                        return Ok(Some(Outcome::Failed(kind, message)));
                    }
                    Some(seen) => Some(seen.uid),
                    None => return Ok(Some(Outcome::Failed(kind, foreign(kind, self.place)))),
                },
            },
        };
        // With a uid the object must be the one that we know. Without, nobody may have been quicker: then it is his, and we
        // may not force our will on it.
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
            .patch(&self.place.name, &params, &patch)
            .await?;
        let seen = Seen::of(kind, there, self.config);
        Ok(seen.map(|(_, seen)| Outcome::Applied(kind, said, seen)))
    }

    fn ours(&self, kind: Kind, found: DynamicObject) -> Option<Seen> {
        let (_, seen) = Seen::of(kind, found, self.config)?;
        let (gateway, uid) = self.gateway?;
        seen.is_ours(gateway, uid).then_some(seen)
    }

    async fn scale(&self, object: &Value) -> Result<Option<Outcome>, Error> {
        let params = PatchParams::apply(SCALE_MANAGER).force();
        self.api(Kind::Deployment)
            .patch(&self.place.name, &params, &Patch::Apply(object))
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
        match self.api(kind).delete(&self.place.name, &params).await {
            Ok(_) => Ok(Some(Outcome::Deleted(kind))),
            // It has gone, or another is there that isn't meant.
            Err(Error::Api(status)) if matches!(status.code, 404 | 409) => {
                Ok(Some(Outcome::Deleted(kind)))
            }
            Err(error) => Err(error),
        }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.place.namespace, &kind.resource())
    }

    fn named(&self, kind: Kind) -> String {
        format!(
            "{} {}/{}",
            kind.name(),
            self.place.namespace,
            self.place.name
        )
    }

    fn sentence(&self, kind: Kind, verb: &str, error: &Error) -> String {
        let named = self.named(kind);
        match error {
            Error::Api(status) if status.code == 403 => {
                format!("Sesame may not {verb} {named}: {}", status.message)
            }
            Error::Api(status) if status.code == 422 => {
                format!("the API server refuses {named}: {}", status.message)
            }
            Error::Api(status) => {
                format!("can't {verb} {named}: {} ({})", status.message, status.code)
            }
            other => format!("can't {verb} {named}: {other}"),
        }
    }
}

/// Whether it may be otherwise in a moment: somebody else was quicker, or the API server is busy, or away.
fn passes(error: &Error) -> bool {
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
