//! Leader election: the replica that holds a Lease leads.
//!
//! In: a client, and the name of this replica. Out: whether it leads. It must not depend on what a leader does.
//!
//! [`candidate`] decides, without a clock or a network; this file sends the requests and waits.

mod candidate;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::candidate::{Answer, Ask, Candidate};

/// The Lease of all replicas.
const NAME: &str = "sesame-leader";
/// Timeout of its release.
const LAST_ANSWER: Duration = Duration::from_secs(3);

/// Settings of a candidate.
#[derive(Clone, Debug)]
pub(super) struct LeaseConfig {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name of this replica, unique among running replicas. It may be the same after a restart.
    pub identity: String,
    pub times: Times,
}

/// Durations of the election. A dead leader is replaced within `lease + look` and the time of two requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// A Lease is free when it has been seen unchanged for so long. In whole seconds.
    pub lease: Duration,
    /// A leader that hasn't renewed for so long stops leading; shorter than `lease`, by more than the drift of clocks in
    /// that time.
    pub deadline: Duration,
    /// Between renewals.
    pub renew: Duration,
    /// Between reads of another holder's Lease, and before a retry after a failure.
    pub look: Duration,
    /// Timeout of a request.
    pub answer: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            lease: Duration::from_secs(10),
            deadline: Duration::from_secs(8),
            renew: Duration::from_secs(2),
            look: Duration::from_secs(1),
            answer: Duration::from_secs(3),
        }
    }
}

impl LeaseConfig {
    /// The default Lease in this namespace, for a replica of this name.
    pub(super) fn new(namespace: &str, identity: &str) -> Self {
        LeaseConfig {
            namespace: namespace.to_owned(),
            name: NAME.to_owned(),
            identity: identity.to_owned(),
            times: Times::default(),
        }
    }
}

/// Why the election fails; `None`: it works.
pub(super) type Trouble = Option<Arc<str>>;

/// Takes part in the election until `stop`, and reports in `trouble` why it fails. Returns whether this replica leads, and
/// the task to run; when the task has ended, this replica doesn't lead, and the Lease is free at once if the API server
/// could be reached.
pub(super) fn start(
    client: kube::Client,
    config: LeaseConfig,
    trouble: watch::Sender<Trouble>,
    stop: CancellationToken,
) -> (watch::Receiver<bool>, impl Future<Output = ()>) {
    let (leads, leading) = watch::channel(false);
    let election = Election {
        leases: Api::namespaced(client, &config.namespace),
        candidate: Candidate::new(&config, Instant::now()),
        answer: config.times.answer,
        leads,
        trouble,
    };
    (leading, election.run(stop))
}

struct Election {
    leases: Api<Lease>,
    candidate: Candidate,
    answer: Duration,
    leads: watch::Sender<bool>,
    /// Why the last request failed, if it did.
    trouble: watch::Sender<Trouble>,
}

impl Election {
    async fn run(mut self, stop: CancellationToken) {
        while let Some(()) = stop.run_until_cancelled(self.turn()).await {}
        self.leads.send_replace(false);
        let released = tokio::time::timeout(LAST_ANSWER, self.release()).await;
        if released.is_err() {
            tracing::warn!("the Lease could not be released: other replicas wait until it expires");
        }
    }

    /// Waits for the time of the next request, and sends it.
    async fn turn(&mut self) {
        self.tell();
        let asks_at = self.candidate.asks_at();
        if Instant::now() < asks_at {
            let until = self.candidate.leads_until();
            let until = until.filter(|until| *until > Instant::now());
            tokio::time::sleep_until(until.unwrap_or(asks_at).min(asks_at).into()).await;
            return;
        }
        let asked_at = Instant::now();
        let ask = self.candidate.ask(Timestamp::now());
        let answer = {
            let mut answer = std::pin::pin!(tokio::time::timeout(self.answer, self.send(&ask)));
            loop {
                // Leadership may expire while a request is in flight.
                let until = self.candidate.leads_until();
                let until = until.filter(|_| *self.leads.borrow());
                tokio::select! {
                    answer = &mut answer => break answer,
                    () = sleep_until(until) => self.tell(),
                }
            }
        };
        let answer = answer.unwrap_or_else(|_| Answer::Failed("no answer in time".to_owned()));
        self.log(&answer);
        self.candidate
            .answered(&ask, answer, asked_at, Instant::now());
        self.tell();
    }

    /// Publishes whether this replica leads, if that changed.
    fn tell(&self) {
        let now = self.candidate.leads(Instant::now());
        self.leads.send_if_modified(|leads| {
            let changed = *leads != now;
            *leads = now;
            changed
        });
    }

    async fn send(&self, ask: &Ask) -> Answer {
        let params = PostParams::default();
        let answer = match ask {
            Ask::Look => self.leases.get(self.candidate.name()).await,
            Ask::Create(lease) => self.leases.create(&params, lease).await,
            Ask::Replace(lease) => {
                self.leases
                    .replace(self.candidate.name(), &params, lease)
                    .await
            }
        };
        match answer {
            Ok(lease) => Answer::Lease(Box::new(lease)),
            // A create finds nothing only if the namespace is missing.
            Err(kube::Error::Api(status))
                if status.code == 404 && !matches!(ask, Ask::Create(_)) =>
            {
                Answer::Missing
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Answer::Conflict,
            Err(error) => Answer::Failed(error.to_string()),
        }
    }

    /// Releases the Lease, so that other replicas needn't wait.
    async fn release(&mut self) {
        while let Some(lease) = self.candidate.release(Timestamp::now()) {
            let ask = Ask::Replace(lease);
            match self.send(&ask).await {
                // A renewal may have been in flight.
                Answer::Conflict => {
                    let now = Instant::now();
                    let seen = self.send(&Ask::Look).await;
                    if !matches!(seen, Answer::Lease(_)) {
                        return;
                    }
                    self.candidate.answered(&Ask::Look, seen, now, now);
                }
                Answer::Failed(error) => {
                    tracing::warn!(error, "the Lease could not be released");
                    return;
                }
                Answer::Lease(_) | Answer::Missing => return,
            }
        }
    }

    /// Logs a failure once, and once that it is over.
    fn log(&self, answer: &Answer) {
        let trouble: Trouble = match answer {
            Answer::Failed(error) => Some(error.as_str().into()),
            // The attempt to create it shows whether it can be created.
            Answer::Missing => return,
            Answer::Lease(_) | Answer::Conflict => None,
        };
        let before = self.trouble.send_replace(trouble.clone());
        match (before, trouble) {
            (None, Some(error)) => tracing::warn!(%error, "leader election fails"),
            (Some(_), None) => tracing::info!("leader election works again"),
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
