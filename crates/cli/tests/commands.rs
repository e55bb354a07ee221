//! Tests of the binary as a user runs it, without Envoy.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn sesame(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sesame"));
    command
        .args(args)
        .env_remove("SESAME_ENVOY")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    sesame(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const OBJECTS: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: ns}
spec:
  gatewayClassName: sesame
  listeners: [{name: web, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: other, namespace: ns}
spec:
  gatewayClassName: sesame
  listeners: [{name: web, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: ns}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: shop, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: ns}
spec: {ports: [{port: 80}]}
";

fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("objects.yaml"), OBJECTS).unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    (folder, path)
}

fn json_of(args: &[&str]) -> Value {
    let output = run(args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn translate_prints_resources_and_statuses() {
    let (_folder, path) = folder();
    let all = json_of(&["translate", &path, "-o", "json"]);
    let edge = &all["fleets"]["ns/edge"];
    assert_eq!(edge["listeners"][0]["name"], "80");
    assert_eq!(edge["clusters"][0]["name"], "ns/shop:80");
    assert_eq!(all["fleets"].as_object().unwrap().len(), 2);
    let names: Vec<&Value> = all["statuses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["metadata"]["name"])
        .collect();
    assert_eq!(names, ["edge", "other", "shop"]);

    let yaml = run(&["translate", &path]);
    assert!(yaml.status.success() && yaml.stderr.is_empty());
    assert!(text(&yaml.stdout).starts_with("fleets:\n  ns/edge:\n    listeners:\n"));
}

#[test]
fn translate_prints_only_the_selected_parts() {
    let (_folder, path) = folder();
    let some = json_of(&[
        "translate",
        &path,
        "-o",
        "json",
        "--only",
        "clusters,listeners",
        "--gateway",
        "ns/edge",
    ]);
    let fleets = some["fleets"].as_object().unwrap();
    assert_eq!(fleets.keys().collect::<Vec<_>>(), ["ns/edge"]);
    let parts: Vec<&String> = fleets["ns/edge"].as_object().unwrap().keys().collect();
    assert_eq!(parts, ["clusters", "listeners"]);
    assert!(some.get("statuses").is_none());

    let some = json_of(&[
        "translate",
        &path,
        "-o",
        "json",
        "--only",
        "status",
        "--gateway",
        "ns/other",
    ]);
    assert!(some.get("fleets").is_none());
    assert_eq!([&some["apiVersion"], &some["kind"]], ["v1", "List"]);
    assert_eq!(some["items"].as_array().unwrap().len(), 1);
    let gateway = &some["items"][0];
    assert_eq!(gateway["apiVersion"], "gateway.networking.k8s.io/v1");
    assert_eq!(gateway["kind"], "Gateway");
    let metadata = serde_json::json!({"namespace": "ns", "name": "other"});
    assert_eq!(gateway["metadata"], metadata);
    assert!(gateway["status"]["conditions"].is_array());

    let none = run(&["translate", &path, "--gateway", "ns/none"]);
    assert_eq!(none.status.code(), Some(1));
    let message = text(&none.stderr);
    assert!(
        message.contains("Gateway ns/none not found") && message.contains("ns/edge, ns/other"),
        "{message}"
    );
}

#[test]
fn translate_reads_standard_input() {
    let mut child = sesame(&["translate", "-", "--only", "status", "-o", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(OBJECTS.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["items"].as_array().unwrap().len(), 3);
}

#[test]
fn errors_have_a_location_and_everything_else_is_printed() {
    let (folder, path) = folder();
    let broken = folder.path().join("broken.yaml");
    fs::write(
        &broken,
        "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec:\n  ports: [{port: http}]\n",
    )
    .unwrap();
    let output = run(&["translate", &path, "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    let location = format!("{}:5:", broken.display());
    assert!(message.starts_with(&location), "{message}");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["statuses"].as_array().unwrap().len(), 3);
}

#[test]
fn control_characters_of_names_and_values_do_not_reach_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let objects = format!("{OBJECTS}---\napiVersion: \"v1\\e[2J\"\nkind: 5\n");
    fs::write(folder.path().join("a\u{1b}[2J.yaml"), objects).unwrap();
    let out = run(&["translate", folder.path().to_str().unwrap()]);
    let errors = text(&out.stderr);
    assert!(errors.contains("a\\u{1b}[2J.yaml:"), "{errors}");
    assert!(!errors.contains('\u{1b}'), "{errors}");
}

#[test]
fn translate_reports_what_the_status_of_an_ingress_has_no_place_for() {
    let ingress = "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: ns, annotations: {projectsesame.io/num-retries: many}}
spec:
  ingressClassName: sesame
  defaultBackend: {service: {name: missing, port: {number: 80}}}
";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("objects.yaml"), ingress).unwrap();
    let output = run(&["translate", &folder.path().display().to_string()]);
    assert!(output.status.success());
    let message = text(&output.stderr);
    let expected = "Ingress/ns/shop: error: spec.defaultBackend.service";
    assert!(message.contains(expected), "{message}");
    assert!(message.contains("Ingress/ns/shop: warning: "), "{message}");
}

#[test]
fn contours_objects_are_read_only_with_a_flag() {
    let objects = "\
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: shop, namespace: ns, annotations: {projectcontour.io/ingress.class: contour}}
spec:
  virtualhost: {fqdn: shop.example.com}
  routes: [{directResponsePolicy: {statusCode: 200}}]
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: broken, namespace: ns}
spec: 5
";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("objects.yaml"), objects).unwrap();
    let path = folder.path().display().to_string();
    let translate = |flags: &[&str]| {
        let arguments = ["translate", "-o", "json", "--only", "status"];
        let output = run(&[&arguments[..], flags, &[&path]].concat());
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.success(), value["items"].clone())
    };
    assert_eq!(translate(&[]), (true, Value::Array(Vec::new())));
    let (complete, items) = translate(&["--contour-compat", "--ingress-class=contour"]);
    assert!(!complete, "the error in the second object is reported");
    assert_eq!(items[0]["apiVersion"], "projectcontour.io/v1");
    assert_eq!(items[0]["kind"], "HTTPProxy");
    assert_eq!(items[0]["status"]["currentStatus"], "valid");
    let (_, of_another_class) = translate(&["--contour-compat=write"]);
    assert_eq!(of_another_class, Value::Array(Vec::new()));
}

#[test]
fn bootstrap_prints_a_configuration_for_envoy() {
    let args = [
        "bootstrap",
        "--fleet",
        "ns/edge",
        "-o",
        "json",
        "--xds-address",
    ];
    let value = json_of(&[&args[..], &["sesame:8001"]].concat());
    assert_eq!(value["node"]["cluster"], "ns/edge");
    let endpoint = &value["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"]
        [0];
    let address = &endpoint["endpoint"]["address"]["socket_address"];
    assert_eq!(
        (&address["address"], &address["port_value"]),
        (&"sesame".into(), &8001.into())
    );
    let value = json_of(&[&args[..], &["unix:/run/x.sock", "--admin", "none"]].concat());
    assert!(value.get("admin").is_none());

    let long_path = format!("unix:/{}", "x".repeat(200));
    for (address, message) in [("sesame", "HOST:PORT"), (long_path.as_str(), "103 bytes")] {
        let output = run(&[&args[..], &[address]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(
            text(&output.stderr).contains(message),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn version_and_completion() {
    let value = json_of(&["version", "-o", "json"]);
    assert_eq!(value["sesame"], env!("CARGO_PKG_VERSION"));
    assert!(value["envoy"].as_str().unwrap().split('.').count() == 3);
    assert!(text(&run(&["version"]).stdout).starts_with("sesame "));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completion", shell]);
        assert!(
            output.status.success() && text(&output.stdout).contains("translate"),
            "{shell}"
        );
    }
}

#[test]
fn local_without_an_envoy_suggests_a_fix() {
    let (folder, path) = folder();
    let output = sesame(&["local", &path])
        .env("PATH", folder.path())
        .env("SESAME_CACHE", folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("cargo xtask envoy"),
        "{}",
        text(&output.stderr)
    );
    let output = run(&["local", &path, "--envoy", "/nowhere"]);
    assert!(text(&output.stderr).contains("--envoy is \"/nowhere\", which does not exist"));
}

#[test]
fn local_exits_on_a_signal_and_leaves_no_files() {
    let (folder, path) = folder();
    let tmp = folder.path().join("tmp");
    fs::create_dir(&tmp).unwrap();
    let envoy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../control/tests/envoy.sh");
    let args = [
        "local",
        &path,
        "--watch=false",
        "-o",
        "json",
        "--port-offset",
        "23000",
    ];
    let mut child = sesame(&args)
        .args(["--envoy", envoy.to_str().unwrap()])
        .env("TMPDIR", &tmp)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut started = 0;
    while started < 2 {
        let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        started += usize::from(event["type"] == "envoy-started");
    }
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 1);
    let kill = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let exited = lines
        .filter(|line| line.as_ref().unwrap().contains("envoy-exited"))
        .count();
    assert_eq!(exited, 2);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0);
}

#[test]
fn an_invalid_command_line_exits_with_2() {
    for args in [
        &["translate"][..],
        &["unknown"],
        &["local", "x", "--concurrency", "0"],
        &[],
    ] {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn help_has_examples() {
    for command in ["local", "translate", "bootstrap", "completion"] {
        let help = text(&run(&[command, "--help"]).stdout);
        assert!(help.contains("Examples:"), "{help}");
    }
}
