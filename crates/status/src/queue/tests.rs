use std::collections::BTreeMap;

use serde_json::json;
use serde_json::value::RawValue;
use sesame_api::{RouteStatus, condition};

use super::*;

mod random;

const OURS: &str = "projectsesame.io/gateway-controller";

/// A queue, a clock of its own, and the shortest ways to say things.
struct Bench {
    queue: Queue,
    start: Instant,
    now: Instant,
}

fn leading() -> Bench {
    let start = Instant::now();
    let mut bench = Bench {
        queue: Queue::new(OURS.into(), 4, Duration::ZERO),
        start,
        now: start,
    };
    bench.queue.lead(true, start);
    bench.queue.complete(start);
    bench
}

fn route(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::HTTPRoute, "default", name)
}

fn gateway(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::Gateway, "default", name)
}

fn status(generation: i64, message: &str) -> ObjectStatus {
    let accepted = condition::route::ACCEPTED;
    let condition = sesame_api::Condition::new(accepted, true, "Accepted", message, generation);
    let status = json!({"parents": [
        {"parentRef": {"name": "g"}, "controllerName": OURS, "conditions": [condition]}
    ]});
    ObjectStatus::Route(Arc::new(
        serde_json::from_value::<RouteStatus>(status).unwrap(),
    ))
}

fn live(version: u64, generation: i64) -> LiveStatus {
    LiveStatus {
        uid: "u".into(),
        resource_version: version.to_string().into(),
        generation,
        status: None,
    }
}

impl Bench {
    fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    fn says(&mut self, key: &ObjectKey, generation: i64, message: &str) {
        self.queue
            .desired(key.clone(), Some(status(generation, message)), self.now);
    }

    fn there(&mut self, key: &ObjectKey, live: LiveStatus) {
        self.queue.live(key.clone(), Some(live), self.now);
    }

    fn next(&mut self) -> Option<Job> {
        self.queue.next(self.now)
    }

    #[track_caller]
    fn starts(&mut self, key: &ObjectKey) -> Job {
        let job = self.next().expect("nothing starts");
        assert_eq!(&job.key, key);
        job
    }

    #[track_caller]
    fn idle(&mut self) {
        if let Some(job) = self.next() {
            panic!("{} starts", job.key);
        }
    }

    fn ended(&mut self, key: &ObjectKey, outcome: Outcome) -> Option<Duration> {
        self.queue.ended(key, outcome, self.now)
    }

    fn written(&mut self, key: &ObjectKey, version: u64) -> Option<Duration> {
        self.ended(key, Outcome::Written(live(version, 1), 0))
    }

    fn failed(&mut self, key: &ObjectKey, reason: Reason, retry_after: Option<u64>) {
        self.ended(
            key,
            Outcome::Failed(Failure {
                reason,
                message: "why".to_owned(),
                retry_after: retry_after.map(Duration::from_secs),
            }),
        );
    }

    /// After how many milliseconds, from the start, it is to be asked again.
    fn wakes(&self) -> Option<u128> {
        let at = self.queue.wake_at()?;
        Some(at.duration_since(self.start).as_millis())
    }
}

#[test]
fn envoys_have_a_head_start_however_often_an_object_changes() {
    let mut bench = leading();
    bench.queue.head_start = HEAD_START;
    let key = route("a");
    bench.there(&key, live(1, 1));
    let begin = bench.now;
    for change in 0..5 {
        bench.says(&key, 1, &change.to_string());
        assert!(bench.next().is_none(), "after {:?}", bench.now - begin);
        bench.wait(5);
    }
    assert_eq!(bench.now, begin + HEAD_START);
    bench.starts(&key);
}

#[test]
fn a_status_is_written_when_what_stands_there_is_known() {
    let mut bench = leading();
    bench.says(&route("a"), 1, "");
    bench.idle();
    bench.there(&route("a"), live(7, 1));
    let job = bench.starts(&route("a"));
    assert_eq!(&*job.live.resource_version, "7");
    assert!(matches!(job.want, Want::Says(_)));
    bench.wait(3);
    assert_eq!(
        bench.written(&route("a"), 8),
        Some(Duration::from_millis(3))
    );
    bench.idle();
    assert_eq!((bench.wakes(), bench.queue.len()), (None, 0));
}

#[test]
fn what_comes_while_a_write_is_under_way_is_written_once_after_its_answer() {
    let mut bench = leading();
    bench.there(&route("a"), live(7, 1));
    bench.says(&route("a"), 1, "1");
    bench.starts(&route("a"));
    for message in ["2", "3", "4"] {
        bench.says(&route("a"), 1, message);
    }
    bench.idle();
    bench.wait(30);
    bench.written(&route("a"), 8);
    bench.idle();
    assert_eq!(bench.wakes(), Some(100));
    bench.wait(70);
    let job = bench.starts(&route("a"));
    assert_eq!(&*job.live.resource_version, "8");
    let Want::Says(said) = job.want else { panic!() };
    assert_eq!(said, status(1, "4"));
}

