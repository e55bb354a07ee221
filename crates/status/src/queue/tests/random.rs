//! Whatever happens, in whatever order: in the end every object says what it should, and on the way no rule is broken.

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::merge::{self, Verdict};

#[derive(Clone, Debug)]
enum Step {
    /// Translation says something of an object's present generation.
    Say(usize, u8),
    TakeBack(usize),
    /// Somebody changes the object.
    Spec(usize),
    /// Somebody writes another controller's entry.
    Foreign(usize, u8),
    /// Somebody undoes all of the status.
    Wipe(usize),
    Recreate(usize),
    Delete(usize),
    /// The watch catches up.
    Watch(usize),
    /// The oldest write arrives at the server.
    Answer(usize),
    /// It doesn't.
    Fail(usize, u8),
    Lead(bool),
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..3usize;
    prop_oneof![
        4 => (key.clone(), 0..3u8).prop_map(|(key, n)| Step::Say(key, n)),
        1 => key.clone().prop_map(Step::TakeBack),
        2 => key.clone().prop_map(Step::Spec),
        2 => (key.clone(), 0..3u8).prop_map(|(key, n)| Step::Foreign(key, n)),
        1 => key.clone().prop_map(Step::Wipe),
        1 => key.clone().prop_map(Step::Recreate),
        1 => key.clone().prop_map(Step::Delete),
        4 => key.clone().prop_map(Step::Watch),
        6 => (0..3usize).prop_map(Step::Answer),
        2 => (0..3usize, 0..4u8).prop_map(|(n, how)| Step::Fail(n, how)),
        1 => any::<bool>().prop_map(Step::Lead),
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

struct World {
    queue: Queue,
    now: Instant,
    stored: BTreeMap<usize, Stored>,
    said: BTreeMap<usize, ObjectStatus>,
    under_way: Vec<(Instant, Job)>,
    written_at: BTreeMap<ObjectKey, Instant>,
    versions: u64,
    leads: bool,
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

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let mut queue = Queue::new(OURS.into(), 2, Duration::ZERO);
        queue.lead(true, now);
        queue.complete(now);
        Self {
            queue,
            now,
            stored: BTreeMap::new(),
            said: BTreeMap::new(),
            under_way: Vec::new(),
            written_at: BTreeMap::new(),
            versions: 0,
            leads: true,
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
        self.queue.live(key(n), live, self.now);
    }

    fn say(&mut self, n: usize, message: u8) {
        let Some(stored) = self.stored.get(&n) else {
            return;
        };
        let status = status(stored.generation, &message.to_string());
        self.said.insert(n, status.clone());
        self.queue.desired(key(n), Some(status), self.now);
    }

    /// A write arrives at the server, and is answered.
    fn answer(&mut self, started: Instant, job: Job) {
        let n = index(&job.key);
        let outcome = match merge::patch(
            OURS,
            job.key.kind,
            &job.live,
            &job.want,
            Timestamp::UNIX_EPOCH,
        ) {
            Verdict::Right => Outcome::Right,
            Verdict::Behind => Outcome::Behind,
            Verdict::Write(patch) => {
                let patch: serde_json::Value = serde_json::from_str(patch.body.get()).unwrap();
                match self.stored.get(&n) {
                    None => Outcome::Gone,
                    Some(stored)
                        if *stored.live().resource_version
                            != patch["metadata"]["resourceVersion"] =>
                    {
                        Outcome::Conflict(stored.live())
                    }
                    Some(stored) => {
                        let foreign = stored.foreign();
                        let last = self.written_at.insert(job.key.clone(), started);
                        let soon = last.is_some_and(|last| started < last + INTERVAL);
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
            // Time goes by from a question to its answer.
            self.now += Duration::from_millis(1);
        }
        self.queue.ended(&job.key, outcome, self.now);
    }

    fn fail(&mut self, job: &Job, how: u8) {
        let reasons = [
            Reason::Unanswered,
            Reason::Failed,
            Reason::Forbidden,
            Reason::Refused,
        ];
        let failure = Failure {
            reason: reasons[usize::from(how)],
            message: String::new(),
            retry_after: (how == 0).then(|| Duration::from_secs(1)),
        };
        self.queue
            .ended(&job.key, Outcome::Failed(failure), self.now);
    }

    fn start_all(&mut self) {
        while let Some(job) = self.queue.next(self.now) {
            assert!(self.leads, "only a leader writes");
            let twice = self.under_way.iter().any(|other| other.1.key == job.key);
            assert!(!twice, "{} is under way twice", job.key);
            self.under_way.push((self.now, job));
            assert!(self.under_way.len() <= 2, "more are under way than may be");
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Say(n, message) => self.say(n, message),
            Step::TakeBack(n) => {
                self.said.remove(&n);
                self.queue.desired(key(n), None, self.now);
            }
            Step::Spec(n) => self.change(n, |stored| stored.generation += 1),
            Step::Foreign(n, message) => self.change(n, |stored| {
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
            Step::Answer(n) if n < self.under_way.len() => {
                let (started, job) = self.under_way.remove(n);
                self.answer(started, job);
            }
            Step::Fail(n, how) if n < self.under_way.len() => {
                let (_, job) = self.under_way.remove(n);
                self.fail(&job, how);
            }
            Step::Answer(_) | Step::Fail(..) => {}
            Step::Lead(leads) => {
                self.leads = leads;
                self.queue.lead(leads, self.now);
            }
            Step::Wait(millis) => self.now += Duration::from_millis(millis.into()),
        }
        self.start_all();
    }

    /// Everybody does what they are there for, until nothing is left to do.
    fn settle(&mut self) {
        self.step(Step::Lead(true));
        for n in 0..3 {
            match (
                self.stored.get(&n).map(|stored| stored.generation),
                self.said.get(&n),
            ) {
                (None, _) => self.step(Step::TakeBack(n)),
                (Some(_), Some(_)) => self.step(Step::Say(n, 9)),
                _ => {}
            }
            self.step(Step::Watch(n));
        }
        for turn in 0.. {
            assert!(turn < 200, "it doesn't come to rest");
            self.start_all();
            if !self.under_way.is_empty() {
                let (started, job) = self.under_way.remove(0);
                let n = index(&job.key);
                self.answer(started, job);
                self.watch(n);
            } else if let Some(at) = self.queue.wake_at() {
                assert!(at > self.now, "it asks to be woken in the past");
                self.now = at;
            } else {
                break;
            }
        }
    }
}

proptest! {
    #[test]
    fn all_comes_right(steps in prop::collection::vec(step(), 0..80)) {
        let mut world = World::new();
        for n in 0..3 {
            world.step(Step::Recreate(n));
        }
        for step in steps {
            world.step(step);
        }
        world.settle();
        prop_assert_eq!(world.queue.len(), 0);
        prop_assert_eq!(world.queue.troubles(), []);
        for n in 0..3 {
            let Some(stored) = world.stored.get(&n) else {
                prop_assert!(!world.queue.slots.contains_key(&key(n)), "{n} isn't forgotten");
                continue;
            };
            let want = match world.said.get(&n) {
                Some(status) => Want::Says(status.clone()),
                None => Want::Nothing(None),
            };
            let verdict =
                merge::patch(OURS, key(n).kind, &stored.live(), &want, Timestamp::UNIX_EPOCH);
            prop_assert!(matches!(verdict, Verdict::Right), "{n}: {verdict:?}");
        }
    }
}
