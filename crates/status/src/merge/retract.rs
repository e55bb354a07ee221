//! Taking back what was said of an object with one controller: nothing in it tells who wrote it.

use serde_json::value::RawValue;
use sesame_api::{Condition, ListenerStatus, ObjectStatus};

use super::json::{self, REMOVED};
use super::list::{self, Place};
use super::{Merge, same};

impl Merge<'_> {
    /// Takes away what still is as we said it. What another controller has said since is its own.
    pub(super) fn retract(&mut self, said: &ObjectStatus) {
        match said {
            ObjectStatus::GatewayClass(said) => {
                self.retract_conditions(&said.conditions);
                self.retract_value("supportedFeatures", &said.supported_features);
            }
            ObjectStatus::Gateway(said) => {
                self.retract_value("addresses", &said.addresses);
                self.retract_conditions(&said.conditions);
                self.retract_listeners(&said.listeners);
                if let Some(count) = &said.attached_listener_sets {
                    self.retract_value("attachedListenerSets", count);
                }
            }
            ObjectStatus::ListenerSet(said) => {
                self.retract_conditions(&said.conditions);
                self.retract_listeners(&said.listeners);
            }
            // Their entries bear our name.
            ObjectStatus::Route(_) | ObjectStatus::Policy(_) => {}
        }
    }

    fn retract_value<T>(&mut self, name: &'static str, said: &T)
    where
        T: serde::de::DeserializeOwned + PartialEq,
    {
        if json::typed(self.live.get(name).copied()).as_ref() == Some(said) {
            self.changes.push((name, REMOVED.to_owned()));
        }
    }

    fn retract_conditions(&mut self, said: &[Condition]) {
        self.retract_items("conditions", |raw| {
            let live: Option<Condition> = json::typed(Some(raw));
            live.is_some_and(|live| said.iter().any(|said| same(&live, said)))
        });
    }

    fn retract_listeners(&mut self, said: &[ListenerStatus]) {
        self.retract_items("listeners", |raw| {
            let live: Option<ListenerStatus> = json::typed(Some(raw));
            live.is_some_and(|live| {
                let as_said = |said: &ListenerStatus| {
                    let mut conditions = said.conditions.iter();
                    said.name == live.name
                        && conditions.all(|said| live.conditions.iter().any(|c| same(c, said)))
                };
                said.iter().any(as_said)
            })
        });
    }

    fn retract_items(&mut self, name: &'static str, ours: impl Fn(&RawValue) -> bool) {
        let live = json::items(self.live.get(name).copied());
        let place = |raw: &RawValue| match ours(raw) {
            true => Place::Unwanted,
            false => Place::Foreign,
        };
        let list = list::merged(live, 0, usize::MAX, place, |_, _| None);
        if list.items.is_empty() && list.changed {
            // Missing rather than empty: a definition's default is then there again.
            self.changes.push((name, REMOVED.to_owned()));
        } else {
            self.change(name, &list);
        }
    }
}
