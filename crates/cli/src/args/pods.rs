//! Tests that command lines in pods are valid: Sesame's in `deploy/`, and those that `fleet` generates for sidecars.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clap::{CommandFactory, Parser};
use serde_json::Value;

use super::{Args, Command, ServeArgs};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Sesame's container in the manifests.
fn container() -> Value {
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&read("deploy/manifests/sesame.yaml")).unwrap();
    let mut deployments = objects.iter().filter(|o| o["kind"] == "Deployment");
    let (Some(deployment), None) = (deployments.next(), deployments.next()) else {
        panic!("expected one Deployment in the manifests");
    };
    deployment["spec"]["template"]["spec"]["containers"][0].clone()
}

fn words(list: &Value) -> Vec<&str> {
    let words = list.as_array().expect("the field is a list of strings");
    words.iter().map(|word| word.as_str().unwrap()).collect()
}

fn serve(args: &[&str]) -> ServeArgs {
    match Args::try_parse_from([&["sesame"], args].concat()) {
        Ok(Args {
            command: Command::Serve(serve),
        }) => *serve,
        other => panic!("{args:?}: {other:?}"),
    }
}

#[test]
fn deployment_arguments_are_valid() {
    let container = container();
    let deployed = serve(&words(&container["args"]));
    let port = |name: &str| {
        let ports = container["ports"]
            .as_array()
            .expect("the container has ports");
        let found = ports.iter().find(|port| port["name"] == name);
        found.map(|port| port["containerPort"].clone())
    };
    assert_eq!(port("probes"), Some(deployed.probes.port().into()));
    assert_eq!(port("xds"), Some(deployed.xds.port().into()));
    assert!(
        deployed.admin.ip().is_loopback(),
        "the admin pages are only reachable in the pod"
    );
    // The manifests and the binary are from the same release.
    let defaults = serve(&["serve"]);
    assert_eq!(deployed.envoy_image, defaults.envoy_image);
    assert_eq!(deployed.sidecar_image, defaults.sidecar_image);
    assert_eq!(container["image"], *deployed.sidecar_image);
}

#[test]
fn deployment_sets_the_variables_that_serve_reads() {
    let args = Args::command();
    let serve = args.find_subcommand("serve").unwrap();
    let read: BTreeSet<_> = serve.get_arguments().filter_map(|a| a.get_env()).collect();
    let container = container();
    let set = container["env"]
        .as_array()
        .expect("the container has variables");
    let set = set
        .iter()
        .map(|variable| variable["name"].as_str().unwrap());
    assert_eq!(set.map(AsRef::as_ref).collect::<BTreeSet<_>>(), read);
}

/// The manifests are the chart rendered with default values; other values add flags.
#[test]
fn chart_flags_are_valid() {
    let args = Args::command();
    let commands = ["serve", "operator"].map(|name| args.find_subcommand(name).unwrap());
    let arguments = commands.iter().flat_map(|command| command.get_arguments());
    let known: BTreeSet<_> = arguments.filter_map(|a| a.get_long()).collect();
    let template = read("deploy/chart/templates/deployment.yaml");
    let mut flags = 0;
    for word in template.split(|c: char| c.is_whitespace() || c == '"') {
        let Some(flag) = word.strip_prefix("--") else {
            continue;
        };
        let name = flag.split('=').next().unwrap_or_default();
        assert!(known.contains(name), "--{name}");
        flags += 1;
    }
    let default_flags = words(&container()["args"]).len() - 1;
    assert!(
        flags > default_flags,
        "{flags} flags, {default_flags} of them by default"
    );
}

/// Reads golden files of `fleet`'s tests, and the example of unmanaged Envoys.
#[test]
fn sidecar_arguments_are_valid() {
    for name in ["defaults", "all-parameters", "daemon-set"] {
        let path = format!("crates/fleet/src/kube/desired/tests/{name}.json");
        sidecars_are_valid(&path, &serde_json::from_str(&read(&path)).unwrap());
    }
    let path = "deploy/example-envoy.yaml";
    let objects: Vec<Value> = serde_saphyr::from_multiple(&read(path)).unwrap();
    sidecars_are_valid(path, &Value::Array(objects));
}

fn sidecars_are_valid(path: &str, objects: &Value) {
    let mut lines = Vec::new();
    collect(objects, &mut lines);
    assert!(!lines.is_empty(), "{path}");
    for line in lines {
        let parsed = Args::try_parse_from(&line);
        assert!(
            matches!(
                &parsed,
                Ok(Args {
                    command: Command::EnvoySidecar(_)
                })
            ),
            "{path}: {line:?}: {parsed:?}"
        );
    }
}

/// Collects the `sesame` command lines in an object: `command` followed by `args`.
fn collect(value: &Value, lines: &mut Vec<Vec<String>>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, lines)),
        Value::Object(fields) => {
            let list = |field: &str| fields.get(field).map(words).unwrap_or_default();
            let line = [list("command"), list("args")].concat();
            if line.first() == Some(&"sesame") {
                lines.push(line.into_iter().map(str::to_owned).collect());
            }
            fields.values().for_each(|field| collect(field, lines));
        }
        _ => {}
    }
}
