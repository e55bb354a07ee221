//! Listing and watching one collection, for ever.
//!
//! In: the path of a collection. Out: what a [`Listener`] is told. The connection breaks, the server is away, forgets or forbids: it
//! is asked again, each time after a longer wait. The decisions are [`Progress`]'s.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::kube::Client;
use ::kube::api::{ListParams, WatchParams};
use ::kube::core::{Request, WatchEvent};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use super::failure::Failure;
use super::pace::{Pace, Row};
use super::progress::{Ask, Meaning, Progress};
use super::work::Work;

/// After this the server ends a watch, which then is asked for again. Seconds.
const WATCH_SECONDS: u32 = 290;

/// A list that tells nothing for so long does not come any more.
const DEAD: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// A watch that tells nothing for so long is asked for again from where it is: servers send a bookmark about once a minute, and
/// nothing else shows that the connection is dead, as when the server's machine has lost its power.
const QUIET: Duration = Duration::from_secs(90);

/// The server gives up after 60 s at the latest, and answers. Without an answer for so long there is nobody: a connection whose
/// other end is gone would tell so after a quarter of an hour.
pub(super) const ANSWER: Duration = Duration::from_secs(70);

/// A watch that lasted so long was a good one, even if nothing happened.
const GOOD: Duration = Duration::from_secs(1);

/// Objects of a page, where there are no streaming lists.
const PAGE: u32 = 500;

/// At most so many events that have arrived are told at once.
const CHUNK: usize = 256;

/// Who wants to know.
pub(super) trait Listener: Send {
    /// A list begins; the one before may not have come to its end.
    fn begin(&mut self);
    /// The object exists and is this.
    fn exists(&mut self, text: &str);
    /// The object is gone; the text is what it was last.
    fn gone(&mut self, text: &str);
    /// The list is complete.
    fn synced(&mut self);
    /// The server lets us.
    fn connected(&mut self);
    /// A request came to nothing, for the nth time in a row for the same sort of reason.
    fn failed(&mut self, failure: Failure, attempts: u32);
    /// That was all that has arrived. False: nobody wants to know any more.
    fn flush(&mut self) -> impl Future<Output = bool> + Send;
}

/// What to list and watch.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The path of the collection.
    pub(super) path: String,
    /// Of the objects only metadata.
    pub(super) metadata_only: bool,
    /// Only objects with these fields.
    pub(super) fields: Option<String>,
}

/// What every task needs.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) client: Client,
    pub(super) pace: Pace,
    pub(super) work: Arc<Work>,
}

/// A page of a list.
#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    #[serde(default)]
    items: Option<Vec<Box<RawValue>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Lists and watches until nobody wants to know any more. `spread`: see [`Pace::after`].
pub(super) async fn follow<L: Listener>(
    means: &Means,
    target: &Target,
    spread: u64,
    listener: &mut L,
) {
    let mut progress = Progress::new();
    let mut row = Row::default();
    loop {
        if progress.begins_list() {
            listener.begin();
        }
        let watched = matches!(progress.ask(), Ask::Watch(_));
        let outcome = match progress.ask().clone() {
            Ask::Page(token) => page(means, target, token, &mut progress, listener).await,
            ask => watch(means, target, &ask, &mut progress, listener).await,
        };
        let wait = match outcome {
            Outcome::Good => {
                row.ends();
                None
            }
            Outcome::Broken { after_news } => {
                let broken = Failure::Unreachable(String::new());
                if after_news {
                    row.ends();
                }
                let attempts = row.failed(&broken);
                Some(means.pace.after(&broken, attempts, spread))
            }
            // The list that is needed now need not wait.
            Outcome::Failed(Failure::Gone, _) if watched => {
                row.ends();
                None
            }
            Outcome::Failed(failure, after_news) => {
                if after_news {
                    row.ends();
                }
                let attempts = row.failed(&failure);
                let fallback = matches!(failure, Failure::Invalid(_)) && attempts == 1;
                let wait = means.pace.after(&failure, attempts, spread);
                if !fallback {
                    listener.failed(failure, attempts);
                }
                Some(wait).filter(|_| !fallback)
            }
        };
        if !listener.flush().await {
            return;
        }
        if let Some(wait) = wait {
            sleep(wait).await;
        }
    }
}

