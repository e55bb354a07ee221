//! Removes our part of a status whose conditions don't name their controller.

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sesame_api::{Condition, ListenerStatus, StatusField};

use super::json::{self, REMOVED};
use super::list::{self, ItemOwner};
use super::{Merge, same_content};

impl Merge<'_> {
    /// Removes what we wrote, except for anything that another controller has changed since.
    pub(super) fn retract(&mut self, written: &[StatusField<'_>]) {
        for field in written {
            match field {
                StatusField::Conditions(written) => self.retract_conditions(written),
                StatusField::Listeners(written) => self.retract_listeners(written),
                StatusField::Value(name, Some(written)) => self.retract_value(name, written),
                // Entries name their controller.
                StatusField::Value(_, None) | StatusField::Entries(..) => {}
            }
        }
    }

    fn retract_value(&mut self, name: &'static str, written: &Value) {
        // API servers add an empty `status.loadBalancer` to every Ingress.
        let empty = written.as_object().is_some_and(Map::is_empty);
        if !empty && json::typed(self.live.get(name).copied()).as_ref() == Some(written) {
            self.changes.push((name, REMOVED.to_owned()));
        }
    }

    fn retract_conditions(&mut self, written: &[Condition]) {
        self.retract_items("conditions", |raw| {
            let live: Option<Condition> = json::typed(Some(raw));
            live.is_some_and(|live| written.iter().any(|written| same_content(&live, written)))
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
                            .all(|written| live.conditions.iter().any(|c| same_content(c, written)))
                };
                written.iter().any(as_written)
            })
        });
    }

    fn retract_items(&mut self, name: &'static str, ours: impl Fn(&RawValue) -> bool) {
        let live = json::items(self.live.get(name).copied());
        let owner = |raw: &RawValue| match ours(raw) {
            true => ItemOwner::Stale,
            false => ItemOwner::Foreign,
        };
        let list = list::merge(live, 0, usize::MAX, owner, |_, _| None);
        if list.items.is_empty() && list.changed {
            // Remove the list rather than leave it empty, so that the CRD's default applies again.
            self.changes.push((name, REMOVED.to_owned()));
        } else {
            self.set_list(name, &list);
        }
    }
}
