//! Which replica leads: whoever holds a Lease.
//!
//! In: a client, and the name of this replica. Out: whether it leads. It must not know what a leader does.
//!
//! [`candidate`] decides, without a clock or a network; this file asks the API server and waits.

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
/// How long giving it back may take.
const LAST_ANSWER: Duration = Duration::from_secs(3);

/// How to take part in an election.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name of this replica; no other one that runs has it. One that starts again may have the name that it had.
    pub identity: String,
    /// When to do what.
    pub times: Times,
}

/// When to do what. A dead leader is followed after `lease + look` at the latest, and the time of two requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// So long after it was seen to change, a Lease is free to be taken. In whole seconds.
    pub lease: Duration,
    /// A leader that could not renew for so long doesn't lead any more; shorter than `lease`, by more than clocks may differ in
    /// that time.
    pub deadline: Duration,
    /// From one renewal to the next.
    pub renew: Duration,
    /// From one look at another's Lease to the next, and from a failure to the next try.
    pub look: Duration,
    /// How long an answer may take.
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

impl Config {
    /// The usual Lease in this namespace, for a replica of this name.
    pub(super) fn new(namespace: &str, identity: &str) -> Self {
        Config {
            namespace: namespace.to_owned(),
            name: NAME.to_owned(),
            identity: identity.to_owned(),
            times: Times::default(),
        }
    }
}

/// Why nobody can agree on who leads, for people; `None`: they can.
pub(super) type Trouble = Option<Arc<str>>;

/// Takes part until `stop`, and says in `trouble` what is in the way. Gives whether this replica leads, and what has to run for it; when that has ended, this replica
/// doesn't lead, and the Lease is free at once if the API server could be told.
pub(super) fn start(
    client: kube::Client,
    config: Config,
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
            tracing::warn!("the Lease could not be given back: others wait until it has run out");
        }
    }

    /// Waits for the time of the next question, and asks it.
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
                // While an answer is awaited the time to lead may run out.
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

    /// Tells whether this replica leads, if that changed.
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
            // What is made is missing only if its namespace is.
            Err(kube::Error::Api(status))
                if status.code == 404 && !matches!(ask, Ask::Create(_)) =>
            {
                Answer::Missing
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Answer::Conflict,
            Err(error) => Answer::Failed(error.to_string()),
        }
    }

    /// Gives the Lease back, so that others needn't wait.
    async fn release(&mut self) {
        while let Some(lease) = self.candidate.release(Timestamp::now()) {
            let ask = Ask::Replace(lease);
            match self.send(&ask).await {
                // A renewal may have been under way.
                Answer::Conflict => {
                    let now = Instant::now();
                    let seen = self.send(&Ask::Look).await;
                    if !matches!(seen, Answer::Lease(_)) {
                        return;
                    }
                    self.candidate.answered(&Ask::Look, seen, now, now);
                }
                Answer::Failed(error) => {
                    tracing::warn!(error, "the Lease could not be given back");
                    return;
                }
                Answer::Lease(_) | Answer::Missing => return,
            }
        }
    }

    /// Says once what is in the way, and once that nothing is any more.
    fn log(&self, answer: &Answer) {
        let trouble: Trouble = match answer {
            Answer::Failed(error) => Some(error.as_str().into()),
            // Whether it can be made shows when it is tried.
            Answer::Missing => return,
            Answer::Lease(_) | Answer::Conflict => None,
        };
        let before = self.trouble.send_replace(trouble.clone());
        match (before, trouble) {
            (None, Some(error)) => tracing::warn!(%error, "who leads can't be agreed on"),
            (Some(_), None) => tracing::info!("who leads can be agreed on again"),
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
