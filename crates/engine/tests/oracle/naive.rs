//! The pipeline's meaning, computed from all objects with plain maps and loops.

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
    let mut hosts: BTreeMap<u8, (u16, usize, u8)> = BTreeMap::new();
    for (key, route) in routes {
        let backend = route.backend;
        if let Some(port) = services.get(&backend) {
            resolved.insert(*key, *port);
        }
        used.entry(backend)
            .or_insert((services.contains_key(&backend), 0))
            .1 += 1;
        let parents = route.parents.iter().filter_map(|key| gateways.get(key));
        if let Some(gateway) = parents.into_iter().find(|gateway| gateway.open) {
            for (nth, host) in route.hosts.iter().enumerate() {
                // Routes come in order: an earlier one keeps the host, this one's last row counts.
                let row = hosts.entry(*host).or_insert((*key, nth, gateway.port));
                if row.0 == *key {
                    row.1 = nth;
                }
            }
        }
    }

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
        ("hosts", rows(&hosts)),
        ("listeners", rows(&listeners)),
        ("thirds", rows(&thirds)),
        ("summaries", rows(&summaries)),
    ])
}
