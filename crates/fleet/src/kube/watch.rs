//! Watches fleets' objects and sends [`ObjectEvent`]s.

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

use super::fleets::ObjectEvent;
use super::kind::ObjectKind;
use super::labels;
use super::observed::ObservedObject;
use super::spec::FleetsConfig;

/// Number of consecutive refusals after which they are reported. An API server that has just started refuses all
/// requests until it has loaded its roles.
const REPORT_AFTER_REFUSALS: u32 = 4;

/// The delay before a relist.
const RELIST_DELAY: Duration = Duration::from_secs(2);

/// The delay before a relist of a kind whose CRD isn't installed.
const ABSENT_DELAY: Duration = Duration::from_secs(30);

/// The retry delays of a failing watch. They are short, since they delay the first events after an outage.
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
    kind: ObjectKind,
    scope: Option<String>,
    sender: mpsc::Sender<ObjectEvent>,
) {
    let mut refusals = 0;
    // A refused watch doesn't yield an event when it resumes: only a new list shows that the kind is readable again.
    loop {
        match watch_once(&client, &config, kind, &scope, &sender, &mut refusals).await {
            Ended::Refused => tokio::time::sleep(RELIST_DELAY).await,
            Ended::Absent => tokio::time::sleep(ABSENT_DELAY).await,
            Ended::Closed => return,
        }
    }
}

/// Why a watch has ended.
enum Ended {
    /// It was refused.
    Refused,
    /// The API server doesn't have the kind.
    Absent,
    /// The receiver is dropped.
    Closed,
}

/// Watches until the watch is refused or the receiver is dropped.
async fn watch_once(
    client: &Client,
    config: &FleetsConfig,
    kind: ObjectKind,
    scope: &Option<String>,
    sender: &mpsc::Sender<ObjectEvent>,
    refusals: &mut u32,
) -> Ended {
    let resource = kind.resource();
    let api: Api<DynamicObject> = match scope {
        None => Api::all_with(client.clone(), &resource),
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let watch_config = watcher::Config::default().labels(&labels::watch_selector(config, kind));
    let events = watcher::watcher(api, watch_config).backoff(watch_backoff());
    tokio::pin!(events);
    let mut listing = Vec::new();
    let mut logged = None;
    while let Some(event) = events.next().await {
        let mut ended = None;
        let event = match event {
            Ok(Event::Init) => {
                listing.clear();
                None
            }
            Ok(Event::InitApply(object)) => {
                listing.extend(ObservedObject::read(kind, object, config));
                None
            }
            Ok(Event::InitDone) => {
                logged = None;
                *refusals = 0;
                let all = std::mem::take(&mut listing);
                Some(ObjectEvent::Listed(kind, scope.clone(), all))
            }
            Ok(Event::Apply(object)) => ObservedObject::read(kind, object, config)
                .map(|(key, kind, observed)| ObjectEvent::Changed(kind, key, observed)),
            Ok(Event::Delete(object)) => ObservedObject::read(kind, object, config)
                .map(|(key, kind, _)| ObjectEvent::Deleted(kind, key)),
            Err(error) => {
                let message = error.to_string();
                let refusal = refusal(&error);
                let absent = kind.is_custom() && matches!(refusal, Some((404, _)));
                if absent {
                    tracing::debug!(kind = kind.name(), "the CRD is not installed");
                } else if logged.as_ref() != Some(&message) {
                    tracing::warn!(kind = kind.name(), "cannot watch: {message}");
                    logged = Some(message);
                }
                *refusals += u32::from(refusal.is_some());
                if absent && *refusals >= REPORT_AFTER_REFUSALS {
                    ended = Some(Ended::Absent);
                } else if refusal.is_some() && matches!(error, watcher::Error::WatchStartFailed(_))
                {
                    ended = Some(Ended::Refused);
                }
                refusal
                    .filter(|_| *refusals >= REPORT_AFTER_REFUSALS)
                    .map(|(_, reason)| {
                        let message =
                            format!("cannot watch objects of kind {}: {reason}", kind.name());
                        ObjectEvent::Unwatchable(kind, scope.clone(), message)
                    })
            }
        };
        if let Some(event) = event
            && sender.send(event).await.is_err()
        {
            return Ended::Closed;
        }
        if let Some(ended) = ended {
            return ended;
        }
    }
    // A watcher's stream doesn't end.
    Ended::Refused
}

/// The status code if a kind can't be watched, and why; `None` for transient errors.
fn refusal(error: &watcher::Error) -> Option<(u16, String)> {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return None;
    };
    matches!(status.code, 401 | 403 | 404)
        .then(|| (status.code, format!("{} ({})", status.message, status.code)))
}
