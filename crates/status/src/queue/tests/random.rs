//! For any sequence of events, the invariants hold and every object ends up with its desired status.

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::merge::{self, Diff};

#[derive(Clone, Debug)]
enum Step {
    /// Sets a desired status for the live generation.
    SetDesired(usize, u8),
    Retract(usize),
    /// The spec changes.
    ChangeSpec(usize),
    /// Another controller writes its entry.
    WriteForeign(usize, u8),
    /// Another client clears the status.
    Wipe(usize),
    Recreate(usize),
    Delete(usize),
    /// The watch delivers the current object.
    Watch(usize),
    /// A write succeeds.
    Respond(usize),
    /// A write fails.
    Fail(usize, u8),
    SetLeading(bool),
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..3usize;
    prop_oneof![
        4 => (key.clone(), 0..3u8).prop_map(|(key, n)| Step::SetDesired(key, n)),
        1 => key.clone().prop_map(Step::Retract),
        2 => key.clone().prop_map(Step::ChangeSpec),
        2 => (key.clone(), 0..3u8).prop_map(|(key, n)| Step::WriteForeign(key, n)),
        1 => key.clone().prop_map(Step::Wipe),
        1 => key.clone().prop_map(Step::Recreate),
        1 => key.clone().prop_map(Step::Delete),
        4 => key.clone().prop_map(Step::Watch),
        6 => (0..3usize).prop_map(Step::Respond),
        2 => (0..3usize, 0..4u8).prop_map(|(n, reason)| Step::Fail(n, reason)),
        1 => any::<bool>().prop_map(Step::SetLeading),
        4 => (0..1500u16).prop_map(Step::Wait),
    ]
}

/// An object in the cluster.
#[derive(Clone)]
struct Stored {
    uid: u32,
    version: u64,
    generation: i64,
    parents: Vec<serde_json::Value>,
}

impl Stored {
    fn live(&self) -> LiveStatus {
        let status = json!({"parents": self.parents}).to_string();
        LiveStatus {
            uid: self.uid.to_string().into(),
            resource_version: self.version.to_string().into(),
            generation: self.generation,
            status: Some(RawValue::from_string(status).unwrap()),
        }
    }

    fn foreign(&self) -> Vec<serde_json::Value> {
        let foreign = |entry: &&serde_json::Value| entry["controllerName"] != OURS;
        self.parents.iter().filter(foreign).cloned().collect()
    }
}

struct Simulation {
    queue: Queue,
    now: Instant,
    stored: BTreeMap<usize, Stored>,
    desired: BTreeMap<usize, ObjectStatus>,
    in_flight: Vec<(Instant, Job)>,
    written_at: BTreeMap<ObjectKey, Instant>,
    versions: u64,
    leading: bool,
}

fn key(n: usize) -> ObjectKey {
    match n {
        0 => ObjectKey::new(Kind::TLSRoute, "a", "0"),
        n => route(&n.to_string()),
    }
}

fn index(key: &ObjectKey) -> usize {
    key.name.parse().unwrap()
}

impl Simulation {
    fn new() -> Self {
        let now = Instant::now();
        let mut queue = Queue::new(OURS.into(), 2, Duration::ZERO);
        queue.set_leading(true, now);
        queue.mark_complete(now);
        Self {
            queue,
            now,
            stored: BTreeMap::new(),
            desired: BTreeMap::new(),
            in_flight: Vec::new(),
            written_at: BTreeMap::new(),
            versions: 0,
            leading: true,
        }
    }

    fn change(&mut self, n: usize, change: impl FnOnce(&mut Stored)) {
        self.versions += 1;
        if let Some(stored) = self.stored.get_mut(&n) {
            stored.version = self.versions;
            change(stored);
        }
    }

    fn watch(&mut self, n: usize) {
        let live = self.stored.get(&n).map(Stored::live);
        self.queue.set_live(key(n), live, self.now);
    }

    fn set_desired(&mut self, n: usize, message: u8) {
        let Some(stored) = self.stored.get(&n) else {
            return;
        };
        let status = status(stored.generation, &message.to_string());
        self.desired.insert(n, status.clone());
        self.queue.set_desired(key(n), Some(status), self.now);
    }

    /// The server handles a write.
    fn respond(&mut self, started: Instant, job: Job) {
        let n = index(&job.key);
        let outcome = match merge::diff(
            OURS,
            job.key.kind,
            &job.live,
            &job.desired,
            Timestamp::UNIX_EPOCH,
        ) {
            Diff::UpToDate => Outcome::UpToDate,
            Diff::Stale => Outcome::Stale,
            Diff::Patch(patch) => {
                let patch: serde_json::Value = serde_json::from_str(patch.body.get()).unwrap();
                match self.stored.get(&n) {
                    None => Outcome::NotFound,
                    Some(stored)
                        if *stored.live().resource_version
                            != patch["metadata"]["resourceVersion"] =>
                    {
                        Outcome::Conflict(stored.live())
                    }
                    Some(stored) => {
                        let foreign = stored.foreign();
                        let last = self.written_at.insert(job.key.clone(), started);
                        let soon = last.is_some_and(|last| started < last + WRITE_INTERVAL);
                        assert!(!soon, "written again after {:?}", started - last.unwrap());
                        let parents = patch["status"]["parents"].as_array().unwrap().clone();
                        self.change(n, |stored| stored.parents = parents);
                        assert_eq!(self.stored[&n].foreign(), foreign);
                        Outcome::Written(self.stored[&n].live(), 0)
                    }
                }
            }
        };
        if let Outcome::Conflict(_) = outcome {
            // A request takes time.
            self.now += Duration::from_millis(1);
        }
        self.queue.finish(&job.key, outcome, self.now);
    }

