//! Kubernetes Events, as shown by `kubectl describe`.
//!
//! In: events of this replica, notices, leadership. Out: Events on the affected objects, and log entries. Only the leader
//! reports changes of conditions and of notices; a rejection is reported by the replica to which the Envoy is connected.
//! Statuses don't contain notices, so a new leader reports all notices that it hasn't reported yet.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event as KubeEvent, EventType, Recorder, Reporter};
use sesame_api::{Kind, ObjectKey};
use sesame_model::FleetId;
use sesame_translate::settings::CONTROLLER_NAME;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, sleep, timeout};

use super::health::Health;
use crate::event::RunEvent;
use crate::status_store::{NoticeLevel, NoticeView, Severity, StatusChange, StatusStore};
use crate::translator::{Message, inspect};

/// Average Events per second. Excess Events are dropped, since conditions and logs contain the same information, or
/// delayed if they are about notices.
const EVENTS_PER_SECOND: u32 = 10;
/// Maximum Events in a burst.
const BURST: u32 = 50;
/// Timeout of a write to the API server.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The API server's limit for a note, in bytes.
const MAX_NOTE_BYTES: usize = 1024;

/// An Event to write.
#[derive(Debug)]
struct Note {
    object: ObjectKey,
    reason: String,
    action: &'static str,
    text: String,
}

/// Token bucket: [`EVENTS_PER_SECOND`] on average, [`BURST`] at once.
#[derive(Debug)]
struct TokenBucket {
    tokens: u32,
    /// When tokens were last added.
    refilled_at: Instant,
}

impl TokenBucket {
    fn new(now: Instant) -> Self {
        Self {
            tokens: BURST,
            refilled_at: now,
        }
    }

    /// Takes a token, if there is one.
    fn take(&mut self, now: Instant) -> bool {
        let interval = Duration::from_secs(1) / EVENTS_PER_SECOND;
        let new = now.duration_since(self.refilled_at).as_nanos() / interval.as_nanos();
        let new = u32::try_from(new).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(new).min(BURST);
        // The remaining time counts toward the next token.
        self.refilled_at = if new > BURST {
            now
        } else {
            self.refilled_at + interval * new
        };
        let remaining = self.tokens.checked_sub(1);
        self.tokens = remaining.unwrap_or(0);
        remaining.is_some()
    }
}

/// Writes Events.
#[derive(Clone)]
pub(super) struct EventWriter {
    recorder: Recorder,
    translator: mpsc::WeakSender<Message>,
    health: Arc<Health>,
}

impl EventWriter {
    pub(super) fn new(
        client: Client,
        replica: String,
        translator: mpsc::WeakSender<Message>,
        health: Arc<Health>,
    ) -> Self {
        let reporter = Reporter {
            controller: CONTROLLER_NAME.to_owned(),
            instance: Some(replica),
        };
        Self {
            recorder: Recorder::new(client, reporter),
            translator,
            health,
        }
    }

    /// Reports rejections and conditions, and logs new notices, until the sender of events is gone.
    pub(super) async fn report(self, mut events: broadcast::Receiver<RunEvent>) {
        let mut bucket = TokenBucket::new(Instant::now());
        loop {
            let event = match events.recv().await {
                Ok(event) => event,
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return,
            };
            for note in notes(event, self.health.is_leader()) {
                tracing::warn!(object = %note.object, reason = note.reason, "{}", note.text);
                if !bucket.take(Instant::now()) {
                    tracing::debug!(object = %note.object, "Event dropped: rate limit exceeded");
                    continue;
                }
                self.write(&note).await;
            }
        }
    }

    /// Reports notices while this replica leads. Never returns.
    pub(super) async fn report_notices(self, status_store: Arc<StatusStore>) {
        let mut leadership = self.health.leadership();
        let mut last = None;
        while leadership.wait_for(|leads| *leads).await.is_ok() {
            let notices = status_store.take_unreported(last.as_ref());
            if notices.is_empty() {
                status_store.new_notices().await;
            }
            for notice in notices {
                last = Some(notice.object.clone());
                let note = of_notice(notice);
                tracing::debug!(object = %note.object, reason = note.reason, "{}", note.text);
                self.write(&note).await;
                sleep(Duration::from_secs(1) / EVENTS_PER_SECOND).await;
            }
        }
        // The election has ended.
        std::future::pending().await
    }

