//! Watches the objects of fleets. Gives [`News`], in which an object is reduced to a [`Seen`].

#[cfg(test)]
mod tests;

use std::time::Duration;

use backon::ExponentialBuilder;
use futures::StreamExt;
use kube::Client;
use kube::api::Api;
use kube::core::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, ExponentialBackoff};
use tokio::sync::mpsc;

use super::fleets::News;
use super::kind::Kind;
use super::labels;
use super::seen::Seen;
use super::spec::FleetsConfig;

/// How many refusals in a row are reported. An API server that has just started refuses all requests until it has read its
/// roles.
const REFUSALS: u32 = 4;

/// The delay before a new list.
const RELIST_DELAY: Duration = Duration::from_secs(2);

/// The delays of a failing watch. They stay short however long the API server is unavailable, since they add to the latency of
/// the first events after its return.
pub(super) fn watch_backoff() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(2))
        .without_max_times()
        .into()
}

/// Watches a kind, in a namespace or (`None`) in all, until the receiver is dropped.
pub(super) async fn watch(
    client: Client,
    config: FleetsConfig,
    kind: Kind,
    scope: Option<String>,
    out: mpsc::Sender<News>,
) {
    let mut refusals = 0;
    // A refused watch that resumes yields no event: only a new list shows that the kind is readable again.
    while follow(&client, &config, kind, &scope, &out, &mut refusals).await {
        tokio::time::sleep(RELIST_DELAY).await;
    }
}

/// Watches until the watch is refused (true) or the receiver is dropped (false).
async fn follow(
    client: &Client,
    config: &FleetsConfig,
    kind: Kind,
    scope: &Option<String>,
    out: &mpsc::Sender<News>,
    refusals: &mut u32,
) -> bool {
    let resource = kind.resource();
    let api: Api<DynamicObject> = match scope {
        None => Api::all_with(client.clone(), &resource),
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let wanted = watcher::Config::default().labels(&labels::watched(config));
    let events = watcher::watcher(api, wanted).backoff(watch_backoff());
    tokio::pin!(events);
    let mut listing = Vec::new();
    let mut logged = None;
    while let Some(event) = events.next().await {
        let mut again = false;
        let news = match event {
            Ok(Event::Init) => {
                listing.clear();
                None
            }
            Ok(Event::InitApply(object)) => {
                listing.extend(Seen::of(kind, object, config));
                None
            }
            Ok(Event::InitDone) => {
                logged = None;
                *refusals = 0;
                let all = std::mem::take(&mut listing);
                Some(News::All(kind, scope.clone(), all))
            }
            Ok(Event::Apply(object)) => {
                Seen::of(kind, object, config).map(|(key, seen)| News::Seen(kind, key, seen))
            }
            Ok(Event::Delete(object)) => {
                Seen::of(kind, object, config).map(|(key, _)| News::Gone(kind, key))
            }
            Err(error) => {
                let message = error.to_string();
                if logged.as_ref() != Some(&message) {
                    tracing::warn!(kind = kind.name(), "cannot watch: {message}");
                    logged = Some(message);
                }
                let why = hidden(&error);
                *refusals += u32::from(why.is_some());
                again = why.is_some() && matches!(error, watcher::Error::WatchStartFailed(_));
                why.filter(|_| *refusals >= REFUSALS).map(|why| {
                    let message = format!("cannot watch objects of kind {}: {why}", kind.name());
                    News::Hidden(kind, scope.clone(), message)
                })
            }
        };
        if let Some(news) = news
            && out.send(news).await.is_err()
        {
            return false;
        }
        if again {
            return true;
        }
    }
    // A watcher's stream doesn't end.
    true
}

/// Why a kind can't be watched; `None` for transient errors.
fn hidden(error: &watcher::Error) -> Option<String> {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return None;
    };
    matches!(status.code, 401 | 403 | 404).then(|| format!("{} ({})", status.message, status.code))
}
