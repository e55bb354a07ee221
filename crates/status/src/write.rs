//! Sends the queue's jobs: one request per write, plus one to read the live status after a conflict.

mod response;

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

use self::response::Response;
use crate::counters::{Counters, WriteResult};
use crate::failure::FailureReason;
use crate::merge::{self, Diff};
use crate::queue::{Job, Outcome, WriteFailure};
use crate::{Shared, WriterConfig};

/// The timeout of a request. The API server's own timeout is 60 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout for writes in flight at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of a response body, in bytes. Larger than etcd's limit for an object.
const MAX_RESPONSE: usize = 4 << 20;
/// The number of comparisons after which the task yields.
const COMPARE_BATCH: usize = 64;

/// The task that sends writes; see [`crate::start`].
#[derive(Debug)]
pub struct WriterTask {
    pub(crate) shared: Arc<Shared>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) sender: Sender,
}

#[derive(Clone)]
pub(crate) struct Sender {
    pub(crate) client: Client,
    pub(crate) config: WriterConfig,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl WriterTask {
    /// Writes until `stop` is cancelled. Writes in flight then have two seconds to finish.
    pub async fn run(self, stop: CancellationToken) {
        let mut in_flight = FuturesUnordered::new();
        loop {
            let mut compared = 0;
            while let Some(job) = self.next() {
                match self.compare(&job) {
                    Ok(patch) => {
                        let sender = self.sender.clone();
                        in_flight.push(async move {
                            let (outcome, result) = sender.write(&job, patch).await;
                            (job.key, outcome, result)
                        });
                    }
                    Err(outcome) => self.finish(&job.key, outcome),
                }
                compared += 1;
                if compared >= COMPARE_BATCH {
                    break;
                }
            }
            let wake_at = {
                let queue = self.shared.queue();
                self.counters.set_waiting(queue.len());
                queue.wake_at()
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some((key, outcome, result)) = in_flight.next() => {
                    self.written(&key, outcome, result);
                }
                () = self.shared.changed.notified() => {}
                () = sleep_until(wake_at) => {}
                () = tokio::task::yield_now(), if compared >= COMPARE_BATCH => {}
            }
        }
        let last = async {
            while let Some((key, outcome, result)) = in_flight.next().await {
                self.written(&key, outcome, result);
            }
        };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, last).await.is_err() {
            tracing::warn!("shutdown interrupted some status writes");
        }
    }

    fn next(&self) -> Option<Job> {
        self.shared.queue().next(Instant::now())
    }

    /// A job's patch, or the outcome if there is nothing to write.
    fn compare(&self, job: &Job) -> Result<merge::Patch, Outcome> {
        self.counters.compared();
        let now = Timestamp::now();
        match merge::diff(&job.controller, job.key.kind, &job.live, &job.desired, now) {
            Diff::UpToDate => Err(Outcome::UpToDate),
            Diff::Stale => Err(Outcome::Stale),
            Diff::Patch(patch) => Ok(patch),
        }
    }

    fn written(&self, key: &ObjectKey, outcome: Outcome, result: WriteResult) {
        self.counters.count(key.kind, result);
        self.finish(key, outcome);
    }

    fn finish(&self, key: &ObjectKey, outcome: Outcome) {
        tracing::trace!(object = %key, ?outcome, "status");
        self.shared.queue().finish(key, outcome, Instant::now());
    }
}

impl Sender {
    /// Sends a patch; reads the live status after a conflict.
    async fn write(&self, job: &Job, patch: merge::Patch) -> (Outcome, WriteResult) {
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
            Response::Object(live) => {
                let outcome = Outcome::Written(live, patch.omitted);
                (outcome, WriteResult::Written)
            }
            Response::Conflict => (self.read(&job.key).await, WriteResult::Conflict),
            Response::NotFound => (Outcome::NotFound, WriteResult::NotFound),
            Response::Failed(failure) => {
                let result = match failure.reason {
                    FailureReason::Unavailable | FailureReason::ServerError => WriteResult::Failed,
                    _ => WriteResult::Rejected,
                };
                (Outcome::Failed(failure), result)
            }
        }
    }

    /// Reads the live status after a conflict.
    async fn read(&self, key: &ObjectKey) -> Outcome {
        let request = collection(key).get(&key.name, &GetParams::default());
        match self.send(request).await {
            Response::Object(live) => Outcome::Conflict(live),
            Response::NotFound => Outcome::NotFound,
            Response::Conflict => Outcome::Failed(WriteFailure {
                reason: FailureReason::ServerError,
                message: "409 Conflict in response to a GET".to_owned(),
                retry_after: None,
            }),
            Response::Failed(failure) => Outcome::Failed(failure),
        }
    }

    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Response {
        let request = match request {
            Ok(request) => request,
            Err(error) => return response::failed(FailureReason::Invalid, error.to_string()),
        };
        let exchange = async {
            let response = self.client.send(request.map(Body::from)).await;
            let response = response.map_err(|error| causes(&error))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_RESPONSE).collect().await;
            let body = body.map_err(|error| causes(&*error))?;
            Ok::<_, String>(response::read(head.status, &head.headers, &body.to_bytes()))
        };
        let error = match tokio::time::timeout(REQUEST_TIMEOUT, exchange).await {
            Ok(Ok(response)) => return response,
            Ok(Err(message)) => message,
            Err(_) => format!("no response within {REQUEST_TIMEOUT:?}"),
        };
        response::failed(FailureReason::Unavailable, error)
    }
}

/// Builds requests for a key's kind and namespace.
fn collection(key: &ObjectKey) -> Request {
    let version = key.kind.api_version();
    let plural = key.kind.plural();
    Request::new(match key.kind.namespaced() {
        true => format!("/apis/{version}/namespaces/{}/{plural}", key.namespace),
        false => format!("/apis/{version}/{plural}"),
    })
}

/// An error with all its causes.
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

async fn sleep_until(at: Option<Instant>) {
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
    fn paths_of_namespaced_kinds_contain_the_namespace() {
        let route = collection(&ObjectKey::new(Kind::HTTPRoute, "a", "b"));
        let path = "/apis/gateway.networking.k8s.io/v1/namespaces/a/httproutes";
        assert_eq!(route.url_path, path);
        let class = collection(&ObjectKey::new(Kind::GatewayClass, "", "b"));
        let path = "/apis/gateway.networking.k8s.io/v1/gatewayclasses";
        assert_eq!(class.url_path, path);
    }
}
