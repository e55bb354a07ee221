//! Filter chains that Envoys reject, and what is served in their place.
//!
//! In: encoded listeners, rejected and accepted ones. Out: the chains that may be the cause, and listeners without them. The
//! only chain of a listener is never held: there is nothing else to serve.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use envoy_types::pb::envoy::config::listener::v3 as pb;
use prost::Message;
use prost::bytes::Bytes;
use sesame_model::{Chain, Listener, ListenerKey};

use super::held::{Part, RejectedVersion, Suspect, Suspects};
use crate::{connections, names, on_demand};

/// The held chains of all listeners; usually none.
#[derive(Debug, Default)]
pub(super) struct Chains {
    /// The last accepted versions of held chains, by name.
    held: BTreeMap<ListenerKey, BTreeMap<Arc<str>, Option<Bytes>>>,
    /// Listeners whose held chains have changed since the last call of [`Chains::take_touched`].
    touched: BTreeSet<ListenerKey>,
}

impl Chains {
    /// The chains that may be the cause of a rejection: those that differ from the last accepted version, haven't changed
    /// since, and aren't held. Without an accepted version, only those that the message quotes: after a restart of Sesame,
    /// Envoys may serve all of them, and a search would close them for a while. `current` has the listener's current variants.
    pub(super) fn suspects(
        &self,
        key: &ListenerKey,
        rejected: RejectedVersion<'_>,
        current: &[pb::Listener],
    ) -> Vec<Suspect> {
        let decode = |body: &[u8]| pb::Listener::decode(body).unwrap_or_default();
        let (of_rejected, accepted) = (decode(rejected.body), rejected.last_good.map(decode));
        let last_good = accepted.as_ref().map(by_name).unwrap_or_default();
        let current: Vec<_> = current.iter().map(by_name).collect();
        let held = self.held.get(key);
        let mut suspects = Suspects::new(rejected.message);
        if of_rejected.filter_chains.len() < 2 {
            return Vec::new();
        }
        for chain in &of_rejected.filter_chains {
            let name = &*chain.name;
            let is = |chains: &BTreeMap<_, _>| chains.get(name) == Some(&chain);
            let is_held = held.is_some_and(|held| held.contains_key(name));
            if is_held || name == on_demand::CHAIN || is(&last_good) || !current.iter().any(is) {
                continue;
            }
            let before = last_good.get(name);
            let suspect = Suspect {
                part: Part::Chain(key.clone(), name.into()),
                last_good: before.map(|before| before.encode_to_vec().into()),
            };
            suspects.add(suspect, &chain.encode_to_vec());
        }
        match accepted {
            Some(_) => suspects.found(),
            None => suspects.quoted(),
        }
    }

    /// Serves a chain's last accepted version, or closes its connections, until the chain changes or is released.
    pub(super) fn hold(&mut self, key: &ListenerKey, name: &Arc<str>, last_good: Option<Bytes>) {
        let held = self.held.entry(key.clone()).or_default();
        held.insert(Arc::clone(name), last_good);
        self.touched.insert(key.clone());
    }

    /// Serves the current version of a chain.
    pub(super) fn release(&mut self, key: &ListenerKey, name: &str) {
        let Some(held) = self.held.get_mut(key) else {
            return;
        };
        if held.remove(name).is_some() {
            self.touched.insert(key.clone());
        }
        if held.is_empty() {
            self.held.remove(key);
        }
    }

    /// Releases the held chains that differ between two versions of a listener, or all if its settings do, and returns them.
    pub(super) fn changed(
        &mut self,
        key: &ListenerKey,
        before: Option<&Listener>,
        after: Option<&Listener>,
    ) -> Vec<Part> {
        let Some(held) = self.held.get(key) else {
            return Vec::new();
        };
        let same = |name: &str| match (before, after) {
            (Some(before), Some(after)) => {
                of_all(before) == of_all(after) && chain(before, name) == chain(after, name)
            }
            _ => false,
        };
        let changed: Vec<Arc<str>> = held.keys().filter(|name| !same(name)).cloned().collect();
        let release = |name: Arc<str>| {
            self.release(key, &name);
            Part::Chain(key.clone(), name)
        };
        changed.into_iter().map(release).collect()
    }

    /// The listeners whose held chains have changed since the last call.
    pub(super) fn take_touched(&mut self) -> BTreeSet<ListenerKey> {
        std::mem::take(&mut self.touched)
    }

    /// Replaces the held chains of a listener.
    pub(super) fn replace(&self, key: &ListenerKey, of: &Listener, encoded: &mut pb::Listener) {
        let Some(held) = self.held.get(key) else {
            return;
        };
        for chain in &mut encoded.filter_chains {
            let Some(last_good) = held.get(&*chain.name) else {
                continue;
            };
            let last_good = last_good.as_deref();
            let last_good = last_good.and_then(|bytes| pb::FilterChain::decode(bytes).ok());
            // Without the chain, its connections would get to one for a wildcard.
            let closed = || pb::FilterChain {
                name: chain.name.clone(),
                filters: connections::to_cluster(key, &of.settings, names::REFUSED.to_owned()),
                ..Default::default()
            };
            *chain = pb::FilterChain {
                // It depends on the other chains.
                filter_chain_match: chain.filter_chain_match.take(),
                ..last_good.unwrap_or_else(closed)
            };
        }
    }
}

fn by_name(listener: &pb::Listener) -> BTreeMap<&str, &pb::FilterChain> {
    let chains = listener.filter_chains.iter();
    chains.map(|chain| (&*chain.name, chain)).collect()
}

/// What all chains have in common.
fn of_all(listener: &Listener) -> impl PartialEq {
    let Listener {
        bind,
        tracing,
        settings,
        chains: _,
    } = listener;
    (bind, tracing, settings)
}

/// The chain with this name.
fn chain<'a>(listener: &'a Listener, name: &str) -> Option<&'a Chain> {
    let mut chains = listener.chains.iter();
    chains.find(|chain| chain.tls.is_some() && chain.server_name().unwrap_or("*") == name)
}
