//! Sends what the queue gives, and tells it what came of it.
//!
//! In: jobs. Out: requests to the API server, one for each write, and one more to see what stands there after a conflict. No decision
//! is made here but how long to wait for an answer.

mod answer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use kube::core::Request;
use kube::core::params::{GetParams, Patch, PatchParams};
use sesame_api::ObjectKey;
use tokio_util::sync::CancellationToken;

use self::answer::Read;
use crate::counters::{Counters, Sent};
use crate::merge::{self, Verdict};
use crate::queue::{Failure, Job, Outcome};
use crate::trouble::Reason;
use crate::{Config, Shared};

/// How long an answer may take. The API server itself gives up after 60 s at the latest.
const ANSWER: Duration = Duration::from_secs(30);
/// How long writes that are under way may take when all ends.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// The longest answer, in bytes: above what etcd stores as one object.
const LONGEST_ANSWER: usize = 4 << 20;
/// After so many statuses that were looked at, others have their turn on this thread.
const AT_ONCE: usize = 64;

/// What sends; see [`crate::start`].
#[derive(Debug)]
pub struct Task {
    pub(crate) shared: Arc<Shared>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) sender: Sender,
}

/// How to send.
#[derive(Clone)]
pub(crate) struct Sender {
    pub(crate) client: Client,
    pub(crate) config: Config,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Task {
    /// Writes until it is told to stop. What is under way then has two more seconds.
    pub async fn run(self, stop: CancellationToken) {
        let mut under_way = FuturesUnordered::new();
        loop {
            let mut looks = 0;
            while let Some(job) = self.next() {
                match self.look(&job) {
                    Ok(patch) => {
                        let sender = self.sender.clone();
                        under_way.push(async move {
                            let (outcome, sent) = sender.write(&job, patch).await;
                            (job.key, outcome, sent)
                        });
                    }
                    Err(outcome) => self.ended(&job.key, outcome),
                }
                looks += 1;
                if looks >= AT_ONCE {
                    break;
                }
            }
            let wake_at = {
                let queue = self.shared.queue();
                self.counters.wait(queue.len());
                queue.wake_at()
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some((key, outcome, sent)) = under_way.next() => self.answered(&key, outcome, sent),
                () = self.shared.changed.notified() => {}
                () = until(wake_at) => {}
                () = tokio::task::yield_now(), if looks >= AT_ONCE => {}
            }
        }
        let last = async {
            while let Some((key, outcome, sent)) = under_way.next().await {
                self.answered(&key, outcome, sent);
            }
        };
        if tokio::time::timeout(LAST_ANSWERS, last).await.is_err() {
            tracing::warn!("some statuses were being written when Sesame stopped");
        }
    }

    fn next(&self) -> Option<Job> {
        self.shared.queue().next(Instant::now())
    }

    /// The patch of a job, or how it ended without one.
    fn look(&self, job: &Job) -> Result<merge::Patch, Outcome> {
        self.counters.looked();
        let controller = &self.sender.config.controller_name;
        let now = Timestamp::now();
        match merge::patch(controller, job.key.kind, &job.live, &job.want, now) {
            Verdict::Right => Err(Outcome::Right),
            Verdict::Behind => Err(Outcome::Behind),
            Verdict::Write(patch) => Ok(patch),
        }
    }

    fn answered(&self, key: &ObjectKey, outcome: Outcome, sent: Sent) {
        self.counters.count(key.kind, sent);
        self.ended(key, outcome);
    }

    fn ended(&self, key: &ObjectKey, outcome: Outcome) {
        tracing::trace!(object = %key, ?outcome, "status");
        let took = self.shared.queue().ended(key, outcome, Instant::now());
        if let Some(took) = took {
            self.counters.took(took);
        }
    }
}

impl Sender {
    /// Sends a patch; how the job ended, and how the write did.
    async fn write(&self, job: &Job, patch: merge::Patch) -> (Outcome, Sent) {
        let params = PatchParams {
            field_manager: Some(self.config.field_manager.clone()),
            ..PatchParams::default()
        };
        let request = collection(&job.key).patch_subresource(
            "status",
            &job.key.name,
            &params,
            &Patch::Merge(&patch.body),
        );
        match self.send(request).await {
            Read::Object(live) => (Outcome::Written(live, patch.left_out), Sent::Written),
            Read::Conflict => (self.look_again(&job.key).await, Sent::Conflict),
            Read::Gone => (Outcome::Gone, Sent::Gone),
            Read::Failed(failure) => {
                let sent = match failure.reason {
                    Reason::Forbidden | Reason::Refused | Reason::Full => Sent::Refused,
                    Reason::Unanswered | Reason::Failed => Sent::Failed,
                };
                (Outcome::Failed(failure), sent)
            }
        }
    }

    /// What stands there, after a conflict.
    async fn look_again(&self, key: &ObjectKey) -> Outcome {
        let request = collection(key).get(&key.name, &GetParams::default());
        match self.send(request).await {
            Read::Object(live) => Outcome::Conflict(live),
            Read::Gone => Outcome::Gone,
            Read::Conflict => Outcome::Failed(Failure {
                reason: Reason::Failed,
                message: "a conflict as answer to a question".to_owned(),
                retry_after: None,
            }),
            Read::Failed(failure) => Outcome::Failed(failure),
        }
    }

    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Read {
        let failed = |reason, message| {
            Read::Failed(Failure {
                reason,
                message,
                retry_after: None,
            })
        };
        let request = match request {
            Ok(request) => request,
            Err(error) => return failed(Reason::Refused, error.to_string()),
        };
        let exchange = async {
            let response = self.client.send(request.map(Body::from)).await;
            let response = response.map_err(|error| causes(&error))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, LONGEST_ANSWER).collect().await;
            let body = body.map_err(|error| causes(&*error))?;
            Ok::<_, String>(answer::read(head.status, &head.headers, &body.to_bytes()))
        };
        match tokio::time::timeout(ANSWER, exchange).await {
            Ok(Ok(read)) => read,
            Ok(Err(message)) => failed(Reason::Unanswered, message),
            Err(_) => failed(Reason::Unanswered, format!("no answer within {ANSWER:?}")),
        }
    }
}

/// Where objects of a key's kind and namespace are.
fn collection(key: &ObjectKey) -> Request {
    let version = key.kind.api_version();
    let plural = key.kind.plural();
    Request::new(match key.kind.namespaced() {
        true => format!("/apis/{version}/namespaces/{}/{plural}", key.namespace),
        false => format!("/apis/{version}/{plural}"),
    })
}

/// An error with all that led to it.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sesame_api::Kind;

    #[test]
    fn urls_name_the_namespace_of_those_that_have_one() {
        let route = collection(&ObjectKey::new(Kind::HTTPRoute, "a", "b"));
        let path = "/apis/gateway.networking.k8s.io/v1/namespaces/a/httproutes";
        assert_eq!(route.url_path, path);
        let class = collection(&ObjectKey::new(Kind::GatewayClass, "", "b"));
        let path = "/apis/gateway.networking.k8s.io/v1/gatewayclasses";
        assert_eq!(class.url_path, path);
    }
}
