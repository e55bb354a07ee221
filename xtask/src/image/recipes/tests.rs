//! What is in the images, and that `deploy/Dockerfile` says the same.

use std::collections::BTreeMap;
use std::fs;

use super::*;

/// Instructions of one stage, in their order: the word, what follows it.
type Stage = Vec<(String, String)>;

/// The stages of a Dockerfile by their names. Lines that end in a backslash go on.
fn stages(text: &str) -> BTreeMap<String, Stage> {
    let mut stages = BTreeMap::new();
    let mut name = String::new();
    for line in text.replace("\\\n", " ").lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (word, rest) = line.split_once(' ').unwrap();
        let rest = rest.split_whitespace().collect::<Vec<_>>().join(" ");
        if word == "FROM" {
            name = rest
                .rsplit_once(" AS ")
                .expect("each stage has a name")
                .1
                .to_owned();
        }
        let stage: &mut Stage = stages.entry(name.clone()).or_default();
        stage.push((word.to_owned(), rest));
    }
    stages
}

fn dockerfile() -> BTreeMap<String, Stage> {
    let path = crate::cargo::root().join("deploy/Dockerfile");
    stages(&fs::read_to_string(path).unwrap())
}

fn said(stage: &Stage, word: &str) -> Vec<String> {
    let named = stage.iter().filter(|(instruction, _)| instruction == word);
    named.map(|(_, rest)| rest.clone()).collect()
}

/// `key="value"` as a pair.
fn pairs(lines: Vec<String>) -> BTreeMap<String, String> {
    let pair = |line: String| {
        let (key, value) = line.split_once('=').unwrap();
        (key.to_owned(), value.trim_matches('"').to_owned())
    };
    lines.into_iter().map(pair).collect()
}

/// What a final stage makes of the image: how it is run, and the command that lays out all of its files.
fn described(stages: &BTreeMap<String, Stage>, name: &str) -> (Run, String) {
    let stage = &stages[name];
    let copies = said(stage, "COPY");
    assert_eq!(
        copies,
        [format!("--from=build-{name} /rootfs/ /")],
        "nothing but what xtask laid out"
    );
    assert_eq!(said(stage, "FROM"), [format!("scratch AS {name}")]);
    assert_eq!(said(stage, "RUN"), [""; 0]);
    assert_eq!(said(stage, "WORKDIR"), ["/"]);
    let [entrypoint] = said(stage, "ENTRYPOINT").try_into().unwrap();
    let [user] = said(stage, "USER").try_into().unwrap();
    let ports = said(stage, "EXPOSE");
    let run = Run {
        entrypoint: serde_json::from_str(&entrypoint).unwrap(),
        user,
        environment: pairs(said(stage, "ENV")),
        labels: pairs(said(stage, "LABEL")),
        ports: ports
            .iter()
            .flat_map(|line| line.split(' '))
            .map(str::to_owned)
            .collect(),
    };
    let [command] = said(&stages[&format!("build-{name}")], "RUN")
        .try_into()
        .unwrap();
    (run, command)
}

/// Any program will do: the recipes differ in what is around it.
fn program() -> std::path::PathBuf {
    std::env::current_exe().unwrap()
}

#[test]
fn the_dockerfile_makes_the_same_sesame() {
    let (run, command) = described(&dockerfile(), "sesame");
    assert_eq!(run, sesame(&program()).unwrap().run);
    assert_eq!(
        command,
        "cargo xtask image sesame --profile dist --rootfs /rootfs"
    );
}

#[test]
fn the_dockerfile_makes_the_same_envoy() {
    let (run, command) = described(&dockerfile(), "envoy");
    assert_eq!(run, envoy(&program()).unwrap().run);
    assert_eq!(command, "cargo xtask image envoy --rootfs /rootfs");
}

#[test]
fn the_dockerfile_builds_with_the_toolchain_of_the_repository() {
    let root = crate::cargo::root();
    let toolchain: toml::Table = fs::read_to_string(root.join("rust-toolchain.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let channel = toolchain["toolchain"]["channel"].as_str().unwrap();
    let from = &said(&dockerfile()["build"], "FROM")[0];
    assert_eq!(from, &format!("rust:{channel}-bookworm AS build"));
    let text = fs::read_to_string(root.join("deploy/Dockerfile")).unwrap();
    for name in [sesame(&program()), envoy(&program())].map(|image| image.unwrap().names[0].clone())
    {
        assert!(text.contains(&format!("-t {name} .")), "{name}");
    }
}

#[test]
fn images_hold_the_program_what_loads_it_and_what_it_looks_for() {
    for (image, at) in [
        (sesame(&program()).unwrap(), "/usr/local/bin/sesame"),
        (envoy(&program()).unwrap(), "/usr/local/bin/envoy"),
    ] {
        let paths = image.files.paths();
        let expected = [
            at,
            "/etc/passwd",
            "/etc/group",
            "/etc/nsswitch.conf",
            "/etc/ssl/certs/ca-certificates.crt",
        ];
        for path in expected {
            assert!(
                paths.iter().any(|found| found == path),
                "{path} in {paths:?}"
            );
        }
        let named = |text: &str| paths.iter().any(|path| path.contains(text));
        assert!(named("libc.") && named("/ld-"), "{paths:?}");
        assert_eq!(image.run.entrypoint, [at]);
    }
}
