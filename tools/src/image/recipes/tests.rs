//! Checks the images' contents, and that they match `deploy/Dockerfile`.

use std::collections::BTreeMap;
use std::fs;

use super::*;

/// The instructions of a build stage: keyword and arguments.
type Stage = Vec<(String, String)>;

/// The stages of a Dockerfile by name. Joins lines that end in a backslash.
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

fn arguments_of(stage: &Stage, word: &str) -> Vec<String> {
    let named = stage.iter().filter(|(instruction, _)| instruction == word);
    named.map(|(_, rest)| rest.clone()).collect()
}

/// Parses `key="value"` pairs.
fn pairs(lines: Vec<String>) -> BTreeMap<String, String> {
    let pair = |line: String| {
        let (key, value) = line.split_once('=').unwrap();
        (key.to_owned(), value.trim_matches('"').to_owned())
    };
    lines.into_iter().map(pair).collect()
}

/// The image settings in a final stage, and the command that writes its files.
fn described(stages: &BTreeMap<String, Stage>, name: &str) -> (Run, String) {
    let stage = &stages[name];
    let copies = arguments_of(stage, "COPY");
    assert_eq!(
        copies,
        [format!("--from=build-{name} /rootfs/ /")],
        "only the files from xtask"
    );
    assert_eq!(arguments_of(stage, "FROM"), [format!("scratch AS {name}")]);
    assert_eq!(arguments_of(stage, "RUN"), [""; 0]);
    assert_eq!(arguments_of(stage, "WORKDIR"), ["/"]);
    let [entrypoint] = arguments_of(stage, "ENTRYPOINT").try_into().unwrap();
    let [user] = arguments_of(stage, "USER").try_into().unwrap();
    let ports = arguments_of(stage, "EXPOSE");
    let run = Run {
        entrypoint: serde_json::from_str(&entrypoint).unwrap(),
        user,
        environment: pairs(arguments_of(stage, "ENV")),
        labels: pairs(arguments_of(stage, "LABEL")),
        ports: ports
            .iter()
            .flat_map(|line| line.split(' '))
            .map(str::to_owned)
            .collect(),
    };
    let [command] = arguments_of(&stages[&format!("build-{name}")], "RUN")
        .try_into()
        .unwrap();
    (run, command)
}

/// Any program will do: the tests compare everything else.
fn program() -> std::path::PathBuf {
    std::env::current_exe().unwrap()
}

#[test]
fn the_dockerfile_builds_the_same_sesame_image() {
    let (run, command) = described(&dockerfile(), "sesame");
    assert_eq!(run, sesame(&program()).unwrap().run);
    assert_eq!(
        command,
        "cargo xtask image sesame --profile dist --rootfs /rootfs"
    );
}

#[test]
fn the_dockerfile_builds_the_same_envoy_image() {
    let (run, command) = described(&dockerfile(), "envoy");
    assert_eq!(run, envoy(&program()).unwrap().run);
    assert_eq!(command, "cargo xtask image envoy --rootfs /rootfs");
}

#[test]
fn the_dockerfile_uses_the_repositorys_toolchain() {
    let root = crate::cargo::root();
    let toolchain: toml::Table = fs::read_to_string(root.join("rust-toolchain.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let channel = toolchain["toolchain"]["channel"].as_str().unwrap();
    let from = &arguments_of(&dockerfile()["build"], "FROM")[0];
    assert_eq!(from, &format!("rust:{channel}-bookworm AS build"));
    let text = fs::read_to_string(root.join("deploy/Dockerfile")).unwrap();
    for name in [sesame(&program()), envoy(&program())].map(|image| image.unwrap().names[0].clone())
    {
        assert!(text.contains(&format!("-t {name} .")), "{name}");
    }
}

#[test]
fn images_contain_the_program_and_its_dependencies() {
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
