//! Answers to requests, and what happens between a request and its answer.

use super::*;

#[test]
fn what_the_api_server_makes_of_our_words_is_not_written_for_ever() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    let job = rig.fleets.next_job(rig.now).unwrap();
    let (key, mut outcomes) = rig.act(job);
    let webhooks = fingerprint::of_desired(&Value::Null);
    for outcome in &mut outcomes {
        if let Outcome::Applied(Kind::Deployment, _, seen) = outcome {
            seen.fingerprint = webhooks;
        }
    }
    rig.fleets.done(key, outcomes, rig.now);
    rig.log.clear();
    rig.change(Kind::Deployment, |seen| seen.fingerprint = webhooks);
    assert!(rig.work().is_empty());
    // Any other change is restored.
    rig.change(Kind::Deployment, |seen| {
        seen.fingerprint = fingerprint::of_desired(&Value::Bool(true));
    });
    assert_eq!(rig.work(), ["apply Deployment"]);
}

#[test]
fn what_the_watch_tells_during_a_job_outlives_the_jobs_answers() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    let job = rig.fleets.next_job(rig.now).unwrap();
    let (key, outcomes) = rig.act(job);
    // The load balancer assigns an address before the job is done.
    let service = json!({
        "spec": { "type": "LoadBalancer" },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } },
    });
    rig.change(Kind::Service, |seen| {
        seen.detail = Detail::Service(Given::of(&service));
    });
    rig.fleets.done(key, outcomes, rig.now);
    let addresses = rig.observation().unwrap().addresses;
    assert_eq!(addresses.len(), 1, "{addresses:?}");
}

#[test]
fn a_wish_that_changes_during_a_job_is_carried_out_after_it() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    let job = rig.fleets.next_job(rig.now).unwrap();
    let mut other = spec();
    other.request.ports.insert(Port::tcp(81));
    rig.want(Some(other));
    assert!(rig.fleets.next_job(rig.now).is_none(), "one job at a time");
    let (key, outcomes) = rig.act(job);
    rig.fleets.done(key, outcomes, rig.now);
    rig.log.clear();
    assert_eq!(rig.work(), ["apply Service"]);
}

#[test]
fn who_undoes_it_again_and_again_is_answered_less_and_less_often() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    let begun = rig.now;
    let mut answers = Vec::new();
    while rig.now < begun + Duration::from_secs(600) {
        rig.change(Kind::Deployment, |seen| {
            seen.fingerprint = fingerprint::of_desired(&json!({ "theirs": 1 }));
        });
        for done in rig.work() {
            assert_eq!(done, "apply Deployment");
            answers.push(rig.now.duration_since(begun).as_millis());
        }
        rig.pass(Duration::from_millis(100));
    }
    assert_eq!(answers[..4], [0, 100, 600, 1600], "at once, then slower");
    assert!(answers.len() < 20, "{answers:?}");
    // A change by the owner is applied at once.
    let mut other = spec();
    other.request.ports.insert(Port::tcp(443));
    rig.want(Some(other));
    assert!(rig.work().contains(&"apply Service".to_owned()));
    // After a calm period the delays start over.
    rig.pass(LONGEST_PAUSE);
    rig.work();
    rig.pass(CALM);
    rig.lose(Kind::ConfigMap);
    rig.pass(AFTER_LOSS);
    assert_eq!(rig.work(), ["apply ConfigMap"]);
}

#[test]
fn who_undoes_one_thing_after_another_is_answered_at_once() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    for kind in [Kind::Deployment, Kind::ConfigMap, Kind::ServiceAccount] {
        for _ in 0..2 {
            rig.change(kind, |seen| {
                seen.fingerprint = fingerprint::of_desired(&json!({ "theirs": 1 }));
            });
            assert_eq!(rig.work(), [format!("apply {}", kind.name())]);
        }
        rig.pass(FIRST_PAUSE);
    }
}

#[test]
fn a_stumble_is_told_only_when_it_lasts() {
    let mut rig = Rig::new();
    rig.want(Some(spec()));
    rig.work();
    rig.available(Kind::Deployment, 1);
    rig.change(Kind::Service, |seen| {
        let with = json!({ "spec": { "type": "LoadBalancer" },
            "status": { "loadBalancer": { "ingress": [{ "ip": "10.0.0.9" }] } } });
        seen.detail = Detail::Service(Given::of(&with));
    });
    rig.work();
    assert_eq!(rig.observation().unwrap().problem, None);
    let mut other = spec();
    other.request.labels.insert("a".to_owned(), "b".to_owned());
    rig.want(Some(other));
    let mut stumbles = 0;
    while !rig.fleets.has_observation() {
        rig.pass(LONGEST_PAUSE);
        let job = rig.fleets.next_job(rig.now).expect("it is tried again");
        let stumble = Outcome::Stumbled(Kind::Service, "busy".to_owned());
        rig.fleets.done(job.key, vec![stumble], rig.now);
        stumbles += 1;
    }
    assert_eq!(stumbles, PATIENCE + 1);
    let problem = rig.observation().unwrap().problem;
    assert_eq!(problem, Some(FleetProblem::NoResources("busy".to_owned())));
    // The API server has recovered.
    rig.pass(LONGEST_PAUSE);
    rig.work();
    let problem = rig.observation().unwrap().problem;
    assert!(
        !matches!(problem, Some(FleetProblem::NoResources(_))),
        "{problem:?}"
    );
}
