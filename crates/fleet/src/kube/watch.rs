//! What stands in the cluster, as it changes.
//!
//! In: an API server. Out: [`News`]. Of an object nothing is kept but a [`Seen`].

#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use kube::api::Api;
use kube::core::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use tokio::sync::mpsc;

use super::fleets::News;
use super::kind::Kind;
use super::labels;
use super::seen::Seen;
use super::spec::Config;

/// From how many refusals in a row on they are told. An API server that has just started refuses everybody for a moment,
/// until it has read who may do what.
const REFUSALS: u32 = 4;

/// The pause before everything is listed again.
const PAUSE: Duration = Duration::from_secs(2);

/// How long a watch waits before it asks again. Never long, however long the API server has been away: what happens at its
/// return is learned by that much later.
#[derive(Clone, Debug)]
pub(super) struct Pace(Duration);

impl Pace {
    const FIRST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_secs(2);
}

impl Default for Pace {
    fn default() -> Self {
        Self(Self::FIRST)
    }
}

impl Iterator for Pace {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let next = (self.0 * 2).min(Self::LONGEST);
        Some(std::mem::replace(&mut self.0, next))
    }
}

impl Backoff for Pace {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Tells of a kind, in a namespace or everywhere, until nobody listens.
pub(super) async fn watch(
    client: Client,
    config: Config,
    kind: Kind,
    scope: Option<String>,
    out: mpsc::Sender<News>,
) {
    let mut refusals = 0;
    // A watch that is refused goes on one day without a word, and nobody would learn that it does: it is begun anew, and a
    // list says how things are.
    while follow(&client, &config, kind, &scope, &out, &mut refusals).await {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Tells until a watch is refused (true), or nobody listens (false).
async fn follow(
    client: &Client,
    config: &Config,
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
    // After an error it goes on by itself.
    let events = watcher::watcher(api, wanted).backoff(Pace::default());
    tokio::pin!(events);
    let mut listing = Vec::new();
    let mut complaint = None;
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
                complaint = None;
                *refusals = 0;
                let all = std::mem::take(&mut listing);
                Some(News::All(kind, scope.clone(), all))
            }
            Ok(Event::Apply(object)) => {
                Seen::of(kind, object, config).map(|(place, seen)| News::Seen(kind, place, seen))
            }
            Ok(Event::Delete(object)) => {
                Seen::of(kind, object, config).map(|(place, _)| News::Gone(kind, place))
            }
            Err(error) => {
                let message = error.to_string();
                if complaint.as_ref() != Some(&message) {
                    tracing::warn!(kind = kind.name(), "watching fleets' objects: {message}");
                    complaint = Some(message);
                }
                let why = hidden(&error);
                *refusals += u32::from(why.is_some());
                again = why.is_some() && matches!(error, watcher::Error::WatchStartFailed(_));
                why.filter(|_| *refusals >= REFUSALS).map(|why| {
                    let message = format!(
                        "Sesame can't look at objects of kind {}: {why}",
                        kind.name()
                    );
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

/// Why a kind can't be looked at at all; `None` where it is a matter of time.
fn hidden(error: &watcher::Error) -> Option<String> {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return None;
    };
    matches!(status.code, 401 | 403 | 404).then(|| format!("{} ({})", status.message, status.code))
}
