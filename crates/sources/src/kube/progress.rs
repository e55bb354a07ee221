//! The state machine of list and watch. Pure.
//!
//! In: the server's responses. Out: the next request, and the meaning of each event.

use ::kube::core::WatchEvent;
use serde_json::value::RawValue;

use super::error::RequestError;
use super::parse::Identity;

/// Annotation on the bookmark that ends a streaming list (KEP-3157).
const END_OF_LIST: &str = "k8s.io/initial-events-end";

/// The next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A watch that begins by sending all objects.
    StreamingList,
    /// A page of a list, with its continue token; `None` for the first.
    Page(Option<String>),
    /// A watch from this resourceVersion.
    Watch(String),
}

/// The meaning of an event.
#[derive(Debug)]
pub(super) enum Meaning {
    Applied(Box<RawValue>),
    Deleted(Box<RawValue>),
    ListEnds,
    Nothing,
    /// The server ended the watch.
    Failed(RequestError),
}

/// The state of a list and watch.
#[derive(Debug)]
pub(super) struct Progress {
    next: Next,
    /// Whether the server may support streaming lists.
    streams: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            next: Next::StreamingList,
            streams: true,
        }
    }

    pub(super) fn next(&self) -> &Next {
        &self.next
    }

    /// Whether the next event begins a list, or a streaming list is incomplete.
    pub(super) fn lists(&self) -> bool {
        matches!(self.next, Next::StreamingList | Next::Page(None))
    }

    /// Handles an event.
    pub(super) fn event(&mut self, event: WatchEvent<Box<RawValue>>) -> Meaning {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.advance(&object);
                Meaning::Applied(object)
            }
            WatchEvent::Deleted(object) => {
                self.advance(&object);
                Meaning::Deleted(object)
            }
            WatchEvent::Bookmark(bookmark) => {
                let list_ends = self.next == Next::StreamingList
                    && bookmark.metadata.annotations.contains_key(END_OF_LIST);
                if list_ends || matches!(self.next, Next::Watch(_)) {
                    self.next = Next::Watch(bookmark.metadata.resource_version);
                }
                match list_ends {
                    true => Meaning::ListEnds,
                    false => Meaning::Nothing,
                }
            }
            WatchEvent::Error(status) => Meaning::Failed(RequestError::of_status(&status, None)),
        }
    }

    /// Handles a page of a list. Returns whether it is the last one.
    pub(super) fn page(&mut self, version: Option<String>, next: Option<String>) -> bool {
        let token = next.filter(|token| !token.is_empty());
        let last = token.is_none();
        self.next = match token {
            Some(_) => Next::Page(token),
            None => Next::Watch(version.unwrap_or_default()),
        };
        last
    }

    /// Handles a failed request. Returns whether to send the next one without a delay.
    pub(super) fn failed(&mut self, error: &RequestError) -> bool {
        let watching = matches!(self.next, Next::Watch(_));
        let unsupported = matches!(error, RequestError::Invalid(_));
        if self.next == Next::StreamingList && unsupported {
            self.streams = false;
            self.next = Next::Page(None);
            return true;
        }
        // A version can be older than the server's history, or newer than its latest version, for example after a
        // backup is restored.
        let unknown_version = match error {
            RequestError::Gone => true,
            RequestError::Refused(message, _) => message.contains("resource version"),
            _ => unsupported,
        };
        if !watching || unknown_version {
            self.next = match self.streams {
                true => Next::StreamingList,
                false => Next::Page(None),
            };
        }
        watching && matches!(error, RequestError::Gone)
    }

    /// Advances the version, so that an interrupted watch continues after the last object it sent.
    fn advance(&mut self, object: &RawValue) {
        if let Next::Watch(version) = &mut self.next
            && let Ok(identity) = Identity::of(object.get())
            && !identity.resource_version.is_empty()
        {
            *version = identity.resource_version;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, metadata: serde_json::Value) -> WatchEvent<Box<RawValue>> {
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata});
        let text = format!(r#"{{"type":"{kind}","object":{object}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn error(code: u16, message: &str) -> WatchEvent<Box<RawValue>> {
        let text = json!({"code": code, "message": message, "reason": "x"});
        serde_json::from_str(&format!(r#"{{"type":"ERROR","object":{text}}}"#)).unwrap()
    }

    fn end_of_list(version: &str) -> WatchEvent<Box<RawValue>> {
        event(
            "BOOKMARK",
            json!({"resourceVersion": version, "annotations": {END_OF_LIST: "true"}}),
        )
    }

    fn watch(version: &str) -> Next {
        Next::Watch(version.to_owned())
    }

    #[test]
    fn a_streaming_list_becomes_a_watch() {
        let mut progress = Progress::new();
        assert_eq!(progress.next(), &Next::StreamingList);
        assert!(progress.lists());
        let added = event("ADDED", json!({"name": "a", "resourceVersion": "3"}));
        assert!(matches!(progress.event(added), Meaning::Applied(_)));
        // An interrupted list starts over.
        progress.failed(&RequestError::Closed);
        assert_eq!(progress.next(), &Next::StreamingList);
        assert!(matches!(
            progress.event(end_of_list("9")),
            Meaning::ListEnds
        ));
        assert_eq!(progress.next(), &watch("9"));
        progress.failed(&RequestError::Closed);
        assert_eq!(progress.next(), &watch("9"));
        assert!(!progress.lists());
    }

    #[test]
    fn a_watch_continues_after_the_last_object() {
        let mut progress = Progress::new();
        progress.event(end_of_list("9"));
        let changed = event("MODIFIED", json!({"name": "a", "resourceVersion": "12"}));
        assert!(matches!(progress.event(changed), Meaning::Applied(_)));
        assert_eq!(progress.next(), &watch("12"));
        let deleted = event("DELETED", json!({"name": "a", "resourceVersion": "14"}));
        assert!(matches!(progress.event(deleted), Meaning::Deleted(_)));
        assert_eq!(progress.next(), &watch("14"));
        let bookmark = event("BOOKMARK", json!({"resourceVersion": "20"}));
        assert!(matches!(progress.event(bookmark), Meaning::Nothing));
        assert_eq!(progress.next(), &watch("20"));
    }

    #[test]
    fn a_server_without_streaming_lists_is_listed_by_pages() {
        let mut progress = Progress::new();
        progress.failed(&RequestError::Invalid("sendInitialEvents".to_owned()));
        assert_eq!(progress.next(), &Next::Page(None));
        assert!(!progress.page(Some("5".to_owned()), Some("more".to_owned())));
        assert_eq!(progress.next(), &Next::Page(Some("more".to_owned())));
        assert!(progress.page(Some("5".to_owned()), Some(String::new())));
        assert_eq!(progress.next(), &watch("5"));
        progress.failed(&RequestError::Gone);
        assert_eq!(progress.next(), &Next::Page(None));
        progress.page(None, Some("more".to_owned()));
        progress.failed(&RequestError::Refused(String::new(), None));
        assert_eq!(progress.next(), &Next::Page(None));
    }

    #[test]
    fn an_unknown_version_causes_a_relist() {
        for (code, message, again) in [
            (410, "too old", true),
            (400, "invalid version", true),
            (504, "Too large resource version", true),
            (503, "starting", false),
            (403, "no", false),
            (404, "no", false),
        ] {
            let mut progress = Progress::new();
            progress.event(end_of_list("9"));
            let Meaning::Failed(error) = progress.event(error(code, message)) else {
                panic!("{code}: no failure")
            };
            progress.failed(&error);
            assert_eq!(progress.lists(), again, "{code}");
        }
        let mut progress = Progress::new();
        progress.event(end_of_list("9"));
        progress.failed(&RequestError::Unreachable(String::new()));
        assert_eq!(progress.next(), &watch("9"));
    }
}
