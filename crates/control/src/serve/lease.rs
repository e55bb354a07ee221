//! Leader election: the replica that holds a Lease leads.
//!
//! In: a client, and the name of this replica. Out: whether it is the leader. It must not depend on what a leader does.
//!
//! [`candidate`] is the state machine, without a clock or a network; this file sends the requests and waits.

mod candidate;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use sesame_translate::settings::ElectionSettings;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::candidate::{Candidate, LeaseRequest, LeaseResponse};

/// Name of the Lease shared by all replicas.
const NAME: &str = "sesame-leader";
/// Upper limit of the timeout of a request.
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout for releasing the Lease at shutdown.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Settings for a candidate.
#[derive(Clone, Debug)]
pub(crate) struct LeaseConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Name of this replica, unique among running replicas. A restarted replica may keep its name.
    pub identity: String,
    pub timings: Timings,
}

/// Durations of the election. A dead leader is replaced within `lease_duration + poll_interval`, plus two requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timings {
    /// A Lease expires once it has been observed unchanged for this long. In whole seconds.
    pub lease_duration: Duration,
    /// A leader that hasn't renewed the Lease for this long steps down. Shorter than `lease_duration` by more than the
    /// clock drift in that time.
    pub renew_deadline: Duration,
    /// Time between renewals.
    pub renew_interval: Duration,
    /// Time between reads of another holder's Lease, and before a retry.
    pub poll_interval: Duration,
    /// Timeout of a request.
    pub request_timeout: Duration,
}

impl From<ElectionSettings> for Timings {
    fn from(settings: ElectionSettings) -> Self {
        Timings {
            lease_duration: settings.lease_duration,
            renew_deadline: settings.renew_deadline,
            renew_interval: settings.retry_period,
            poll_interval: settings.retry_period / 2,
            request_timeout: MAX_REQUEST_TIMEOUT.min(settings.renew_deadline / 2),
        }
    }
}

impl Default for Timings {
    fn default() -> Self {
        ElectionSettings::default().into()
    }
}

impl LeaseConfig {
    /// The default Lease in this namespace, for a replica of this name.
    pub(crate) fn new(namespace: &str, identity: &str) -> Self {
        LeaseConfig {
            namespace: namespace.to_owned(),
            name: NAME.to_owned(),
            identity: identity.to_owned(),
            timings: Timings::default(),
        }
    }
}

/// Why the last request of the election failed; `None` if it succeeded.
pub(crate) type ElectionFailure = Option<Arc<str>>;

/// Takes part in the election until `stop`, and reports failures to `failure`. Returns whether this replica is the
/// leader, and the task to run. When the task has ended, this replica isn't the leader, and the Lease has been released
/// unless the API server was unreachable.
pub(crate) fn start(
    client: kube::Client,
    config: LeaseConfig,
    failure: watch::Sender<ElectionFailure>,
    stop: CancellationToken,
) -> (watch::Receiver<bool>, impl Future<Output = ()>) {
    let (sender, is_leader) = watch::channel(false);
    let election = Election {
        leases: Api::namespaced(client, &config.namespace),
        candidate: Candidate::new(&config, Instant::now()),
        request_timeout: config.timings.request_timeout,
        is_leader: sender,
        failure,
    };
    (is_leader, election.run(stop))
}

struct Election {
    leases: Api<Lease>,
    candidate: Candidate,
    request_timeout: Duration,
    is_leader: watch::Sender<bool>,
    failure: watch::Sender<ElectionFailure>,
}

impl Election {
    async fn run(mut self, stop: CancellationToken) {
        while let Some(()) = stop.run_until_cancelled(self.step()).await {}
        self.is_leader.send_replace(false);
        let released = tokio::time::timeout(RELEASE_TIMEOUT, self.release()).await;
        if released.is_err() {
            tracing::warn!(
                "cannot release the Lease: no response; another replica takes over once it expires"
            );
        }
    }