    fn fail(&mut self, job: &Job, reason: u8) {
        let reasons = [
            FailureReason::Unavailable,
            FailureReason::ServerError,
            FailureReason::Forbidden,
            FailureReason::Invalid,
        ];
        let failure = WriteFailure {
            reason: reasons[usize::from(reason)],
            message: String::new(),
            retry_after: (reason == 0).then(|| Duration::from_secs(1)),
        };
        self.queue
            .finish(&job.key, Outcome::Failed(failure), self.now);
    }

    fn start_all(&mut self) {
        while let Some(job) = self.queue.next(self.now) {
            assert!(self.leading, "only a leader writes");
            let twice = self.in_flight.iter().any(|other| other.1.key == job.key);
            assert!(!twice, "{} has two writes in flight", job.key);
            self.in_flight.push((self.now, job));
            assert!(self.in_flight.len() <= 2, "too many writes in flight");
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::SetDesired(n, message) => self.set_desired(n, message),
            Step::Retract(n) => {
                self.desired.remove(&n);
                self.queue.set_desired(key(n), None, self.now);
            }
            Step::ChangeSpec(n) => self.change(n, |stored| stored.generation += 1),
            Step::WriteForeign(n, message) => self.change(n, |stored| {
                stored
                    .parents
                    .retain(|entry| entry["controllerName"] == OURS);
                let entry = json!({"controllerName": "other", "conditions": [], "n": message});
                stored.parents.insert(0, entry);
            }),
            Step::Wipe(n) => self.change(n, |stored| stored.parents.clear()),
            Step::Recreate(n) => {
                self.versions += 1;
                let stored = Stored {
                    uid: u32::try_from(self.versions).unwrap(),
                    version: self.versions,
                    generation: 1,
                    parents: Vec::new(),
                };
                self.stored.insert(n, stored);
                self.written_at.remove(&key(n));
            }
            Step::Delete(n) => {
                self.stored.remove(&n);
            }
            Step::Watch(n) => self.watch(n),
            Step::Respond(n) if n < self.in_flight.len() => {
                let (started, job) = self.in_flight.remove(n);
                self.respond(started, job);
            }
            Step::Fail(n, reason) if n < self.in_flight.len() => {
                let (_, job) = self.in_flight.remove(n);
                self.fail(&job, reason);
            }
            Step::Respond(_) | Step::Fail(..) => {}
            Step::SetLeading(leading) => {
                self.leading = leading;
                self.queue.set_leading(leading, self.now);
            }
            Step::Wait(millis) => self.now += Duration::from_millis(millis.into()),
        }
        self.start_all();
    }

    /// Runs until no job is left.
    fn settle(&mut self) {
        self.step(Step::SetLeading(true));
        for n in 0..3 {
            match (
                self.stored.get(&n).map(|stored| stored.generation),
                self.desired.get(&n),
            ) {
                (None, _) => self.step(Step::Retract(n)),
                (Some(_), Some(_)) => self.step(Step::SetDesired(n, 9)),
                _ => {}
            }
            self.step(Step::Watch(n));
        }
        for turn in 0.. {
            assert!(turn < 200, "does not settle");
            self.start_all();
            if !self.in_flight.is_empty() {
                let (started, job) = self.in_flight.remove(0);
                let n = index(&job.key);
                self.respond(started, job);
                self.watch(n);
            } else if let Some(at) = self.queue.wake_at() {
                assert!(at > self.now, "wakes up in the past");
                self.now = at;
            } else {
                break;
            }
        }
    }
}

proptest! {
    #[test]
    fn every_object_ends_up_with_its_desired_status(steps in prop::collection::vec(step(), 0..80)) {
        let mut simulation = Simulation::new();
        for n in 0..3 {
            simulation.step(Step::Recreate(n));
        }
        for step in steps {
            simulation.step(step);
        }
        simulation.settle();
        prop_assert_eq!(simulation.queue.len(), 0);
        prop_assert_eq!(simulation.queue.failures(), []);
        for n in 0..3 {
            let Some(stored) = simulation.stored.get(&n) else {
                prop_assert!(!simulation.queue.objects.contains_key(&key(n)), "{n} is not removed");
                continue;
            };
            let desired = match simulation.desired.get(&n) {
                Some(status) => Desired::Status(status.clone()),
                None => Desired::Unset,
            };
            let diff =
                merge::diff(OURS, key(n).kind, &stored.live(), &desired, Timestamp::UNIX_EPOCH);
            prop_assert!(matches!(diff, Diff::UpToDate), "{n}: {diff:?}");
        }
    }
}
