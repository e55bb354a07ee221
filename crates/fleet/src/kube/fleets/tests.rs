//! Fleets against a simulated cluster: a map of objects and a manual clock.

use serde_json::{Value, json};
use sesame_model::{Autoscaling, FleetProblem, Port, Workload};

use super::*;
use crate::kube::addresses::AssignedAddresses;
use crate::kube::desired::desired_objects;
use crate::kube::fingerprint;
use crate::kube::observed::{Detail, Owner, Rollout, WorkloadStatus};
use crate::kube::testing;

mod addresses;
mod jobs;
mod outer;
mod own_namespace;
mod unwatchable;
mod upgrades;

struct Fixture {
    fleets: Fleets,
    now: Instant,
    objects: BTreeMap<(FleetKey, ObjectKind), ObservedObject>,
    /// A counter for uids and versions.
    version: u32,
    /// All writes, in order.
    log: Vec<String>,
    /// Kinds that can't be written.
    refused: BTreeSet<ObjectKind>,
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

impl Fixture {
    /// A leader that has listed an empty cluster.
    fn new() -> Self {
        let mut fixture = Self::unsynced();
        fixture.list_all();
        fixture
    }

    /// A leader that hasn't listed anything yet.
    fn unsynced() -> Self {
        Self::unsynced_with(testing::config())
    }

    fn unsynced_with(config: FleetsConfig) -> Self {
        let mut fleets = Fleets::new(config);
        fleets.set_leading(true);
        fleets.set_sesame_rolled_out(true);
        Self {
            fleets,
            now: Instant::now(),
            objects: BTreeMap::new(),
            version: 0,
            log: Vec::new(),
            refused: BTreeSet::new(),
        }
    }

    fn list_all(&mut self) {
        for kind in ObjectKind::ALL {
            let all = self
                .objects
                .iter()
                .filter(|((_, of), _)| of.watched() == kind)
                .map(|((key, of), observed)| (key.clone(), *of, observed.clone()))
                .collect();
            self.fleets
                .handle_event(ObjectEvent::Listed(kind, None, all), self.now);
        }
    }

    fn set_fleet(&mut self, spec: Option<FleetSpec>) {
        self.fleets.set_fleet(id(), spec);
    }

    /// Runs all jobs that are due. Returns the actions.
    fn run_jobs(&mut self) -> Vec<String> {
        for _ in 0..100 {
            let Some(job) = self.fleets.next_job(self.now) else {
                return std::mem::take(&mut self.log);
            };
            let (key, outcomes) = self.execute(job);
            self.fleets.done(key, outcomes, self.now);
        }
        panic!("jobs keep starting: {:?}", self.log);
    }

