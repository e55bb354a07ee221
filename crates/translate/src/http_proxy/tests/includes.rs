//! Trees of HTTPProxies.

use super::super::testing::World;

const ROOT: &str = "
    virtualhost: {fqdn: a.com}
    includes:
    - {name: child, conditions: [{prefix: /c}, {header: {name: x, present: true}}]}
";

const CHILD: &str = "
    routes:
    - services: [{name: one, port: 80}]
    - conditions: [{prefix: /d}, {header: {name: w, exact: z}}]
      services: [{name: two, port: 80}]
";

#[test]
fn conditions_of_inclusions_are_added() {
    let world = World::with(&[("root", ROOT), ("child", CHILD)]);
    assert_eq!(world.status("root"), "valid\n");
    assert_eq!(world.status("child"), "valid\n");
    assert_eq!(
        world.routes(80, "a.com"),
        "^ /c/d x:* w:z -> shop/two:80\n^ /c x:* -> shop/one:80\n"
    );
}

#[test]
fn a_missing_include_answers_502() {
    let mut world = World::with(&[("root", ROOT)]);
    assert_eq!(world.routes(80, "a.com"), "^ /c x:* -> 502\n");
    assert!(
        world
            .status("root")
            .starts_with("invalid\nerror IncludeError IncludeNotFound: spec.includes[0]: HTTPProxy shop/child does not exist"),
    );
    world.proxy("child", CHILD);
    assert_eq!(world.status("root"), "valid\n");
    world.proxy("child", &format!("{CHILD}\n    ingressClassName: other"));
    assert_eq!(world.routes(80, "a.com"), "^ /c x:* -> 502\n");
    assert_eq!(world.status("child"), "none\n");
}

#[test]
fn children_without_a_root_are_orphaned() {
    let mut world = World::with(&[("child", CHILD)]);
    let orphaned = "orphaned\nerror Orphaned Orphaned: spec: no root HTTPProxy includes this HTTPProxy; \
                    add a virtualhost, or include it in another HTTPProxy\n";
    assert_eq!(world.status("child"), orphaned);
    world.proxy("root", ROOT);
    assert_eq!(world.status("child"), "valid\n");
    world.remove("root");
    assert_eq!(world.status("child"), orphaned);
}

#[test]
fn a_child_is_included_from_other_namespaces_and_several_times() {
    let world = World::with(&[
        (
            "web/root",
            "
            virtualhost: {fqdn: a.com}
            includes:
            - {name: child, namespace: shop, conditions: [{prefix: /a}]}
            - {name: child, namespace: shop, conditions: [{prefix: /b}]}
            ",
        ),
        ("child", "routes: [{services: [{name: one, port: 80}]}]"),
    ]);
    assert_eq!(world.status("web/root"), "valid\n");
    assert_eq!(
        world.routes(80, "a.com"),
        "^ /a -> shop/one:80\n^ /b -> shop/one:80\n"
    );
}

#[test]
fn cycles_and_roots_are_not_included() {
    let world = World::with(&[
        (
            "root",
            "
            virtualhost: {fqdn: a.com}
            includes: [{name: a, conditions: [{prefix: /a}]}, {name: other, conditions: [{prefix: /o}]}]
            ",
        ),
        ("a", "includes: [{name: b, conditions: [{prefix: /b}]}]"),
        ("b", "includes: [{name: a, conditions: [{prefix: /a}]}, {name: b, conditions: [{prefix: /b}]}]"),
        ("other", "{virtualhost: {fqdn: b.com}, routes: [{services: [{name: one, port: 80}]}]}"),
    ]);
    assert_eq!(
        world.routes(80, "a.com"),
        "^ /a/b/a -> 502\n^ /a/b/b -> 502\n^ /o -> 502\n"
    );
    assert!(world.status("root").contains(
        "error IncludeError IncludesRoot: spec.includes[1]: HTTPProxy shop/other has a virtualhost"
    ));
    assert_eq!(world.status("a"), "valid\n");
    let status = world.status("b");
    assert!(
        status.contains("IncludeCycle: spec.includes[0]: HTTPProxy shop/a includes this one"),
        "{status}"
    );
    assert!(
        status.contains("spec.includes[1]: HTTPProxy shop/b includes this one"),
        "{status}"
    );
    assert_eq!(world.status("other"), "valid\n");
}

#[test]
fn the_first_of_two_includes_with_the_same_conditions_wins() {
    let route = |name: &str| format!("routes: [{{services: [{{name: {name}, port: 80}}]}}]");
    let world = World::with(&[
        (
            "root",
            "
            virtualhost: {fqdn: a.com}
            includes:
            - {name: a, conditions: [{prefix: /a}, {header: {name: x, present: true}}]}
            - {name: b, conditions: [{header: {name: X, present: true}}, {prefix: /a}]}
            - {name: a}
            - {name: b}
            ",
        ),
        ("a", &route("one")),
        ("b", &route("two")),
    ]);
    assert_eq!(
        world.routes(80, "a.com"),
        "^ /a x:* -> shop/one:80\n/ / -> shop/one:80\n"
    );
    assert!(world.status("root").contains(
        "DuplicateConditions: spec.includes[1]: has the same conditions as spec.includes[0]"
    ));
}

