//! ACKs, NACKs and the log.

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
    match fleet.lookup(Route, name, None) {
        Lookup::Serve(resource, _) => Some(resource.version()),
        Lookup::Keep | Lookup::Missing => None,
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
    // Version 2 is replaced before any client has responded to it.
    put(&mut fleet, "r", "2");
    let three = put(&mut fleet, "r", "3");
    assert_eq!(served(&fleet, "r"), Some(three));
    fleet.rejected(1, Route, &name, three, "no");
    assert_eq!(served(&fleet, "r"), Some(one));
    let four = put(&mut fleet, "r", "4");
    assert_eq!(served(&fleet, "r"), Some(four));
}

#[test]
fn without_a_last_good_version_clients_keep_what_they_have() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.rejected(1, Route, &name, one, "no");
    assert_eq!(fleet.lookup(Route, "r", None), Lookup::Keep);
    assert_eq!(fleet.lookup(Route, "other", None), Lookup::Missing);
}

#[test]
fn going_back_to_the_last_good_version_recovers_at_once() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.acked(Route, &name, one);
    let two = put(&mut fleet, "r", "2");
    fleet.rejected(1, Route, &name, two, "no");
    fleet.rejected(1, Route, &name, two, "no, again");
    assert_eq!(fleet.take_events().len(), 1, "reported once");
    put(&mut fleet, "r", "1");
    assert!(matches!(
        &fleet.take_events()[..],
        [XdsEvent::Recovered { .. }]
    ));
    assert!(fleet.status().rejections.is_empty());
}

#[test]
fn removing_a_rejected_resource_recovers_it() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.rejected(1, Route, &name, one, "no");
    put(&mut fleet, "r", "2");
    fleet.take_events();
    remove(&mut fleet, "r");
    assert!(matches!(
        &fleet.take_events()[..],
        [XdsEvent::Recovered { .. }]
    ));
    assert!(fleet.status().rejections.is_empty());
    remove(&mut fleet, "r");
    assert!(fleet.take_events().is_empty());
}

#[test]
fn a_response_to_a_replaced_version_is_ignored() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    let two = put(&mut fleet, "r", "2");
    fleet.rejected(1, Route, &name, one, "no");
    fleet.acked(Route, &name, one);
    assert!(fleet.take_events().is_empty());
    assert_eq!(served(&fleet, "r"), Some(two));
}

#[test]
fn a_version_with_acks_and_nacks_is_served_to_the_other_clients() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.rejected(1, Route, &name, one, "no");
    let end = fleet.log_end();
    fleet.acked(Route, &name, one);
    assert_eq!(served(&fleet, "r"), Some(one));
    assert_eq!(
        fleet.lookup(Route, "r", Some((one, 1))),
        Lookup::Keep,
        "not to the client that rejected it"
    );
    assert_eq!(
        fleet.changes_since(end).unwrap().count(),
        1,
        "it is sent to the other clients"
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
        (MIN_LOG, REVISIONS)
    );
    assert_eq!(fleet.log_end(), 20_000);
    assert!(fleet.changes_since(0).is_none());
    let last = fleet.changes_since(19_999).unwrap().next().unwrap();
    assert_eq!(last.epoch, 20_000);
    assert_eq!(fleet.revision(20_000), Some(20_000));
    assert_eq!(fleet.revision(1), None);
}

#[test]
fn changes_without_effect_are_not_logged() {
    let mut fleet = new();
    put(&mut fleet, "r", "1");
    put(&mut fleet, "r", "1");
    remove(&mut fleet, "none");
    assert_eq!(fleet.log_end(), 1);
}

#[test]
fn a_long_error_is_cut_at_a_character_boundary() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.rejected(1, Route, &name, one, &"ä".repeat(MESSAGE_BYTES));
    let message = &fleet.status().rejections[0].message;
    assert!(message.len() <= MESSAGE_BYTES && message.ends_with('ä'));
}

#[test]
fn a_clients_rejections_end_with_its_stream() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.join(1, "n".into());
    fleet.join(2, "n".into());
    for client in [1, 2] {
        fleet.rejected(client, Route, &name, one, "no");
    }
    fleet.take_events();
    fleet.leave(1);
    assert_eq!(fleet.lookup(Route, "r", None), Lookup::Keep);
    fleet.leave(2);
    assert_eq!(served(&fleet, "r"), Some(one), "the next client may try it");
    assert_eq!(
        fleet.status().rejections.len(),
        1,
        "no client has accepted it yet"
    );
    fleet.take_events();
    fleet.rejected(3, Route, &name, one, "no");
    assert!(matches!(
        &fleet.take_events()[..],
        [XdsEvent::Rejected { .. }]
    ));
    fleet.leave(3);
    fleet.acked(Route, &name, one);
    assert!(matches!(
        &fleet.take_events()[..],
        [XdsEvent::Recovered { .. }]
    ));
}

#[test]
fn an_accepted_version_recovers_when_the_rejecting_client_disconnects() {
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
        [XdsEvent::Recovered { .. }, XdsEvent::Disconnected { .. }]
    ));
    assert!(fleet.status().rejections.is_empty());
}

#[test]
fn removing_a_fleet_recovers_its_resources() {
    let (mut fleet, name) = (new(), Arc::from("r"));
    let one = put(&mut fleet, "r", "1");
    fleet.rejected(1, Route, &name, one, "no");
    fleet.take_events();
    fleet.remove();
    assert!(matches!(
        &fleet.take_events()[..],
        [XdsEvent::Recovered { .. }]
    ));
    fleet.rejected(1, Route, &name, one, "no");
    assert!(fleet.take_events().is_empty());
}
