//! Listeners with their tables' forms.
//!
//! In: listeners, the forms of route tables, and held chains. Out: encoded listeners.

use std::sync::Arc;

use envoy_types::pb::envoy::config::listener::v3 as pb;
use sesame_model::{ChainTarget, Listener, ListenerKey, RouteTableKey};

use super::ResourceChange;
use super::form::Form;
use super::held::{RejectedVersion, Suspect};
use super::tables::{Tables, resource};
use crate::shard::ShardLookup;
use crate::{listener, names, wire};

impl Tables {
    /// The listener, in the variants for its tables' current forms.
    pub(super) fn listener(&self, key: &ListenerKey) -> Option<ResourceChange> {
        let listener = self.listeners.get(key)?;
        Some(self.encoded_listener(key, listener))
    }

    pub(super) fn encoded_listener(&self, key: &ListenerKey, of: &Listener) -> ResourceChange {
        let with_chains = |mut listener| {
            self.chains.replace(key, of, &mut listener);
            wire::resource(&listener)
        };
        let [body, with_module] = self.variants(key, of);
        ResourceChange {
            with_module: with_module.map(with_chains),
            ..resource(
                &key.fleet,
                names::LISTENER,
                names::listener(key),
                body.map(with_chains),
            )
        }
    }

    /// The variants of a listener without the module and, if different, with it. Held chains aren't replaced.
    fn variants(&self, key: &ListenerKey, of: &Listener) -> [Option<pb::Listener>; 2] {
        let shards = |table: &RouteTableKey| {
            let form = self.tables.get(table)?.forms.current();
            (form != Form::WHOLE).then_some(form.resources)
        };
        let on_demand = self.on_demand.covers(key);
        let with = |lookup| listener(key, of, shards, lookup, on_demand);
        let with_module = tables(of).any(|table| shards(table).is_some());
        [
            Some(with(ShardLookup::Expressions)),
            with_module.then(|| with(ShardLookup::Module)),
        ]
    }

    /// The filter chains that may be the cause of a rejection.
    pub(super) fn suspected_chains(&self, rejected: RejectedVersion<'_>) -> Vec<Suspect> {
        let mut listeners = self.listeners.iter();
        let rejected_one = listeners
            .find(|(key, _)| key.fleet == *rejected.fleet && names::listener(key) == rejected.name);
        let Some((key, listener)) = rejected_one else {
            return Vec::new();
        };
        let current: Vec<_> = self.variants(key, listener).into_iter().flatten().collect();
        self.chains.suspects(key, rejected, &current)
    }
}

/// Whether two versions of a listener differ only in their settings. A setting that the listener doesn't use, or that is the
/// default, doesn't change its bytes.
pub(super) fn only_settings_differ(before: &Listener, after: &Listener) -> bool {
    let settings = Arc::clone(&before.settings);
    before.settings != after.settings
        && *before
            == Listener {
                settings,
                ..after.clone()
            }
}

pub(super) fn uses(listener: &Listener, table: &RouteTableKey) -> bool {
    tables(listener).any(|of_it| of_it == table)
}

/// The tables of a listener.
fn tables(listener: &Listener) -> impl Iterator<Item = &RouteTableKey> {
    listener
        .chains
        .iter()
        .filter_map(|chain| match &chain.target {
            ChainTarget::Http(table) => Some(table),
            ChainTarget::Destination
            | ChainTarget::DestinationByServerName
            | ChainTarget::Weighted(_) => None,
        })
}
