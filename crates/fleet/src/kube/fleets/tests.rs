//! Fleets against a simulated cluster: a map of objects and a manual clock.

use serde_json::{Value, json};
use sesame_model::{Autoscaling, FleetAddress, FleetProblem, Port, ServiceType, Workload};

use super::*;
use crate::kube::addresses::Given;
use crate::kube::desired::desired;
use crate::kube::fingerprint;
use crate::kube::seen::{self, Detail, Owner};
use crate::kube::testing;

mod answers;
mod hidden;

struct Rig {
    fleets: Fleets,
    now: Instant,
    objects: BTreeMap<(FleetKey, Kind), Seen>,
    /// A counter for uids and versions.
    made: u32,
    /// What was written, in order.
    log: Vec<String>,
    /// Kinds that can't be written.
    refused: BTreeSet<Kind>,
}

fn id() -> FleetId {
    FleetId::of_gateway("default", "web")
}

fn key() -> FleetKey {
    FleetKey {
        namespace: "default".into(),
        name: crate::kube::names::object(&id()).into(),
    }
}

impl Rig {
    /// A leader that has seen an empty cluster.
    fn new() -> Self {
        let mut rig = Self::unready();
        rig.list_all();
        rig
    }

    /// A leader that has seen nothing yet.
    fn unready() -> Self {
        let mut fleets = Fleets::new(testing::config());
        fleets.lead(true);
        Self {
            fleets,
            now: Instant::now(),
            objects: BTreeMap::new(),
            made: 0,
            log: Vec::new(),
            refused: BTreeSet::new(),
        }
    }

    fn list_all(&mut self) {
        for kind in Kind::ALL {
            let all = self
                .objects
                .iter()
                .filter(|((_, of), _)| *of == kind)
                .map(|((key, _), seen)| (key.clone(), seen.clone()))
                .collect();
            self.fleets.learn(News::All(kind, None, all), self.now);
        }
    }

    fn want(&mut self, spec: Option<FleetSpec>) {
        self.fleets.want(id(), spec);
    }

    /// Runs all jobs that are due. Returns the actions.
    fn work(&mut self) -> Vec<String> {
        for _ in 0..100 {
            let Some(job) = self.fleets.next_job(self.now) else {
                return std::mem::take(&mut self.log);
            };
            let (key, outcomes) = self.act(job);
            self.fleets.done(key, outcomes, self.now);
        }
        panic!("there is always something to do: {:?}", self.log);
    }

    fn act(&mut self, job: Job) -> (FleetKey, Vec<Outcome>) {
        let mut outcomes = Vec::new();
        for action in job.actions {
            match action {
                Action::Apply { kind, .. } if self.refused.contains(&kind) => {
                    self.log.push(format!("refused {}", kind.name()));
                    outcomes.push(Outcome::Failed(kind, "no".to_owned()));
                }
                Action::Apply {
                    kind,
                    object,
                    said,
                    uid,
                } => {
                    self.log.push(format!("apply {}", kind.name()));
                    let key = (job.key.clone(), kind);
                    assert_eq!(self.objects.get(&key).map(|seen| &seen.uid), uid.as_ref());
                    let seen = self.stored(kind, &object, uid);
                    outcomes.push(Outcome::Applied(kind, said, seen.clone()));
                    self.put(kind, seen);
                }
                Action::Scale(object) => {
                    self.log
                        .push(format!("scale to {}", object["spec"]["replicas"]));
                }
                Action::Delete { kind, uid } => {
                    self.log.push(format!("delete {}", kind.name()));
                    let gone = self.objects.remove(&(job.key.clone(), kind)).unwrap();
                    assert_eq!(gone.uid, uid);
                    outcomes.push(Outcome::Deleted(kind));
                    let news = News::Gone(kind, job.key.clone());
                    self.fleets.learn(news, self.now);
                }
            }
        }
        (job.key, outcomes)
    }