#[test]
fn a_gateway_that_changes_a_thousand_times_is_written_four_times_a_second() {
    let mut bench = leading();
    bench.there(&gateway("g"), live(1, 1));
    let mut writes = 0;
    for n in 0..1000 {
        bench.says(&gateway("g"), 1, &n.to_string());
        if bench.next().is_some() {
            writes += 1;
            bench.written(&gateway("g"), 1 + writes);
        }
        bench.wait(1);
    }
    assert_eq!(writes, 4);
}

#[test]
fn the_echo_of_a_write_asks_for_nothing() {
    let mut bench = leading();
    bench.there(&route("a"), live(7, 1));
    bench.says(&route("a"), 1, "");
    bench.starts(&route("a"));
    bench.there(&route("a"), live(8, 1));
    bench.written(&route("a"), 8);
    assert_eq!(bench.queue.len(), 0);
    bench.there(&route("a"), live(8, 1));
    bench.there(&route("a"), live(7, 1));
    assert_eq!(bench.queue.len(), 0);
    // One that is later is somebody else's.
    bench.there(&route("a"), live(9, 1));
    assert_eq!(bench.queue.len(), 1);
}

#[test]
fn only_a_leader_writes_and_who_comes_to_lead_looks_at_everything() {
    let mut bench = leading();
    bench.queue.lead(false, bench.now);
    for name in ["a", "b"] {
        bench.there(&route(name), live(7, 1));
        bench.says(&route(name), 1, "");
    }
    bench.idle();
    assert_eq!((bench.wakes(), bench.queue.len()), (None, 0));
    bench.wait(60_000);
    bench.queue.lead(true, bench.now);
    bench.starts(&route("a"));
    bench.starts(&route("b"));
    bench.wait(2);
    assert_eq!(
        bench.written(&route("a"), 8),
        Some(Duration::from_millis(2))
    );
    bench.queue.lead(false, bench.now);
    bench.failed(&route("b"), Reason::Failed, None);
    bench.wait(60_000);
    bench.idle();
    assert_eq!(bench.queue.troubles(), []);
}

#[test]
fn gateways_and_routes_take_turns() {
    let mut bench = leading();
    for n in 0..4 {
        let key = route(&n.to_string());
        bench.there(&key, live(1, 1));
        bench.says(&key, 1, "");
    }
    for n in 0..2 {
        let key = gateway(&n.to_string());
        bench.there(&key, live(1, 1));
        bench.says(&key, 1, "");
    }
    let mut order = Vec::new();
    while let Some(job) = bench.next() {
        order.push(job.key.to_string());
        bench.written(&job.key, 2);
    }
    let mut kinds = order.iter().map(|key| key.starts_with("Gateway"));
    let first: Vec<_> = kinds.by_ref().take(4).collect();
    assert!(first == [true, false, true, false] || first == [false, true, false, true]);
    assert_eq!(order.len(), 6);
    let routes: Vec<_> = order.iter().filter(|key| key.starts_with("HTTP")).collect();
    assert!(routes.is_sorted(), "{routes:?}");
}

#[test]
fn no_more_are_under_way_than_may_be() {
    let mut bench = leading();
    for n in 0..6 {
        let key = route(&n.to_string());
        bench.there(&key, live(1, 1));
        bench.says(&key, 1, "");
    }
    for n in 0..4 {
        bench.starts(&route(&n.to_string()));
    }
    bench.idle();
    bench.written(&route("2"), 2);
    bench.starts(&route("4"));
    bench.idle();
}

#[test]
fn an_older_status_waits_for_a_newer_one_and_is_then_written_all_the_same() {
    let mut bench = leading();
    bench.there(&route("a"), live(7, 2));
    bench.says(&route("a"), 1, "");
    bench.idle();
    assert_eq!(bench.wakes(), Some(1000));
    bench.wait(400);
    bench.says(&route("a"), 2, "");
    bench.starts(&route("a"));
    bench.ended(&route("a"), Outcome::Written(live(8, 2), 0));
    bench.there(&route("a"), live(9, 3));
    bench.wait(999);
    bench.idle();
    // Others' changes don't put it off.
    bench.there(&route("a"), live(10, 3));
    bench.wait(1);
    bench.starts(&route("a"));
    bench.ended(&route("a"), Outcome::Behind);
    bench.wait(60_000);
    bench.idle();
}

#[test]
fn a_newer_status_waits_until_the_cluster_shows_its_generation() {
    let mut bench = leading();
    bench.there(&route("a"), live(7, 1));
    bench.says(&route("a"), 2, "");
    bench.wait(60_000);
    bench.idle();
    bench.there(&route("a"), live(8, 2));
    bench.starts(&route("a"));
}

