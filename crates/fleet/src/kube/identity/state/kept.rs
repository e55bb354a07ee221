//! What is kept of a Secret: what its certificate is worth, and what it is known by. No key stays in memory.

use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;

use crate::kube::identity::issue::Subject;
use crate::kube::identity::read::{self, Flaw, Leaf};
use crate::kube::identity::secret;

/// A Secret in the place of somebody's.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) leaf: Result<Leaf, Flaw>,
    pub(super) metadata: ObjectMeta,
}

impl Kept {
    pub(super) fn new(secret: &Secret, subject: &Subject) -> Self {
        Self {
            leaf: read::leaf(&secret::read_files(secret), subject),
            metadata: marks(&secret.metadata),
        }
    }
}

/// What of an object's metadata matters.
fn marks(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        labels: metadata.labels.clone(),
        annotations: metadata.annotations.clone(),
        owner_references: metadata.owner_references.clone(),
        ..ObjectMeta::default()
    }
}