    /// The object as the API server stores it.
    fn stored(&mut self, kind: Kind, object: &Value, uid: Option<String>) -> Seen {
        let owner = &object["metadata"]["ownerReferences"][0];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.made += 1;
        Seen {
            uid: uid.unwrap_or_else(|| self.made.to_string()),
            version: self.made.into(),
            fingerprint: fingerprint::of_desired(object),
            deleting: false,
            owner: Some(Owner {
                name: text(&owner["name"]),
                uid: text(&owner["uid"]),
            }),
            labelled: true,
            detail: match kind {
                Kind::Service => Detail::Service(Given::of(object)),
                kind if kind.is_workload() => Detail::Workload(seen::Workload {
                    available: 0,
                    replicas: object["spec"]["replicas"].as_u64().map(|n| n as u32),
                    counted_by_us: !object["spec"]["replicas"].is_null(),
                }),
                _ => Detail::Nothing,
            },
        }
    }

    fn put(&mut self, kind: Kind, seen: Seen) {
        self.objects.insert((key(), kind), seen.clone());
        let news = News::Seen(kind, key(), seen);
        self.fleets.learn(news, self.now);
    }

    /// Changes an object as another client.
    fn change(&mut self, kind: Kind, change: impl FnOnce(&mut Seen)) {
        let mut seen = self.objects[&(key(), kind)].clone();
        change(&mut seen);
        self.made += 1;
        seen.version = self.made.into();
        self.put(kind, seen);
    }

    fn lose(&mut self, kind: Kind) {
        self.objects.remove(&(key(), kind)).unwrap();
        self.fleets.learn(News::Gone(kind, key()), self.now);
    }

    fn available(&mut self, kind: Kind, number: u32) {
        self.change(kind, |seen| {
            if let Detail::Workload(workload) = &mut seen.detail {
                workload.available = number;
            }
        });
    }

    fn observation(&mut self) -> Option<FleetState> {
        let (fleet, observation) = self.fleets.take_observation().expect("an observation");
        assert_eq!(fleet, id());
        assert!(!self.fleets.has_observation());
        observation
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }
}

fn spec() -> FleetSpec {
    testing::spec("web")
}

const MADE: [&str; 5] = [
    "apply ServiceAccount",
    "apply ConfigMap",
    "apply Service",
    "apply Deployment",
    "apply PodDisruptionBudget",
];

#[test]
fn a_fleet_is_made_once_and_left_alone() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    assert_eq!(rig.work(), MADE);
    rig.want(Some(spec()));
    assert!(rig.work().is_empty());
    rig.pass(Duration::from_secs(3600));
    assert!(rig.work().is_empty());
}

#[test]
fn only_what_differs_is_written() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    let mut other = spec();
    other.request.ports.insert(Port::tcp(8080));
    rig.want(Some(other));
    assert_eq!(rig.work(), ["apply Service"]);
}

#[test]
fn after_a_restart_nothing_is_written() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    let mut again = Rig::unready();
    again.objects = rig.objects;
    again.want(Some(spec()));
    assert!(again.work().is_empty());
    again.fleets.settle();
    again.list_all();
    assert!(again.work().is_empty());
}

#[test]
fn nothing_is_written_or_told_before_everything_was_seen() {
    let mut rig = Rig::unready();
    rig.want(Some(spec()));
    assert!(rig.work().is_empty());
    assert!(!rig.fleets.has_observation());
    rig.list_all();
    assert!(rig.fleets.has_observation());
    assert_eq!(rig.work(), MADE);
}

#[test]
fn only_a_leader_writes_and_everybody_observes() {
    let mut rig = Rig::new();
    rig.fleets.lead(false);
    rig.want(Some(spec()));
    assert!(rig.work().is_empty());
    assert!(!rig.observation().unwrap().ready);
    rig.fleets.lead(true);
    assert_eq!(rig.work(), MADE);
}

#[test]
fn what_somebody_overwrites_is_put_back() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    let other = fingerprint::of_desired(&Value::Null);
    rig.change(Kind::Service, |seen| seen.fingerprint = other);
    assert_eq!(rig.work(), ["apply Service"]);
    // An object without our owner reference is still ours.
    rig.change(Kind::ConfigMap, |seen| {
        seen.fingerprint = other;
        seen.owner = None;
    });
    assert_eq!(rig.work(), ["apply ConfigMap"]);
}

