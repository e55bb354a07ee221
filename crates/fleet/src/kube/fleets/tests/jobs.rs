//! Outcomes of jobs, and events during a job.

use super::*;

#[test]
fn an_object_normalized_by_the_api_server_is_written_once() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    let job = fixture.fleets.next_job(fixture.now).unwrap();
    let (key, mut outcomes) = fixture.execute(job);
    let normalized = fingerprint::of_desired(&Value::Null);
    for outcome in &mut outcomes {
        if let Outcome::Applied(ObjectKind::Deployment, _, observed) = outcome {
            observed.fingerprint = normalized;
        }
    }
    fixture.fleets.done(key, outcomes, fixture.now);
    fixture.log.clear();
    fixture.change(ObjectKind::Deployment, |observed| {
        observed.fingerprint = normalized
    });
    assert!(fixture.run_jobs().is_empty());
    // Any other change is restored.
    fixture.change(ObjectKind::Deployment, |observed| {
        observed.fingerprint = fingerprint::of_desired(&Value::Bool(true));
    });
    assert_eq!(fixture.run_jobs(), ["apply Deployment"]);
}

#[test]
fn job_outcomes_do_not_overwrite_newer_watch_events() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    let job = fixture.fleets.next_job(fixture.now).unwrap();
    let (key, outcomes) = fixture.execute(job);
    // The load balancer assigns an address before the job is done.
    let service = json!({
        "spec": { "type": "LoadBalancer" },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } },
    });
    fixture.change(ObjectKind::Service, |observed| {
        observed.detail = Detail::Addresses(AssignedAddresses::of(&service));
    });
    fixture.fleets.done(key, outcomes, fixture.now);
    let addresses = fixture.state().unwrap().addresses;
    assert_eq!(addresses.len(), 1, "{addresses:?}");
}

#[test]
fn a_fleet_that_is_not_managed_is_left_as_it_is() {
    let managed = |managed: Option<bool>, port: u16| {
        let mut spec = spec();
        spec.parameters.managed = managed;
        spec.request.ports.insert(Port::tcp(port));
        Some(spec)
    };
    let mut fixture = Fixture::new();
    fixture.set_fleet(managed(Some(false), 81));
    assert!(fixture.run_jobs().is_empty(), "nothing is created");
    fixture.set_fleet(managed(None, 81));
    assert!(!fixture.run_jobs().is_empty());
    fixture.set_fleet(managed(Some(false), 82));
    fixture.change(ObjectKind::Deployment, |observed| {
        observed.fingerprint = fingerprint::of_desired(&Value::Bool(true));
    });
    assert!(fixture.run_jobs().is_empty(), "nothing is updated");
    assert!(fixture.state().is_some());
    // All changes made during the job are applied.
    fixture.set_fleet(managed(Some(true), 82));
    let repaired = fixture.run_jobs();
    for kind in ["Deployment", "Service"] {
        assert!(repaired.contains(&format!("apply {kind}")), "{repaired:?}");
    }
    fixture.set_fleet(managed(Some(false), 82));
    fixture.set_fleet(None);
    assert!(
        !fixture.run_jobs().is_empty(),
        "it is deleted with its owner"
    );
}

#[test]
fn a_spec_changed_during_a_job_is_applied_afterwards() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    let job = fixture.fleets.next_job(fixture.now).unwrap();
    let mut other = spec();
    other.request.ports.insert(Port::tcp(81));
    fixture.set_fleet(Some(other));
    assert!(
        fixture.fleets.next_job(fixture.now).is_none(),
        "one job at a time"
    );
    let (key, outcomes) = fixture.execute(job);
    fixture.fleets.done(key, outcomes, fixture.now);
    fixture.log.clear();
    assert_eq!(fixture.run_jobs(), ["apply Service"]);
}

#[test]
fn repeated_reverts_back_off() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    let start = fixture.now;
    let mut repairs = Vec::new();
    while fixture.now < start + Duration::from_secs(600) {
        fixture.change(ObjectKind::Deployment, |observed| {
            observed.fingerprint = fingerprint::of_desired(&json!({ "theirs": 1 }));
        });
        for done in fixture.run_jobs() {
            assert_eq!(done, "apply Deployment");
            repairs.push(fixture.now.duration_since(start).as_millis());
        }
        fixture.advance(Duration::from_millis(100));
    }
    assert_eq!(repairs[..4], [0, 100, 600, 1600], "the first at once");
    assert!(repairs.len() < 20, "{repairs:?}");
    // A change by the owner is applied immediately.
    let mut other = spec();
    other.request.ports.insert(Port::tcp(443));
    fixture.set_fleet(Some(other));
    assert!(fixture.run_jobs().contains(&"apply Service".to_owned()));
    // After a period without reverts, the delays start over.
    fixture.advance(MAX_BACKOFF);
    fixture.run_jobs();
    fixture.advance(BACKOFF_RESET);
    fixture.delete(ObjectKind::ConfigMap);
    fixture.advance(RECREATE_DELAY);
    assert_eq!(fixture.run_jobs(), ["apply ConfigMap"]);
}

#[test]
fn reverts_of_different_objects_are_repaired_at_once() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    for kind in [
        ObjectKind::Deployment,
        ObjectKind::ConfigMap,
        ObjectKind::ServiceAccount,
    ] {
        for _ in 0..2 {
            fixture.change(kind, |observed| {
                observed.fingerprint = fingerprint::of_desired(&json!({ "theirs": 1 }));
            });
            assert_eq!(fixture.run_jobs(), [format!("apply {}", kind.name())]);
        }
        fixture.advance(MIN_BACKOFF);
    }
}

#[test]
fn a_transient_failure_is_reported_only_if_it_lasts() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    fixture.available(ObjectKind::Deployment, 1);
    fixture.change(ObjectKind::Service, |observed| {
        let service = json!({ "spec": { "type": "LoadBalancer" },
            "status": { "loadBalancer": { "ingress": [{ "ip": "10.0.0.9" }] } } });
        observed.detail = Detail::Addresses(AssignedAddresses::of(&service));
    });
    fixture.run_jobs();
    assert_eq!(fixture.state().unwrap().problem, None);
    let mut other = spec();
    other.request.labels.insert("a".to_owned(), "b".to_owned());
    fixture.set_fleet(Some(other));
    let mut failures = 0;
    while !fixture.fleets.has_state() {
        fixture.advance(MAX_BACKOFF);
        let job = fixture
            .fleets
            .next_job(fixture.now)
            .expect("the job is retried");
        let failure = Outcome::Transient(ObjectKind::Service, "busy".to_owned());
        fixture.fleets.done(job.key, vec![failure], fixture.now);
        failures += 1;
    }
    assert_eq!(failures, MAX_UNREPORTED_FAILURES + 1);
    let problem = fixture.state().unwrap().problem;
    assert_eq!(problem, Some(FleetProblem::NoResources("busy".to_owned())));
    // The API server has recovered.
    fixture.advance(MAX_BACKOFF);
    fixture.run_jobs();
    let problem = fixture.state().unwrap().problem;
    assert!(
        !matches!(problem, Some(FleetProblem::NoResources(_))),
        "{problem:?}"
    );
}
