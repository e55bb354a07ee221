//! HTTPProxies in, routes and statuses out.

mod authorization;
mod clients;
mod contour;
mod cookies;
mod fallback;
mod hosts;
mod includes;
mod jwt;
mod limits;
mod rates;
mod routes;
mod services;
mod tcp;

use std::sync::Arc;

use sesame_model::{Action, Forward, Route};

use super::testing::World;

/// The routes and the status of an HTTPProxy with host `a.com`.
fn outcome(routes: &str) -> (String, String) {
    let world = World::with(&[("a", &spec(routes))]);
    (world.routes(80, "a.com"), world.status("a"))
}

fn spec(routes: &str) -> String {
    format!("virtualhost: {{fqdn: A.com}}\nroutes: {routes}")
}

/// The first route, which must be valid.
#[track_caller]
fn route(fields: &str) -> Route {
    let world = World::with(&[("a", &spec(&format!("[{{{fields}}}]")))]);
    assert_eq!(world.status("a"), "valid\n");
    world.first("a.com")
}

#[track_caller]
fn forward(fields: &str) -> Forward {
    match route(&format!("services: [{{name: one, port: 80}}], {fields}")).action {
        Action::Forward(forward) => Arc::unwrap_or_clone(forward),
        other => panic!("{other:?}"),
    }
}

/// The errors of a route that answers 503.
#[track_caller]
fn refused(fields: &str) -> String {
    let (routes, status) = outcome(&format!("[{{{fields}}}]"));
    assert_eq!(routes, "/ / -> 503\n", "{fields}");
    assert!(status.starts_with("invalid\nerror "), "{fields}: {status}");
    status
}
