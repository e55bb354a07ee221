//! The ports that Sesame assigns to listeners without one (port 0 in an XListenerSet).
//!
//! A port is assigned to one listener of a Gateway, and kept: the status records it, and later translations prefer the
//! recorded port. The first choice is a hash of the listener's name, so all replicas make the same choice before the
//! status is written, and a source without statuses gets the same ports after a restart.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use sesame_api::{Gateway, Listener, ListenerSet, ListenerStatus, ObjectKey};
use sesame_engine::{Builder, Table};
use xxhash_rust::xxh3::xxh3_64;

use super::listener_set::{self, Parents};
use crate::inputs::Inputs;
use crate::shared::listeners::ListenerId;
use crate::shared::precedence::{Seniority, Source};

/// The ports to choose from, below node ports (from 30,000) and Linux's ephemeral ports (from 32,768).
pub(super) const PORTS: RangeInclusive<u16> = 20_000..=29_999;

/// The ports of [`PORTS`] that a set uses, and its listeners that need one.
#[derive(Clone, Debug, PartialEq)]
struct Demand {
    gateway: ObjectKey,
    seniority: Seniority,
    used: Vec<u16>,
    /// Names of the listeners without a port, each with the port in its status.
    asked: Vec<(Arc<str>, Option<u16>)>,
}

/// The ports to keep: the statuses of listeners without a port in the spec, reduced to name and port.
pub(crate) fn recorded(set: &ListenerSet) -> Vec<ListenerStatus> {
    let asking = set.spec.listeners.iter().filter(|l| l.port == 0);
    let statuses = asking.filter_map(|listener| {
        let mut statuses = set.status.listeners.iter();
        let status = statuses.find(|status| status.name == listener.name)?;
        Some(ListenerStatus {
            name: Arc::clone(&listener.name),
            port: Some(status.port.filter(|port| PORTS.contains(port))?),
            ..ListenerStatus::default()
        })
    });
    statuses.collect()
}

/// Declares the stages. Sets whose listeners all have a port outside [`PORTS`] don't add work.
pub(crate) fn stages(b: &mut Builder, inputs: &Inputs, parents: Parents) -> Table<ListenerId, u16> {
    let inputs = *inputs;
    let concerned = b.index(
        inputs.listener_sets,
        "listener_sets that affect assigned ports",
        |key: &ObjectKey, set| {
            let mut ports = set.spec.listeners.iter().map(|listener| listener.port);
            let concerned = ports.any(|port| port == 0 || PORTS.contains(&port));
            Vec::from_iter(concerned.then(|| key.clone()))
        },
    );
    let demands = b.derive("port demand", concerned, move |reader, key| {
        let set = reader.get(inputs.listener_sets, key)?;
        let parent = listener_set::parent(reader, parents, &set)?;
        parent.allows.then(|| Demand::of(&set, parent.gateway))
    });
    let by_gateway = b.index(demands, "port demands by gateway", |_, demand| {
        vec![demand.gateway.clone()]
    });
    b.derive_many("assigned port", by_gateway, move |reader, key| {
        let demands = reader.by(by_gateway, key);
        match reader.get(inputs.gateways, key) {
            Some(gateway) => assign(&gateway, demands),
            None => Vec::new(),
        }
    })
}

impl Demand {
    fn of(set: &ListenerSet, gateway: ObjectKey) -> Self {
        let asking = set.spec.listeners.iter().filter(|l| l.port == 0);
        let asked = asking.map(|listener| {
            let mut recorded = set.status.listeners.iter();
            let recorded = recorded.find(|status| status.name == listener.name);
            (
                Arc::clone(&listener.name),
                recorded.and_then(|status| status.port),
            )
        });
        Self {
            gateway,
            seniority: Seniority::of(Source::GatewayApi, &set.meta),
            used: used(&set.spec.listeners).collect(),
            asked: asked.collect(),
        }
    }
}

fn used(listeners: &[Listener]) -> impl Iterator<Item = u16> {
    let ports = listeners.iter().map(|listener| listener.port);
    ports.filter(|port| PORTS.contains(port))
}

/// Assigns the ports of a Gateway. Once all ports are taken, further listeners don't get one.
///
/// A recorded port is kept unless the Gateway or an older set uses it: a younger set can't displace it. A new port is
/// the first free one in the order of precedence, so the result doesn't change once some or all of it is recorded.
fn assign(gateway: &Gateway, mut demands: Vec<(ObjectKey, Arc<Demand>)>) -> Vec<(ListenerId, u16)> {
    // Stable: among sets with the same age and name, ListenerSets come first, as in the merge.
    demands.sort_by(|(_, a), (_, b)| a.seniority.cmp(&b.seniority));
    let mut taken: BTreeSet<u16> = used(&gateway.spec.listeners).collect();
    let (mut assigned, mut without) = (Vec::new(), Vec::new());
    for (owner, demand) in &demands {
        taken.extend(&demand.used);
        for (name, recorded) in &demand.asked {
            let id = ListenerId {
                owner: owner.clone(),
                name: Arc::clone(name),
            };
            match recorded.filter(|port| taken.insert(*port)) {
                Some(port) => assigned.push((id, port)),
                None => without.push(id),
            }
        }
    }
    for id in without {
        if taken.len() == PORTS.len() {
            break;
        }
        let first = first_choice(&id);
        let mut ports = (first..=*PORTS.end()).chain(*PORTS.start()..first);
        if let Some(port) = ports.find(|port| taken.insert(*port)) {
            assigned.push((id, port));
        }
    }
    assigned
}

