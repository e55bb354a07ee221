use sesame_model::{TlsPolicyKey, TrustBundle, TrustBundleKey};

use super::*;

#[test]
fn a_trust_bundle_is_sent_to_the_fleets_that_refer_to_it() {
    let mut world = World::new(Sharding::Auto);
    let key = TrustBundleKey::Policy(TlsPolicyKey {
        namespace: "ns".into(),
        name: "c0".into(),
    });
    let bundle = |content: u8| TrustBundle {
        certificates: vec![content].into(),
        revoked: None,
    };
    let mut changes = Vec::new();
    let mut commit = |fill: &dyn Fn(&Inputs, &mut Batch)| {
        let (_, step) = world.commit(fill);
        let step = step.into_iter().map(|change| {
            assert_eq!(change.type_url, names::SECRET);
            (change.fleet, change.name, change.body.is_some())
        });
        changes.extend(step);
        std::mem::take(&mut changes)
    };
    let sent = |name: &str, exists: bool| (fleet(0), name.to_owned(), exists);
    // A certificate with the same name has a different resource name.
    let first = commit(&|inputs, batch| {
        perform(Op::Certificate(0, Some(1)), inputs, batch);
        perform(Op::FleetCertificate(0, 0, true), inputs, batch);
        batch.upsert(inputs.trust_bundles, key.clone(), bundle(1));
        batch.upsert(inputs.fleet_trust_bundles, (fleet(0), key.clone()), ());
    });
    assert_eq!(first, [sent("ca:ns/c0", true), sent("ns/c0", true)]);
    let changed = commit(&|inputs, batch| {
        batch.upsert(inputs.trust_bundles, key.clone(), bundle(2));
    });
    assert_eq!(changed, [sent("ca:ns/c0", true)]);
    let removed = commit(&|inputs, batch| {
        batch.remove(inputs.fleet_trust_bundles, (fleet(0), key.clone()));
    });
    assert_eq!(removed, [sent("ca:ns/c0", false)]);
}
