//! Kinds that can't be watched.

use super::*;

#[test]
fn a_namespace_that_cant_be_looked_into_hinders_its_own_fleets_only() {
    let mut config = testing::config();
    config.namespaces = Some(vec!["default".to_owned(), "other".to_owned()]);
    let mut fleets = Fleets::new(config);
    let now = Instant::now();
    let other = FleetId::of_gateway("other", "web");
    fleets.want(id(), Some(spec()));
    fleets.want(other.clone(), Some(testing::spec("web")));
    for kind in Kind::ALL {
        let here = Some("default".to_owned());
        fleets.learn(News::All(kind, here, Vec::new()), now);
        let there = Some("other".to_owned());
        fleets.learn(News::Hidden(kind, there, "forbidden".to_owned()), now);
    }
    let hindered = |fleets: &mut Fleets| {
        let mut hindered = BTreeMap::new();
        while let Some((fleet, observation)) = fleets.take_observation() {
            let problem = observation.unwrap().problem;
            hindered.insert(fleet, matches!(problem, Some(FleetProblem::NoResources(_))));
        }
        hindered
    };
    let expected = BTreeMap::from([(id(), false), (other.clone(), true)]);
    assert_eq!(hindered(&mut fleets), expected);
    // A list of one namespace doesn't cover the other.
    let here = Some("default".to_owned());
    fleets.learn(News::All(Kind::ConfigMap, here, Vec::new()), now);
    assert!(hindered(&mut fleets).is_empty());
    for kind in Kind::ALL {
        let there = Some("other".to_owned());
        fleets.learn(News::All(kind, there, Vec::new()), now);
    }
    assert_eq!(hindered(&mut fleets), BTreeMap::from([(other, false)]));
}
