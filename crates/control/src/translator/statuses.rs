//! Updates statuses and notices.
//!
//! In: commits. Out: new statuses for the status store and the writer, new notices for the status store, and events with
//! their changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use sesame_api::{ObjectKey, ObjectStatus};
use sesame_engine::Commit;
use sesame_envoy::Part;
use sesame_model::VirtualHostKey;
use sesame_translate::fleet::Rejected;
use sesame_translate::problem::Notices;

use super::Translator;
use crate::core::Step;
use crate::event::{MAX_LIST_LEN, RunEvent, truncate};

impl Translator {
    pub(super) fn update_statuses(&mut self, steps: &[Step], revision: u64) {
        let changed_statuses: BTreeSet<ObjectKey> = steps
            .iter()
            .flat_map(|step| self.changed_statuses(&step.commit))
            .collect();
        if let (Some(writer), Some(name)) = (&self.outputs.statuses, self.core.controller_name()) {
            writer.set_controller(name);
        }
        let now = Timestamp::now();
        let mut changes = Vec::new();
        for key in changed_statuses {
            let status = self.status(&key);
            changes.extend(self.outputs.status_store.set(&key, status.clone(), now));
            if let Some(writer) = &self.outputs.statuses {
                writer.set_desired(key, status.filter(|status| !status.is_unknown()));
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

    pub(super) fn update_notices(&mut self, steps: &[Step], revision: u64) {
        let table = self.core.outputs().notices;
        let changed: BTreeSet<ObjectKey> = steps
            .iter()
            .flat_map(|step| step.commit.changes(table))
            .map(|(key, _)| key.clone())
            .collect();
        let (mut new, mut solved) = (Vec::new(), Vec::new());
        for key in changed {
            let notices = self.core.engine().get(table, &key);
            let notices = notices.map(|notices| Arc::new(Notices::clone(&notices)));
            let (added, gone) = self.outputs.status_store.set_notices(&key, notices);
            new.extend(added);
            solved.extend(gone);
        }
        if new.is_empty() && solved.is_empty() {
            return;
        }
        new.sort_by_key(|notice| notice.level);
        let (new, more_new) = truncate(new);
        let (solved, more_solved) = truncate(solved);
        self.emit(RunEvent::Notices {
            revision,
            new,
            solved,
            more: more_new + more_solved,
        });
    }

    /// Publishes what Envoys currently reject. The statuses of objects have Envoy's messages.
    pub(super) fn update_rejections(&self) {
        let parts = self.containment.found();
        let (resources, count) = (self.rejected.len(), parts.len());
        self.outputs.metrics.rejected(resources, count);
        let resources = self.rejected.iter().map(|rejected| {
            let Rejected { fleet, what, name } = rejected;
            format!("an Envoy of {fleet} rejected {what} {name} and keeps the last good version")
        });
        let parts = parts.iter().map(|part| {
            let (what, name, port) = match part {
                Part::Host(VirtualHostKey { table, domain }) => ("host", domain, table.port),
                Part::Chain(listener, name) => ("the filter chain of", name, listener.port.number),
            };
            format!(
                "an Envoy of {} rejected {what} {name} on port {port}; the statuses of its objects have the reason",
                part.fleet()
            )
        });
        let mut texts: Vec<String> = resources.chain(parts).take(MAX_LIST_LEN).collect();
        let more = self.rejected.len() + count - texts.len();
        if more > 0 {
            texts.push(format!(
                "Envoys rejected {more} more resources, hosts and filter chains"
            ));
        }
        self.outputs.status_store.set_rejections(texts);
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
