//! Changes to objects.
//!
//! In: sets of changes, and errors in files. Out: inputs for the next commit, and events.

use sesame_sources::change::Change;

use sesame_sources::files::ChangeSet;

use super::{Translator, Turn};
use crate::core::Input;
use crate::event::{ChangeKind, ObjectChange, ProblemView, RunEvent};

impl Translator {
    pub(super) fn handle_changes(&mut self, set: ChangeSet, turn: &mut Turn) {
        self.synced = true;
        // An empty first set also needs a plan.
        turn.plan |= self.core.engine().revision() == 0;
        if !set.changes.is_empty() {
            let detected = turn.detected.unwrap_or(set.detected);
            turn.detected = Some(detected.min(set.detected));
        }
        for change in set.changes {
            self.handle_change(change, turn);
        }
        self.outputs.metrics.problems(set.errors.len());
        let (new, fixed) = self.outputs.status_store.set_problems(set.errors);
        for problem in &fixed {
            self.emit(RunEvent::ProblemSolved(ProblemView::from(problem)));
        }
        for problem in &new {
            self.emit(RunEvent::Problem(ProblemView::from(problem)));
        }
    }

    fn handle_change(&mut self, change: Change, turn: &mut Turn) {
        let key = change.key();
        let kind = match &change {
            Change::Upsert(object) => {
                self.outputs.status_store.upsert(object);
                match self.object_keys.insert(&key) {
                    true => ChangeKind::Added,
                    false => ChangeKind::Changed,
                }
            }
            Change::Remove(_) => {
                self.outputs.status_store.forget(&key);
                self.object_keys.remove(&key);
                ChangeKind::Removed
            }
        };
        match kind {
            ChangeKind::Added => self.outputs.metrics.object(key.kind, 1),
            ChangeKind::Removed => self.outputs.metrics.object(key.kind, -1),
            ChangeKind::Changed => {}
        }
        turn.objects.push(ObjectChange {
            object: key,
            change: kind,
        });
        turn.inputs.push(match change {
            Change::Upsert(object) => Input::Upsert(object),
            Change::Remove(key) => Input::Remove(key),
        });
    }
}