    async fn write(&self, note: &Note) {
        let object = note.object.clone();
        let uid = inspect(&self.translator, move |core| core.uid(&object)).await;
        let uid = uid.flatten();
        // UIDs of kinds without a status aren't stored. An object of another kind without a UID is gone.
        if uid.is_some() || !note.object.kind.has_status() {
            send(&self.recorder, note, uid).await;
        }
    }
}

/// Whether an event may become a Kubernetes Event. Other events don't wake the receiver.
pub(super) fn is_reportable(event: &RunEvent) -> bool {
    match event {
        RunEvent::Rejected { .. } | RunEvent::FleetProblem { .. } => true,
        RunEvent::Notices { new, .. } => !new.is_empty(),
        // Changes are sorted, the worst first.
        RunEvent::Status { changes, .. } => changes
            .first()
            .is_some_and(|change| change.severity == Severity::Error),
        _ => false,
    }
}

/// Converts an event to Kubernetes Events, or logs it.
fn notes(event: RunEvent, is_leader: bool) -> Vec<Note> {
    match event {
        RunEvent::Rejected {
            gateway,
            resource,
            name,
            message,
        } => {
            // Other fleets have no object to report on.
            let Ok(FleetId::Gateway {
                namespace,
                name: gateway,
            }) = gateway.parse()
            else {
                tracing::warn!(
                    fleet = gateway,
                    "an Envoy rejected {resource} {name} ({message}) and keeps the last good version"
                );
                return Vec::new();
            };
            vec![Note {
                object: ObjectKey::new(Kind::Gateway, namespace, gateway),
                reason: "RejectedByEnvoy".to_owned(),
                action: "Configure",
                text: format!(
                    "an Envoy rejected {resource} {name} ({message}) and keeps the last good version"
                ),
            }]
        }
        RunEvent::Status { changes, .. } if is_leader => changes
            .into_iter()
            .filter(|change| change.severity == Severity::Error)
            .map(|change| Note {
                reason: change.reason.clone(),
                action: "Translate",
                text: condition_text(&change),
                object: change.object,
            })
            .collect(),
        RunEvent::Notices { new, more, .. } if is_leader => {
            for notice in new {
                tracing::warn!(object = %notice.object, "{}", notice.text());
            }
            if more > 0 {
                tracing::warn!("{more} more notices omitted");
            }
            Vec::new()
        }
        RunEvent::FleetProblem { gateway, message } => {
            match message {
                Some(message) => tracing::warn!(fleet = gateway, "{message}"),
                None => tracing::info!(fleet = gateway, "the fleet has recovered"),
            }
            Vec::new()
        }
        _ => Vec::new(),
    }
}

fn of_notice(notice: NoticeView) -> Note {
    let reason = match notice.level {
        NoticeLevel::Error => "Invalid",
        NoticeLevel::Warning => "Warning",
    };
    Note {
        reason: reason.to_owned(),
        action: "Translate",
        text: notice.text(),
        object: notice.object,
    }
}

fn condition_text(change: &StatusChange) -> String {
    let part = change.part.as_ref();
    let part = part.map(|part| format!("{part}: ")).unwrap_or_default();
    let (condition, status) = (&change.condition, &change.status);
    format!("{part}{condition} is {status}: {}", change.message)
}

