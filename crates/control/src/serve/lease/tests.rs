use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

mod api_server;

fn config(identity: &str) -> LeaseConfig {
    LeaseConfig::new("sesame-system", identity)
}

/// A fake API server with one Lease.
#[derive(Default)]
struct FakeServer {
    lease: Option<Lease>,
    version: u64,
}

impl FakeServer {
    fn store(&mut self, lease: &Lease) -> LeaseResponse {
        self.version += 1;
        let mut lease = lease.clone();
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        LeaseResponse::Lease(Box::new(lease))
    }

    fn handle(&mut self, request: &LeaseRequest) -> LeaseResponse {
        match (request, &self.lease) {
            (LeaseRequest::Get, Some(lease)) => LeaseResponse::Lease(Box::new(lease.clone())),
            (LeaseRequest::Create(_), Some(_)) => LeaseResponse::Conflict,
            (LeaseRequest::Create(lease), None) => self.store(lease),
            (LeaseRequest::Replace(new), Some(old))
                if new.metadata.resource_version != old.metadata.resource_version =>
            {
                LeaseResponse::Conflict
            }
            (LeaseRequest::Replace(lease), Some(_)) => self.store(lease),
            (LeaseRequest::Get | LeaseRequest::Replace(_), None) => LeaseResponse::NotFound,
        }
    }
}

/// A request in flight.
struct InFlight {
    sent_at: Instant,
    request: LeaseRequest,
    /// When it reaches the server; `None` if it already has.
    arrives_at: Option<Instant>,
    /// The response, and when it reaches the candidate.
    response: Option<LeaseResponse>,
    responds_at: Instant,
}

/// Candidates, a server, and a network with configurable delays.
struct Simulation {
    server: FakeServer,
    now: Instant,
    start: Instant,
    candidates: BTreeMap<&'static str, (Candidate, Option<InFlight>)>,
    /// Requests that timed out at the candidate and may still reach the server.
    delayed: Vec<(Instant, LeaseRequest)>,
    /// Delays in milliseconds to the server and back, used in turn.
    delays: Vec<(u64, u64)>,
    next_delay: usize,
    /// Each new leader, and when it became the leader, in milliseconds.
    leaders: Vec<(u128, &'static str)>,
}

const TICK: Duration = Duration::from_millis(20);

impl Simulation {
    fn new(names: &[&'static str], delays: Vec<(u64, u64)>) -> Self {
        let start = Instant::now();
        let new = |name: &&'static str| (*name, (Candidate::new(&config(name), start), None));
        Simulation {
            server: FakeServer::default(),
            now: start,
            start,
            candidates: names.iter().map(new).collect(),
            delayed: Vec::new(),
            delays,
            next_delay: 0,
            leaders: Vec::new(),
        }
    }

    fn millis(&self) -> u128 {
        self.now.duration_since(self.start).as_millis()
    }

    fn leader(&self) -> Option<&'static str> {
        let leaders = self
            .candidates
            .iter()
            .filter(|(_, (c, _))| c.is_leader(self.now));
        let leaders: Vec<_> = leaders.map(|(name, _)| *name).collect();
        assert!(
            leaders.len() < 2,
            "{leaders:?} are leaders at the same time, after {} ms",
            self.millis()
        );
        leaders.first().copied()
    }

    fn delay(&mut self) -> (Duration, Duration) {
        let (request, response) = self.delays[self.next_delay % self.delays.len()];
        self.next_delay += 1;
        (
            Duration::from_millis(request),
            Duration::from_millis(response),
        )
    }