    fn execute(&mut self, job: Job) -> (FleetKey, Vec<Outcome>) {
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
                    fingerprint,
                    uid,
                } => {
                    self.log.push(format!("apply {}", kind.name()));
                    let key = (job.key.clone(), kind);
                    assert_eq!(
                        self.objects.get(&key).map(|observed| &observed.uid),
                        uid.as_ref()
                    );
                    let observed = self.stored(kind, &object, uid);
                    outcomes.push(Outcome::Applied(kind, fingerprint, observed.clone()));
                    self.put_of(job.key.clone(), kind, observed);
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
                    let event = ObjectEvent::Deleted(kind, job.key.clone());
                    self.fleets.handle_event(event, self.now);
                }
            }
        }
        (job.key, outcomes)
    }

    /// The object as the API server stores it.
    fn stored(&mut self, kind: ObjectKind, object: &Value, uid: Option<String>) -> ObservedObject {
        let owner = &object["metadata"]["ownerReferences"][0];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.version += 1;
        ObservedObject {
            uid: uid.unwrap_or_else(|| self.version.to_string()),
            version: self.version.into(),
            fingerprint: fingerprint::of_desired(object),
            deleting: false,
            owner: (!owner.is_null()).then(|| Owner {
                name: text(&owner["name"]),
                uid: text(&owner["uid"]),
            }),
            labelled: true,
            detail: match kind {
                ObjectKind::Service | ObjectKind::ClusterService => {
                    let mut object = object.clone();
                    if let Some(ip) = object["spec"].get("clusterIP").cloned() {
                        object["spec"]["clusterIPs"] = json!([ip]);
                    }
                    Detail::Addresses(AssignedAddresses::of(&object))
                }
                ObjectKind::Gateway => Detail::Addresses(AssignedAddresses::of_gateway(object)),
                kind if kind.is_workload() => Detail::Workload(WorkloadStatus {
                    available: 0,
                    replicas: object["spec"]["replicas"].as_u64().map(|n| n as u32),
                    manages_replicas: !object["spec"]["replicas"].is_null(),
                    current_release: true,
                    rollout: Rollout::Progressing,
                }),
                _ => Detail::None,
            },
        }
    }

    fn put(&mut self, kind: ObjectKind, observed: ObservedObject) {
        self.put_of(key(), kind, observed);
    }

    fn put_of(&mut self, key: FleetKey, kind: ObjectKind, observed: ObservedObject) {
        self.objects.insert((key.clone(), kind), observed.clone());
        let event = ObjectEvent::Changed(kind, key, observed);
        self.fleets.handle_event(event, self.now);
    }

    /// Changes an object on behalf of another client.
    fn change(&mut self, kind: ObjectKind, change: impl FnOnce(&mut ObservedObject)) {
        let mut observed = self.objects[&(key(), kind)].clone();
        change(&mut observed);
        self.version += 1;
        observed.version = self.version.into();
        self.put(kind, observed);
    }

    fn delete(&mut self, kind: ObjectKind) {
        self.objects.remove(&(key(), kind)).unwrap();
        self.fleets
            .handle_event(ObjectEvent::Deleted(kind, key()), self.now);
    }

    fn available(&mut self, kind: ObjectKind, number: u32) {
        self.change(kind, |observed| {
            if let Detail::Workload(workload) = &mut observed.detail {
                workload.available = number;
            }
        });
    }

    fn state(&mut self) -> Option<FleetState> {
        let (fleet, state) = self.fleets.next_state().expect("the state has changed");
        assert_eq!(fleet, id());
        assert!(!self.fleets.has_state());
        state
    }

    fn advance(&mut self, time: Duration) {
        self.now += time;
    }
}

fn spec() -> FleetSpec {
    testing::spec("web")
}

const ALL_APPLIED: [&str; 5] = [
    "apply ServiceAccount",
    "apply ConfigMap",
    "apply Service",
    "apply Deployment",
    "apply PodDisruptionBudget",
];

#[test]
fn an_unchanged_fleet_is_written_once() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    assert_eq!(fixture.run_jobs(), ALL_APPLIED);
    fixture.set_fleet(Some(spec()));
    assert!(fixture.run_jobs().is_empty());
    fixture.advance(Duration::from_secs(3600));
    assert!(fixture.run_jobs().is_empty());
}

#[test]
fn only_changed_objects_are_written() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    let mut other = spec();
    other.request.ports.insert(Port::tcp(8080));
    fixture.set_fleet(Some(other));
    assert_eq!(fixture.run_jobs(), ["apply Service"]);
}

#[test]
fn a_restart_writes_nothing() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    let mut restarted = Fixture::unsynced();
    restarted.objects = fixture.objects;
    restarted.set_fleet(Some(spec()));
    assert!(restarted.run_jobs().is_empty());
    restarted.fleets.mark_complete();
    restarted.list_all();
    assert!(restarted.run_jobs().is_empty());
}

#[test]
fn nothing_is_written_or_reported_before_all_kinds_are_listed() {
    let mut fixture = Fixture::unsynced();
    fixture.set_fleet(Some(spec()));
    assert!(fixture.run_jobs().is_empty());
    assert!(!fixture.fleets.has_state());
    fixture.list_all();
    assert!(fixture.fleets.has_state());
    assert_eq!(fixture.run_jobs(), ALL_APPLIED);
}

#[test]
fn only_the_leader_writes_and_followers_report_states() {
    let mut fixture = Fixture::new();
    fixture.fleets.set_leading(false);
    fixture.set_fleet(Some(spec()));
    assert!(fixture.run_jobs().is_empty());
    assert!(!fixture.state().unwrap().ready);
    fixture.fleets.set_leading(true);
    assert_eq!(fixture.run_jobs(), ALL_APPLIED);
}

#[test]
fn changed_objects_are_restored() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    let other = fingerprint::of_desired(&Value::Null);
    fixture.change(ObjectKind::Service, |observed| observed.fingerprint = other);
    assert_eq!(fixture.run_jobs(), ["apply Service"]);
    // An object without our owner reference is still ours.
    fixture.change(ObjectKind::ConfigMap, |observed| {
        observed.fingerprint = other;
        observed.owner = None;
    });
    assert_eq!(fixture.run_jobs(), ["apply ConfigMap"]);
}