/// How a request ended.
enum Outcome {
    /// As it should.
    Good,
    /// The connection broke.
    Broken {
        /// It had told something before.
        after_news: bool,
    },
    /// The server, or the way there, said no. True: after it had told something.
    Failed(Failure, bool),
}

async fn page<L: Listener>(
    means: &Means,
    target: &Target,
    token: Option<String>,
    progress: &mut Progress,
    listener: &mut L,
) -> Outcome {
    let params = ListParams {
        limit: Some(PAGE),
        continue_token: token,
        field_selector: target.fields.clone(),
        ..ListParams::default()
    };
    let request = Request::new(&*target.path);
    let request = match target.metadata_only {
        true => request.list_metadata(&params),
        false => request.list(&params),
    };
    means.work.count_list();
    let page = match request {
        Ok(request) => in_time(means.client.request::<Page>(request)).await,
        Err(error) => Err(Failure::of(&::kube::Error::BuildRequest(error))),
    };
    match page {
        Ok(page) => {
            listener.connected();
            for object in page.items.unwrap_or_default() {
                means.work.count_event();
                listener.exists(object.get());
            }
            if progress.page(page.metadata.resource_version, page.metadata.next) {
                listener.synced();
            }
            Outcome::Good
        }
        Err(failure) => {
            progress.failed(&failure);
            Outcome::Failed(failure, false)
        }
    }
}

/// An answer, unless it takes too long.
pub(super) async fn in_time<T>(
    answer: impl Future<Output = ::kube::Result<T>>,
) -> Result<T, Failure> {
    match timeout(ANSWER, answer).await {
        Ok(answer) => answer.map_err(|error| Failure::of(&error)),
        Err(_) => Err(Failure::Unreachable(format!("no answer within {ANSWER:?}"))),
    }
}

async fn watch<L: Listener>(
    means: &Means,
    target: &Target,
    ask: &Ask,
    progress: &mut Progress,
    listener: &mut L,
) -> Outcome {
    let mut params = WatchParams::default().timeout(WATCH_SECONDS);
    params.field_selector = target.fields.clone();
    let version = match ask {
        Ask::Watch(version) => {
            means.work.count_watch();
            version
        }
        _ => {
            means.work.count_list();
            params = params.initial_events();
            // None: the server must show the latest state, not one that it happens to remember.
            ""
        }
    };
    let request = Request::new(&*target.path);
    let request = match target.metadata_only {
        true => request.watch_metadata(&params, version),
        false => request.watch(&params, version),
    };
    let opened = Instant::now();
    let events = match request {
        Ok(request) => {
            let client = &means.client;
            in_time(client.request_events::<Box<RawValue>>(request)).await
        }
        Err(error) => Err(Failure::of(&::kube::Error::BuildRequest(error))),
    };
    let events = match events {
        Ok(events) => events,
        Err(failure) => {
            progress.failed(&failure);
            return Outcome::Failed(failure, false);
        }
    };
    listener.connected();
    let mut news = false;
    let mut chunks = pin!(events.ready_chunks(CHUNK));
    loop {
        if !listener.flush().await {
            return Outcome::Good;
        }
        let patience = match progress.begins_list() {
            true => DEAD,
            false => QUIET,
        };
        let Ok(Some(chunk)) = timeout(patience, chunks.next()).await else {
            progress.ended();
            return match news || opened.elapsed() > GOOD {
                true => Outcome::Good,
                false => Outcome::Broken { after_news: false },
            };
        };
        for event in chunk {
            let Ok(event) = event else {
                progress.ended();
                return Outcome::Broken { after_news: news };
            };
            if let Err(failure) = tell(event, progress, listener, &means.work) {
                return Outcome::Failed(failure, news);
            }
            news = true;
        }
    }
}

fn tell<L: Listener>(
    event: WatchEvent<Box<RawValue>>,
    progress: &mut Progress,
    listener: &mut L,
    work: &Work,
) -> Result<(), Failure> {
    match progress.event(event) {
        Meaning::Exists(object) => {
            work.count_event();
            listener.exists(object.get());
        }
        Meaning::Gone(object) => {
            work.count_event();
            listener.gone(object.get());
        }
        Meaning::Synced => listener.synced(),
        Meaning::Nothing => {}
        Meaning::Failed(failure) => return Err(failure),
    }
    Ok(())
}
