//! The oracle's objects: gateways, routes and services, with random changes to them.

use std::collections::BTreeMap;

use proptest::prelude::*;

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Gateway {
    pub(crate) port: u8,
    pub(crate) open: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Route {
    /// May contain duplicates.
    pub(crate) parents: Vec<u8>,
    /// May contain duplicates.
    pub(crate) hosts: Vec<u8>,
    pub(crate) backend: u8,
}

/// A change to an object; `None` removes it.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Gateway(u8, Option<Gateway>),
    Route(u16, Option<Route>),
    Service(u8, Option<u8>),
}

#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) gateways: BTreeMap<u8, Gateway>,
    pub(crate) routes: BTreeMap<u16, Route>,
    pub(crate) services: BTreeMap<u8, u8>,
}

fn set<K: Ord + Copy, V: Clone>(rows: &mut BTreeMap<K, V>, key: K, value: Option<&V>) {
    match value {
        Some(value) => rows.insert(key, value.clone()),
        None => rows.remove(&key),
    };
}

impl Objects {
    pub(crate) fn apply(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Gateway(key, value) => set(&mut self.gateways, *key, value.as_ref()),
                Step::Route(key, value) => set(&mut self.routes, *key, value.as_ref()),
                Step::Service(key, value) => set(&mut self.services, *key, value.as_ref()),
            }
        }
    }

    /// All objects, readers and large keys first.
    pub(crate) fn steps_reversed(&self) -> Vec<Step> {
        let routes = self.routes.iter().rev();
        let routes = routes.map(|(key, value)| Step::Route(*key, Some(value.clone())));
        let services = self.services.iter().rev();
        let services = services.map(|(key, value)| Step::Service(*key, Some(*value)));
        let gateways = self.gateways.iter().rev();
        let gateways = gateways.map(|(key, value)| Step::Gateway(*key, Some(value.clone())));
        routes.chain(services).chain(gateways).collect()
    }

    pub(crate) fn removals(&self) -> Vec<Step> {
        let removed = |step| match step {
            Step::Gateway(key, _) => Step::Gateway(key, None),
            Step::Route(key, _) => Step::Route(key, None),
            Step::Service(key, _) => Step::Service(key, None),
        };
        self.steps_reversed().into_iter().map(removed).collect()
    }
}

/// Batches of at most `size` changes, with at most `routes` routes. There are few distinct values, so some
/// upserts change nothing.
pub(crate) fn steps(routes: u16, size: usize) -> impl Strategy<Value = Vec<Step>> {
    let few = || prop::collection::vec(0u8..4, 0..3);
    let gateway = (0u8..2, any::<bool>()).prop_map(|(port, open)| Gateway { port, open });
    let route = (few(), few(), 0u8..4).prop_map(|(parents, hosts, backend)| Route {
        parents,
        hosts,
        backend,
    });
    let maybe = prop::option::weighted(0.7, gateway);
    let gateway = (0u8..4, maybe).prop_map(|(key, value)| Step::Gateway(key, value));
    let maybe = prop::option::weighted(0.7, route);
    let route = (0..routes, maybe).prop_map(|(key, value)| Step::Route(key, value));
    let maybe = prop::option::weighted(0.7, 0u8..3);
    let service = (0u8..4, maybe).prop_map(|(key, value)| Step::Service(key, value));
    let routes_weight = u32::from(routes / 3).max(2);
    let step = prop_oneof![1 => gateway, routes_weight => route, 1 => service];
    prop::collection::vec(step, 0..=size)
}