#[test]
fn after_a_conflict_the_newest_is_written_over_what_stands_there() {
    let mut bench = leading();
    bench.there(&route("a"), live(7, 1));
    bench.says(&route("a"), 1, "1");
    bench.starts(&route("a"));
    bench.says(&route("a"), 1, "2");
    bench.ended(&route("a"), Outcome::Conflict(live(9, 1)));
    let job = bench.starts(&route("a"));
    assert_eq!(&*job.live.resource_version, "9");
    let Want::Says(said) = job.want else { panic!() };
    assert_eq!(said, status(1, "2"));
    // Two are at it: what follows comes in growing steps.
    let mut waits = Vec::new();
    for version in 10..16 {
        bench.ended(&route("a"), Outcome::Conflict(live(version, 1)));
        let at = bench.queue.wake_at().unwrap_or(bench.now);
        waits.push(at.duration_since(bench.now).as_millis());
        bench.now = at;
        bench.starts(&route("a"));
    }
    assert_eq!(waits, [0, 5, 15, 35, 75, 155]);
}

#[test]
fn who_undoes_what_we_write_makes_us_slower_and_a_new_status_makes_us_fast_again() {
    let mut bench = leading();
    bench.there(&route("a"), live(1, 1));
    bench.says(&route("a"), 1, "");
    let mut version = 1;
    let mut waits = Vec::new();
    for _ in 0..6 {
        let from = bench.now;
        while bench.next().is_none() {
            bench.now = bench.queue.wake_at().unwrap();
        }
        waits.push(bench.now.duration_since(from).as_millis());
        bench.written(&route("a"), version + 1);
        version += 2;
        bench.there(&route("a"), live(version, 1));
    }
    assert_eq!(waits, [0, 100, 100, 200, 400, 800]);
    bench.says(&route("a"), 1, "new");
    while bench.next().is_none() {
        bench.now = bench.queue.wake_at().unwrap();
    }
    bench.written(&route("a"), version + 1);
    bench.says(&route("a"), 1, "newer");
    assert_eq!(bench.queue.wake_at(), Some(bench.now + INTERVAL));
}

#[test]
fn a_server_that_takes_no_more_gets_one_write_to_try_with() {
    let mut bench = leading();
    for n in 0..4 {
        let key = route(&n.to_string());
        bench.there(&key, live(1, 1));
        bench.says(&key, 1, "");
        bench.starts(&key);
    }
    for n in 0..4 {
        bench.failed(&route(&n.to_string()), Reason::Unanswered, None);
    }
    bench.idle();
    assert_eq!(bench.wakes(), Some(250));
    let trouble = bench.queue.troubles().remove(0);
    assert_eq!((trouble.reason, trouble.objects), (Reason::Unanswered, 4));
    bench.wait(250);
    let tries = bench.next().unwrap();
    bench.idle();
    assert_eq!(bench.wakes(), None, "the answer comes first");
    bench.failed(&tries.key, Reason::Unanswered, None);
    bench.idle();
    assert_eq!(bench.wakes(), Some(250 + 500));
    bench.wait(500);
    let tries = bench.next().unwrap();
    bench.failed(&tries.key, Reason::Unanswered, Some(7));
    assert_eq!(bench.wakes(), Some(250 + 500 + 7000));
    bench.wait(7000);
    let tries = bench.next().unwrap();
    bench.written(&tries.key, 2);
    for _ in 0..3 {
        let job = bench.next().unwrap();
        bench.written(&job.key, 2);
    }
    assert_eq!(bench.queue.troubles(), []);
}

#[test]
fn a_status_that_is_refused_is_tried_seldom_and_another_one_at_once() {
    let mut bench = leading();
    bench.there(&route("a"), live(1, 1));
    bench.says(&route("a"), 1, "bad");
    let mut waits = Vec::new();
    for _ in 0..7 {
        bench.starts(&route("a"));
        bench.failed(&route("a"), Reason::Refused, None);
        let at = bench.queue.wake_at().unwrap();
        waits.push(at.duration_since(bench.now).as_secs());
        bench.now = at;
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60]);
    bench.starts(&route("a"));
    bench.failed(&route("a"), Reason::Refused, None);
    let trouble = bench.queue.troubles().remove(0);
    assert_eq!(
        (trouble.reason, &*trouble.message),
        (Reason::Refused, "why")
    );
    // Others' changes don't make it better.
    bench.there(&route("a"), live(2, 1));
    bench.idle();
    bench.says(&route("a"), 1, "good");
    bench.starts(&route("a"));
    bench.written(&route("a"), 3);
    assert_eq!(bench.queue.troubles(), []);
}

