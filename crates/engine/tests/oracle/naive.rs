//! Computes the pipeline's tables from all objects, with plain maps and loops.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::objects::Objects;
use crate::pipeline::Dump;

fn rows<K: Debug, V: Debug>(rows: &BTreeMap<K, V>) -> BTreeMap<String, String> {
    let rows = rows.iter();
    rows.map(|(key, value)| (format!("{key:?}"), format!("{value:?}")))
        .collect()
}

pub(crate) fn naive(objects: &Objects) -> Dump {
    let Objects {
        gateways,
        routes,
        services,
    } = objects;
    let mut resolved = BTreeMap::new();
    let mut used: BTreeMap<u8, (bool, usize)> = BTreeMap::new();
    let (mut low, mut high) = (BTreeMap::new(), BTreeMap::new());
    let (mut placed, mut sizes) = (BTreeMap::new(), BTreeMap::new());
    let mut sized: BTreeMap<u8, Vec<u16>> = BTreeMap::new();
    let mut offers = BTreeMap::new();
    let mut hosts: BTreeMap<u8, (u16, usize, u8)> = BTreeMap::new();
    for (key, route) in routes {
        let backend = route.backend;
        if let Some(port) = services.get(&backend) {
            resolved.insert(*key, *port);
        }
        used.entry(backend)
            .or_insert((services.contains_key(&backend), 0))
            .1 += 1;
        placed.insert(*key, (backend, route.hosts.len()));
        let size = u8::try_from(route.hosts.len()).expect("few hosts");
        let half = if backend < 2 { &mut low } else { &mut high };
        half.insert(*key, size);
        sizes.insert(*key, size);
        sized.entry(size).or_default().push(*key);
        let parents = route.parents.iter().filter_map(|key| gateways.get(key));
        if let Some(gateway) = parents.into_iter().find(|gateway| gateway.open) {
            for (nth, host) in route.hosts.iter().enumerate() {
                offers.insert((*host, *key), (nth, gateway.port));
                // Routes are sorted: the first keeps the host, and its last row wins.
                let row = hosts.entry(*host).or_insert((*key, nth, gateway.port));
                if row.0 == *key {
                    row.1 = nth;
                }
            }
        }
    }

    let ids = gateways.keys().chain(services.keys()).chain(sized.keys());
    let ids: BTreeMap<u8, ()> = ids.map(|key| (*key, ())).collect();
    let merged = ids.keys().map(|key| {
        let gateway = gateways.get(key).map(|gateway| gateway.port);
        let service = services.get(key).copied();
        (*key, (gateway, service, sized.get(key).map_or(0, Vec::len)))
    });
    let merged: BTreeMap<u8, (Option<u8>, Option<u8>, usize)> = merged.collect();

    let mut attached = BTreeMap::new();
    let mut admitted = BTreeMap::new();
    for (key, gateway) in gateways {
        let children = routes
            .iter()
            .filter(|(_, route)| route.parents.contains(key));
        let children: Vec<u16> = children.map(|(key, _)| *key).collect();
        attached.insert(*key, children.len());
        if gateway.open {
            let children = children.into_iter();
            let children = children.filter(|route| resolved.contains_key(route));
            admitted.insert(*key, children.collect::<Vec<u16>>());
        }
    }

    let mut listeners: BTreeMap<u8, Vec<(u8, u16)>> = BTreeMap::new();
    for (host, (route, _, port)) in &hosts {
        listeners.entry(*port).or_default().push((*host, *route));
    }
    let mut thirds = BTreeMap::new();
    for (route, port) in &resolved {
        thirds.insert((*port, route % 3), *route);
    }
    let mut summaries = BTreeMap::new();
    for (host, (route, _, port)) in &hosts {
        let backend = resolved.get(route);
        let first = thirds.get(&(*port, 0));
        let ports = (listeners.contains_key(port), listeners.contains_key(&7));
        let attached = attached.get(port);
        let summary = format!("{backend:?} {first:?} {ports:?} {attached:?}");
        summaries.insert(*host, summary);
    }

    Dump::from([
        ("gateways", rows(gateways)),
        ("routes", rows(routes)),
        ("services", rows(services)),
        ("resolved", rows(&resolved)),
        ("attached", rows(&attached)),
        ("admitted", rows(&admitted)),
        ("used", rows(&used)),
        ("placed", rows(&placed)),
        ("low", rows(&low)),
        ("high", rows(&high)),
        ("sizes", rows(&sizes)),
        ("sized", rows(&sized)),
        ("ids", rows(&ids)),
        ("merged", rows(&merged)),
        ("offers", rows(&offers)),
        ("hosts", rows(&hosts)),
        ("listeners", rows(&listeners)),
        ("thirds", rows(&thirds)),
        ("summaries", rows(&summaries)),
    ])
}
