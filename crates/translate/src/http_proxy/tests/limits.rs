//! Trees that exceed the limits, and the effect on their other inclusions.

use sesame_api::{HeadersPolicy, HttpHeader};

use super::super::testing::World;
use crate::settings::{HeaderDefaults, IngressSettings};

/// Adds a chain of HTTPProxies. Each includes the next one twice, with prefixes `/a` and `/b`, and with `condition`.
fn doubling(world: &mut World, name: &str, depth: usize, condition: &str) {
    for n in 0..depth {
        let include = |prefix: &str| {
            let next = n + 1;
            format!("{{name: {name}{next}, conditions: [{{prefix: {prefix}}}, {condition}]}}")
        };
        let spec = format!("includes: [{}, {}]", include("/a"), include("/b"));
        world.proxy(
            &format!("{name}{n}"),
            &spec.replace("HEADER", &format!("x-{n}")),
        );
    }
}

fn root(includes: &str) -> String {
    format!("{{virtualhost: {{fqdn: a.com}}, includes: [{includes}]}}")
}

const ROUTE: &str = "routes: [{services: [{name: one, port: 80}]}]";

#[test]
fn an_include_that_is_too_large_leaves_the_others_their_share() {
    let mut world = World::with(&[("child", ROUTE)]);
    doubling(&mut world, "d", 30, "{header: {name: x, present: true}}");
    world.proxy(
        "root",
        &root(
            "{name: d0, conditions: [{prefix: /wide}]}, {name: child, conditions: [{prefix: /c}]}",
        ),
    );
    let routes = world.routes(80, "a.com");
    assert!(routes.contains("^ /c -> shop/one:80\n"));
    // A dead end replaces the inclusions beyond the limit.
    assert!(routes.contains("^ /wide -> 502\n"));
    assert_eq!(world.status("child"), "valid\n");
    let status = world.status("d0");
    assert!(status.contains("the limit of 16384 inclusions"), "{status}");
}

#[test]
fn inclusions_that_contradict_each_other_count() {
    let header = |value: &str| format!("{{header: {{name: x, exact: {value}}}}}");
    let leaves: String = (0..1_000)
        .map(|n| {
            format!(
                "{{name: leaf, conditions: [{{prefix: /{n}}}, {}]}}, ",
                header("b")
            )
        })
        .collect();
    let children: String = (0..20)
        .map(|n| {
            format!(
                "{{name: child, conditions: [{{prefix: /{n}}}, {}]}}, ",
                header("a")
            )
        })
        .collect();
    let world = World::with(&[
        ("leaf", ROUTE),
        ("child", &format!("includes: [{leaves}]")),
        ("root", &root(&children)),
    ]);
    let status = world.status("child");
    assert!(status.contains("header x: several conditions"), "{status}");
    // Each child gets a share of 819 inclusions, so it also has a dead end.
    let routes = world.routes(80, "a.com");
    assert!(routes.contains("^ /0 x:a -> 502\n"), "{routes}");
}

#[test]
fn the_memory_of_a_tree_is_bounded() {
    let long = "a".repeat(4_000);
    let condition = format!("{{header: {{name: HEADER, contains: {long}}}}}");
    let mut world = World::with(&[("d12", ROUTE), ("child", ROUTE)]);
    doubling(&mut world, "d", 12, &condition);
    world.proxy(
        "root",
        &root("{name: d0, conditions: [{prefix: /d}]}, {name: child, conditions: [{prefix: /c}]}"),
    );
    let routes = world.routes(80, "a.com");
    assert!(routes.len() < 16 * 1024 * 1024, "{}", routes.len());
    assert!(routes.contains("^ /c -> shop/one:80\n"));
    let status = world.status("d3");
    let error = "the limit of 16777216 bytes of routes and conditions";
    assert!(
        status.contains(error) || world.status("d10").contains(error),
        "{status}"
    );
}

#[test]
fn routes_are_not_repeated_without_limit() {
    let long = "a".repeat(4_000);
    let headers: String = (0..40)
        .map(|n| format!("{{name: x-{n}, value: {long}}}, "))
        .collect();
    let route = format!(
        "routes: [{{services: [{{name: one, port: 80}}], requestHeadersPolicy: {{set: [{headers}]}}}}]"
    );
    let includes: String = (0..100)
        .map(|n| format!("{{name: large, conditions: [{{prefix: /{n}}}]}}, "))
        .collect();
    let world = World::with(&[("large", &route), ("root", &root(&includes))]);
    let routes = world.routes(80, "a.com");
    let count = |action: &str| routes.lines().filter(|line| line.ends_with(action)).count();
    assert_eq!((count("-> shop/one:80"), count("-> 502")), (1, 99));
    assert!(world.status("root").contains("bytes of routes"));
}

