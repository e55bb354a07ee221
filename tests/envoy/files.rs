//! Files as the source: invalid files, and the ways to specify paths.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{Folder, HTTP, Sesame, at, backends, becomes, check, gateway, new_ip, route};

fn is_problem(event: &Value, file: &str) -> bool {
    event["type"] == "problem"
        && event["file"]
            .as_str()
            .is_some_and(|path| path.ends_with(file))
}

#[tokio::test]
async fn an_invalid_file_keeps_its_last_objects_and_does_not_affect_others() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let good = route("a", &["web"], &["a.example.com"], &[&at("/", "a")]);
    let sesame = Sesame::serving(|ip| {
        vec![
            ("gateway.yaml", gateway("web", ip, &[HTTP]) + &services),
            ("a.yaml", good.clone()),
            (
                "b.yaml",
                route("b", &["web"], &["b.example.com"], &[&at("/", "b")]),
            ),
        ]
    })
    .await;
    let cases = [("a.example.com", "/", "a"), ("b.example.com", "/", "b")];
    check(sesame.at(8080), &cases).await;

    let from = sesame.events();
    sesame.folder().write(
        "a.yaml",
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a\nspec: x\n",
    );
    let problem = sesame
        .event("the problem is reported", from, |event| {
            is_problem(event, "a.yaml")
        })
        .await;
    let (line, column) = (&problem["line"], &problem["column"]);
    assert!(line.is_u64() && column.is_u64(), "{problem}");
    let place = format!("a.yaml:{line}:{column}: ");
    assert!(
        problem["text"]
            .as_str()
            .is_some_and(|text| text.contains(&place)),
        "{problem}"
    );
    check(sesame.at(8080), &cases).await;

    // Valid YAML, but an invalid object.
    let from = sesame.events();
    sesame
        .folder()
        .write("a.yaml", &good.replace("rules:", "rules: 7\n  x:"));
    let problem = sesame
        .event("the next problem is reported", from, |event| {
            is_problem(event, "a.yaml")
        })
        .await;
    assert!(
        problem["text"]
            .as_str()
            .is_some_and(|text| text.contains("spec.rules")),
        "{problem}"
    );
    check(sesame.at(8080), &cases).await;

    // Other files can still be changed.
    sesame.folder().write(
        "b.yaml",
        &route("b", &["web"], &["b.example.com"], &[&at("/", "a")]),
    );
    becomes(sesame.at(8080), "b.example.com", "/", "a").await;

    let from = sesame.events();
    sesame.folder().write(
        "a.yaml",
        &route("a", &["web"], &["a.example.com"], &[&at("/", "b")]),
    );
    sesame
        .event("the problem is solved", from, |event| {
            event["type"] == "problem-solved"
                && event["file"]
                    .as_str()
                    .is_some_and(|path| path.ends_with("a.yaml"))
        })
        .await;
    becomes(sesame.at(8080), "a.example.com", "/", "b").await;
}

#[tokio::test]
async fn the_first_of_two_files_with_the_same_object_wins_and_both_are_reported() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let sesame = Sesame::serving(|ip| {
        vec![
            ("gateway.yaml", gateway("web", ip, &[HTTP]) + &services),
            (
                "m.yaml",
                route("a", &["web"], &["a.example.com"], &[&at("/", "a")]),
            ),
        ]
    })
    .await;
    check(sesame.at(8080), &[("a.example.com", "/", "a")]).await;
    let from = sesame.events();
    sesame.folder().write(
        "z.yaml",
        &route("a", &["web"], &["a.example.com"], &[&at("/", "b")]),
    );
    let problem = sesame
        .event("the duplicate is reported", from, |event| {
            is_problem(event, "z.yaml")
        })
        .await;
    let text = problem["text"].as_str().unwrap_or_default();
    assert!(text.contains("m.yaml") && text.contains("z.yaml"), "{text}");
    check(sesame.at(8080), &[("a.example.com", "/", "a")]).await;
    sesame.folder().remove("m.yaml");
    becomes(sesame.at(8080), "a.example.com", "/", "b").await;
}

#[tokio::test]
async fn files_are_read_only_once_without_watching() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let ip = new_ip();
    let folder = Folder::new(&[
        ("gateway.yaml", gateway("web", ip, &[HTTP]) + &services),
        (
            "a.yaml",
            route("a", &["web"], &["a.example.com"], &[&at("/", "a")]),
        ),
    ]);
    let sesame = Sesame::start(ip, folder, &["--watch=false"]).await;
    sesame.programmed().await;
    becomes(sesame.at(8080), "a.example.com", "/", "a").await;
    let ready = sesame
        .event("it is ready", 0, |event| event["type"] == "ready")
        .await;
    assert_eq!(ready["gateways"], 1, "{ready}");
    let from = sesame.events();
    sesame.folder().write(
        "a.yaml",
        &route("a", &["web"], &["a.example.com"], &[&at("/", "b")]),
    );
    // A restarted Envoy gets the same configuration. A watching Sesame would have noticed the change by then.
    let (envoy, _) = sesame.envoys()[0];
    crate::harness::send_signal(envoy, Signal::SIGKILL);
    sesame
        .event("the Envoy is started again", from, |event| {
            event["type"] == "envoy-started"
        })
        .await;
    becomes(sesame.at(8080), "a.example.com", "/", "a").await;
    assert!(sesame.end(Some(Signal::SIGTERM)).await.success());
}

#[tokio::test]
async fn objects_come_from_standard_input_and_from_several_paths() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let ip = new_ip();
    let folder = Folder::new(&[(
        "b.yaml",
        route("b", &["web"], &["b.example.com"], &[&at("/", "b")]),
    )]);
    let input = gateway("web", ip, &[HTTP])
        + &services
        + &route("a", &["web"], &["a.example.com"], &[&at("/", "a")]);
    let file = folder.file("b.yaml");
    let file = file.to_str().expect("a readable path").to_owned();
    let sesame = Sesame::spawn(ip, folder, &["-", &file], &input);
    sesame.answering().await;
    sesame.programmed().await;
    becomes(sesame.at(8080), "a.example.com", "/", "a").await;
    check(sesame.at(8080), &[("b.example.com", "/", "b")]).await;
    sesame.folder().write(
        "b.yaml",
        &route("b", &["web"], &["b.example.com"], &[&at("/", "a")]),
    );
    becomes(sesame.at(8080), "b.example.com", "/", "a").await;
}

#[tokio::test]
async fn a_missing_path_is_reported_and_served_once_it_exists() {
    let ip = new_ip();
    let folder = Folder::new(&[]);
    let late = folder.file("late.yaml");
    let late = late.to_str().expect("a readable path").to_owned();
    let sesame = Sesame::spawn(ip, folder, &[&late], "");
    let problem = sesame
        .event("the problem is reported", 0, |event| {
            is_problem(event, "late.yaml")
        })
        .await;
    assert!(
        problem["text"]
            .as_str()
            .is_some_and(|text| text.starts_with(&late)),
        "{problem}"
    );
    sesame
        .folder()
        .write("late.yaml", &gateway("web", ip, &[HTTP]));
    sesame.programmed().await;
    becomes(sesame.at(8080), "a.example.com", "/", "404").await;
}