#[test]
fn what_somebody_takes_away_is_made_again_a_moment_later() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    rig.lose(Kind::Deployment);
    assert!(rig.work().is_empty());
    assert_eq!(rig.fleets.next_time(), Some(rig.now + AFTER_LOSS));
    rig.pass(AFTER_LOSS);
    assert_eq!(rig.work(), ["apply Deployment"]);
}

#[test]
fn what_goes_with_its_gateway_is_not_made_again() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    for kind in [Kind::Deployment, Kind::Service] {
        rig.lose(kind);
    }
    assert!(rig.work().is_empty());
    rig.want(None);
    rig.pass(AFTER_LOSS);
    assert_eq!(
        rig.work(),
        [
            "delete ServiceAccount",
            "delete ConfigMap",
            "delete PodDisruptionBudget"
        ]
    );
    assert!(rig.objects.is_empty());
    assert!(rig.fleets.fleets.is_empty(), "nothing is kept");
}

#[test]
fn an_object_that_is_going_is_waited_for() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    let other = fingerprint::of_desired(&Value::Null);
    rig.change(Kind::Service, |seen| {
        seen.deleting = true;
        seen.fingerprint = other;
    });
    assert!(rig.work().is_empty());
    rig.lose(Kind::Service);
    assert_eq!(rig.work(), ["apply Service"]);
}

#[test]
fn an_object_of_somebody_elses_is_left_alone_and_told_of() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    rig.observation();
    rig.change(Kind::Service, |seen| {
        seen.owner = Some(Owner {
            name: "other".to_owned(),
            uid: "other".to_owned(),
        });
        seen.fingerprint = fingerprint::of_desired(&Value::Null);
    });
    assert!(rig.work().is_empty());
    let Some(FleetProblem::NoResources(message)) = rig.observation().unwrap().problem else {
        panic!("no problem");
    };
    assert!(
        message.starts_with("Service default/web-") && message.contains("delete it"),
        "{message}"
    );
    // Not deleted either once it is unwanted.
    rig.want(None);
    rig.work();
    assert_eq!(rig.objects.len(), 1);
}

#[test]
fn a_gateway_that_comes_again_takes_over_what_is_there() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    let mut anew = spec();
    anew.request.owner.as_mut().unwrap().uid = "another".to_owned();
    rig.want(Some(anew));
    assert_eq!(rig.work(), MADE);
    let owners: BTreeSet<_> = rig
        .objects
        .values()
        .map(|seen| seen.owner.as_ref().unwrap().uid.clone())
        .collect();
    assert_eq!(owners, BTreeSet::from(["another".to_owned()]));
}

#[test]
fn left_over_objects_go_once_all_wishes_are_known() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    let mut again = Rig::unready();
    again.objects = rig.objects;
    again.list_all();
    assert!(again.work().is_empty(), "the wish may still come");
    again.fleets.settle();
    assert_eq!(again.work().len(), MADE.len());
    assert!(again.objects.is_empty());
}

#[test]
fn the_other_workload_goes_when_the_new_one_serves() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    rig.available(Kind::Deployment, 2);
    let mut other = spec();
    other.parameters.workload = Some(Workload::DaemonSet);
    rig.want(Some(other));
    assert_eq!(
        rig.work(),
        ["apply DaemonSet", "delete PodDisruptionBudget"]
    );
    rig.available(Kind::DaemonSet, 0);
    assert!(rig.work().is_empty());
    rig.available(Kind::DaemonSet, 1);
    assert_eq!(rig.work(), ["delete Deployment"]);
}

#[test]
fn a_service_keeps_its_address_while_there_are_no_ports() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    let mut none = spec();
    none.request.ports.clear();
    rig.want(Some(none));
    assert!(rig.work().is_empty());
    rig.want(Some(spec()));
    assert!(rig.work().is_empty());
}

#[test]
fn an_autoscaler_begins_with_what_is_there() {
    let mut rig = Rig::new();
    let mut counted = spec();
    counted.parameters.replicas = Some(7);
    rig.want(Some(counted));
    rig.work();
    let mut scaled = spec();
    scaled.parameters.autoscaling = Some(Autoscaling::Between {
        min: 2,
        max: 9,
        cpu_percent: 80,
    });
    rig.want(Some(scaled.clone()));
    assert_eq!(
        rig.work(),
        [
            "scale to 7",
            "apply Deployment",
            "apply HorizontalPodAutoscaler"
        ]
    );
    // A new Deployment starts with the minimum.
    let mut fresh = Rig::new();
    fresh.want(Some(scaled));
    let done = fresh.work();
    assert_eq!(done[3..5], ["apply Deployment", "scale to 2"]);
}