#[test]
fn many_roots_do_not_repeat_large_routes() {
    let long = "a".repeat(4_000);
    let headers: String = (0..40)
        .map(|n| format!("{{name: x-{n}, value: {long}}}, "))
        .collect();
    let child = format!(
        "routes: [{{services: [{{name: one, port: 80}}], requestHeadersPolicy: {{set: [{headers}]}}}}]"
    );
    let mut world = World::with(&[("child", &child), ("small", ROUTE)]);
    for n in 10..80 {
        let root = format!(
            "virtualhost: {{fqdn: {n}.com}}\nincludes: [{{name: child, conditions: [{{prefix: /c}}]}}, {{name: small}}]"
        );
        world.proxy(&format!("root-{n}"), &root);
    }
    let served = |world: &World, n: u32| {
        world
            .routes(80, &format!("{n}.com"))
            .contains("^ /c -> shop/one:80\n")
    };
    assert!(served(&world, 10) && served(&world, 77));
    let left_out = "^ /c -> 502\n/ / -> shop/one:80\n";
    assert_eq!(world.routes(80, "79.com"), left_out);
    let status = world.status("child");
    assert!(
        status.contains("for HTTPProxy shop/root-79 get 502"),
        "{status}"
    );
    assert!(!status.contains("root-77"), "{status}");
    let status = world.status("root-79");
    assert!(
        status.contains("HTTPProxy shop/child is left out"),
        "{status}"
    );
    assert_eq!(world.status("root-77"), "valid\n");

    world.remove("root-10");
    assert!(served(&world, 78));
    assert_eq!(world.routes(80, "79.com"), left_out);
    world.remove("root-11");
    assert!(served(&world, 79));
    assert_eq!(world.status("child"), "valid\n");

    // It precedes the others by name, but not by namespace.
    world.proxy(
        "a/root",
        "{virtualhost: {fqdn: b.com}, includes: [{name: child, namespace: shop}]}",
    );
    assert_eq!(world.routes(80, "b.com"), "/ / -> 502\n");
    assert!(served(&world, 79));

    // Other namespaces take turns.
    let foreign = |n: usize| {
        format!("{{virtualhost: {{fqdn: c{n}.com}}, includes: [{{name: child, namespace: shop}}]}}")
    };
    for n in 10..80 {
        world.remove(&format!("root-{n}"));
        world.proxy(&format!("b/root-{n}"), &foreign(n));
    }
    world.proxy("c/root", &foreign(80));
    let served = |n: u32| world.routes(80, &format!("c{n}.com")) != "/ / -> 502\n";
    assert!(served(10) && !served(79) && served(80));
}

#[test]
fn settings_of_a_host_count_for_each_route() {
    let origins = (0..64).map(|n| format!("https://{n}.{}.com", "a".repeat(1_000)));
    let cors = format!(
        "corsPolicy: {{allowOrigin: [{}], allowMethods: [GET]}}",
        origins.collect::<Vec<_>>().join(", ")
    );
    let routes = |count: usize| -> String {
        let route = |n| {
            format!("{{conditions: [{{prefix: /{n}}}], services: [{{name: one, port: 80}}]}}, ")
        };
        (0..count).map(route).collect()
    };
    let include = |n: usize| format!("{{name: c{n}, conditions: [{{prefix: /c{n}}}]}}, ");
    let includes: String = (0..12).map(include).collect();
    let root = format!(
        "{{virtualhost: {{fqdn: a.com, {cors}}}, routes: [{}], includes: [{includes}]}}",
        routes(50)
    );
    let mut world = World::with(&[("root", &root)]);
    for n in 0..12 {
        world.proxy(&format!("c{n}"), &format!("routes: [{}]", routes(25)));
    }
    let lines = world.routes(80, "a.com");
    let count = |action: &str| lines.lines().filter(|line| line.ends_with(action)).count();
    // 384 KiB for the routes of an HTTPProxy, and 16 MiB for the tree.
    assert_eq!(
        (count("shop/one:80"), count("503"), count("502")),
        (8 * 5, 45 + 7 * 20, 5)
    );
    let status = world.status("root");
    assert!(
        status.contains("spec.routes[5]: the routes take more than 384 KiB"),
        "{status}"
    );
}

#[test]
fn default_header_changes_do_not_count() {
    let mut world = World::new();
    let set = (0..16).map(|n| HttpHeader {
        name: format!("x-{n}").into(),
        value: "a".repeat(1_000).into(),
    });
    world.set(IngressSettings {
        headers: HeaderDefaults {
            requests: HeadersPolicy {
                set: set.collect(),
                ..HeadersPolicy::default()
            },
            ..HeaderDefaults::default()
        },
        ..IngressSettings::default()
    });
    let route =
        |n| format!("{{conditions: [{{prefix: /{n}}}], services: [{{name: one, port: 80}}]}}, ");
    let routes: String = (0..100).map(route).collect();
    world.proxy(
        "root",
        &format!("{{virtualhost: {{fqdn: a.com}}, routes: [{routes}]}}"),
    );
    assert_eq!(world.status("root"), "valid\n");
}

