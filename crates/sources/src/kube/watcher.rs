//! Lists and watches one collection until its handler stops it.
//!
//! In: the path of a collection. Out: calls to a [`Handler`]. Failed requests are retried with backoff. [`Progress`]
//! decides the next request. docs/design/watch.md compares this watcher with kube-runtime's.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ::kube::Client;
use ::kube::api::{ListParams, WatchParams};
use ::kube::core::{Request, WatchEvent};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use super::backoff::{Retries, RetryDelays};
use super::counters::Counters;
use super::error::RequestError;
use super::progress::{Meaning, Next, Progress};
use super::request;

/// Server-side timeout of a watch, in seconds.
const WATCH_SECONDS: u32 = 290;

/// Client-side timeout between events of a streaming list.
const LIST_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// Client-side timeout between events of a watch. Servers send a bookmark about once a minute; only a missing bookmark
/// reveals that the peer lost power.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// A watch that stays open for this long counts as successful, even without an event.
const ESTABLISHED: Duration = Duration::from_secs(1);

/// Page size for servers without streaming lists.
const PAGE: u32 = 500;

/// Maximum number of buffered events handled before a flush.
const CHUNK: usize = 256;

/// Receives a watcher's results.
pub(super) trait Handler: Send {
    /// A list begins. The previous one may be incomplete.
    fn list_begins(&mut self);
    /// The object is new, changed or listed.
    fn applied(&mut self, text: &str);
    /// An object was deleted. `text` is its last version.
    fn deleted(&mut self, text: &str);
    /// The list is complete.
    fn list_ends(&mut self);
    /// The server accepted a request.
    fn connected(&mut self);
    /// A request failed. Requests have been failing in the same way for `duration`.
    fn failed(&mut self, error: RequestError, duration: Duration);
    /// No further events are buffered. Returns false to stop the watcher.
    fn flush(&mut self) -> impl Future<Output = bool> + Send;
}

/// A collection to watch.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) path: String,
    pub(super) metadata_only: bool,
    pub(super) field_selector: Option<String>,
}

/// State shared by all tasks.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) retry: RetryDelays,
    pub(super) counters: Arc<Counters>,
    /// Whether the first sync is complete.
    pub(super) synced: Arc<AtomicBool>,
}

impl Context {
    pub(super) fn retries(&self) -> Retries {
        Retries::new(self.retry.clone(), self.synced.clone())
    }
}

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

/// Lists and watches until the handler stops the watcher.
pub(super) async fn watch<H: Handler>(context: &Context, target: &Target, handler: &mut H) {
    let mut watcher = Watcher {
        context,
        target,
        handler,
        progress: Progress::new(),
        retries: context.retries(),
    };
    while watcher.step().await {}
}

struct Watcher<'a, H> {
    context: &'a Context,
    target: &'a Target,
    handler: &'a mut H,
    progress: Progress,
    retries: Retries,
}

impl<H: Handler> Watcher<'_, H> {
    /// Sends one request. If it fails, waits. Returns false if the handler stops the watcher.
    async fn step(&mut self) -> bool {
        if self.progress.lists() {
            self.handler.list_begins();
        }
        let next = self.progress.next().clone();
        let result = match next {
            Next::Page(token) => self.page(token).await,
            Next::StreamingList => self.events(None).await,
            Next::Watch(version) => self.events(Some(version)).await,
        };
        let mut delay = Duration::ZERO;
        match result {
            Ok(()) => self.retries.succeeded(),
            Err(error) if self.progress.failed(&error) => self.retries.succeeded(),
            Err(error) => {
                let duration;
                (delay, duration) = self.retries.failed(&error, Instant::now());
                if error != RequestError::Closed {
                    self.handler.failed(error, duration);
                }
            }
        }
        let open = self.handler.flush().await;
        if open && delay > Duration::ZERO {
            sleep(delay).await;
        }
        open
    }

    async fn page(&mut self, token: Option<String>) -> Result<(), RequestError> {
        let params = ListParams {
            limit: Some(PAGE),
            continue_token: token,
            field_selector: self.target.field_selector.clone(),
            ..ListParams::default()
        };
        let request = Request::new(&*self.target.path);
        let request = match self.target.metadata_only {
            true => request.list_metadata(&params),
            false => request.list(&params),
        };
        self.context.counters.count_list();
        let text = request::text(&self.context.client, request?).await?;
        let page: Page = serde_json::from_str(&text)?;
        self.handler.connected();
        for object in page.items.unwrap_or_default() {
            self.context.counters.count_event();
            self.handler.applied(object.get());
        }
        let PageMetadata {
            resource_version,
            next,
        } = page.metadata;
        if self.progress.page(resource_version, next) {
            self.handler.list_ends();
        }
        Ok(())
    }

    /// Watches from a version, or begins with a streaming list if `None`.
    async fn events(&mut self, version: Option<String>) -> Result<(), RequestError> {
        let mut params = WatchParams::default().timeout(WATCH_SECONDS);
        params
            .field_selector
            .clone_from(&self.target.field_selector);
        match version {
            Some(_) => self.context.counters.count_watch(),
            None => {
                self.context.counters.count_list();
                params = params.initial_events();
            }
        }
        // Without a version, the server lists the latest state rather than a cached one.
        let version = version.unwrap_or_default();
        let request = Request::new(&*self.target.path);
        let request = match self.target.metadata_only {
            true => request.watch_metadata(&params, &version),
            false => request.watch(&params, &version),
        };
        let events = request::events(&self.context.client, request?).await?;
        let opened = Instant::now();
        self.handler.connected();
        let mut chunks = pin!(events.ready_chunks(CHUNK));
        let mut received = false;
        while self.handler.flush().await {
            let limit = match self.progress.lists() {
                true => LIST_TIMEOUT,
                false => IDLE_TIMEOUT,
            };
            let Ok(Some(chunk)) = timeout(limit, chunks.next()).await else {
                let good = received || opened.elapsed() > ESTABLISHED;
                return match good && !self.progress.lists() {
                    true => Ok(()),
                    false => Err(RequestError::Closed),
                };
            };
            for event in chunk {
                let event = event.map_err(|_| RequestError::Closed)?;
                self.handle(event)?;
                self.retries.succeeded();
                received = true;
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: WatchEvent<Box<RawValue>>) -> Result<(), RequestError> {
        match self.progress.event(event) {
            Meaning::Applied(object) => {
                self.context.counters.count_event();
                self.handler.applied(object.get());
            }
            Meaning::Deleted(object) => {
                self.context.counters.count_event();
                self.handler.deleted(object.get());
            }
            Meaning::ListEnds => self.handler.list_ends(),
            Meaning::Nothing => {}
            Meaning::Failed(error) => return Err(error),
        }
        Ok(())
    }
}