#[test]
fn other_objects_go_on_while_one_fails() {
    let mut bench = leading();
    for (name, reason) in [("a", Reason::Failed), ("b", Reason::Forbidden)] {
        bench.there(&route(name), live(1, 1));
        bench.says(&route(name), 1, "");
        bench.starts(&route(name));
        bench.failed(&route(name), reason, None);
    }
    bench.there(&route("c"), live(1, 1));
    bench.says(&route("c"), 1, "");
    bench.starts(&route("c"));
    assert_eq!(bench.wakes(), Some(200));
    assert_eq!(bench.queue.troubles().len(), 2);
}

#[test]
fn an_object_that_is_gone_is_forgotten() {
    let mut bench = leading();
    bench.there(&route("a"), live(1, 1));
    bench.says(&route("a"), 1, "");
    bench.starts(&route("a"));
    bench.ended(&route("a"), Outcome::Gone);
    bench.idle();
    bench.queue.live(route("a"), None, bench.now);
    bench.queue.desired(route("a"), None, bench.now);
    assert!(bench.queue.slots.is_empty());
    // Whoever goes while it waits leaves nothing either.
    bench.there(&route("b"), live(1, 1));
    bench.says(&route("b"), 1, "");
    bench.queue.desired(route("b"), None, bench.now);
    bench.queue.live(route("b"), None, bench.now);
    bench.idle();
    assert!(bench.queue.slots.is_empty() && bench.queue.timers.is_empty());
    assert_eq!(bench.queue.len(), 0);
}

#[test]
fn another_object_of_the_same_name_is_another_object() {
    let mut bench = leading();
    bench.there(&route("a"), live(9, 5));
    bench.says(&route("a"), 5, "");
    bench.starts(&route("a"));
    let other = LiveStatus {
        uid: "v".into(),
        ..live(12, 1)
    };
    bench.there(&route("a"), other);
    bench.ended(&route("a"), Outcome::Written(live(13, 5), 0));
    bench.wait(1000);
    bench.idle();
    bench.says(&route("a"), 1, "");
    let job = bench.starts(&route("a"));
    assert_eq!((&*job.live.uid, &*job.live.resource_version), ("v", "12"));
}

#[test]
fn entries_of_ours_that_nobody_speaks_of_go_when_all_has_been_judged() {
    let mut bench = leading();
    bench.queue = Queue::new(OURS.into(), 4, Duration::ZERO);
    bench.queue.lead(true, bench.now);
    let with = |text: &str| LiveStatus {
        status: Some(RawValue::from_string(text.to_owned()).unwrap()),
        ..live(1, 1)
    };
    let ours = format!(r#"{{"parents":[{{"controllerName":"{OURS}"}}]}}"#);
    bench.there(&route("ours"), with(&ours));
    bench.there(&route("spoken"), with(&ours));
    bench.there(&route("foreign"), with(r#"{"parents":[]}"#));
    bench.there(&gateway("g"), with(&ours));
    bench.wait(60_000);
    bench.idle();
    bench.says(&route("spoken"), 1, "");
    bench.starts(&route("spoken"));
    bench.ended(&route("spoken"), Outcome::Right);
    bench.queue.complete(bench.now);
    let job = bench.starts(&route("ours"));
    assert!(matches!(job.want, Want::Nothing(None)));
    bench.written(&route("ours"), 2);
    bench.idle();
    // Who comes later may be spoken of in a moment.
    bench.there(&route("later"), with(&ours));
    bench.idle();
    bench.wait(1999);
    bench.idle();
    bench.wait(1);
    bench.starts(&route("later"));
}

#[test]
fn what_was_said_is_known_until_it_has_been_taken_back() {
    let mut bench = leading();
    bench.there(&gateway("g"), live(1, 1));
    bench.says(&gateway("g"), 1, "said");
    bench.starts(&gateway("g"));
    bench.written(&gateway("g"), 2);
    bench.queue.desired(gateway("g"), None, bench.now);
    bench.wait(250);
    let job = bench.starts(&gateway("g"));
    let Want::Nothing(Some(said)) = job.want else {
        panic!()
    };
    assert_eq!(said, status(1, "said"));
    bench.written(&gateway("g"), 3);
    bench.there(&gateway("g"), live(4, 1));
    bench.idle();
    assert_eq!(bench.queue.len(), 0);
}

#[test]
fn a_list_that_is_full_is_a_trouble_until_there_is_room() {
    let mut bench = leading();
    bench.there(&route("a"), live(1, 1));
    bench.says(&route("a"), 1, "");
    bench.starts(&route("a"));
    bench.ended(&route("a"), Outcome::Written(live(2, 1), 3));
    assert_eq!(bench.queue.troubles()[0].reason, Reason::Full);
    bench.there(&route("a"), live(3, 1));
    bench.wait(100);
    bench.starts(&route("a"));
    bench.written(&route("a"), 4);
    assert_eq!(bench.queue.troubles(), []);
}