    /// Waits until the next request is due, and sends it. Returns early when leadership expires.
    async fn step(&mut self) {
        self.publish();
        let next_request_at = self.candidate.next_request_at();
        if Instant::now() < next_request_at {
            let until = self.candidate.leader_until();
            let until = until.filter(|until| *until > Instant::now());
            tokio::time::sleep_until(until.unwrap_or(next_request_at).min(next_request_at).into())
                .await;
            return;
        }
        let sent_at = Instant::now();
        let request = self.candidate.next_request(Timestamp::now());
        let response = {
            let mut response = std::pin::pin!(tokio::time::timeout(
                self.request_timeout,
                self.send(&request)
            ));
            loop {
                // Leadership may expire while a request is in flight.
                let until = self.candidate.leader_until();
                let until = until.filter(|_| *self.is_leader.borrow());
                tokio::select! {
                    response = &mut response => break response,
                    () = sleep_until(until) => self.publish(),
                }
            }
        };
        let response = response
            .unwrap_or_else(|_| LeaseResponse::Failed("no response within the timeout".to_owned()));
        self.log(&response);
        self.candidate
            .handle_response(&request, response, sent_at, Instant::now());
        self.publish();
    }

    /// Publishes whether this replica is the leader, if that has changed.
    fn publish(&self) {
        let now = self.candidate.is_leader(Instant::now());
        self.is_leader
            .send_if_modified(|before| std::mem::replace(before, now) != now);
    }

    async fn send(&self, request: &LeaseRequest) -> LeaseResponse {
        let params = PostParams::default();
        let response = match request {
            LeaseRequest::Get => self.leases.get(self.candidate.name()).await,
            LeaseRequest::Create(lease) => self.leases.create(&params, lease).await,
            LeaseRequest::Replace(lease) => {
                self.leases
                    .replace(self.candidate.name(), &params, lease)
                    .await
            }
        };
        match response {
            Ok(lease) => LeaseResponse::Lease(Box::new(lease)),
            // For a create, 404 means that the namespace is missing.
            Err(kube::Error::Api(status))
                if status.code == 404 && !matches!(request, LeaseRequest::Create(_)) =>
            {
                LeaseResponse::NotFound
            }
            Err(kube::Error::Api(status)) if status.code == 409 => LeaseResponse::Conflict,
            Err(error) => LeaseResponse::Failed(error.to_string()),
        }
    }

    /// Releases the Lease, so that another replica can lead immediately.
    async fn release(&mut self) {
        while let Some(lease) = self.candidate.release(Timestamp::now()) {
            let request = LeaseRequest::Replace(lease);
            match self.send(&request).await {
                // A renewal may have been in flight.
                LeaseResponse::Conflict => {
                    let now = Instant::now();
                    let observed = self.send(&LeaseRequest::Get).await;
                    if !matches!(observed, LeaseResponse::Lease(_)) {
                        return;
                    }
                    self.candidate
                        .handle_response(&LeaseRequest::Get, observed, now, now);
                }
                LeaseResponse::Failed(error) => {
                    tracing::warn!(error, "cannot release the Lease");
                    return;
                }
                LeaseResponse::Lease(_) | LeaseResponse::NotFound => return,
            }
        }
    }

    /// Logs the first failure, and the recovery.
    fn log(&self, response: &LeaseResponse) {
        let failure: ElectionFailure = match response {
            LeaseResponse::Failed(error) => Some(error.as_str().into()),
            // The Lease is created next; that outcome is logged.
            LeaseResponse::NotFound => return,
            LeaseResponse::Lease(_) | LeaseResponse::Conflict => None,
        };
        let before = self.failure.send_replace(failure.clone());
        match (before, failure) {
            (None, Some(error)) => tracing::warn!(%error, "leader election failed"),
            (Some(_), None) => tracing::info!("leader election recovered"),
            _ => {}
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
