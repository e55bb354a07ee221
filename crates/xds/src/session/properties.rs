//! Invariants under any sequence of updates, ACKs, NACKs, delays and reconnects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::Session;
use super::sim::{
    Client, Cluster, Endpoint, Listener, Route, fleet, is_bad, limits, references, update,
};
use crate::fleet::Fleet;
use crate::resource::ResourceType;
use crate::wire::{DeltaRequest, ErrorDetail};

/// The configuration as the controller sees it, always consistent.
#[derive(Debug, Clone, Default)]
struct World {
    objects: BTreeMap<(ResourceType, String), String>,
    /// Clusters that have ever been invalid.
    bad: BTreeSet<String>,
    revision: u64,
}

/// One step. Numbers select existing objects.
#[derive(Debug, Clone)]
enum Step {
    Cluster {
        name: u8,
        tag: Tag,
    },
    Endpoints {
        name: u8,
        tag: Tag,
    },
    Route {
        name: u8,
        clusters: [u8; 2],
        tag: Tag,
    },
    Listener {
        name: u8,
        routes: [u8; 2],
        tag: Tag,
    },
    /// Removes a route and its clusters in one update.
    Drop {
        route: u8,
    },
    DropListener {
        name: u8,
    },
    Apply,
    Receive {
        client: u8,
    },
    Respond {
        client: u8,
        which: u8,
    },
    Reconnect {
        client: u8,
    },
    Wait {
        client: u8,
        millis: u16,
    },
}

#[derive(Debug, Clone)]
struct Tag {
    bad: bool,
    number: u8,
}

impl Tag {
    fn text(&self) -> String {
        format!("{}{}", if self.bad { "bad" } else { "v" }, self.number)
    }
}

fn tag(bad: bool) -> impl Strategy<Value = Tag> {
    // Few tags, so that old versions recur.
    (prop::bool::weighted(if bad { 0.25 } else { 0.0 }), 0u8..4)
        .prop_map(|(bad, number)| Tag { bad, number })
}

fn step(bad: bool) -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u8..5, tag(bad)).prop_map(|(name, tag)| Step::Cluster { name, tag }),
        2 => (0u8..5, tag(bad)).prop_map(|(name, tag)| Step::Endpoints { name, tag }),
        4 => (0u8..4, [0u8..5, 0u8..5], tag(bad))
            .prop_map(|(name, clusters, tag)| Step::Route { name, clusters, tag }),
        2 => (0u8..2, [0u8..4, 0u8..4], tag(bad))
            .prop_map(|(name, routes, tag)| Step::Listener { name, routes, tag }),
        2 => (0u8..4).prop_map(|route| Step::Drop { route }),
        1 => (0u8..2).prop_map(|name| Step::DropListener { name }),
        6 => Just(Step::Apply),
        12 => (0u8..2).prop_map(|client| Step::Receive { client }),
        12 => (0u8..2, any::<u8>()).prop_map(|(client, which)| Step::Respond { client, which }),
        1 => (0u8..2).prop_map(|client| Step::Reconnect { client }),
        1 => (0u8..2, 0u16..900).prop_map(|(client, millis)| Step::Wait { client, millis }),
    ]
}

impl World {
    fn put(&mut self, ty: ResourceType, name: String, body: String) {
        self.objects.insert((ty, name), body);
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Cluster { name, tag } => self.cluster(*name, tag),
            Step::Endpoints { name, tag } => {
                let name = format!("c{name}");
                if self.objects.contains_key(&(Cluster, name.clone())) {
                    self.put(Endpoint, name, tag.text());
                }
            }
            Step::Route {
                name,
                clusters,
                tag,
            } => {
                for cluster in clusters {
                    if !self.objects.contains_key(&(Cluster, format!("c{cluster}"))) {
                        self.cluster(
                            *cluster,
                            &Tag {
                                bad: false,
                                ..tag.clone()
                            },
                        );
                    }
                }
                let body = format!("{};c{},c{}", tag.text(), clusters[0], clusters[1]);
                self.put(Route, format!("r{name}"), body);
            }
            Step::Listener { name, routes, tag } => {
                let body = format!("{};r{},r{}", tag.text(), routes[0], routes[1]);
                self.put(Listener, format!("l{name}"), body);
            }
            Step::Drop { route } => {
                self.objects.remove(&(Route, format!("r{route}")));
                let used: Vec<String> = self
                    .objects
                    .iter()
                    .filter(|((ty, _), _)| *ty == Route)
                    .flat_map(|(_, body)| references(body).map(str::to_owned))
                    .collect();
                self.objects.retain(|(ty, name), _| {
                    !matches!(ty, Cluster | Endpoint) || used.contains(name)
                });
            }
            Step::DropListener { name } => {
                self.objects.remove(&(Listener, format!("l{name}")));
            }
            _ => {}
        }
    }

    fn cluster(&mut self, name: u8, tag: &Tag) {
        let name = format!("c{name}");
        if tag.bad {
            self.bad.insert(name.clone());
        }
        self.put(Cluster, name.clone(), tag.text());
        let endpoints = self.objects.entry((Endpoint, name));
        endpoints.or_insert_with(|| "v0".to_owned());
    }

    /// Updates the fleet from `before` to `self`.
    fn apply(&mut self, before: &World, fleet: &mut Fleet) {
        self.revision += 1;
        let upserts: Vec<_> = self
            .objects
            .iter()
            .filter(|(key, body)| before.objects.get(*key) != Some(*body))
            .map(|((ty, name), body)| (*ty, name.as_str(), body.as_str()))
            .collect();
        let removals: Vec<_> = before
            .objects
            .keys()
            .filter(|key| !self.objects.contains_key(*key))
            .map(|(ty, name)| (*ty, name.as_str()))
            .collect();
        fleet.apply(update(self.revision, &upserts, &removals));
    }
}

