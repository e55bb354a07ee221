//! Kubernetes Events, as shown by `kubectl describe`.
//!
//! In: events of this replica. Out: Events on the objects concerned, and the same in the log. Only the leader reports
//! changes of conditions; a rejection is reported by the replica to which the Envoy is connected.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event as Report, EventType, Recorder, Reporter};
use sesame_api::{Kind, ObjectKey};
use sesame_translate::settings::CONTROLLER_NAME;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, timeout};

use super::health::Health;
use crate::event::RunEvent;
use crate::owner::{Message, inspect};
use crate::status_store::{Level, StatusChange};

/// Events per second on average. Excess Events are dropped: conditions and logs have the same information.
const PER_SECOND: u32 = 10;
/// Events in a burst.
const BURST: u32 = 50;
/// Timeout of a write to the API server.
const PATIENCE: Duration = Duration::from_secs(10);
/// The API server's limit for a note, in bytes.
const LONGEST: usize = 1024;

/// A note about an object.
#[derive(Debug)]
struct Note {
    about: ObjectKey,
    reason: String,
    action: &'static str,
    text: String,
}

/// Token bucket: [`PER_SECOND`] on average, [`BURST`] at once.
#[derive(Debug)]
struct Budget {
    tokens: u32,
    /// When tokens were last added.
    counted: Instant,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self {
            tokens: BURST,
            counted: now,
        }
    }

    /// Takes a token, if there is one.
    fn spend(&mut self, now: Instant) -> bool {
        let each = Duration::from_secs(1) / PER_SECOND;
        let new = now.duration_since(self.counted).as_nanos() / each.as_nanos();
        let new = u32::try_from(new).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(new).min(BURST);
        // The remainder of the time counts for the next token.
        self.counted = if new > BURST {
            now
        } else {
            self.counted + each * new
        };
        let left = self.tokens.checked_sub(1);
        self.tokens = left.unwrap_or(0);
        left.is_some()
    }
}

/// Writes Events until this run's events end.
pub(super) async fn report(
    client: Client,
    replica: String,
    mut events: broadcast::Receiver<RunEvent>,
    owner: mpsc::WeakSender<Message>,
    health: Arc<Health>,
) {
    let reporter = Reporter {
        controller: CONTROLLER_NAME.to_owned(),
        instance: Some(replica),
    };
    let recorder = Recorder::new(client, reporter);
    let mut budget = Budget::new(Instant::now());
    loop {
        let notes = match events.recv().await {
            Ok(event) => notes(event, health.leads()),
            Err(broadcast::error::RecvError::Lagged(_)) => continue,
            Err(broadcast::error::RecvError::Closed) => return,
        };
        for note in notes {
            tracing::warn!(object = %note.about, reason = note.reason, "{}", note.text);
            if !budget.spend(Instant::now()) {
                tracing::debug!(object = %note.about, "too many Events");
                continue;
            }
            let about = note.about.clone();
            if let Some(Some(uid)) = inspect(&owner, move |core| core.uid(&about)).await {
                send(&recorder, &note, uid).await;
            }
        }
    }
}

/// Whether an event may become an Event. Most don't, and receivers aren't woken for those.
pub(super) fn worth(event: &RunEvent) -> bool {
    match event {
        RunEvent::Rejected { .. } => true,
        // Changes are sorted, the worst first.
        RunEvent::Status { changes, .. } => changes
            .first()
            .is_some_and(|change| change.level == Level::Wrong),
        _ => false,
    }
}

