//! Changes that routes and Services make to cookies.

use sesame_model::{Action, CookieChange};

use super::super::testing::World;
use super::{forward, refused, route, spec};

/// The changes for each target: the names of cookies, and whether they are `Secure`.
fn cookies(fields: &str) -> Vec<Vec<(String, Option<bool>)>> {
    let Action::Forward(forward) = route(fields).action else {
        panic!("{fields}");
    };
    let of = |change: &CookieChange| (change.name.to_string(), change.secure);
    let targets = &forward.options.as_ref().expect("options").cookies;
    assert_eq!(targets.len(), forward.targets.len());
    let targets = targets.iter();
    targets
        .map(|changes| changes.iter().map(of).collect())
        .collect()
}

#[test]
fn services_have_the_changes_of_the_route_and_their_own() {
    let own = "cookieRewritePolicies: [{name: a, secure: false}, {name: b, secure: true}]";
    let services = format!("{{name: one, port: 80}}, {{name: two, port: 80, {own}}}");
    let a = |secure| ("a".to_owned(), Some(secure));
    let b = ("b".to_owned(), Some(true));
    assert_eq!(
        cookies(&format!("services: [{services}]")),
        [vec![], vec![a(false), b.clone()]]
    );
    assert_eq!(
        cookies(&format!(
            "services: [{services}], cookieRewritePolicies: [{{name: a, secure: true, sameSite: Lax}}]"
        )),
        [vec![a(true)], vec![a(false), b]]
    );
    assert_eq!(forward("").options, None);
}

#[test]
fn invalid_changes_of_cookies_refuse_the_requests_of_the_route() {
    let with_path = |path: &str| {
        format!("cookieRewritePolicies: [{{name: a, pathRewrite: {{value: {path}}}}}]")
    };
    let wrong = with_path("a;b");
    let line_end = with_path(r#""/a\r\nset-cookie: b=c""#);
    for (fields, error) in [
        (
            format!("services: [{{name: one, port: 80}}], {line_end}"),
            "RouteError InvalidCookieRewritePolicy: spec.routes[0].cookieRewritePolicies[0].pathRewrite.value: ",
        ),
        (
            format!("services: [{{name: one, port: 80}}], {wrong}"),
            "RouteError InvalidCookieRewritePolicy: spec.routes[0].cookieRewritePolicies[0].pathRewrite.value: ",
        ),
        (
            format!("services: [{{name: one, port: 80, {wrong}}}]"),
            "ServiceError InvalidCookieRewritePolicy: spec.routes[0].services[0].cookieRewritePolicies[0].pathRewrite.value: ",
        ),
        (
            format!("directResponsePolicy: {{statusCode: 200}}, {wrong}"),
            "RouteError InvalidCookieRewritePolicy: spec.routes[0].cookieRewritePolicies[0].pathRewrite.value: ",
        ),
    ] {
        let status = refused(&fields);
        assert!(status.contains(error), "{status}");
    }
}

#[test]
fn changes_to_cookies_that_no_service_sets_are_warnings() {
    let policy = "cookieRewritePolicies: [{name: a, secure: true}]";
    let mirror = "services: [{name: one, port: 80}, {name: two, port: 80, mirror: true, POLICY}]";
    let of_route = |fields: &str| spec(&format!("[{{{fields}}}]"));
    for (object, warning) in [
        (
            of_route("directResponsePolicy: {statusCode: 200}, POLICY"),
            "RouteError InvalidCookieRewritePolicy: spec.routes[0].cookieRewritePolicies: has no effect",
        ),
        (
            of_route("requestRedirectPolicy: {path: /x}, POLICY"),
            "RouteError InvalidCookieRewritePolicy: spec.routes[0].cookieRewritePolicies: has no effect",
        ),
        (
            of_route(mirror),
            "InvalidHeadersPolicy: spec.routes[0].services[1]: a mirror gets requests as the route modifies them",
        ),
    ] {
        let world = World::with(&[("a", &object.replace("POLICY", policy))]);
        let status = world.status("a");
        assert!(
            status.starts_with("valid\nwarning ") && status.contains(warning),
            "{status}"
        );
    }
}
