use super::*;

fn id(xbackend: &str) -> PodServiceId {
    PodServiceId {
        namespace: "ns".into(),
        xbackend: xbackend.into(),
    }
}

fn service(app: &str) -> PodService {
    PodService {
        name: "a-x".into(),
        owner_uid: "1".to_owned(),
        selector: BTreeMap::from([("app".to_owned(), app.to_owned())]),
    }
}

fn update(app: &str) -> PodServiceChange {
    PodServiceChange::Update {
        uid: "2".to_owned(),
        service: service(app),
    }
}

/// A leader with a Service to create.
fn leader(now: Instant) -> PodServices {
    let mut services = PodServices::default();
    services.set(id("a"), Some(PodServiceChange::Create(service("a"))), now);
    services.set_leading(true);
    services
}

/// Seconds until the next job.
fn delay(services: &PodServices, now: Instant) -> f32 {
    let next = services.next_time().expect("a schedule");
    next.saturating_duration_since(now).as_secs_f32()
}

#[test]
fn only_the_leader_writes() {
    let now = Instant::now();
    let mut services = leader(now);
    services.set_leading(false);
    assert_eq!((services.next_job(now), services.next_time()), (None, None));
    services.set_leading(true);
    let job = services.next_job(now).expect("a job");
    assert_eq!(job.change, PodServiceChange::Create(service("a")));
    assert_eq!(services.next_job(now), None, "one job at a time");
}

#[test]
fn an_observed_write_is_not_repeated_and_an_unobserved_one_is() {
    let mut now = Instant::now();
    let mut services = leader(now);
    services.next_job(now);
    services.done(id("a"), Written::Done, now);
    assert_eq!(services.next_job(now), None);
    let mut delays = Vec::new();
    for _ in 0..9 {
        delays.push(delay(&services, now));
        now = services.next_time().expect("a schedule");
        assert!(services.next_job(now).is_some());
        services.done(id("a"), Written::Done, now);
    }
    assert_eq!(delays, [10., 10., 10., 10., 10., 10., 16., 32., 60.]);
    services.set(id("a"), None, now);
    assert_eq!(services.next_job(now + RESET), None);
    assert!(services.services.is_empty() && services.due.is_empty());
}

#[test]
fn edits_by_others_are_reverted_with_backoff() {
    let mut now = Instant::now();
    let mut services = leader(now);
    let mut delays = Vec::new();
    for _ in 0..9 {
        delays.push(delay(&services, now));
        now = services.next_time().expect("a schedule");
        assert!(services.next_job(now).is_some());
        // The watch may be faster than the response.
        services.set(id("a"), None, now);
        services.done(id("a"), Written::Done, now);
        services.set(id("a"), Some(update("a")), now);
    }
    assert_eq!(delays, [0., 0., 0.5, 1., 2., 4., 8., 16., 32.]);
    // A changed XBackend isn't delayed.
    services.set(id("a"), Some(update("b")), now);
    assert_eq!(delay(&services, now), 0.);
}

#[test]
fn a_change_during_a_write_is_written_afterwards() {
    let now = Instant::now();
    let mut services = leader(now);
    services.next_job(now);
    services.set(id("a"), Some(update("b")), now);
    assert_eq!(services.next_job(now), None);
    services.done(id("a"), Written::Done, now);
    let job = services.next_job(now).expect("a job");
    assert_eq!(job.change, update("b"));
}

#[test]
fn failures_are_reported_until_they_are_resolved() {
    let mut now = Instant::now();
    let mut services = leader(now);
    let mut fail = |services: &mut PodServices, written| {
        now = services.next_time().expect("a schedule");
        services.next_job(now).expect("a job");
        services.done(id("a"), written, now);
        services.next_failure()
    };
    let transient = || Written::Transient("busy".to_owned());
    let failed = || Written::Failed("forbidden".to_owned());
    let reported = |text: &str| Some((id("a"), Some(text.to_owned())));
    for _ in 0..UNREPORTED {
        assert_eq!(fail(&mut services, transient()), None);
    }
    assert_eq!(fail(&mut services, transient()), reported("busy"));
    assert_eq!(fail(&mut services, failed()), reported("forbidden"));
    assert_eq!(fail(&mut services, failed()), None);
    assert_eq!(fail(&mut services, Written::Done), Some((id("a"), None)));
    assert_eq!(fail(&mut services, failed()), reported("forbidden"));
    services.set(id("a"), None, Instant::now());
    assert_eq!(services.next_failure(), Some((id("a"), None)));
    assert!(!services.has_failure());
}

#[test]
fn a_service_that_was_never_written_leaves_nothing_behind() {
    let now = Instant::now();
    let mut services = leader(now);
    services.set(id("a"), None, now);
    services.set(id("b"), None, now);
    assert!(services.services.is_empty() && services.due.is_empty());
}