#[test]
fn a_deleted_object_is_recreated_after_a_delay() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    fixture.delete(ObjectKind::Deployment);
    assert!(fixture.run_jobs().is_empty());
    assert_eq!(
        fixture.fleets.next_time(),
        Some(fixture.now + RECREATE_DELAY)
    );
    fixture.advance(RECREATE_DELAY);
    assert_eq!(fixture.run_jobs(), ["apply Deployment"]);
}

#[test]
fn objects_deleted_with_their_gateway_are_not_recreated() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    for kind in [ObjectKind::Deployment, ObjectKind::Service] {
        fixture.delete(kind);
    }
    assert!(fixture.run_jobs().is_empty());
    fixture.set_fleet(None);
    fixture.advance(RECREATE_DELAY);
    assert_eq!(
        fixture.run_jobs(),
        [
            "delete ServiceAccount",
            "delete ConfigMap",
            "delete PodDisruptionBudget"
        ]
    );
    assert!(fixture.objects.is_empty());
    assert!(fixture.fleets.fleets.is_empty(), "nothing is kept");
}

#[test]
fn an_object_being_deleted_is_recreated_once_it_is_gone() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    let other = fingerprint::of_desired(&Value::Null);
    fixture.change(ObjectKind::Service, |observed| {
        observed.deleting = true;
        observed.fingerprint = other;
    });
    assert!(fixture.run_jobs().is_empty());
    fixture.delete(ObjectKind::Service);
    assert_eq!(fixture.run_jobs(), ["apply Service"]);
}

#[test]
fn a_foreign_object_is_reported_and_not_modified() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    fixture.state();
    fixture.change(ObjectKind::Service, |observed| {
        observed.owner = Some(Owner {
            name: "other".to_owned(),
            uid: "other".to_owned(),
        });
        observed.fingerprint = fingerprint::of_desired(&Value::Null);
    });
    assert!(fixture.run_jobs().is_empty());
    let Some(FleetProblem::NoResources(message)) = fixture.state().unwrap().problem else {
        panic!("no problem");
    };
    assert!(
        message.starts_with("Service default/web-") && message.contains("delete it"),
        "{message}"
    );
    // It isn't deleted with the fleet either.
    fixture.set_fleet(None);
    fixture.run_jobs();
    assert_eq!(fixture.objects.len(), 1);
}

#[test]
fn a_recreated_gateway_adopts_the_existing_objects() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    let mut recreated = spec();
    recreated.request.owner.as_mut().unwrap().uid = "another".to_owned();
    fixture.set_fleet(Some(recreated));
    assert_eq!(fixture.run_jobs(), ALL_APPLIED);
    let owners: BTreeSet<_> = fixture
        .objects
        .values()
        .map(|observed| observed.owner.as_ref().unwrap().uid.clone())
        .collect();
    assert_eq!(owners, BTreeSet::from(["another".to_owned()]));
}

#[test]
fn orphans_are_deleted_once_all_fleets_are_known() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    let mut restarted = Fixture::unsynced();
    restarted.objects = fixture.objects;
    restarted.list_all();
    assert!(
        restarted.run_jobs().is_empty(),
        "the fleet may still be set"
    );
    restarted.fleets.mark_complete();
    assert_eq!(restarted.run_jobs().len(), ALL_APPLIED.len());
    assert!(restarted.objects.is_empty());
}

#[test]
fn the_old_workload_is_deleted_once_the_new_one_is_available() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    fixture.available(ObjectKind::Deployment, 2);
    let mut other = spec();
    other.parameters.workload = Some(Workload::DaemonSet);
    fixture.set_fleet(Some(other));
    assert_eq!(
        fixture.run_jobs(),
        ["apply DaemonSet", "delete PodDisruptionBudget"]
    );
    fixture.available(ObjectKind::DaemonSet, 0);
    assert!(fixture.run_jobs().is_empty());
    fixture.available(ObjectKind::DaemonSet, 1);
    assert_eq!(fixture.run_jobs(), ["delete Deployment"]);
}

