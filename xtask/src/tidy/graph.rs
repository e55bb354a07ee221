//! Which crate may depend on which.
//!
//! In: the members' manifests, as Cargo reads them, and `cargo tree`. Out: dependencies that break a rule of the house.

use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Package};

use super::Problem;

/// How our crates' names begin.
const PREFIX: &str = "sesame-";

/// Crates that must stay free of IO and Envoy, which also keeps their build short.
const PURE: &[&str] = &["api", "engine", "model", "translate"];

/// What pure crates must not reach, through however many others.
const IMPURE: &[&str] = &["tokio", "kube", "kube-client", "tonic", "envoy-types"];

/// Edges between our crates that must never be: from, to, why.
const NEVER: &[(&str, &[&str], &str)] = &[
    (
        "xds",
        &["api", "model", "translate", "envoy"],
        "the server carries bytes, whatever they mean",
    ),
    (
        "engine",
        &["api", "model"],
        "the engine knows neither Kubernetes nor Envoy",
    ),
];

/// Foreign crates that only some of ours may name, tests included: which, who, why.
const RESERVED: &[(&[&str], &[&str], &str)] = &[
    (
        &["envoy-types"],
        &["envoy", "xds", "testkit", "tests", "bench"],
        "only the rooms at the border speak Envoy's protobuf",
    ),
    (
        &["kube", "kube-client", "kube-runtime"],
        &[
            "sources", "status", "fleet", "control", "testkit", "tests", "bench",
        ],
        "only the rooms at the border hold a Kubernetes client",
    ),
];

/// A crate of the workspace.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Its name in Cargo.
    pub(super) package: String,
    /// Where it lies, relative to the repository: `crates/model`.
    pub(super) folder: String,
    /// Root files of its targets, relative to the repository.
    pub(super) roots: Vec<String>,
    pub(super) dependencies: Vec<Dependency>,
}

/// A line of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) name: String,
    /// Only tests, examples and benches have it.
    pub(super) dev: bool,
}

impl Member {
    pub(super) fn new(root: &Path, package: &Package) -> Result<Self> {
        let relative = |path: &Path| {
            let path = path
                .strip_prefix(root)
                .context("a crate outside of the repository")?;
            Ok::<_, anyhow::Error>(path.to_string_lossy().into_owned())
        };
        let manifest = package.manifest_path.as_std_path();
        let folder = manifest.parent().context("a manifest in no folder")?;
        Ok(Self {
            package: package.name.to_string(),
            folder: relative(folder)?,
            roots: package
                .targets
                .iter()
                .map(|target| relative(target.src_path.as_std_path()))
                .collect::<Result<_>>()?,
            dependencies: package
                .dependencies
                .iter()
                .map(|dependency| Dependency {
                    name: dependency.name.clone(),
                    dev: dependency.kind == DependencyKind::Development,
                })
                .collect(),
        })
    }

    /// The name of its folder, by which people speak of it.
    pub(super) fn room(&self) -> &str {
        self.folder.rsplit('/').next().unwrap_or_default()
    }

    /// Whether it is part of the product, not only of its making.
    pub(super) fn is_room(&self) -> bool {
        self.folder.starts_with("crates/")
    }

    /// The rooms that it depends on, and whether only in tests.
    pub(super) fn rooms(&self) -> impl Iterator<Item = (&str, bool)> {
        self.dependencies
            .iter()
            .filter_map(|dependency| Some((dependency.name.strip_prefix(PREFIX)?, dependency.dev)))
    }

    fn problem(&self, message: String) -> Problem {
        Problem::file(format!("{}/Cargo.toml", self.folder), message)
    }
}

pub(super) fn is_pure(member: &Member) -> bool {
    member.is_room() && PURE.contains(&member.room())
}

/// The rules that manifests alone can break.
pub(super) fn check(members: &[Member]) -> Vec<Problem> {
    members.iter().flat_map(check_member).collect()
}

