//! Updates statuses.
//!
//! In: commits. Out: new statuses for the status store and the writer, and an event with their changes.

use std::collections::BTreeSet;

use jiff::Timestamp;
use sesame_api::{ObjectKey, ObjectStatus};
use sesame_engine::Commit;

use super::Translator;
use crate::core::Step;
use crate::event::{RunEvent, truncate};

impl Translator {
    pub(super) fn update_statuses(&mut self, steps: &[Step], revision: u64) {
        let changed_statuses: BTreeSet<ObjectKey> = steps
            .iter()
            .flat_map(|step| self.changed_statuses(&step.commit))
            .collect();
        let now = Timestamp::now();
        let mut changes = Vec::new();
        for key in changed_statuses {
            let status = self.status(&key);
            changes.extend(self.outputs.status_store.set(&key, status.clone(), now));
            if let Some(writer) = &self.outputs.statuses {
                writer.set_desired(key, status);
            }
        }
        if let Some(writer) = &self.outputs.statuses
            && self.fleet_owners_known
            && !std::mem::replace(&mut self.statuses_complete, true)
        {
            writer.mark_complete();
        }
        if changes.is_empty() {
            return;
        }
        changes.sort_by_key(|change| std::cmp::Reverse(change.severity));
        let (changes, more) = truncate(changes);
        self.emit(RunEvent::Status {
            revision,
            changes,
            more,
        });
    }

    fn changed_statuses(&self, commit: &Commit) -> Vec<ObjectKey> {
        let statuses = commit.changes(self.core.outputs().statuses);
        statuses.iter().map(|(key, _)| key.clone()).collect()
    }

    fn status(&self, key: &ObjectKey) -> Option<ObjectStatus> {
        if self.core.is_builtin_class(key) {
            return None;
        }
        let status = self.core.engine().get(self.core.outputs().statuses, key);
        status.map(|status| ObjectStatus::clone(&status))
    }
}