#[test]
fn a_service_is_kept_while_there_are_no_ports() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    let mut none = spec();
    none.request.ports.clear();
    fixture.set_fleet(Some(none));
    assert!(fixture.run_jobs().is_empty());
    fixture.set_fleet(Some(spec()));
    assert!(fixture.run_jobs().is_empty());
}

#[test]
fn an_autoscaler_starts_from_the_current_replicas() {
    let mut fixture = Fixture::new();
    let mut fixed = spec();
    fixed.parameters.replicas = Some(7);
    fixture.set_fleet(Some(fixed));
    fixture.run_jobs();
    let mut scaled = spec();
    scaled.parameters.autoscaling = Some(Autoscaling::Between {
        min: 2,
        max: 9,
        cpu_percent: 80,
    });
    fixture.set_fleet(Some(scaled.clone()));
    assert_eq!(
        fixture.run_jobs(),
        [
            "scale to 7",
            "apply Deployment",
            "apply HorizontalPodAutoscaler"
        ]
    );
    // A new Deployment starts with the minimum.
    let mut fresh = Fixture::new();
    fresh.set_fleet(Some(scaled));
    let done = fresh.run_jobs();
    assert_eq!(done[3..5], ["apply Deployment", "scale to 2"]);
}

#[test]
fn failures_back_off_and_are_reported() {
    let mut fixture = Fixture::new();
    fixture.refused.insert(ObjectKind::PodDisruptionBudget);
    fixture.set_fleet(Some(spec()));
    let done = fixture.run_jobs();
    assert_eq!(done[..4], ALL_APPLIED[..4], "the others are applied");
    assert_eq!(done.last().unwrap(), "refused PodDisruptionBudget");
    assert!(matches!(
        fixture.state().unwrap().problem,
        Some(FleetProblem::NoResources(_))
    ));
    let mut delays = Vec::new();
    for _ in 0..9 {
        let next = fixture.fleets.next_time().unwrap();
        delays.push((next - fixture.now).as_millis());
        fixture.now = next;
        assert_eq!(fixture.run_jobs(), ["refused PodDisruptionBudget"]);
    }
    assert_eq!(
        delays,
        [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]
    );
    fixture.refused.clear();
    fixture.now = fixture.fleets.next_time().unwrap();
    assert_eq!(fixture.run_jobs(), ["apply PodDisruptionBudget"]);
    assert!(!matches!(
        fixture.state().unwrap().problem,
        Some(FleetProblem::NoResources(_))
    ));
}

#[test]
fn an_unwatchable_kind_affects_only_fleets_that_need_it() {
    let mut fixture = Fixture::unsynced();
    for kind in ObjectKind::ALL {
        let event = match kind {
            ObjectKind::HorizontalPodAutoscaler => {
                ObjectEvent::Unwatchable(kind, None, "forbidden".to_owned())
            }
            _ => ObjectEvent::Listed(kind, None, Vec::new()),
        };
        fixture.fleets.handle_event(event, fixture.now);
    }
    fixture.set_fleet(Some(spec()));
    assert_eq!(fixture.run_jobs(), ALL_APPLIED);
    assert!(!matches!(
        fixture.state().unwrap().problem,
        Some(FleetProblem::NoResources(_))
    ));
    let mut scaled = spec();
    scaled.parameters.autoscaling = Some(Autoscaling::Between {
        min: 1,
        max: 2,
        cpu_percent: 80,
    });
    fixture.set_fleet(Some(scaled));
    assert_eq!(
        fixture.state().unwrap().problem,
        Some(FleetProblem::NoResources("forbidden".to_owned()))
    );
}

#[test]
fn a_relist_detects_missed_deletions() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    fixture
        .objects
        .remove(&(key(), ObjectKind::ConfigMap))
        .unwrap();
    fixture.list_all();
    fixture.advance(RECREATE_DELAY);
    assert_eq!(fixture.run_jobs(), ["apply ConfigMap"]);
}

#[test]
fn fingerprints_change_with_the_spec() {
    let config = testing::config();
    let fingerprint = |spec: &FleetSpec| {
        let object = desired_objects(&config, &id(), spec).objects[&ObjectKind::Service].clone();
        fingerprint::of_desired(&object)
    };
    let mut other = spec();
    assert_eq!(fingerprint(&spec()), fingerprint(&other));
    other.request.ports.insert(Port::udp(80));
    assert_ne!(fingerprint(&spec()), fingerprint(&other));
}