#[test]
fn an_http_proxy_has_a_limited_number_of_backends() {
    let service = |n: usize| {
        format!("{{services: [{{name: one, port: {n}}}], conditions: [{{prefix: /{n}}}]}}, ")
    };
    let routes: String = (1..600).map(service).collect();
    let spec = format!("{{virtualhost: {{fqdn: a.com}}, routes: [{routes}]}}");
    let world = World::with(&[("root", &spec)]);
    let status = world.status("root");
    assert!(
        status.contains("spec.routes: the Services with their ports"),
        "{status}"
    );
}

#[test]
fn repeated_routes_have_a_limit_of_their_own() {
    let route = "{conditions: [{prefix: /PATH}], services: [{name: one, port: 80}]}, ";
    let routes: String = (0..500)
        .map(|n| route.replace("PATH", &n.to_string()))
        .collect();
    let mut world = World::new();
    let children = 10;
    for n in 0..children {
        world.proxy(&format!("c{n}"), &format!("routes: [{routes}]"));
    }
    let include = |n: usize| {
        format!(
            "{{name: c{}, conditions: [{{prefix: /{n}}}]}}, ",
            n % children
        )
    };
    let includes = |count: usize| (0..count).map(include).collect::<String>();
    world.proxy("root", &root(&includes(children)));
    let served = |world: &World| world.routes(80, "a.com").lines().count();
    assert_eq!(served(&world), 5_000);
    assert_eq!(world.status("root"), "valid\n");
    // Of repeated routes, fewer are served: here twice 500, and the other inclusions get 502.
    world.proxy("root", &root(&includes(2 * children)));
    let status = world.status("root");
    assert!(
        status.contains("the limit of 1024 routes of HTTPProxies"),
        "{status}"
    );
    assert_eq!(served(&world), 6_008);
}

#[test]
fn conditions_that_are_too_many_or_too_long_answer_503_at_those_around_them() {
    let present = |list: &str| -> String {
        (0..32)
            .map(|n| format!("{{header: {{name: {list}-{n}, present: true}}}}, "))
            .collect()
    };
    let include = |next: &str, list: &str, prefix: &str| {
        let list = match list {
            "" => String::new(),
            list => present(list).replacen(
                &format!("{{header: {{name: {list}-0, present: true}}}}, "),
                "",
                1,
            ),
        };
        format!("includes: [{{name: {next}, conditions: [{{prefix: {prefix}}}, {list}]}}]")
    };
    let path = format!("/{}", "p".repeat(3_000));
    let world = World::with(&[
        (
            "root",
            &format!(
                "{{virtualhost: {{fqdn: a.com}}, {}, routes: [{{services: [{{name: one, port: 80}}]}}]}}",
                include("a", "h", "/h")
            ),
        ),
        ("a", &include("b", "i", "/i")),
        ("b", &include("c", "j", "/j")),
        ("c", &include("d", "k", "/k")),
        (
            "d",
            &format!(
                "routes: [{{conditions: [{{prefix: /l}}, {}], services: [{{name: two, port: 80}}]}}]",
                present("l")
            ),
        ),
        (
            "other",
            &format!(
                "{{virtualhost: {{fqdn: b.com}}, includes: [{{name: long, conditions: [{{prefix: {path}}}]}}]}}"
            ),
        ),
        (
            "long",
            &format!(
                "routes: [{{conditions: [{{prefix: {path}}}], services: [{{name: two, port: 80}}]}}]"
            ),
        ),
    ]);
    let routes = world.routes(80, "a.com");
    let mut lines = routes.lines();
    let first = lines.next().unwrap_or_default();
    assert!(first.starts_with("^ /h/i/j/k/l h-1:* "), "{first}");
    assert!(first.ends_with(" k-31:* -> 503"), "{first}");
    assert_eq!(lines.next(), Some("/ / -> shop/one:80"));
    let status = world.status("d");
    assert!(status.contains("at most 128 conditions"), "{status}");
    assert_eq!(world.routes(80, "b.com"), format!("^ {path} -> 503\n"));
}

#[test]
fn a_warning_says_which_combinations_are_not_checked() {
    let includes: String = (0..257)
        .map(|n| format!("{{name: child, conditions: [{{prefix: /{n}}}]}}, "))
        .collect();
    let world = World::with(&[("child", ROUTE), ("root", &root(&includes))]);
    let status = world.status("child");
    assert!(
        status.starts_with("valid\nwarning") && status.contains("includes this one 257 times"),
        "{status}"
    );
}
