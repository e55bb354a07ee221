//! Verdicts and the log, by examples.

use super::*;
use ResourceType::Route;

fn put(fleet: &mut Fleet, name: &str, body: &str) -> Version {
    let resource = Resource::new(name, body.as_bytes().to_vec());
    let version = resource.version();
    let revision = fleet.epoch() + 1;
    fleet.apply(Update {
        upserts: vec![(Route, resource)],
        removals: Vec::new(),
        revision,
    });
    version
}

fn remove(fleet: &mut Fleet, name: &str) {
    fleet.apply(Update {
        removals: vec![(Route, name.into())],
        ..Update::default()
    });
}

fn served(fleet: &Fleet, name: &str) -> Option<Version> {
    match fleet.offer(Route, name, None) {
        Offer::Serve(resource, _) => Some(resource.version()),
        Offer::Keep | Offer::Absent => None,
    }
}

fn new() -> Fleet {
    Fleet::new(FleetId::new("f"))
}

#[test]
fn the_last_good_version_is_served_while_the_current_is_rejected() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.acked(Route, &name, one);
    // Two is replaced before anybody has said a word on it.
    put(&mut fleet, "r", "2");
    let three = put(&mut fleet, "r", "3");
    assert_eq!(served(&fleet, "r"), Some(three));
    fleet.rejected(1, Route, &name, three, "no");
    assert_eq!(served(&fleet, "r"), Some(one));
    let four = put(&mut fleet, "r", "4");
    assert_eq!(served(&fleet, "r"), Some(four));
}

#[test]
fn without_a_good_version_clients_keep_what_they_have() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.rejected(1, Route, &name, one, "no");
    assert_eq!(fleet.offer(Route, "r", None), Offer::Keep);
    assert_eq!(fleet.offer(Route, "other", None), Offer::Absent);
}

#[test]
fn going_back_to_the_good_version_recovers_at_once() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.acked(Route, &name, one);
    let two = put(&mut fleet, "r", "2");
    fleet.rejected(1, Route, &name, two, "no");
    fleet.rejected(1, Route, &name, two, "no, again");
    assert_eq!(fleet.take_events().len(), 1, "said once");
    put(&mut fleet, "r", "1");
    assert!(matches!(
        &fleet.take_events()[..],
        [Event::Recovered { .. }]
    ));
    assert!(fleet.status().rejections.is_empty());
}

#[test]
fn a_rejected_resource_that_is_removed_has_recovered() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.rejected(1, Route, &name, one, "no");
    put(&mut fleet, "r", "2");
    fleet.take_events();
    remove(&mut fleet, "r");
    assert!(matches!(
        &fleet.take_events()[..],
        [Event::Recovered { .. }]
    ));
    assert!(fleet.status().rejections.is_empty());
    remove(&mut fleet, "r");
    assert!(fleet.take_events().is_empty());
}

#[test]
fn a_verdict_on_a_replaced_version_is_moot() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    let two = put(&mut fleet, "r", "2");
    fleet.rejected(1, Route, &name, one, "no");
    fleet.acked(Route, &name, one);
    assert!(fleet.take_events().is_empty());
    assert_eq!(served(&fleet, "r"), Some(two));
}

#[test]
fn what_some_acknowledge_and_others_reject_is_served_to_the_rest() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.rejected(1, Route, &name, one, "no");
    let end = fleet.log_end();
    fleet.acked(Route, &name, one);
    assert_eq!(served(&fleet, "r"), Some(one));
    assert_eq!(
        fleet.offer(Route, "r", Some((one, 1))),
        Offer::Keep,
        "not to who refused it"
    );
    assert!(
        fleet.change(end).is_some(),
        "the others are told to look again"
    );
    assert_eq!(fleet.status().rejections.len(), 1);
}

#[test]
fn the_log_and_the_revisions_are_bounded() {
    let mut fleet = new();
    for i in 0..20_000u32 {
        put(&mut fleet, "r", &i.to_string());
    }
    assert_eq!(
        (fleet.log.len(), fleet.revisions.len()),
        (LOG_FLOOR, REVISIONS)
    );
    assert_eq!(fleet.log_end(), 20_000);
    assert!(fleet.change(0).is_none());
    assert!(
        fleet
            .change(19_999)
            .is_some_and(|change| change.epoch == 20_000)
    );
    assert_eq!(fleet.revision(20_000), Some(20_000));
    assert_eq!(fleet.revision(1), None);
}

#[test]
fn what_is_equal_or_not_there_leaves_no_trace_in_the_log() {
    let mut fleet = new();
    put(&mut fleet, "r", "1");
    put(&mut fleet, "r", "1");
    remove(&mut fleet, "none");
    assert_eq!(fleet.log_end(), 1);
}

#[test]
fn a_long_rejection_is_cut_between_characters() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.rejected(1, Route, &name, one, &"ä".repeat(MESSAGE_BYTES));
    let message = &fleet.status().rejections[0].message;
    assert!(message.len() <= MESSAGE_BYTES && message.ends_with('ä'));
}

#[test]
fn a_verdict_goes_with_the_client_that_gave_it() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.join(1, "n".into());
    fleet.join(2, "n".into());
    for client in [1, 2] {
        fleet.rejected(client, Route, &name, one, "no");
    }
    fleet.take_events();
    fleet.leave(1);
    assert_eq!(fleet.offer(Route, "r", None), Offer::Keep);
    fleet.leave(2);
    assert_eq!(served(&fleet, "r"), Some(one), "the next one may try it");
    assert_eq!(fleet.status().rejections.len(), 1, "but nobody has it yet");
    fleet.take_events();
    fleet.rejected(3, Route, &name, one, "no");
    assert!(matches!(&fleet.take_events()[..], [Event::Rejected { .. }]));
    fleet.leave(3);
    fleet.acked(Route, &name, one);
    assert!(matches!(
        &fleet.take_events()[..],
        [Event::Recovered { .. }]
    ));
}

#[test]
fn what_one_had_and_the_next_rejected_recovers_when_that_one_is_gone() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.acked(Route, &name, one);
    fleet.join(2, "n".into());
    fleet.rejected(2, Route, &name, one, "address in use");
    fleet.take_events();
    fleet.leave(2);
    let events = fleet.take_events();
    assert!(matches!(
        &events[..],
        [Event::Recovered { .. }, Event::Disconnected { .. }]
    ));
    assert!(fleet.status().rejections.is_empty());
}

#[test]
fn a_fleet_that_is_removed_leaves_no_rejection_behind() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.rejected(1, Route, &name, one, "no");
    fleet.take_events();
    fleet.remove();
    assert!(matches!(
        &fleet.take_events()[..],
        [Event::Recovered { .. }]
    ));
    fleet.rejected(1, Route, &name, one, "no");
    assert!(fleet.take_events().is_empty());
}
