//! Failures that keep statuses from being written.

use std::collections::BTreeMap;
use std::fmt;

use sesame_api::ObjectKey;

/// Maximum length of a message, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Objects whose statuses currently can't be written, all for the same reason.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusFailure {
    /// The reason.
    pub reason: FailureReason,
    /// Number of affected objects.
    pub objects: usize,
    /// One of the affected objects.
    pub example: ObjectKey,
    /// The error for the example.
    pub message: String,
}

/// Why a status isn't written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureReason {
    /// The API server is unavailable or overloaded.
    Unavailable,
    /// The API server failed to process the request.
    ServerError,
    /// Sesame lacks permission.
    Forbidden,
    /// The API server rejected the status.
    Invalid,
    /// The status was written, but other controllers' entries leave no room for some of ours.
    Full,
}

/// The current failures, by object and by reason.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    by_object: BTreeMap<ObjectKey, FailureReason>,
    by_reason: BTreeMap<FailureReason, StatusFailure>,
}

impl Failures {
    pub(crate) fn set(&mut self, key: &ObjectKey, reason: FailureReason, mut message: String) {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        let known = self.by_object.get(key) == Some(&reason);
        if !known {
            self.clear(key);
            self.by_object.insert(key.clone(), reason);
        }
        match self.by_reason.get_mut(&reason) {
            Some(failure) => {
                failure.objects += usize::from(!known);
                failure.example = key.clone();
                failure.message = message;
            }
            None => {
                tracing::warn!(object = %key, %message, "cannot write a status: {reason}");
                let failure = StatusFailure {
                    reason,
                    objects: 1,
                    example: key.clone(),
                    message,
                };
                self.by_reason.insert(reason, failure);
            }
        }
    }

    pub(crate) fn clear(&mut self, key: &ObjectKey) {
        let Some(reason) = self.by_object.remove(key) else {
            return;
        };
        let Some(failure) = self.by_reason.get_mut(&reason) else {
            return;
        };
        failure.objects -= 1;
        if failure.objects == 0 {
            self.by_reason.remove(&reason);
            tracing::info!(%reason, "status write failure resolved");
        }
    }

    /// All failures, the most severe first.
    pub(crate) fn all(&self) -> Vec<StatusFailure> {
        self.by_reason.values().cloned().collect()
    }
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailureReason::Unavailable => "the API server is unavailable",
            FailureReason::ServerError => "the API server returned an error",
            FailureReason::Forbidden => "permission denied; check Sesame's ClusterRole",
            FailureReason::Invalid => "the API server rejected the status",
            FailureReason::Full => "the status is full of entries from other controllers",
        })
    }
}

impl fmt::Display for StatusFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            reason,
            objects,
            example,
            message,
        } = self;
        match objects {
            1 => write!(f, "cannot write the status of {example}")?,
            _ => write!(
                f,
                "cannot write the statuses of {objects} objects, such as {example}"
            )?,
        }
        write!(f, ": {reason}: {message}")
    }
}
