//! All fleets are in Sesame's own namespace, without owner references.

use super::*;

fn fixture() -> Fixture {
    let config = FleetsConfig {
        own_namespace: true,
        ..testing::config()
    };
    Fixture::unsynced_with(config)
}

fn ids() -> [FleetId; 2] {
    ["shop", "blog"].map(|namespace| FleetId::of_gateway(namespace, "web"))
}

#[test]
fn gateways_of_the_same_name_have_separate_fleets() {
    let mut fixture = fixture();
    fixture.list_all();
    for id in ids() {
        fixture.fleets.set_fleet(id, Some(spec()));
    }
    let mut expected = ALL_APPLIED.repeat(2);
    assert_eq!(fixture.run_jobs(), expected);
    for (key, observed) in &fixture.objects {
        assert_eq!(*key.0.namespace, *testing::config().namespace);
        assert_eq!(observed.owner, None);
    }
    let [removed, kept] = ids();
    fixture.fleets.set_fleet(removed, None);
    expected.truncate(ALL_APPLIED.len());
    let deletions = expected
        .iter()
        .map(|action| action.replace("apply", "delete"));
    assert_eq!(fixture.run_jobs(), Vec::from_iter(deletions));
    assert_eq!(fixture.objects.len(), ALL_APPLIED.len());
    let name = crate::kube::names::object(&kept);
    assert!(fixture.objects.keys().all(|(key, _)| *key.name == *name));
}

#[test]
fn fleets_of_gateways_that_were_deleted_while_sesame_was_not_running_are_orphans() {
    let mut before = fixture();
    before.list_all();
    for id in ids() {
        before.fleets.set_fleet(id, Some(spec()));
    }
    before.run_jobs();
    let mut after = fixture();
    after.objects = before.objects;
    after.list_all();
    let [_, kept] = ids();
    after.fleets.set_fleet(kept, Some(spec()));
    assert!(after.run_jobs().is_empty(), "not all Gateways are known");
    after.fleets.mark_complete();
    let deleted = after.run_jobs();
    assert_eq!(deleted.len(), ALL_APPLIED.len(), "{deleted:?}");
    assert_eq!(after.objects.len(), ALL_APPLIED.len());
}

#[test]
fn an_unlabelled_object_is_not_deleted() {
    let mut fixture = fixture();
    fixture.list_all();
    let [id, _] = ids();
    fixture.fleets.set_fleet(id.clone(), Some(spec()));
    fixture.run_jobs();
    let (key, mut observed) = {
        let (key, observed) = fixture.objects.iter().next().unwrap();
        (key.clone(), observed.clone())
    };
    observed.labelled = false;
    observed.version += 100;
    fixture.put_of(key.0, key.1, observed);
    fixture.fleets.set_fleet(id, None);
    fixture.run_jobs();
    assert_eq!(fixture.objects.len(), 1);
}
