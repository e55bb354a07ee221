//! Updates the Services of XBackends.
//!
//! In: commits. Out: pending changes for the writer.

use std::sync::Arc;

use sesame_model::{PodServiceChange, PodServiceId};

use super::Translator;
use crate::core::Step;

impl Translator {
    pub(super) fn update_pod_services(&self, steps: &[Step]) {
        let Some(writer) = &self.outputs.pod_services else {
            return;
        };
        for step in steps {
            for (xbackend, change) in step.commit.changes(self.core.outputs().pod_services) {
                let id = PodServiceId {
                    namespace: Arc::clone(&xbackend.namespace),
                    xbackend: Arc::clone(&xbackend.name),
                };
                let pending = change
                    .value()
                    .map(|pending| PodServiceChange::clone(pending));
                writer.set(id, pending);
            }
        }
    }
}
