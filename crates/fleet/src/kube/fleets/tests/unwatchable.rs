//! Kinds that can't be watched.

use super::*;

#[test]
fn an_unwatchable_namespace_affects_only_its_own_fleets() {
    let mut config = testing::config();
    config.namespaces = Some(vec!["default".to_owned(), "other".to_owned()]);
    let mut fleets = Fleets::new(config);
    let now = Instant::now();
    let other = FleetId::of_gateway("other", "web");
    fleets.set_fleet(id(), Some(spec()));
    fleets.set_fleet(other.clone(), Some(testing::spec("web")));
    let class = ObjectKind::GatewayClass;
    fleets.handle_event(ObjectEvent::Listed(class, None, Vec::new()), now);
    let namespaced = ObjectKind::ALL.map(|kind| (!kind.is_cluster_scoped()).then_some(kind));
    for kind in namespaced.into_iter().flatten() {
        let here = Some("default".to_owned());
        fleets.handle_event(ObjectEvent::Listed(kind, here, Vec::new()), now);
        let there = Some("other".to_owned());
        fleets.handle_event(
            ObjectEvent::Unwatchable(kind, there, "forbidden".to_owned()),
            now,
        );
    }
    let with_problem = |fleets: &mut Fleets| {
        let mut with_problem = BTreeMap::new();
        while let Some((fleet, state)) = fleets.next_state() {
            let problem = state.unwrap().problem;
            with_problem.insert(fleet, matches!(problem, Some(FleetProblem::NoResources(_))));
        }
        with_problem
    };
    let expected = BTreeMap::from([(id(), false), (other.clone(), true)]);
    assert_eq!(with_problem(&mut fleets), expected);
    // Listing one namespace doesn't cover the other.
    let here = Some("default".to_owned());
    fleets.handle_event(
        ObjectEvent::Listed(ObjectKind::ConfigMap, here, Vec::new()),
        now,
    );
    assert!(with_problem(&mut fleets).is_empty());
    for kind in namespaced.into_iter().flatten() {
        let there = Some("other".to_owned());
        fleets.handle_event(ObjectEvent::Listed(kind, there, Vec::new()), now);
    }
    assert_eq!(with_problem(&mut fleets), BTreeMap::from([(other, false)]));
}