/// The Events for an event.
fn notes(event: RunEvent, leads: bool) -> Vec<Note> {
    match event {
        RunEvent::Rejected {
            gateway,
            resource,
            name,
            message,
        } => {
            let Some((namespace, gateway)) = gateway.split_once('/') else {
                return Vec::new();
            };
            vec![Note {
                about: ObjectKey::new(Kind::Gateway, namespace, gateway),
                reason: "RejectedByEnvoy".to_owned(),
                action: "Configure",
                text: format!(
                    "an Envoy rejected {resource} {name} and keeps the last good version: {message}"
                ),
            }]
        }
        RunEvent::Status { changes, .. } if leads => changes
            .into_iter()
            .filter(|change| change.level == Level::Wrong)
            .map(|change| Note {
                reason: change.reason.clone(),
                action: "Translate",
                text: sentence(&change),
                about: change.object,
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn sentence(change: &StatusChange) -> String {
    let part = change.part.as_ref();
    let part = part.map(|part| format!("{part}: ")).unwrap_or_default();
    let (condition, status) = (&change.condition, &change.status);
    format!("{part}{condition} is {status}: {}", change.message)
}

async fn send(recorder: &Recorder, note: &Note, uid: String) {
    let key = &note.about;
    let namespace = Some(key.namespace.to_string()).filter(|namespace| !namespace.is_empty());
    let about = ObjectReference {
        api_version: Some(key.kind.api_version().to_owned()),
        kind: Some(key.kind.as_str().to_owned()),
        name: Some(key.name.to_string()),
        namespace,
        uid: Some(uid),
        ..ObjectReference::default()
    };
    let report = Report {
        type_: EventType::Warning,
        reason: note.reason.clone(),
        note: Some(cut(&note.text).to_owned()),
        action: note.action.to_owned(),
        secondary: None,
    };
    match timeout(PATIENCE, recorder.publish(&report, &about)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(object = %key, %error, "an Event can't be written"),
        Err(_) => tracing::debug!(object = %key, "an Event can't be written: no answer"),
    }
}

/// The beginning of a text, up to the limit.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

#[cfg(test)]
mod tests {
    use sesame_api::ConditionStatus;

    use super::*;

    fn change(level: Level) -> StatusChange {
        StatusChange {
            object: ObjectKey::new(Kind::HTTPRoute, "ns", "shop"),
            part: Some("parent ns/web".to_owned()),
            condition: "ResolvedRefs".to_owned(),
            status: ConditionStatus::False,
            reason: "BackendNotFound".to_owned(),
            message: "there is no Service ns/shop".to_owned(),
            level,
        }
    }

    #[test]
    fn what_is_wrong_is_told_by_the_leader() {
        let event = || RunEvent::Status {
            revision: 1,
            changes: vec![change(Level::Wrong), change(Level::Well)],
            more: 0,
        };
        assert!(worth(&event()));
        let told = notes(event(), true);
        assert_eq!(told.len(), 1);
        assert_eq!(
            told[0].text,
            "parent ns/web: ResolvedRefs is False: there is no Service ns/shop"
        );
        assert!(notes(event(), false).is_empty());
    }

    #[test]
    fn what_an_envoy_refuses_is_told_by_any() {
        let event = RunEvent::Rejected {
            gateway: "ns/web".to_owned(),
            resource: "listener".to_owned(),
            name: "80".to_owned(),
            message: "no".to_owned(),
        };
        assert!(worth(&event));
        let told = notes(event, false);
        assert_eq!(told[0].about, ObjectKey::new(Kind::Gateway, "ns", "web"));
    }

    #[test]
    fn what_is_well_wakes_nobody() {
        let event = RunEvent::Status {
            revision: 1,
            changes: vec![change(Level::Well)],
            more: 0,
        };
        assert!(!worth(&event));
        assert!(notes(event, true).is_empty());
    }

    #[test]
    fn a_flood_is_thinned_out() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let mut written = |now| (0..1_000).filter(|_| budget.spend(now)).count();
        assert_eq!(written(start), 50);
        assert_eq!(written(start + Duration::from_millis(250)), 2);
        assert_eq!(written(start + Duration::from_millis(300)), 1);
        assert_eq!(written(start + Duration::from_secs(3_600)), 50);
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        let text = "é".repeat(LONGEST);
        assert_eq!(cut(&text).len(), LONGEST);
        assert_eq!(cut("short"), "short");
    }
}
