use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

mod api_server;

fn config(identity: &str) -> LeaseConfig {
    LeaseConfig::new("sesame-system", identity)
}

/// The Lease as an API server stores it.
#[derive(Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
}

impl Server {
    fn store(&mut self, lease: &Lease) -> Answer {
        self.version += 1;
        let mut lease = lease.clone();
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        Answer::Lease(Box::new(lease))
    }

    fn take(&mut self, ask: &Ask) -> Answer {
        match (ask, &self.lease) {
            (Ask::Look, Some(lease)) => Answer::Lease(Box::new(lease.clone())),
            (Ask::Create(_), Some(_)) => Answer::Conflict,
            (Ask::Create(lease), None) => self.store(lease),
            (Ask::Replace(new), Some(old))
                if new.metadata.resource_version != old.metadata.resource_version =>
            {
                Answer::Conflict
            }
            (Ask::Replace(lease), Some(_)) => self.store(lease),
            (Ask::Look | Ask::Replace(_), None) => Answer::Missing,
        }
    }
}

/// A request in flight.
struct Sent {
    asked_at: Instant,
    ask: Ask,
    /// When it reaches the server; `None`: it has.
    arrives: Option<Instant>,
    /// The answer, and when it arrives.
    answer: Option<Answer>,
    answers: Instant,
}

/// Candidates, a server, and a network with configurable delays.
struct World {
    server: Server,
    now: Instant,
    start: Instant,
    candidates: BTreeMap<&'static str, (Candidate, Option<Sent>)>,
    /// Requests that timed out at the sender, which may still arrive.
    lost: Vec<(Instant, Ask)>,
    /// Delays in milliseconds to the server and back, used in turn.
    delays: Vec<(u64, u64)>,
    next_delay: usize,
    /// Each new leader, and when it began to lead, in milliseconds.
    led: Vec<(u128, &'static str)>,
}

const TICK: Duration = Duration::from_millis(20);

impl World {
    fn new(names: &[&'static str], delays: Vec<(u64, u64)>) -> Self {
        let start = Instant::now();
        let new = |name: &&'static str| (*name, (Candidate::new(&config(name), start), None));
        World {
            server: Server::default(),
            now: start,
            start,
            candidates: names.iter().map(new).collect(),
            lost: Vec::new(),
            delays,
            next_delay: 0,
            led: Vec::new(),
        }
    }

    fn millis(&self) -> u128 {
        self.now.duration_since(self.start).as_millis()
    }

    fn leader(&self) -> Option<&'static str> {
        let leaders = self
            .candidates
            .iter()
            .filter(|(_, (c, _))| c.leads(self.now));
        let leaders: Vec<_> = leaders.map(|(name, _)| *name).collect();
        assert!(
            leaders.len() < 2,
            "{leaders:?} lead together after {} ms",
            self.millis()
        );
        leaders.first().copied()
    }

    fn delay(&mut self) -> (Duration, Duration) {
        let (there, back) = self.delays[self.next_delay % self.delays.len()];
        self.next_delay += 1;
        (Duration::from_millis(there), Duration::from_millis(back))
    }

    fn tick(&mut self) {
        self.now += TICK;
        let now = self.now;
        let arrived: Vec<_> = self.lost.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, ask) in arrived {
            self.server.take(&ask);
        }
        let names: Vec<_> = self.candidates.keys().copied().collect();
        for name in names {
            let (there, back) = self.delay();
            let (candidate, sent) = self.candidates.get_mut(name).unwrap();
            if let Some(request) = sent {
                if request.arrives.is_some_and(|at| at <= now) {
                    request.arrives = None;
                    request.answer = Some(self.server.take(&request.ask));
                }
                if request.asked_at + Times::default().answer <= now {
                    if let Some(at) = request.arrives {
                        self.lost.push((at, request.ask.clone()));
                    }
                    let failed = Answer::Failed(String::new());
                    candidate.answered(&request.ask, failed, request.asked_at, now);
                    *sent = None;
                } else if request.answer.is_some() && request.answers <= now {
                    let answer = request.answer.take().unwrap();
                    candidate.answered(&request.ask, answer, request.asked_at, now);
                    *sent = None;
                }
            }
            if sent.is_none() && candidate.asks_at() <= now {
                *sent = Some(Sent {
                    asked_at: now,
                    ask: candidate.ask(Timestamp::UNIX_EPOCH + now.duration_since(self.start)),
                    arrives: Some(now + there),
                    answer: None,
                    answers: now + there + back,
                });
            }
        }
        if let Some(leader) = self.leader()
            && self.led.last().is_none_or(|(_, last)| *last != leader)
        {
            self.led.push((self.millis(), leader));
        }
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.tick();
        }
    }

    fn spec(&self) -> &k8s_openapi::api::coordination::v1::LeaseSpec {
        self.server.lease.as_ref().unwrap().spec.as_ref().unwrap()
    }
}

#[test]
fn the_first_leads_and_goes_on_leading() {
    let mut world = World::new(&["a", "b"], vec![(1, 1)]);
    world.run(Duration::from_secs(60));
    assert_eq!(world.led.len(), 1);
    // One renewal every two seconds, and no other write.
    assert!(
        (29..=31).contains(&world.server.version),
        "{}",
        world.server.version
    );
    assert_eq!(world.spec().lease_transitions, Some(0));
    assert_eq!(world.spec().lease_duration_seconds, Some(10));
}

#[test]
fn a_dead_leader_is_followed_after_its_lease_has_run_out() {
    let mut world = World::new(&["a", "b"], vec![(1, 1)]);
    world.run(Duration::from_secs(5));
    let dead = world.leader().unwrap();
    world.candidates.remove(dead);
    let died = world.millis();
    world.run(Duration::from_secs(20));
    let (at, follower) = world.led[1];
    assert_ne!(follower, dead);
    let after = at - died;
    assert!((8000..12_000).contains(&after), "{after} ms");
    assert_eq!(world.spec().lease_transitions, Some(1));
}

