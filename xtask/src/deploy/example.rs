//! The installation guide's example matches the shipped files.

use std::fs;

use serde_json::Value;
use sesame_fleet::local::binary::VERSION as ENVOY_VERSION;

use sesame_tools::cargo;

fn read(path: &str) -> String {
    fs::read_to_string(cargo::root().join(path)).unwrap()
}

fn one<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut of_kind = objects.iter().filter(|object| object["kind"] == kind);
    let object = of_kind.next().unwrap();
    assert_eq!(of_kind.next(), None, "expected only one {kind}");
    object
}

#[test]
fn the_gateway_uses_the_installed_class() {
    let example = super::objects(&read("deploy/example.yaml")).unwrap();
    let shipped = super::objects(&read("deploy/manifests/sesame.yaml")).unwrap();
    let class = &one(&shipped, "GatewayClass")["metadata"]["name"];
    assert_eq!(&one(&example, "Gateway")["spec"]["gatewayClassName"], class);
}

#[test]
fn the_route_refers_to_the_gateway_and_a_service_with_pods() {
    let example = super::objects(&read("deploy/example.yaml")).unwrap();
    let shop = super::objects(&read("deploy/example-shop.yaml")).unwrap();
    let route = &one(&example, "HTTPRoute")["spec"];
    assert_eq!(
        route["parentRefs"][0]["name"],
        one(&example, "Gateway")["metadata"]["name"]
    );
    let (service, backend) = (one(&shop, "Service"), &route["rules"][1]["backendRefs"][0]);
    assert_eq!(backend["name"], service["metadata"]["name"]);
    let port = &service["spec"]["ports"][0];
    assert_eq!(backend["port"], port["port"]);
    let pods = &one(&shop, "Deployment")["spec"]["template"];
    assert_eq!(service["spec"]["selector"], pods["metadata"]["labels"]);
    let container = &pods["spec"]["containers"][0];
    assert_eq!(port["targetPort"], container["ports"][0]["name"]);
    let image = container["image"].as_str().unwrap();
    assert!(
        image.ends_with(&format!("/envoy:{ENVOY_VERSION}")),
        "{image} differs from the packaged Envoy image"
    );
}

/// Unmanaged Envoys run the images of this release, and use the files that Sesame writes.
#[test]
fn the_unmanaged_envoys_match_the_release() {
    let example = super::objects(&read("deploy/example-envoy.yaml")).unwrap();
    let shipped = super::objects(&read("deploy/manifests/unmanaged.yaml")).unwrap();
    let sesame = &one(&shipped, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    let pods = &one(&example, "Deployment")["spec"]["template"];
    assert_eq!(
        one(&example, "Service")["spec"]["selector"],
        pods["metadata"]["labels"]
    );
    assert_eq!(pods["spec"]["initContainers"][0]["image"], sesame["image"]);
    let image = pods["spec"]["containers"][0]["image"].as_str().unwrap();
    assert!(
        image.ends_with(&format!("/envoy:{ENVOY_VERSION}")),
        "{image} differs from the packaged Envoy image"
    );
    assert_eq!(
        pods["spec"]["volumes"][1]["secret"]["secretName"],
        "sesame-envoy"
    );
}

#[test]
fn guides_match_the_files() {
    let shown = ["README.md", "docs/install.md"].map(read).join("\n");
    for path in [
        "deploy/manifests/sesame.yaml",
        "deploy/example-shop.yaml",
        "deploy/example.yaml",
        "deploy/example-httpproxy.yaml",
        "deploy/chart",
    ] {
        assert!(
            shown.contains(path) && cargo::root().join(path).exists(),
            "{path}"
        );
    }
    let example = ["deploy/example-shop.yaml", "deploy/example-httpproxy.yaml"]
        .map(read)
        .join("\n");
    for line in shown.lines().filter(|line| line.contains("Welcome")) {
        let answer = line.rsplit_once("# ").unwrap().1;
        assert!(
            example.contains(&format!("inline_string: \"{answer}\\n\"")),
            "{line}"
        );
    }
}