fn check_member(member: &Member) -> Vec<Problem> {
    let room = member.room();
    let mut problems = Vec::new();
    let expected = match member.folder.as_str() {
        "xtask" => "xtask".to_owned(),
        _ => format!("{PREFIX}{room}"),
    };
    if member.package != expected {
        problems.push(member.problem(format!("the crate in this folder is named `{expected}`")));
    }
    for (other, dev) in member.rooms() {
        if room == "model" && !dev {
            problems.push(member.problem(format!(
                "`model` depends on `{other}`, but must depend on none of our crates"
            )));
        }
        if other == "testkit" && member.is_room() && !dev {
            problems.push(member.problem("`testkit` is for tests: a dev-dependency".to_owned()));
        }
        for (from, to, why) in NEVER {
            if room == *from && to.contains(&other) && !dev {
                problems
                    .push(member.problem(format!("`{room}` must not depend on `{other}`: {why}")));
            }
        }
    }
    for Dependency { name, .. } in &member.dependencies {
        for (which, who, why) in RESERVED {
            if which.contains(&name.as_str()) && !who.contains(&room) {
                problems
                    .push(member.problem(format!("`{room}` must not depend on `{name}`: {why}")));
            }
        }
    }
    problems
}

/// Whether a pure crate reaches something impure. `tree` is what `cargo tree --prefix depth` prints.
pub(super) fn check_reach(member: &Member, tree: &str) -> Vec<Problem> {
    let mut way: Vec<&str> = Vec::new();
    let mut problems = Vec::new();
    for line in tree.lines() {
        let name_at = line
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(line.len());
        let (depth, rest) = line.split_at(name_at);
        let (Ok(depth), Some(name)) = (depth.parse::<usize>(), rest.split(' ').next()) else {
            continue;
        };
        way.truncate(depth);
        way.push(name);
        if IMPURE.contains(&name) {
            problems.push(member.problem(format!(
                "`{}` must not reach `{name}`, but does: {}",
                member.room(),
                way.join(" → ")
            )));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(folder: &str, dependencies: &[(&str, bool)]) -> Member {
        let room = folder.rsplit('/').next().unwrap();
        Member {
            package: format!("{PREFIX}{room}"),
            folder: folder.to_owned(),
            roots: Vec::new(),
            dependencies: dependencies
                .iter()
                .map(|&(name, dev)| Dependency {
                    name: name.to_owned(),
                    dev,
                })
                .collect(),
        }
    }

    #[track_caller]
    fn finds(folder: &str, dependency: (&str, bool), expected: &str) {
        let problems = check(&[member(folder, &[dependency])]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].path, format!("{folder}/Cargo.toml"));
        assert!(problems[0].message.contains(expected), "{problems:?}");
    }

    #[test]
    fn forbidden_edges_are_found() {
        finds("crates/model", ("sesame-api", false), "none of our crates");
        finds("crates/xds", ("sesame-model", false), "carries bytes");
        finds("crates/cli", ("sesame-testkit", false), "dev-dependency");
        finds("crates/translate", ("envoy-types", false), "at the border");
        finds("crates/translate", ("envoy-types", true), "at the border");
        finds("crates/cli", ("kube", false), "Kubernetes client");
    }

    #[test]
    fn permitted_edges_are_not() {
        let members = [
            member(
                "crates/translate",
                &[("sesame-model", false), ("serde", false)],
            ),
            member(
                "crates/xds",
                &[("envoy-types", false), ("sesame-testkit", true)],
            ),
            member("crates/fleet", &[("kube", false)]),
            member(
                "tests",
                &[("sesame-testkit", false), ("envoy-types", false)],
            ),
        ];
        assert_eq!(check(&members), []);
    }

    #[test]
    fn crates_are_named_by_their_folder() {
        let mut wrong = member("crates/model", &[]);
        wrong.package = "sesame-modell".to_owned();
        let problems = check(&[wrong]);
        assert!(problems[0].message.contains("`sesame-model`"));
        let mut xtask = member("xtask", &[]);
        xtask.package = "xtask".to_owned();
        assert_eq!(check(&[xtask]), []);
    }

    #[test]
    fn the_way_to_an_impure_crate_is_told() {
        let tree = "0sesame-api v0.1.0 (/x)\n1serde v1\n2serde_core v1\n1jiff v0\n2odd v1\n3tokio v1\n1tokio-like v1\n";
        let problems = check_reach(&member("crates/api", &[]), tree);
        let [problem] = problems.as_slice() else {
            panic!("{problems:?}");
        };
        assert!(problem.message.ends_with("sesame-api → jiff → odd → tokio"));
    }
}