/// Checks, after every response, that no route refers to a cluster that the client lacks. (The simulator checks that no
/// cluster is removed too early.)
fn check_traffic(client: &Client, world: &World) -> Result<(), TestCaseError> {
    for response in &client.inbox {
        if response.ty == Route {
            for route in &response.upserts {
                let body = String::from_utf8(route.body().to_vec()).unwrap();
                for cluster in references(&body).filter(|_| !is_bad(&body)) {
                    // Routes don't wait for rejected clusters. A cluster that no longer exists was removed along with a
                    // change to this route that hasn't been sent yet.
                    let exists = world.objects.contains_key(&(Cluster, cluster.to_owned()));
                    if exists && !world.bad.contains(cluster) {
                        prop_assert!(
                            client.acked_clusters.contains(cluster)
                                || client.body(Cluster, cluster).is_some(),
                            "route {} came before its cluster {cluster}: {:#?}",
                            route.name(),
                            client.log
                        );
                    }
                }
            }
        }
    }
    Ok(())
}

fn check_end(client: &Client, world: &World, rejected: bool) -> Result<(), TestCaseError> {
    prop_assert!(client.inbox.is_empty());
    prop_assert!(
        client.unacked.is_empty(),
        "a client waits for warming: {:#?}",
        client.log
    );
    let subscribed: Vec<&str> = client
        .held(Listener)
        .flat_map(|(_, body)| references(body))
        .collect();
    for (key, body) in &world.objects {
        let (ty, name) = key;
        let wanted = match ty {
            Route => subscribed.contains(&name.as_str()),
            Endpoint => client.body(Cluster, name).is_some(),
            _ => true,
        };
        let has = client.has.get(key);
        if !wanted {
            prop_assert_eq!(has, None, "unwanted {} {}", ty, name);
        } else if is_bad(body) {
            prop_assert!(has.is_none_or(|has| !is_bad(has)));
        } else {
            prop_assert_eq!(has, Some(body), "{} {}: {:#?}", ty, name, client.log);
        }
    }
    for key in client.has.keys() {
        // The older version of a rejected listener or route may still use this resource.
        let kept = rejected && !key.0.waits_for_clusters();
        prop_assert!(
            kept || world.objects.contains_key(key),
            "{key:?} should be gone: {:#?}",
            client.log
        );
    }
    Ok(())
}

/// Whether a listener or route is rejected.
fn rejected(fleet: &Fleet) -> bool {
    let rejections = fleet.status().rejections;
    rejections
        .iter()
        .any(|rejection| rejection.resource_type.waits_for_clusters())
}

