//! A host that many HTTPRoutes share.

use serde_json::json;
use sesame_control::Options;
use sesame_tests::world::World;

use crate::proxies::PART;
use crate::{
    costs, fleet_state, gateway, route, route_name, service, service_name, slice, upsert, with,
};

/// The number of HTTPRoutes.
const SHARING: usize = 1_000;

#[test]
fn a_changed_route_of_a_shared_host_is_encoded_with_few_others() {
    let of = |n: usize, service: &str| {
        let mut route = route(&route_name(n), "shared.example.com", service);
        let path = json!([{"path": {"value": format!("/{n}")}}]);
        route["spec"]["rules"][0]["matches"] = path;
        route["spec"]["parentRefs"][0]["sectionName"] = "http".into();
        route
    };
    let mut gateway = gateway();
    // Without HTTPS.
    gateway["spec"]["listeners"] = json!([gateway["spec"]["listeners"][0].clone()]);
    let mut inputs = vec![fleet_state(true), upsert(gateway)];
    for n in 0..SHARING {
        let name = service_name(n);
        inputs.push(upsert(service(&name)));
        inputs.push(upsert(slice(&name, "10.0.0.1")));
        inputs.push(upsert(of(n, &name)));
    }
    // A second route uses the Service, so no cluster is added or removed.
    inputs.push(upsert(of(SHARING, &service_name(321))));
    let mut world = World::new(Options::default());
    world.apply(inputs);
    let work: &[_] = &[
        ("our http_routes", 1),
        ("http rules", 1),
        ("http refused", 1),
        ("http attachments", 1),
        ("backend uses", 1),
        ("virtual host", 1),
        ("envoy.virtual_hosts", 1),
        ("http_route status", 1),
    ];
    for service in [7, 321] {
        costs(
            &mut world,
            vec![upsert(of(321, &service_name(service)))],
            &with(&[work, PART]),
            &["RouteConfiguration 80"],
        );
    }
}
