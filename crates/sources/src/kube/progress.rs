//! How a list-and-watch goes on.
//!
//! In: what the server sends, and failures. Out: what to ask next, and what came of it. Pure. kube's own watcher does much the same,
//! but does not tell that the server is there again until something changes, and holds on to a version that the server will never
//! know again (a restored backup), so that deletions would be missed.

use ::kube::core::WatchEvent;
use serde_json::value::RawValue;

use super::failure::Failure;

/// The bookmark that ends the list of a streaming list (KEP-3157).
const END_OF_LIST: &str = "k8s.io/initial-events-end";

/// What to ask the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// A watch that begins with everything there is.
    StreamingList,
    /// A page of a list; `None`: the first.
    Page(Option<String>),
    /// What happened since this version.
    Watch(String),
}

/// What the server's word means.
#[derive(Debug)]
pub(super) enum Meaning {
    /// The object exists.
    Exists(Box<RawValue>),
    /// The object is gone.
    Gone(Box<RawValue>),
    /// The list is complete.
    Synced,
    /// Nothing for us.
    Nothing,
    /// A failure; the connection is of no more use.
    Failed(Failure),
}

/// How far a list-and-watch is.
#[derive(Debug)]
pub(super) struct Progress {
    ask: Ask,
    /// The server has streaming lists.
    streams: bool,
}

impl Progress {
    /// One that has asked nothing.
    pub(super) fn new() -> Self {
        Self {
            ask: Ask::StreamingList,
            streams: true,
        }
    }

    /// What to ask now.
    pub(super) fn ask(&self) -> &Ask {
        &self.ask
    }

    /// Whether the next answer is the beginning of a list.
    pub(super) fn begins_list(&self) -> bool {
        matches!(self.ask, Ask::StreamingList | Ask::Page(None))
    }

    /// The server sent an event on a watch.
    pub(super) fn event(&mut self, event: WatchEvent<Box<RawValue>>) -> Meaning {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.reached(&object);
                Meaning::Exists(object)
            }
            WatchEvent::Deleted(object) => {
                self.reached(&object);
                Meaning::Gone(object)
            }
            WatchEvent::Bookmark(bookmark) => {
                let synced = self.ask == Ask::StreamingList
                    && bookmark.metadata.annotations.contains_key(END_OF_LIST);
                if synced || matches!(self.ask, Ask::Watch(_)) {
                    self.ask = Ask::Watch(bookmark.metadata.resource_version);
                }
                match synced {
                    true => Meaning::Synced,
                    false => Meaning::Nothing,
                }
            }
            WatchEvent::Error(status) => {
                let failure = Failure::of_status(&status);
                self.failed(&failure);
                Meaning::Failed(failure)
            }
        }
    }

    /// The server sent a page. True: it was the last one.
    pub(super) fn page(&mut self, version: Option<String>, next: Option<String>) -> bool {
        let next = next.filter(|token| !token.is_empty());
        match (next, version) {
            (Some(token), _) => {
                self.ask = Ask::Page(Some(token));
                false
            }
            (None, version) => {
                self.ask = Ask::Watch(version.unwrap_or_default());
                true
            }
        }
    }

    /// The connection is at its end: a list must begin anew, a watch goes on.
    pub(super) fn ended(&mut self) {
        if let Ask::Page(_) = self.ask {
            self.ask = Ask::Page(None);
        }
    }

    /// The request came to nothing.
    pub(super) fn failed(&mut self, failure: &Failure) {
        let again = match self.streams {
            true => Ask::StreamingList,
            false => Ask::Page(None),
        };
        self.ask = match (&self.ask, failure) {
            (Ask::StreamingList, Failure::Invalid(_)) => {
                self.streams = false;
                Ask::Page(None)
            }
            // The version may stem from a history that is not the server's any more.
            (_, Failure::Gone | Failure::Invalid(_)) => again,
            (Ask::Watch(_), Failure::Refused(text)) if text.contains("resource version") => again,
            (Ask::Watch(version), _) => Ask::Watch(version.clone()),
            (Ask::StreamingList | Ask::Page(_), _) => again,
        };
    }

    /// A watch that breaks off goes on behind the last object it told.
    fn reached(&mut self, object: &RawValue) {
        if let Ask::Watch(version) = &mut self.ask
            && let Ok(identity) = super::reading::Identity::of(object.get())
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

    fn watch(version: &str) -> Ask {
        Ask::Watch(version.to_owned())
    }

    #[test]
    fn a_streaming_list_becomes_a_watch() {
        let mut progress = Progress::new();
        assert_eq!(progress.ask(), &Ask::StreamingList);
        assert!(progress.begins_list());
        let added = event("ADDED", json!({"name": "a", "resourceVersion": "3"}));
        assert!(matches!(progress.event(added), Meaning::Exists(_)));
        // It may break off before its end: then it begins anew.
        progress.ended();
        assert_eq!(progress.ask(), &Ask::StreamingList);
        assert!(matches!(progress.event(end_of_list("9")), Meaning::Synced));
        assert_eq!(progress.ask(), &watch("9"));
        progress.ended();
        assert_eq!(progress.ask(), &watch("9"));
        assert!(!progress.begins_list());
    }

    #[test]
    fn a_watch_goes_on_behind_what_it_saw_last() {
        let mut progress = Progress::new();
        progress.event(end_of_list("9"));
        let changed = event("MODIFIED", json!({"name": "a", "resourceVersion": "12"}));
        assert!(matches!(progress.event(changed), Meaning::Exists(_)));
        assert_eq!(progress.ask(), &watch("12"));
        let deleted = event("DELETED", json!({"name": "a", "resourceVersion": "14"}));
        assert!(matches!(progress.event(deleted), Meaning::Gone(_)));
        assert_eq!(progress.ask(), &watch("14"));
        let bookmark = event("BOOKMARK", json!({"resourceVersion": "20"}));
        assert!(matches!(progress.event(bookmark), Meaning::Nothing));
        assert_eq!(progress.ask(), &watch("20"));
    }

    #[test]
    fn without_streaming_lists_there_are_pages() {
        let mut progress = Progress::new();
        progress.failed(&Failure::Invalid("sendInitialEvents".to_owned()));
        assert_eq!(progress.ask(), &Ask::Page(None));
        assert!(!progress.page(Some("5".to_owned()), Some("more".to_owned())));
        assert_eq!(progress.ask(), &Ask::Page(Some("more".to_owned())));
        assert!(progress.page(Some("5".to_owned()), Some(String::new())));
        assert_eq!(progress.ask(), &watch("5"));
        progress.failed(&Failure::Gone);
        assert_eq!(progress.ask(), &Ask::Page(None));
        progress.page(None, Some("more".to_owned()));
        progress.failed(&Failure::Refused(String::new()));
        assert_eq!(progress.ask(), &Ask::Page(None));
    }

    #[test]
    fn what_the_server_forgot_is_listed_again() {
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
            let meaning = progress.event(error(code, message));
            assert!(matches!(meaning, Meaning::Failed(_)), "{code}");
            assert_eq!(progress.begins_list(), again, "{code}");
        }
        let mut progress = Progress::new();
        progress.event(end_of_list("9"));
        progress.failed(&Failure::Unreachable(String::new()));
        assert_eq!(progress.ask(), &watch("9"));
    }
}