/// The port that a listener gets if that port is free.
fn first_choice(id: &ListenerId) -> u16 {
    let name = format!("{}/{}", id.owner.namespaced_name(), id.name);
    let count = PORTS.len() as u64;
    let offset = xxh3_64(name.as_bytes()) % count;
    PORTS.start() + u16::try_from(offset).expect("the offset is below the number of ports")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use sesame_api::{Kind, NamespacedName};

    use super::*;

    /// A set with this name and age, the ports that it uses, and the recorded ports of its listeners `0`, `1`, …
    fn demand(
        name: &str,
        age: i64,
        used: &[u16],
        recorded: &[Option<u16>],
    ) -> (ObjectKey, Arc<Demand>) {
        let key = ObjectKey::new(Kind::XListenerSet, "ns", name);
        let asked = recorded.iter().enumerate();
        let demand = Demand {
            gateway: ObjectKey::new(Kind::Gateway, "ns", "web"),
            seniority: Seniority {
                source: Source::GatewayApi,
                created: Some(Timestamp::from_second(age).expect("a valid time")),
                name: NamespacedName::new("ns", name),
            },
            used: used.to_vec(),
            asked: asked
                .map(|(index, port)| (index.to_string().into(), *port))
                .collect(),
        };
        (key, Arc::new(demand))
    }

    fn assigned(of_gateway: &[u16], demands: &[(ObjectKey, Arc<Demand>)]) -> Vec<(String, u16)> {
        let listeners: Vec<_> = of_gateway
            .iter()
            .map(|port| {
                serde_json::json!({"name": port.to_string(), "port": port, "protocol": "HTTP"})
            })
            .collect();
        let gateway = serde_json::json!({
            "metadata": {"name": "web", "namespace": "ns"},
            "spec": {"gatewayClassName": "sesame", "listeners": listeners},
        });
        let gateway: Gateway = serde_json::from_value(gateway).expect("a Gateway");
        let found = assign(&gateway, demands.to_vec());
        let mut found: Vec<_> = found
            .into_iter()
            .map(|(id, port)| (format!("{}/{}", id.owner.name, id.name), port))
            .collect();
        found.sort();
        found
    }

    fn first(name: &str) -> u16 {
        first_choice(&ListenerId {
            owner: ObjectKey::new(Kind::XListenerSet, "ns", name),
            name: "0".into(),
        })
    }

    fn expected(ports: &[(&str, u16)]) -> Vec<(String, u16)> {
        let ports = ports.iter();
        ports
            .map(|(name, port)| (format!("{name}/0"), *port))
            .collect()
    }

    #[test]
    fn the_first_choice_depends_only_on_the_name() {
        // Other values would change the ports assigned for sources without statuses.
        let choices = ["a", "b", "c"].map(first);
        assert_eq!(choices, [20_557, 22_875, 20_828]);
    }

    #[test]
    fn a_new_port_is_the_first_one_that_no_listener_uses() {
        let port = first("a");
        let a = demand("a", 1, &[], &[None]);
        assert_eq!(
            assigned(&[], std::slice::from_ref(&a)),
            expected(&[("a", port)])
        );
        assert_eq!(
            assigned(&[port], std::slice::from_ref(&a)),
            expected(&[("a", port + 1)])
        );
        // It also avoids ports that a younger set uses or that another listener keeps.
        let user = demand("user", 2, &[port + 1], &[]);
        let keeper = demand("keeper", 3, &[], &[Some(port + 2)]);
        assert_eq!(
            assigned(&[port], &[a, user, keeper]),
            expected(&[("a", port + 3), ("keeper", port + 2)])
        );
    }

    #[test]
    fn a_recorded_port_is_kept_unless_the_gateway_or_an_older_set_uses_it() {
        let (kept, new) = (25_000, first("a"));
        let a = || demand("a", 5, &[], &[Some(kept)]);
        assert_eq!(assigned(&[], &[a()]), expected(&[("a", kept)]));
        assert_eq!(assigned(&[kept], &[a()]), expected(&[("a", new)]));
        let older = demand("b", 4, &[kept], &[]);
        assert_eq!(assigned(&[], &[a(), older]), expected(&[("a", new)]));
        let younger = demand("b", 6, &[kept], &[]);
        assert_eq!(assigned(&[], &[a(), younger]), expected(&[("a", kept)]));
        let same = demand("b", 6, &[], &[Some(kept)]);
        assert_eq!(
            assigned(&[], &[same, a()]),
            expected(&[("a", kept), ("b", first("b"))])
        );
    }

    #[test]
    fn recording_any_part_of_the_result_changes_nothing() {
        let port = first("a");
        let mut names = (0..).map(|n| format!("twin{n}"));
        let twin = names.find(|name| first(name) == port).expect("a twin");
        let sets = |recorded: [Option<u16>; 3]| {
            [
                demand("a", 3, &[], &[recorded[0]]),
                demand(&twin, 2, &[], &[recorded[1]]),
                demand("b", 1, &[port + 1], &[recorded[2]]),
            ]
        };
        let all = expected(&[("a", port + 2), ("b", first("b") + 1), (&twin, port)]);
        for mask in 0..8 {
            let ports = [port + 2, port, first("b") + 1];
            let recorded = [0, 1, 2].map(|n| (mask & (1 << n) != 0).then_some(ports[n]));
            assert_eq!(assigned(&[first("b")], &sets(recorded)), all, "{mask}");
        }
    }

    #[test]
    fn no_port_is_assigned_twice_and_none_if_all_are_taken() {
        let count = PORTS.len();
        let crowd = demand("crowd", 1, &[], &vec![None; count + 3]);
        let late = demand("late", 2, &[], &[None]);
        let found = assigned(&[], &[crowd, late]);
        let ports: BTreeSet<u16> = found.iter().map(|(_, port)| *port).collect();
        assert_eq!((found.len(), ports.len()), (count, count));
        assert!(found.iter().all(|(name, _)| !name.starts_with("late")));
    }
}