    fn tick(&mut self) {
        self.now += TICK;
        let now = self.now;
        let arrived: Vec<_> = self.delayed.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, request) in arrived {
            self.server.handle(&request);
        }
        let names: Vec<_> = self.candidates.keys().copied().collect();
        for name in names {
            let (request_delay, response_delay) = self.delay();
            let (candidate, sent) = self.candidates.get_mut(name).unwrap();
            if let Some(request) = sent {
                if request.arrives_at.is_some_and(|at| at <= now) {
                    request.arrives_at = None;
                    request.response = Some(self.server.handle(&request.request));
                }
                if request.sent_at + Timings::default().request_timeout <= now {
                    if let Some(at) = request.arrives_at {
                        self.delayed.push((at, request.request.clone()));
                    }
                    let failed = LeaseResponse::Failed(String::new());
                    candidate.handle_response(&request.request, failed, request.sent_at, now);
                    *sent = None;
                } else if request.response.is_some() && request.responds_at <= now {
                    let response = request.response.take().unwrap();
                    candidate.handle_response(&request.request, response, request.sent_at, now);
                    *sent = None;
                }
            }
            if sent.is_none() && candidate.next_request_at() <= now {
                *sent = Some(InFlight {
                    sent_at: now,
                    request: candidate
                        .next_request(Timestamp::UNIX_EPOCH + now.duration_since(self.start)),
                    arrives_at: Some(now + request_delay),
                    response: None,
                    responds_at: now + request_delay + response_delay,
                });
            }
        }
        if let Some(leader) = self.leader()
            && self.leaders.last().is_none_or(|(_, last)| *last != leader)
        {
            self.leaders.push((self.millis(), leader));
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
fn the_first_candidate_leads_and_renews() {
    let mut simulation = Simulation::new(&["a", "b"], vec![(1, 1)]);
    simulation.run(Duration::from_secs(60));
    assert_eq!(simulation.leaders.len(), 1);
    // One renewal every two seconds, and no other write.
    assert!(
        (29..=31).contains(&simulation.server.version),
        "{}",
        simulation.server.version
    );
    assert_eq!(simulation.spec().lease_transitions, Some(0));
    assert_eq!(simulation.spec().lease_duration_seconds, Some(10));
}

#[test]
fn a_dead_leader_is_replaced_after_its_lease_expires() {
    let mut simulation = Simulation::new(&["a", "b"], vec![(1, 1)]);
    simulation.run(Duration::from_secs(5));
    let dead = simulation.leader().unwrap();
    simulation.candidates.remove(dead);
    let died = simulation.millis();
    simulation.run(Duration::from_secs(20));
    let (at, successor) = simulation.leaders[1];
    assert_ne!(successor, dead);
    let after = at - died;
    assert!((8000..12_000).contains(&after), "{after} ms");
    assert_eq!(simulation.spec().lease_transitions, Some(1));
}

#[test]
fn a_released_lease_is_acquired_at_the_next_poll() {
    let mut simulation = Simulation::new(&["a", "b"], vec![(1, 1)]);
    simulation.run(Duration::from_secs(5));
    let former = simulation.leader().unwrap();
    let (mut candidate, _) = simulation.candidates.remove(former).unwrap();
    let lease = candidate.release(Timestamp::UNIX_EPOCH).unwrap();
    assert!(!candidate.is_leader(simulation.now));
    assert!(matches!(
        simulation.server.handle(&LeaseRequest::Replace(lease)),
        LeaseResponse::Lease(_)
    ));
    assert_eq!(simulation.spec().holder_identity, None);
    let released = simulation.millis();
    simulation.run(Duration::from_secs(3));
    assert!(
        simulation.leaders[1].0 - released <= 1100,
        "{:?}",
        simulation.leaders
    );
}

#[test]
fn a_restarted_replica_with_the_same_name_leads_at_once() {
    let mut simulation = Simulation::new(&["a"], vec![(1, 1)]);
    simulation.run(Duration::from_secs(5));
    let restarted = (Candidate::new(&config("a"), simulation.now), None);
    simulation.candidates.insert("a", restarted);
    assert_eq!(simulation.leader(), None);
    simulation.run(Duration::from_millis(200));
    assert_eq!(simulation.leader(), Some("a"));
    assert_eq!(simulation.spec().lease_transitions, Some(0));
}

#[test]
fn a_leader_that_cannot_renew_stops_before_the_lease_expires() {
    let mut simulation = Simulation::new(&["a", "b"], vec![(1, 1)]);
    simulation.run(Duration::from_secs(5));
    let leader = simulation.leader().unwrap();
    let (candidate, sent) = simulation.candidates.get_mut(leader).unwrap();
    // From now on, all its requests fail.
    *sent = None;
    let until = candidate.leader_until().unwrap();
    let mut now = candidate.next_request_at();
    while now < until {
        assert!(candidate.is_leader(now));
        let request = candidate.next_request(Timestamp::UNIX_EPOCH);
        candidate.handle_response(
            &request,
            LeaseResponse::Failed("unavailable".to_owned()),
            now,
            now,
        );
        now = candidate.next_request_at();
    }
    assert!(!candidate.is_leader(now));
    assert!(until <= simulation.now + Timings::default().renew_deadline);
}

#[test]
fn a_leader_that_sees_another_holder_steps_down() {
    let mut simulation = Simulation::new(&["a"], vec![(1, 1)]);
    simulation.run(Duration::from_secs(5));
    let mut lease = simulation.server.lease.clone().unwrap();
    lease.spec.as_mut().unwrap().holder_identity = Some("b".to_owned());
    simulation.server.store(&lease);
    simulation.run(Duration::from_secs(3));
    assert_eq!(simulation.leader(), None);
}

#[test]
fn a_deleted_lease_is_created_again() {
    let mut simulation = Simulation::new(&["a"], vec![(1, 1)]);
    simulation.run(Duration::from_secs(5));
    simulation.server.lease = None;
    simulation.run(Duration::from_secs(3));
    assert_eq!(simulation.spec().holder_identity.as_deref(), Some("a"));
    assert_eq!(simulation.leaders.len(), 1);
}

#[test]
fn an_invalid_lease_expires() {
    for seconds in [None, Some(-5), Some(i32::MAX)] {
        let mut simulation = Simulation::new(&["a"], vec![(1, 1)]);
        let mut lease = Lease::default();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some("gone".to_owned());
        spec.lease_duration_seconds = seconds;
        spec.lease_transitions = Some(i32::MAX);
        simulation.server.store(&lease);
        simulation.run(Duration::from_secs(9));
        assert_eq!(simulation.leader(), None);
        simulation.run(Duration::from_secs(53));
        assert_eq!(simulation.leader(), Some("a"), "{seconds:?}");
    }
}

#[test]
fn changed_lease_labels_are_kept_and_do_not_count_as_a_renewal() {
    let mut simulation = Simulation::new(&["a", "b"], vec![(1, 1)]);
    simulation.run(Duration::from_secs(5));
    let dead = simulation.leader().unwrap();
    simulation.candidates.remove(dead);
    for n in 0..15 {
        let mut lease = simulation.server.lease.clone().unwrap();
        let labels = lease.metadata.labels.get_or_insert_default();
        labels.insert("touched".to_owned(), n.to_string());
        simulation.server.store(&lease);
        simulation.run(Duration::from_secs(1));
    }
    assert!(simulation.leader().is_some_and(|leader| leader != dead));
    let labels = simulation
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
    /// There are never two leaders, however long the network delays; once the delays are short, there is one.
    #[test]
    fn there_are_never_two_leaders(
        delays in prop::collection::vec((0..6000u64, 0..6000u64), 1..60),
        quick in prop::collection::vec((0..300u64, 0..300u64), 1..20),
        turns in prop::collection::vec((any::<bool>(), 0..3usize, 1..8u64), 1..20),
    ) {
        let names = ["a", "b", "c"];
        let mut simulation = Simulation::new(&names, quick.clone());
        for (slow, restart, seconds) in turns {
            simulation.delays = if slow { delays.clone() } else { quick.clone() };
            if let Some(name) = names.get(restart) {
                let new = Candidate::new(&config(name), simulation.now);
                // Killed during a request, and restarted.
                let (_, sent) = simulation.candidates.insert(name, (new, None)).unwrap();
                if let Some(sent) = sent
                    && let Some(at) = sent.arrives_at
                {
                    simulation.delayed.push((at, sent.request));
                }
            }
            simulation.run(Duration::from_secs(seconds));
        }
        simulation.delays = quick;
        simulation.run(Duration::from_secs(30));
        prop_assert!(simulation.leader().is_some());
    }
}
