//! Removing our part of a status that does not name its writer.

use serde_json::Value;
use serde_json::value::RawValue;
use sesame_api::{Condition, ListenerStatus, StatusField};

use super::json::{self, REMOVED};
use super::list::{self, Owner};
use super::{Merge, same};

impl Merge<'_> {
    /// Removes what is still as we wrote it. What another controller has written since stays.
    pub(super) fn retract(&mut self, written: &[StatusField<'_>]) {
        for field in written {
            match field {
                StatusField::Conditions(written) => self.retract_conditions(written),
                StatusField::Listeners(written) => self.retract_listeners(written),
                StatusField::Value(name, Some(written)) => self.retract_value(name, written),
                // Entries carry our name: no need to know what we wrote.
                StatusField::Value(_, None) | StatusField::Entries(..) => {}
            }
        }
    }

    fn retract_value(&mut self, name: &'static str, written: &Value) {
        if json::typed(self.live.get(name).copied()).as_ref() == Some(written) {
            self.changes.push((name, REMOVED.to_owned()));
        }
    }

    fn retract_conditions(&mut self, written: &[Condition]) {
        self.retract_items("conditions", |raw| {
            let live: Option<Condition> = json::typed(Some(raw));
            live.is_some_and(|live| written.iter().any(|written| same(&live, written)))
        });
    }

    fn retract_listeners(&mut self, written: &[ListenerStatus]) {
        self.retract_items("listeners", |raw| {
            let live: Option<ListenerStatus> = json::typed(Some(raw));
            live.is_some_and(|live| {
                let as_written = |written: &ListenerStatus| {
                    let mut conditions = written.conditions.iter();
                    written.name == live.name
                        && conditions
                            .all(|written| live.conditions.iter().any(|c| same(c, written)))
                };
                written.iter().any(as_written)
            })
        });
    }

    fn retract_items(&mut self, name: &'static str, ours: impl Fn(&RawValue) -> bool) {
        let live = json::items(self.live.get(name).copied());
        let owner = |raw: &RawValue| match ours(raw) {
            true => Owner::Stale,
            false => Owner::Foreign,
        };
        let list = list::merge(live, 0, usize::MAX, owner, |_, _| None);
        if list.items.is_empty() && list.changed {
            // Absent rather than empty, so that the default of the CRD applies again.
            self.changes.push((name, REMOVED.to_owned()));
        } else {
            self.set_list(name, &list);
        }
    }
}