#[test]
fn failures_are_tried_again_ever_later_and_told() {
    let mut rig = Rig::new();
    rig.refused.insert(Kind::PodDisruptionBudget);
    rig.want(Some(spec()));
    let done = rig.work();
    assert_eq!(done[..4], MADE[..4], "the others are made");
    assert_eq!(done.last().unwrap(), "refused PodDisruptionBudget");
    assert!(matches!(
        rig.observation().unwrap().problem,
        Some(FleetProblem::NoResources(_))
    ));
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let next = rig.fleets.next_time().unwrap();
        pauses.push((next - rig.now).as_millis());
        rig.now = next;
        assert_eq!(rig.work(), ["refused PodDisruptionBudget"]);
    }
    assert_eq!(
        pauses,
        [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]
    );
    rig.refused.clear();
    rig.now = rig.fleets.next_time().unwrap();
    assert_eq!(rig.work(), ["apply PodDisruptionBudget"]);
    assert!(!matches!(
        rig.observation().unwrap().problem,
        Some(FleetProblem::NoResources(_))
    ));
}

#[test]
fn observations_tell_addresses_envoys_and_the_end() {
    let mut rig = Rig::new();
    let mut inside = spec();
    inside.parameters.service_type = Some(ServiceType::ClusterIp);
    rig.want(Some(inside));
    rig.work();
    let first = rig.observation().unwrap();
    assert!(matches!(
        first.problem,
        Some(FleetProblem::AddressNotAssigned(_))
    ));
    assert!(!first.ready);
    rig.change(Kind::Service, |seen| {
        seen.detail = Detail::Service(Given::of(&json!({
            "spec": { "type": "ClusterIP", "clusterIPs": ["10.0.0.9"] },
        })));
    });
    rig.available(Kind::Deployment, 1);
    let second = rig.observation().unwrap();
    assert_eq!(second.problem, None);
    assert!(second.ready);
    assert_eq!(second.addresses, [FleetAddress::parse("10.0.0.9")]);
    // No change, no observation.
    rig.available(Kind::Deployment, 1);
    assert!(!rig.fleets.has_observation());
    rig.want(None);
    assert_eq!(rig.observation(), None);
}

#[test]
fn a_kind_that_cant_be_looked_at_hinders_only_who_needs_it() {
    let mut rig = Rig::unready();
    for kind in Kind::ALL {
        let news = match kind {
            Kind::HorizontalPodAutoscaler => News::Hidden(kind, None, "forbidden".to_owned()),
            _ => News::All(kind, None, Vec::new()),
        };
        rig.fleets.learn(news, rig.now);
    }
    rig.want(Some(spec()));
    assert_eq!(rig.work(), MADE);
    assert!(!matches!(
        rig.observation().unwrap().problem,
        Some(FleetProblem::NoResources(_))
    ));
    let mut scaled = spec();
    scaled.parameters.autoscaling = Some(Autoscaling::Between {
        min: 1,
        max: 2,
        cpu_percent: 80,
    });
    rig.want(Some(scaled));
    assert_eq!(
        rig.observation().unwrap().problem,
        Some(FleetProblem::NoResources("forbidden".to_owned()))
    );
}

#[test]
fn a_relisting_finds_what_has_gone_unnoticed() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    rig.objects.remove(&(key(), Kind::ConfigMap)).unwrap();
    rig.list_all();
    rig.pass(AFTER_LOSS);
    assert_eq!(rig.work(), ["apply ConfigMap"]);
}

#[test]
fn fingerprints_of_fleets_differ_where_their_objects_do() {
    let config = testing::config();
    let of = |spec: &FleetSpec| {
        let object = desired(&config, &id(), spec).objects[&Kind::Service].clone();
        fingerprint::of_desired(&object)
    };
    let mut other = spec();
    assert_eq!(of(&spec()), of(&other));
    other.request.ports.insert(Port::udp(80));
    assert_ne!(of(&spec()), of(&other));
}
