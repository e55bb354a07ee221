//! Upgrades of fleets whose workload was applied by another release.

use super::*;

const SECOND: &str = "zweb";

/// A leader that finds two fleets of another release, which have finished their rollouts.
fn outdated() -> Fixture {
    let mut first = Fixture::new();
    for name in ["web", SECOND] {
        first.fleets.set_fleet(
            FleetId::of_gateway("default", name),
            Some(testing::spec(name)),
        );
    }
    first.run_jobs();
    let mut fixture = Fixture::unsynced();
    fixture.fleets.set_sesame_rolled_out(false);
    fixture.version = first.version;
    fixture.objects = first.objects;
    let other = fingerprint::of_desired(&Value::Bool(false));
    for ((_, kind), observed) in &mut fixture.objects {
        if let Detail::Workload(workload) = &mut observed.detail {
            workload.available = 2;
            workload.current_release = false;
            workload.rollout = Rollout::Done;
        }
        if kind.is_workload() || *kind == ObjectKind::ConfigMap {
            observed.fingerprint = other;
        }
    }
    for name in ["web", SECOND] {
        fixture.fleets.set_fleet(
            FleetId::of_gateway("default", name),
            Some(testing::spec(name)),
        );
    }
    fixture.fleets.mark_complete();
    fixture.list_all();
    fixture
}

impl Fixture {
    /// Reports the rollout of the first fleet's Deployment.
    fn rollout(&mut self, rollout: Rollout) {
        self.change(ObjectKind::Deployment, |observed| {
            if let Detail::Workload(workload) = &mut observed.detail {
                workload.available = 2;
                workload.rollout = rollout;
            }
        });
    }

    fn progress(&mut self) -> String {
        let progress = self.fleets.next_progress().expect("changed progress");
        progress.map_or_else(String::new, |progress| progress.to_string())
    }
}

#[test]
fn fleets_are_upgraded_one_after_the_other_once_sesame_is() {
    let mut fixture = outdated();
    assert!(fixture.run_jobs().is_empty());
    assert_eq!(
        fixture.progress(),
        "2 fleets wait until all replicas of Sesame's Deployment run the same release."
    );
    fixture.fleets.set_sesame_rolled_out(true);
    assert_eq!(fixture.run_jobs(), ["apply ConfigMap", "apply Deployment"]);
    assert_eq!(
        fixture.progress(),
        "The Envoys of default/web are being replaced. 1 fleet waits until they are available."
    );
    fixture.rollout(Rollout::Progressing);
    assert!(fixture.run_jobs().is_empty());
    fixture.rollout(Rollout::Failed);
    assert!(fixture.run_jobs().is_empty());
    assert_eq!(
        fixture.progress(),
        format!(
            "The upgrade of the Envoys of default/web failed: the new pods of Deployment default/{} are not available. 1 \
             fleet waits until it succeeds.",
            key().name
        )
    );
    fixture.rollout(Rollout::Done);
    assert_eq!(fixture.run_jobs(), ["apply ConfigMap", "apply Deployment"]);
    assert_eq!(
        fixture.progress(),
        "The Envoys of default/zweb are being replaced."
    );
    fixture
        .fleets
        .set_fleet(FleetId::of_gateway("default", SECOND), None);
    assert_eq!(
        fixture.progress(),
        "The Envoys of all fleets run this release of Sesame."
    );
    assert!(fixture.fleets.next_progress().is_none());
}

#[test]
fn other_objects_and_new_fleets_do_not_wait() {
    let mut fixture = outdated();
    let mut other = spec();
    other.request.ports.insert(Port::tcp(8080));
    fixture.set_fleet(Some(other));
    assert_eq!(fixture.run_jobs(), ["apply Service"]);
    fixture.fleets.set_fleet(
        FleetId::of_gateway("default", "new"),
        Some(testing::spec("new")),
    );
    assert_eq!(fixture.run_jobs(), ALL_APPLIED);
    // A deleted workload is created as that of this release.
    fixture.delete(ObjectKind::Deployment);
    fixture.advance(RECREATE_DELAY);
    assert_eq!(fixture.run_jobs(), ["apply ConfigMap", "apply Deployment"]);
}

#[test]
fn a_changed_configuration_does_not_wait_for_other_fleets() {
    let mut fixture = outdated();
    fixture.fleets.set_sesame_rolled_out(true);
    fixture.run_jobs();
    fixture.rollout(Rollout::Failed);
    assert!(fixture.run_jobs().is_empty());
    let mut changed = testing::spec(SECOND);
    changed.parameters.replicas = Some(5);
    fixture
        .fleets
        .set_fleet(FleetId::of_gateway("default", SECOND), Some(changed));
    assert_eq!(fixture.run_jobs(), ["apply ConfigMap", "apply Deployment"]);
}

#[test]
fn only_the_leader_reports_progress() {
    let mut fixture = outdated();
    fixture.progress();
    fixture.fleets.set_leading(false);
    assert_eq!(fixture.progress(), "");
    fixture.fleets.set_sesame_rolled_out(true);
    assert!(fixture.run_jobs().is_empty());
    fixture.fleets.set_leading(true);
    assert_eq!(fixture.run_jobs(), ["apply ConfigMap", "apply Deployment"]);
}
