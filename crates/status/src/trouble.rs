//! What keeps statuses from being written.

use std::collections::BTreeMap;
use std::fmt;

use sesame_api::ObjectKey;

/// Messages from a server are cut here, in bytes.
const LONGEST_MESSAGE: usize = 1024;

/// Something that keeps statuses from being written, now.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// What it is.
    pub reason: Reason,
    /// How many objects it is about.
    pub objects: usize,
    /// One of them.
    pub example: ObjectKey,
    /// What was said about that one.
    pub message: String,
}

/// Why a status isn't written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The API server isn't there, or takes no more requests now.
    Unanswered,
    /// The API server could not do it.
    Failed,
    /// Sesame has no right to write it.
    Forbidden,
    /// The API server will not have it.
    Refused,
    /// It was written, but others' entries left no room for some of ours.
    Full,
}

/// All troubles, each with its objects.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    of: BTreeMap<ObjectKey, Reason>,
    by_reason: BTreeMap<Reason, Group>,
}

#[derive(Debug)]
struct Group {
    objects: usize,
    example: ObjectKey,
    message: String,
}

impl Troubles {
    /// There is a trouble with an object.
    pub(crate) fn set(&mut self, key: &ObjectKey, reason: Reason, mut message: String) {
        if self.of.get(key) != Some(&reason) {
            self.clear(key);
            self.of.insert(key.clone(), reason);
        } else if let Some(group) = self.by_reason.get_mut(&reason) {
            group.objects -= 1;
        }
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
        match self.by_reason.get_mut(&reason) {
            Some(group) => {
                group.objects += 1;
                group.example = key.clone();
                group.message = message;
            }
            None => {
                tracing::warn!(object = %key, %message, "a status isn't written: {reason}");
                let group = Group {
                    objects: 1,
                    example: key.clone(),
                    message,
                };
                self.by_reason.insert(reason, group);
            }
        }
    }

    /// There is none with an object any more.
    pub(crate) fn clear(&mut self, key: &ObjectKey) {
        let Some(reason) = self.of.remove(key) else {
            return;
        };
        let Some(group) = self.by_reason.get_mut(&reason) else {
            return;
        };
        group.objects -= 1;
        if group.objects == 0 {
            self.by_reason.remove(&reason);
            tracing::info!("over: {reason}");
        }
    }

    /// All of them, the worst first.
    pub(crate) fn all(&self) -> Vec<Trouble> {
        let groups = self.by_reason.iter();
        groups
            .map(|(reason, group)| Trouble {
                reason: *reason,
                objects: group.objects,
                example: group.example.clone(),
                message: group.message.clone(),
            })
            .collect()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Unanswered => "the API server doesn't take it now",
            Reason::Failed => "the API server failed to write it",
            Reason::Forbidden => "Sesame may not write it; see the ClusterRole of the installation",
            Reason::Refused => "the API server refuses it",
            Reason::Full => "others' entries fill the status",
        })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            reason,
            objects,
            example,
            message,
        } = self;
        write!(
            f,
            "statuses of {objects} objects, such as {example}: {reason}: {message}"
        )
    }
}