fn run(
    steps: &[Step],
    response_bytes: usize,
    bad: bool,
    removal_delay: u64,
) -> Result<(), TestCaseError> {
    let mut fleet = fleet();
    let mut limits = limits();
    limits.response_bytes = response_bytes;
    limits.removal_delay = Duration::from_millis(removal_delay);
    let mut clients = [
        Client::connect(&mut fleet, 1, limits.clone()),
        Client::connect(&mut fleet, 2, limits),
    ];
    let mut world = World::default();
    let mut applied = World::default();
    let mut reconnects = 0;
    for step in steps {
        world.take(step);
        match step {
            Step::Apply => {
                world.apply(&applied, &mut fleet);
                applied = world.clone();
                for client in &mut clients {
                    client.pump(&mut fleet);
                }
            }
            Step::Receive { client } => _ = clients[usize::from(*client)].receive(&mut fleet),
            Step::Respond { client, which } => {
                clients[usize::from(*client)].respond(&mut fleet, usize::from(*which));
            }
            // Without a removal delay, clusters may be removed before the client has listed its routes.
            Step::Reconnect { client } if removal_delay > 0 => {
                // Resources of an unacknowledged response may be sent again.
                reconnects += 1;
                clients[usize::from(*client)].reconnect(&mut fleet);
            }
            Step::Wait { client, millis } => {
                let client = &mut clients[usize::from(*client)];
                client.now += Duration::from_millis(u64::from(*millis));
                client.pump(&mut fleet);
            }
            _ => {}
        }
        for client in &clients {
            check_traffic(client, &applied)?;
        }
    }
    world.apply(&applied, &mut fleet);
    // Twice, because one client's rejection affects the other.
    for _ in 0..2 {
        for client in &mut clients {
            client.settle(&mut fleet);
            client.now += Duration::from_secs(1);
            client.settle(&mut fleet);
        }
    }
    for client in &clients {
        check_end(client, &world, rejected(&fleet))?;
        if !bad && reconnects == 0 {
            prop_assert_eq!(client.repeated, 0, "sent twice: {:#?}", &client.log);
        }
        let status = fleet.status();
        let status = status
            .clients
            .iter()
            .find(|status| status.stream == client.id);
        prop_assert_eq!(status.unwrap().acked_revision, Some(world.revision));
    }
    // Converged.
    for client in &mut clients {
        client.take_log();
        client.settle(&mut fleet);
        prop_assert!(client.log.is_empty());
    }
    for client in &mut clients {
        // The other client's stream may have ended, and its rejections with it, which may have released removals.
        client.settle(&mut fleet);
        client.take_log();
        client.reconnect(&mut fleet);
        client.settle(&mut fleet);
        // Missing names are reported again.
        let sent = client.log.iter().any(|line| line.contains('+'));
        prop_assert!(
            bad || !sent,
            "a reconnecting client is sent resources that it has: {:#?}",
            client.log
        );
    }
    Ok(())
}

/// At least 600 cases; more with `PROPTEST_CASES`.
fn cases() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: default.cases.max(600),
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn everything_arrives_in_order_and_once(
        steps in prop::collection::vec(step(false), 1..120),
        bytes in prop::sample::select(vec![1usize, 20, 1 << 20]),
        removal_delay in prop::sample::select(vec![0u64, 500]),
    ) {
        run(&steps, bytes, false, removal_delay)?;
    }

    #[test]
    fn valid_resources_arrive_despite_rejected_ones(
        steps in prop::collection::vec(step(true), 1..120),
        bytes in prop::sample::select(vec![1usize, 20, 1 << 20]),
        removal_delay in prop::sample::select(vec![0u64, 500]),
    ) {
        run(&steps, bytes, true, removal_delay)?;
    }
}

/// A request from a client that violates the protocol.
fn any_request() -> impl Strategy<Value = DeltaRequest> {
    let name =
        || prop::sample::select(vec!["*", "", "c0", "c1", "r0", "x"]).prop_map(str::to_owned);
    let names = || prop::collection::vec(name(), 0..4);
    let types = ResourceType::ALL.map(ResourceType::type_url);
    (
        prop::sample::select(types.into_iter().chain(["other"]).collect::<Vec<_>>()),
        names(),
        names(),
        prop::collection::hash_map(name(), ".{0,3}", 0..3),
        prop::sample::select(vec!["", "1", "2", "3", "4", "5", "6", "7", "8", "z"]),
        prop::option::of(".{0,30}"),
    )
        .prop_map(
            |(url, subscribe, unsubscribe, brought, nonce, error)| DeltaRequest {
                type_url: url.to_owned(),
                resource_names_subscribe: subscribe,
                resource_names_unsubscribe: unsubscribe,
                initial_resource_versions: brought,
                response_nonce: nonce.to_owned(),
                error_detail: error.map(|message| ErrorDetail { message }),
            },
        )
}

proptest! {
    #![proptest_config(cases())]

    /// The client gets a bounded number of responses, and other clients get everything.
    #[test]
    fn a_client_that_violates_the_protocol_does_not_affect_others(
        requests in prop::collection::vec((any_request(), prop::option::weighted(0.3, step(false))), 1..60),
    ) {
        let mut fleet = fleet();
        let mut world = World::default();
        let mut session = Session::new(9, limits(), Instant::now());
        let mut client = Client::connect(&mut fleet, 1, limits());
        for (request, step) in requests {
            if let Some(step) = step {
                let before = world.clone();
                world.take(&step);
                world.apply(&before, &mut fleet);
            }
            // Settle first: a NACK by the other client withholds a version that no client has acknowledged.
            client.settle(&mut fleet);
            session.request(&mut fleet, &request).unwrap();
            let answers = std::iter::from_fn(|| session.poll(&mut fleet, Instant::now()));
            prop_assert!(answers.take(20).count() <= ResourceType::ALL.len());
        }
        client.settle(&mut fleet);
        // A version that was rejected before any client acknowledged it is not sent.
        for rejection in fleet.status().rejections {
            let key = (rejection.resource_type, rejection.name.to_string());
            if client.has.get(&key) != world.objects.get(&key) {
                client.has.remove(&key);
                world.objects.remove(&key);
            }
        }
        check_end(&client, &world, rejected(&fleet))?;
    }
}
