//! What leaves for the owners of objects.
//!
//! In: commits. Out: new statuses on the board, and one event that tells what changed in them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use sesame_api::{Kind, ObjectKey, ObjectStatus};
use sesame_engine::Commit;

use super::Owner;
use crate::core::Step;
use crate::event::{Event, cut};

impl Owner {
    pub(super) fn update_board(&mut self, steps: &[Step], revision: u64) {
        let touched: BTreeSet<ObjectKey> = steps
            .iter()
            .flat_map(|step| self.touched(&step.commit))
            .collect();
        let now = Timestamp::now();
        let mut changes = Vec::new();
        for key in touched {
            let status = self.status(&key);
            changes.extend(self.outlets.board.set(&key, status.clone(), now));
            if let Some(writer) = &self.outlets.statuses {
                writer.desired(key, status);
            }
        }
        if let Some(writer) = &self.outlets.statuses
            && self.complete
            && !std::mem::replace(&mut self.judged, true)
        {
            writer.complete();
        }
        if changes.is_empty() {
            return;
        }
        changes.sort_by_key(|change| std::cmp::Reverse(change.level));
        let (changes, more) = cut(changes);
        self.tell(Event::Status {
            revision,
            changes,
            more,
        });
    }

    /// Objects whose status is new.
    fn touched(&self, commit: &Commit) -> Vec<ObjectKey> {
        let outputs = self.core.outputs();
        let classes = commit.changes(outputs.class_status).iter();
        let gateways = commit.changes(outputs.gateway_status).iter();
        let routes = commit.changes(outputs.http_route_status).iter();
        classes
            .map(|(name, _)| ObjectKey::new(Kind::GatewayClass, "", name.clone()))
            .chain(gateways.map(|(name, _)| name.of_kind(Kind::Gateway)))
            .chain(routes.map(|(name, _)| name.of_kind(Kind::HTTPRoute)))
            .collect()
    }

    fn status(&self, key: &ObjectKey) -> Option<ObjectStatus> {
        let (engine, outputs) = (self.core.engine(), self.core.outputs());
        let name = key.namespaced_name();
        match key.kind {
            Kind::GatewayClass if self.core.is_unwritten_class(&key.name) => None,
            Kind::GatewayClass => engine
                .get(outputs.class_status, &key.name)
                .map(ObjectStatus::GatewayClass),
            Kind::Gateway => engine
                .get(outputs.gateway_status, &name)
                .map(ObjectStatus::Gateway),
            Kind::HTTPRoute => engine
                .get(outputs.http_route_status, &name)
                .map(ObjectStatus::Route),
            _ => None,
        }
    }
}