#[test]
fn errors_in_a_child_are_reported_there() {
    let world = World::with(&[
        ("root", ROOT),
        (
            "child",
            "
            routes:
            - conditions: [{header: {name: x, notpresent: true}}]
              services: [{name: one, port: 80}]
            - conditions: [{prefix: /e}]
              services: [{name: missing, port: 80}]
            ",
        ),
    ]);
    assert_eq!(world.status("root"), "valid\n");
    assert_eq!(world.routes(80, "a.com"), "^ /c/e x:* -> 503\n");
    let status = world.status("child");
    assert!(
        status.contains("spec.routes[0].conditions: header x: conditions require"),
        "{status}"
    );
    assert!(
        status.contains("(in the routes of HTTPProxy shop/root)"),
        "{status}"
    );
    assert!(
        status.contains("spec.routes[1].services[0]: Service shop/missing"),
        "{status}"
    );
}

#[test]
fn invalid_conditions_leave_nothing_to_wider_routes() {
    let wrong = "{header: {name: x, regex: '('}}";
    let world = World::with(&[
        (
            "root",
            &format!(
                "
                virtualhost: {{fqdn: a.com}}
                routes: [{{services: [{{name: one, port: 80}}]}}]
                includes:
                - {{name: child, conditions: [{{prefix: /c}}]}}
                - {{name: child, conditions: [{{prefix: /wrong}}, {wrong}]}}
                - {{name: child, conditions: [{wrong}]}}
                "
            ),
        ),
        (
            "child",
            &format!(
                "
                routes:
                - {{conditions: [{{prefix: /d}}, {wrong}], services: [{{name: two, port: 80}}]}}
                - {{conditions: [{{prefix: /e}}, {wrong}], services: [{{name: two, port: 80}}]}}
                - {{conditions: [{{prefix: /e}}], services: [{{name: three, port: 80}}]}}
                - {{conditions: [{{regex: '('}}, {{header: {{name: w, present: true}}}}], services: [{{name: two, port: 80}}]}}
                - {{conditions: [{{regex: '('}}], services: [{{name: two, port: 80}}]}}
                - {{conditions: [{{regex: 'a|^b'}}, {{header: {{name: v, present: true}}}}], services: [{{name: two, port: 80}}]}}
                "
            ),
        ),
    ]);
    assert_eq!(
        world.routes(80, "a.com"),
        "\
^ /wrong -> 502
^ /c/e -> shop/three:80
^ /c/d -> 503
^ /c/e -> 503
^ /c w:* -> 503
^ /c v:* -> 503
/ / -> shop/one:80
"
    );
    let status = world.status("root");
    assert!(
        status.contains("spec.includes[1].conditions[1].header"),
        "{status}"
    );
    assert!(
        world
            .status("child")
            .contains("contains ^ or \\A somewhere other than")
    );
}

#[test]
fn the_whole_prefix_is_replaced() {
    let world = World::with(&[
        ("root", "{virtualhost: {fqdn: a.com}, includes: [{name: child, conditions: [{prefix: /api}]}]}"),
        (
            "child",
            "
            routes:
            - conditions: [{prefix: /v1}]
              services: [{name: one, port: 80}]
              pathRewritePolicy: {replacePrefix: [{prefix: /v1, replacement: /no}, {prefix: /api/v1, replacement: /}]}
            ",
        ),
    ]);
    assert_eq!(
        world.routes(80, "a.com"),
        "^ /api/v1/ -> shop/one:80 as /\n= /api/v1 -> shop/one:80 as /\n"
    );
}

#[test]
fn trees_are_bounded() {
    let chain = |n: usize| {
        format!(
            "includes: [{{name: c{}, conditions: [{{prefix: /{n}}}]}}]",
            n + 1
        )
    };
    let mut world = World::new();
    for n in 0..40 {
        world.proxy(&format!("c{n}"), &chain(n));
    }
    world.proxy(
        "root",
        "{virtualhost: {fqdn: a.com}, includes: [{name: c0}]}",
    );
    assert!(world.routes(80, "a.com").ends_with(" -> 502\n"));
    assert!(
        world.status("c30").contains("LimitExceeded"),
        "{}",
        world.status("c30")
    );
    assert!(world.status("c31").starts_with("orphaned"));
    // Each level doubles the number of inclusions.
    let double = |n: usize| {
        let next = n + 1;
        format!(
            "includes: [{{name: d{next}, conditions: [{{prefix: /a}}]}}, {{name: d{next}, conditions: [{{prefix: /b}}]}}]"
        )
    };
    for n in 0..30 {
        world.proxy(&format!("d{n}"), &double(n));
    }
    world.proxy(
        "wide",
        "{virtualhost: {fqdn: b.com}, includes: [{name: d0}]}",
    );
    assert!(
        world.status("d0").contains("the limit of 16384 inclusions")
            || world
                .status("d20")
                .contains("the limit of 16384 inclusions")
    );
}