#[test]
fn what_is_given_back_is_taken_at_the_next_look() {
    let mut world = World::new(&["a", "b"], vec![(1, 1)]);
    world.run(Duration::from_secs(5));
    let leaver = world.leader().unwrap();
    let (mut candidate, _) = world.candidates.remove(leaver).unwrap();
    let lease = candidate.release(Timestamp::UNIX_EPOCH).unwrap();
    assert!(!candidate.leads(world.now));
    assert!(matches!(
        world.server.take(&Ask::Replace(lease)),
        Answer::Lease(_)
    ));
    assert_eq!(world.spec().holder_identity, None);
    let left = world.millis();
    world.run(Duration::from_secs(3));
    assert!(world.led[1].0 - left <= 1100, "{:?}", world.led);
}

#[test]
fn a_replica_that_starts_again_under_its_name_needn_t_wait() {
    let mut world = World::new(&["a"], vec![(1, 1)]);
    world.run(Duration::from_secs(5));
    let again = (Candidate::new(&config("a"), world.now), None);
    world.candidates.insert("a", again);
    assert_eq!(world.leader(), None);
    world.run(Duration::from_millis(200));
    assert_eq!(world.leader(), Some("a"));
    assert_eq!(world.spec().lease_transitions, Some(0));
}

#[test]
fn who_can_t_renew_stops_before_others_may_begin() {
    let mut world = World::new(&["a", "b"], vec![(1, 1)]);
    world.run(Duration::from_secs(5));
    let leader = world.leader().unwrap();
    let (candidate, sent) = world.candidates.get_mut(leader).unwrap();
    // From now on all its requests fail.
    *sent = None;
    let until = candidate.leads_until().unwrap();
    let mut now = candidate.asks_at();
    while now < until {
        assert!(candidate.leads(now));
        let ask = candidate.ask(Timestamp::UNIX_EPOCH);
        candidate.answered(&ask, Answer::Failed("away".to_owned()), now, now);
        now = candidate.asks_at();
    }
    assert!(!candidate.leads(now));
    assert!(until <= world.now + Times::default().deadline);
}

#[test]
fn who_sees_another_holder_stops_at_once() {
    let mut world = World::new(&["a"], vec![(1, 1)]);
    world.run(Duration::from_secs(5));
    let mut lease = world.server.lease.clone().unwrap();
    lease.spec.as_mut().unwrap().holder_identity = Some("b".to_owned());
    world.server.store(&lease);
    world.run(Duration::from_secs(3));
    assert_eq!(world.leader(), None);
}

#[test]
fn a_lease_that_was_deleted_is_made_again() {
    let mut world = World::new(&["a"], vec![(1, 1)]);
    world.run(Duration::from_secs(5));
    world.server.lease = None;
    world.run(Duration::from_secs(3));
    assert_eq!(world.spec().holder_identity.as_deref(), Some("a"));
    assert_eq!(world.led.len(), 1);
}

#[test]
fn a_lease_without_sense_doesn_t_keep_anybody_from_leading_for_ever() {
    for seconds in [None, Some(-5), Some(i32::MAX)] {
        let mut world = World::new(&["a"], vec![(1, 1)]);
        let mut lease = Lease::default();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some("gone".to_owned());
        spec.lease_duration_seconds = seconds;
        spec.lease_transitions = Some(i32::MAX);
        world.server.store(&lease);
        world.run(Duration::from_secs(9));
        assert_eq!(world.leader(), None);
        world.run(Duration::from_secs(53));
        assert_eq!(world.leader(), Some("a"), "{seconds:?}");
    }
}

#[test]
fn labels_of_a_lease_stay_and_count_as_no_sign_of_life() {
    let mut world = World::new(&["a", "b"], vec![(1, 1)]);
    world.run(Duration::from_secs(5));
    let dead = world.leader().unwrap();
    world.candidates.remove(dead);
    for n in 0..15 {
        let mut lease = world.server.lease.clone().unwrap();
        let labels = lease.metadata.labels.get_or_insert_default();
        labels.insert("touched".to_owned(), n.to_string());
        world.server.store(&lease);
        world.run(Duration::from_secs(1));
    }
    assert!(world.leader().is_some_and(|leader| leader != dead));
    let labels = world
        .server
        .lease
        .as_ref()
        .unwrap()
        .metadata
        .labels
        .as_ref();
    assert_eq!(labels.unwrap()["touched"], "14");
}

proptest! {
    /// Two replicas never lead at once, whatever the network's delay; after it recovers, one leads.
    #[test]
    fn never_do_two_lead(
        delays in prop::collection::vec((0..6000u64, 0..6000u64), 1..60),
        quick in prop::collection::vec((0..300u64, 0..300u64), 1..20),
        turns in prop::collection::vec((any::<bool>(), 0..3usize, 1..8u64), 1..20),
    ) {
        let names = ["a", "b", "c"];
        let mut world = World::new(&names, quick.clone());
        for (slow, restart, seconds) in turns {
            world.delays = if slow { delays.clone() } else { quick.clone() };
            if let Some(name) = names.get(restart) {
                let new = Candidate::new(&config(name), world.now);
                // It is killed during a request and starts again.
                let (_, sent) = world.candidates.insert(name, (new, None)).unwrap();
                if let Some(sent) = sent
                    && let Some(at) = sent.arrives
                {
                    world.lost.push((at, sent.ask));
                }
            }
            world.run(Duration::from_secs(seconds));
        }
        world.delays = quick;
        world.run(Duration::from_secs(30));
        prop_assert!(world.leader().is_some());
    }
}
