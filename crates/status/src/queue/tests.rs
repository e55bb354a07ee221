use std::collections::BTreeMap;

use serde_json::json;
use serde_json::value::RawValue;
use sesame_api::{RouteStatus, condition};

use super::*;

mod random;

const OURS: &str = "projectsesame.io/gateway-controller";

/// A queue with a simulated clock.
struct Fixture {
    queue: Queue,
    start: Instant,
    now: Instant,
}

fn leading() -> Fixture {
    let start = Instant::now();
    let mut fixture = Fixture {
        queue: Queue::new(OURS.into(), 4, Duration::ZERO),
        start,
        now: start,
    };
    fixture.queue.set_leading(true, start);
    fixture.queue.mark_complete(start);
    fixture
}

fn route(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::HTTPRoute, "default", name)
}

fn gateway(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::Gateway, "default", name)
}

fn status(generation: i64, message: &str) -> ObjectStatus {
    let accepted = condition::route::ACCEPTED;
    let condition =
        sesame_api::Condition::new(accepted, true, "Accepted", message.to_owned(), generation);
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

impl Fixture {
    fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    fn set_desired(&mut self, key: &ObjectKey, generation: i64, message: &str) {
        self.queue
            .set_desired(key.clone(), Some(status(generation, message)), self.now);
    }

    fn set_live(&mut self, key: &ObjectKey, live: LiveStatus) {
        self.queue.set_live(key.clone(), Some(live), self.now);
    }

    fn next(&mut self) -> Option<Job> {
        self.queue.next(self.now)
    }

    #[track_caller]
    fn expect_start(&mut self, key: &ObjectKey) -> Job {
        let job = self.next().expect("a job starts");
        assert_eq!(&job.key, key);
        job
    }

    #[track_caller]
    fn expect_none(&mut self) {
        if let Some(job) = self.next() {
            panic!("{} starts", job.key);
        }
    }

    fn finish(&mut self, key: &ObjectKey, outcome: Outcome) {
        self.queue.finish(key, outcome, self.now);
    }

    fn written(&mut self, key: &ObjectKey, version: u64) {
        self.finish(key, Outcome::Written(live(version, 1), 0));
    }

    fn failed(&mut self, key: &ObjectKey, reason: FailureReason, retry_after: Option<u64>) {
        self.finish(
            key,
            Outcome::Failed(WriteFailure {
                reason,
                message: "why".to_owned(),
                retry_after: retry_after.map(Duration::from_secs),
            }),
        );
    }

    /// Milliseconds from the start to the next wake-up.
    fn wake_after_ms(&self) -> Option<u128> {
        let at = self.queue.wake_at()?;
        Some(at.duration_since(self.start).as_millis())
    }
}

#[test]
fn a_changing_status_is_written_after_the_initial_delay() {
    let mut fixture = leading();
    fixture.queue.initial_delay = INITIAL_DELAY;
    let key = route("a");
    fixture.set_live(&key, live(1, 1));
    let begin = fixture.now;
    for change in 0..5 {
        fixture.set_desired(&key, 1, &change.to_string());
        assert!(fixture.next().is_none(), "after {:?}", fixture.now - begin);
        fixture.wait(5);
    }
    assert_eq!(fixture.now, begin + INITIAL_DELAY);
    fixture.expect_start(&key);
}

#[test]
fn a_status_is_written_once_the_live_status_is_known() {
    let mut fixture = leading();
    fixture.set_desired(&route("a"), 1, "");
    fixture.expect_none();
    fixture.set_live(&route("a"), live(7, 1));
    let job = fixture.expect_start(&route("a"));
    assert_eq!(&*job.live.resource_version, "7");
    assert!(matches!(job.desired, Desired::Status(_)));
    fixture.wait(3);
    fixture.written(&route("a"), 8);
    fixture.expect_none();
    assert_eq!((fixture.wake_after_ms(), fixture.queue.len()), (None, 0));
}

#[test]
fn changes_during_a_write_are_written_together_afterwards() {
    let mut fixture = leading();
    fixture.set_live(&route("a"), live(7, 1));
    fixture.set_desired(&route("a"), 1, "1");
    fixture.expect_start(&route("a"));
    for message in ["2", "3", "4"] {
        fixture.set_desired(&route("a"), 1, message);
    }
    fixture.expect_none();
    fixture.wait(30);
    fixture.written(&route("a"), 8);
    fixture.expect_none();
    assert_eq!(fixture.wake_after_ms(), Some(100));
    fixture.wait(70);
    let job = fixture.expect_start(&route("a"));
    assert_eq!(&*job.live.resource_version, "8");
    let Desired::Status(desired) = job.desired else {
        panic!()
    };
    assert_eq!(desired, status(1, "4"));
}

#[test]
fn a_gateway_is_written_at_most_four_times_a_second() {
    let mut fixture = leading();
    fixture.set_live(&gateway("g"), live(1, 1));
    let mut writes = 0;
    for n in 0..1000 {
        fixture.set_desired(&gateway("g"), 1, &n.to_string());
        if fixture.next().is_some() {
            writes += 1;
            fixture.written(&gateway("g"), 1 + writes);
        }
        fixture.wait(1);
    }
    assert_eq!(writes, 4);
}

#[test]
fn the_watch_event_for_our_own_write_causes_no_job() {
    let mut fixture = leading();
    fixture.set_live(&route("a"), live(7, 1));
    fixture.set_desired(&route("a"), 1, "");
    fixture.expect_start(&route("a"));
    fixture.set_live(&route("a"), live(8, 1));
    fixture.written(&route("a"), 8);
    assert_eq!(fixture.queue.len(), 0);
    fixture.set_live(&route("a"), live(8, 1));
    fixture.set_live(&route("a"), live(7, 1));
    assert_eq!(fixture.queue.len(), 0);
    // A later version comes from another client.
    fixture.set_live(&route("a"), live(9, 1));
    assert_eq!(fixture.queue.len(), 1);
}

#[test]
fn only_the_leader_writes_and_a_new_leader_compares_everything() {
    let mut fixture = leading();
    fixture.queue.set_leading(false, fixture.now);
    for name in ["a", "b"] {
        fixture.set_live(&route(name), live(7, 1));
        fixture.set_desired(&route(name), 1, "");
    }
    fixture.expect_none();
    assert_eq!((fixture.wake_after_ms(), fixture.queue.len()), (None, 0));
    fixture.wait(60_000);
    fixture.queue.set_leading(true, fixture.now);
    fixture.expect_start(&route("a"));
    fixture.expect_start(&route("b"));
    fixture.wait(2);
    fixture.written(&route("a"), 8);
    fixture.queue.set_leading(false, fixture.now);
    fixture.failed(&route("b"), FailureReason::ServerError, None);
    fixture.wait(60_000);
    fixture.expect_none();
    assert_eq!(fixture.queue.failures(), []);
}

#[test]
fn gateways_and_routes_take_turns() {
    let mut fixture = leading();
    for n in 0..4 {
        let key = route(&n.to_string());
        fixture.set_live(&key, live(1, 1));
        fixture.set_desired(&key, 1, "");
    }
    for n in 0..2 {
        let key = gateway(&n.to_string());
        fixture.set_live(&key, live(1, 1));
        fixture.set_desired(&key, 1, "");
    }
    let mut order = Vec::new();
    while let Some(job) = fixture.next() {
        order.push(job.key.to_string());
        fixture.written(&job.key, 2);
    }
    let mut kinds = order.iter().map(|key| key.starts_with("Gateway"));
    let first: Vec<_> = kinds.by_ref().take(4).collect();
    assert!(first == [true, false, true, false] || first == [false, true, false, true]);
    assert_eq!(order.len(), 6);
    let routes: Vec<_> = order.iter().filter(|key| key.starts_with("HTTP")).collect();
    assert!(routes.is_sorted(), "{routes:?}");
}

#[test]
fn the_number_of_concurrent_writes_is_limited() {
    let mut fixture = leading();
    for n in 0..6 {
        let key = route(&n.to_string());
        fixture.set_live(&key, live(1, 1));
        fixture.set_desired(&key, 1, "");
    }
    for n in 0..4 {
        fixture.expect_start(&route(&n.to_string()));
    }
    fixture.expect_none();
    fixture.written(&route("2"), 2);
    fixture.expect_start(&route("4"));
    fixture.expect_none();
}

#[test]
fn a_stale_status_waits_for_a_newer_one_and_is_then_written() {
    let mut fixture = leading();
    fixture.set_live(&route("a"), live(7, 2));
    fixture.set_desired(&route("a"), 1, "");
    fixture.expect_none();
    assert_eq!(fixture.wake_after_ms(), Some(1000));
    fixture.wait(400);
    fixture.set_desired(&route("a"), 2, "");
    fixture.expect_start(&route("a"));
    fixture.finish(&route("a"), Outcome::Written(live(8, 2), 0));
    fixture.set_live(&route("a"), live(9, 3));
    fixture.wait(999);
    fixture.expect_none();
    // Foreign changes don't delay it.
    fixture.set_live(&route("a"), live(10, 3));
    fixture.wait(1);
    fixture.expect_start(&route("a"));
    fixture.finish(&route("a"), Outcome::Stale);
    fixture.wait(60_000);
    fixture.expect_none();
}

#[test]
fn a_newer_status_waits_until_its_generation_is_live() {
    let mut fixture = leading();
    fixture.set_live(&route("a"), live(7, 1));
    fixture.set_desired(&route("a"), 2, "");
    fixture.wait(60_000);
    fixture.expect_none();
    fixture.set_live(&route("a"), live(8, 2));
    fixture.expect_start(&route("a"));
}

#[test]
fn after_a_conflict_the_newest_status_is_written_over_the_live_one() {
    let mut fixture = leading();
    fixture.set_live(&route("a"), live(7, 1));
    fixture.set_desired(&route("a"), 1, "1");
    fixture.expect_start(&route("a"));
    fixture.set_desired(&route("a"), 1, "2");
    fixture.finish(&route("a"), Outcome::Conflict(live(9, 1)));
    let job = fixture.expect_start(&route("a"));
    assert_eq!(&*job.live.resource_version, "9");
    let Desired::Status(desired) = job.desired else {
        panic!()
    };
    assert_eq!(desired, status(1, "2"));
    // Further conflicts back off.
    let mut delays = Vec::new();
    for version in 10..16 {
        fixture.finish(&route("a"), Outcome::Conflict(live(version, 1)));
        let at = fixture.queue.wake_at().unwrap_or(fixture.now);
        delays.push(at.duration_since(fixture.now).as_millis());
        fixture.now = at;
        fixture.expect_start(&route("a"));
    }
    assert_eq!(delays, [0, 5, 15, 35, 75, 155]);
}

#[test]
fn writes_back_off_while_they_are_reverted() {
    let mut fixture = leading();
    fixture.set_live(&route("a"), live(1, 1));
    fixture.set_desired(&route("a"), 1, "");
    let mut version = 1;
    let mut delays = Vec::new();
    for _ in 0..6 {
        let from = fixture.now;
        while fixture.next().is_none() {
            fixture.now = fixture.queue.wake_at().unwrap();
        }
        delays.push(fixture.now.duration_since(from).as_millis());
        fixture.written(&route("a"), version + 1);
        version += 2;
        fixture.set_live(&route("a"), live(version, 1));
    }
    assert_eq!(delays, [0, 100, 100, 200, 400, 800]);
    fixture.set_desired(&route("a"), 1, "new");
    while fixture.next().is_none() {
        fixture.now = fixture.queue.wake_at().unwrap();
    }
    fixture.written(&route("a"), version + 1);
    fixture.set_desired(&route("a"), 1, "newer");
    assert_eq!(fixture.queue.wake_at(), Some(fixture.now + WRITE_INTERVAL));
}

#[test]
fn writes_to_an_unavailable_server_are_sequential() {
    let mut fixture = leading();
    for n in 0..4 {
        let key = route(&n.to_string());
        fixture.set_live(&key, live(1, 1));
        fixture.set_desired(&key, 1, "");
        fixture.expect_start(&key);
    }
    for n in 0..4 {
        fixture.failed(&route(&n.to_string()), FailureReason::Unavailable, None);
    }
    fixture.expect_none();
    assert_eq!(fixture.wake_after_ms(), Some(250));
    let failure = fixture.queue.failures().remove(0);
    assert_eq!(
        (failure.reason, failure.objects),
        (FailureReason::Unavailable, 4)
    );
    fixture.wait(250);
    let retry = fixture.next().unwrap();
    fixture.expect_none();
    assert_eq!(fixture.wake_after_ms(), None, "the response comes first");
    fixture.failed(&retry.key, FailureReason::Unavailable, None);
    fixture.expect_none();
    assert_eq!(fixture.wake_after_ms(), Some(250 + 500));
    fixture.wait(500);
    let retry = fixture.next().unwrap();
    fixture.failed(&retry.key, FailureReason::Unavailable, Some(7));
    assert_eq!(fixture.wake_after_ms(), Some(250 + 500 + 7000));
    fixture.wait(7000);
    let retry = fixture.next().unwrap();
    fixture.written(&retry.key, 2);
    for _ in 0..3 {
        let job = fixture.next().unwrap();
        fixture.written(&job.key, 2);
    }
    assert_eq!(fixture.queue.failures(), []);
}

#[test]
fn a_rejected_status_backs_off_and_a_new_one_is_written_at_once() {
    let mut fixture = leading();
    fixture.set_live(&route("a"), live(1, 1));
    fixture.set_desired(&route("a"), 1, "bad");
    let mut delays = Vec::new();
    for _ in 0..7 {
        fixture.expect_start(&route("a"));
        fixture.failed(&route("a"), FailureReason::Invalid, None);
        let at = fixture.queue.wake_at().unwrap();
        delays.push(at.duration_since(fixture.now).as_secs());
        fixture.now = at;
    }
    assert_eq!(delays, [2, 4, 8, 16, 32, 60, 60]);
    fixture.expect_start(&route("a"));
    fixture.failed(&route("a"), FailureReason::Invalid, None);
    let failure = fixture.queue.failures().remove(0);
    assert_eq!(
        (failure.reason, &*failure.message),
        (FailureReason::Invalid, "why")
    );
    // Foreign changes don't end the backoff.
    fixture.set_live(&route("a"), live(2, 1));
    fixture.expect_none();
    fixture.set_desired(&route("a"), 1, "good");
    fixture.expect_start(&route("a"));
    fixture.written(&route("a"), 3);
    assert_eq!(fixture.queue.failures(), []);
}

#[test]
fn a_failure_does_not_delay_other_objects() {
    let mut fixture = leading();
    for (name, reason) in [
        ("a", FailureReason::ServerError),
        ("b", FailureReason::Forbidden),
    ] {
        fixture.set_live(&route(name), live(1, 1));
        fixture.set_desired(&route(name), 1, "");
        fixture.expect_start(&route(name));
        fixture.failed(&route(name), reason, None);
    }
    fixture.set_live(&route("c"), live(1, 1));
    fixture.set_desired(&route("c"), 1, "");
    fixture.expect_start(&route("c"));
    assert_eq!(fixture.wake_after_ms(), Some(200));
    assert_eq!(fixture.queue.failures().len(), 2);
}

#[test]
fn a_deleted_object_is_removed() {
    let mut fixture = leading();
    fixture.set_live(&route("a"), live(1, 1));
    fixture.set_desired(&route("a"), 1, "");
    fixture.expect_start(&route("a"));
    fixture.finish(&route("a"), Outcome::NotFound);
    fixture.expect_none();
    fixture.queue.set_live(route("a"), None, fixture.now);
    fixture.queue.set_desired(route("a"), None, fixture.now);
    assert!(fixture.queue.objects.is_empty());
    // The same while the object is still queued.
    fixture.set_live(&route("b"), live(1, 1));
    fixture.set_desired(&route("b"), 1, "");
    fixture.queue.set_desired(route("b"), None, fixture.now);
    fixture.queue.set_live(route("b"), None, fixture.now);
    fixture.expect_none();
    assert!(fixture.queue.objects.is_empty() && fixture.queue.timers.is_empty());
    assert_eq!(fixture.queue.len(), 0);
}

#[test]
fn a_recreated_object_starts_over() {
    let mut fixture = leading();
    fixture.set_live(&route("a"), live(9, 5));
    fixture.set_desired(&route("a"), 5, "");
    fixture.expect_start(&route("a"));
    let other = LiveStatus {
        uid: "v".into(),
        ..live(12, 1)
    };
    fixture.set_live(&route("a"), other);
    fixture.finish(&route("a"), Outcome::Written(live(13, 5), 0));
    fixture.wait(1000);
    fixture.expect_none();
    fixture.set_desired(&route("a"), 1, "");
    let job = fixture.expect_start(&route("a"));
    assert_eq!((&*job.live.uid, &*job.live.resource_version), ("v", "12"));
}

#[test]
fn jobs_have_the_name_of_the_controller_at_their_start() {
    let mut fixture = leading();
    fixture.queue = Queue::new(OURS.into(), 4, Duration::ZERO);
    fixture.queue.set_leading(true, fixture.now);
    fixture.set_live(&route("a"), live(1, 1));
    fixture.set_desired(&route("a"), 1, "");
    assert_eq!(&*fixture.expect_start(&route("a")).controller, OURS);
    fixture.written(&route("a"), 2);
    fixture.queue.set_controller("example.com/other".into());
    fixture.set_desired(&route("a"), 1, "changed");
    fixture.wait(1000);
    let job = fixture.expect_start(&route("a"));
    assert_eq!(&*job.controller, "example.com/other");
}

#[test]
fn our_entries_without_a_desired_status_are_removed_once_statuses_are_complete() {
    let mut fixture = leading();
    fixture.queue = Queue::new(OURS.into(), 4, Duration::ZERO);
    fixture.queue.set_leading(true, fixture.now);
    let with = |text: &str| LiveStatus {
        status: Some(RawValue::from_string(text.to_owned()).unwrap()),
        ..live(1, 1)
    };
    let ours = format!(r#"{{"parents":[{{"controllerName":"{OURS}"}}]}}"#);
    fixture.set_live(&route("ours"), with(&ours));
    fixture.set_live(&route("desired"), with(&ours));
    fixture.set_live(&route("foreign"), with(r#"{"parents":[]}"#));
    fixture.set_live(&gateway("g"), with(&ours));
    fixture.wait(60_000);
    fixture.expect_none();
    fixture.set_desired(&route("desired"), 1, "");
    fixture.expect_start(&route("desired"));
    fixture.finish(&route("desired"), Outcome::UpToDate);
    fixture.queue.mark_complete(fixture.now);
    let job = fixture.expect_start(&route("ours"));
    assert!(matches!(job.desired, Desired::Unset));
    fixture.written(&route("ours"), 2);
    fixture.expect_none();
    // The desired status of a new object may still arrive.
    fixture.set_live(&route("later"), with(&ours));
    fixture.expect_none();
    fixture.wait(1999);
    fixture.expect_none();
    fixture.wait(1);
    fixture.expect_start(&route("later"));
}

#[test]
fn the_last_status_is_kept_until_it_is_retracted() {
    let mut fixture = leading();
    fixture.set_live(&gateway("g"), live(1, 1));
    fixture.set_desired(&gateway("g"), 1, "last");
    fixture.expect_start(&gateway("g"));
    fixture.written(&gateway("g"), 2);
    fixture.queue.set_desired(gateway("g"), None, fixture.now);
    fixture.wait(250);
    let job = fixture.expect_start(&gateway("g"));
    let Desired::Retracted(last) = job.desired else {
        panic!()
    };
    assert_eq!(last, status(1, "last"));
    fixture.written(&gateway("g"), 3);
    fixture.set_live(&gateway("g"), live(4, 1));
    fixture.expect_none();
    assert_eq!(fixture.queue.len(), 0);
}

#[test]
fn a_full_list_is_reported_until_there_is_room() {
    let mut fixture = leading();
    fixture.set_live(&route("a"), live(1, 1));
    fixture.set_desired(&route("a"), 1, "");
    fixture.expect_start(&route("a"));
    fixture.finish(&route("a"), Outcome::Written(live(2, 1), 3));
    assert_eq!(fixture.queue.failures()[0].reason, FailureReason::Full);
    fixture.set_live(&route("a"), live(3, 1));
    fixture.wait(100);
    fixture.expect_start(&route("a"));
    fixture.written(&route("a"), 4);
    assert_eq!(fixture.queue.failures(), []);
}
