//! Outputs for the owners of objects.
//!
//! In: commits. Out: new statuses in the status store, and one event with their changes.

use std::collections::BTreeSet;

use jiff::Timestamp;
use sesame_api::{ObjectKey, ObjectStatus};
use sesame_engine::Commit;

use super::Owner;
use crate::core::Step;
use crate::event::{RunEvent, cut};

impl Owner {
    pub(super) fn update_statuses(&mut self, steps: &[Step], revision: u64) {
        let touched: BTreeSet<ObjectKey> = steps
            .iter()
            .flat_map(|step| self.touched(&step.commit))
            .collect();
        let now = Timestamp::now();
        let mut changes = Vec::new();
        for key in touched {
            let status = self.status(&key);
            changes.extend(self.outputs.status_store.set(&key, status.clone(), now));
            if let Some(writer) = &self.outputs.statuses {
                writer.set_desired(key, status);
            }
        }
        if let Some(writer) = &self.outputs.statuses
            && self.complete
            && !std::mem::replace(&mut self.judged, true)
        {
            writer.mark_complete();
        }
        if changes.is_empty() {
            return;
        }
        changes.sort_by_key(|change| std::cmp::Reverse(change.level));
        let (changes, more) = cut(changes);
        self.tell(RunEvent::Status {
            revision,
            changes,
            more,
        });
    }

    fn touched(&self, commit: &Commit) -> Vec<ObjectKey> {
        let statuses = commit.changes(self.core.outputs().statuses);
        statuses.iter().map(|(key, _)| key.clone()).collect()
    }

    fn status(&self, key: &ObjectKey) -> Option<ObjectStatus> {
        if self.core.is_unwritten(key) {
            return None;
        }
        let status = self.core.engine().get(self.core.outputs().statuses, key);
        status.map(|status| ObjectStatus::clone(&status))
    }
}