async fn send(recorder: &Recorder, note: &Note, uid: Option<String>) {
    let key = &note.object;
    let namespace = Some(key.namespace.to_string()).filter(|namespace| !namespace.is_empty());
    let object = ObjectReference {
        api_version: Some(key.kind.api_version().to_owned()),
        kind: Some(key.kind.as_str().to_owned()),
        name: Some(key.name.to_string()),
        namespace,
        uid,
        ..ObjectReference::default()
    };
    let event = KubeEvent {
        type_: EventType::Warning,
        reason: note.reason.clone(),
        note: Some(truncate(&note.text).to_owned()),
        action: note.action.to_owned(),
        secondary: None,
    };
    match timeout(WRITE_TIMEOUT, recorder.publish(&event, &object)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(object = %key, %error, "cannot write an Event"),
        Err(_) => tracing::debug!(object = %key, "cannot write an Event: no response"),
    }
}

/// The beginning of a text, up to the limit.
fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_NOTE_BYTES)]
}

#[cfg(test)]
mod tests {
    use sesame_api::ConditionStatus;

    use super::*;

    fn change(severity: Severity) -> StatusChange {
        StatusChange {
            object: ObjectKey::new(Kind::HTTPRoute, "ns", "shop"),
            part: Some("parent ns/web".to_owned()),
            condition: "ResolvedRefs".to_owned(),
            status: ConditionStatus::False,
            reason: "BackendNotFound".to_owned(),
            message: "there is no Service ns/shop".to_owned(),
            severity,
        }
    }

    #[test]
    fn only_the_leader_reports_error_conditions() {
        let event = || RunEvent::Status {
            revision: 1,
            changes: vec![change(Severity::Error), change(Severity::Ok)],
            more: 0,
        };
        assert!(is_reportable(&event()));
        let written = notes(event(), true);
        assert_eq!(written.len(), 1);
        assert_eq!(
            written[0].text,
            "parent ns/web: ResolvedRefs is False: there is no Service ns/shop"
        );
        assert!(notes(event(), false).is_empty());
    }

    #[test]
    fn every_replica_reports_rejections() {
        let event = RunEvent::Rejected {
            gateway: "ns/web".to_owned(),
            resource: "listener".to_owned(),
            name: "80".to_owned(),
            message: "no".to_owned(),
        };
        assert!(is_reportable(&event));
        let written = notes(event, false);
        assert_eq!(
            written[0].object,
            ObjectKey::new(Kind::Gateway, "ns", "web")
        );
    }

    #[test]
    fn new_notices_are_reported() {
        let notice = NoticeView {
            object: ObjectKey::new(Kind::Ingress, "ns", "shop"),
            level: NoticeLevel::Error,
            field: "spec.rules[0].host".to_owned(),
            message: "invalid".to_owned(),
        };
        let event = |new: &[NoticeView]| RunEvent::Notices {
            revision: 1,
            new: new.to_vec(),
            solved: vec![notice.clone()],
            more: 0,
        };
        let new = event(std::slice::from_ref(&notice));
        assert!(is_reportable(&new) && !is_reportable(&event(&[])));
        assert!(notes(new, true).is_empty(), "written from the store");
        let written = of_notice(notice);
        assert_eq!(written.text, "spec.rules[0].host: invalid");
        assert_eq!(written.reason, "Invalid");
    }

    #[test]
    fn conditions_without_errors_are_not_reported() {
        let event = RunEvent::Status {
            revision: 1,
            changes: vec![change(Severity::Ok)],
            more: 0,
        };
        assert!(!is_reportable(&event));
        assert!(notes(event, true).is_empty());
    }

    #[test]
    fn events_are_rate_limited() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(start);
        let mut written = |now| (0..1_000).filter(|_| bucket.take(now)).count();
        assert_eq!(written(start), 50);
        assert_eq!(written(start + Duration::from_millis(250)), 2);
        assert_eq!(written(start + Duration::from_millis(300)), 1);
        assert_eq!(written(start + Duration::from_secs(3_600)), 50);
    }

    #[test]
    fn long_notes_are_truncated_at_a_character_boundary() {
        let text = "é".repeat(MAX_NOTE_BYTES);
        assert_eq!(truncate(&text).len(), MAX_NOTE_BYTES);
        assert_eq!(truncate("short"), "short");
    }
}
