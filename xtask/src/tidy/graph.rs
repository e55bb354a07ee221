//! Allowed dependencies between crates.
//!
//! In: the members' manifests as Cargo reads them, and `cargo tree`. Out: dependencies that break a rule.

use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Package};

use super::Problem;

/// Prefix of the workspace's package names.
const PREFIX: &str = "sesame-";

/// Crates without IO and Envoy types, which also keeps their builds short.
const PURE: &[&str] = &["api", "engine", "model", "translate"];

/// Crates that pure crates must not depend on, even indirectly.
const IMPURE: &[&str] = &["tokio", "kube", "kube-client", "tonic", "envoy-types"];

/// Forbidden dependencies within the workspace: from, to, why.
const NEVER: &[(&str, &[&str], &str)] = &[
    (
        "xds",
        &["api", "translate", "envoy"],
        "the server carries bytes and doesn't interpret them",
    ),
    (
        "engine",
        &["api", "model"],
        "the engine is generic and must not depend on Kubernetes or Envoy types",
    ),
];

/// External crates that only certain crates may use, even in tests: which, users, why.
const RESERVED: &[(&[&str], &[&str], &str)] = &[
    (
        &["envoy-types"],
        &["envoy", "xds", "testkit", "tests", "bench"],
        "only crates at the edge use Envoy's protobuf types",
    ),
    (
        &["kube", "kube-client", "kube-runtime"],
        &[
            "sources", "status", "fleet", "operator", "control", "testkit", "tests", "bench",
        ],
        "only crates at the edge hold a Kubernetes client",
    ),
];

/// A workspace crate.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Its package name.
    pub(super) package: String,
    /// Its folder relative to the repository: `crates/model`.
    pub(super) folder: String,
    /// Root files of its targets, relative to the repository.
    pub(super) roots: Vec<String>,
    pub(super) dependencies: Vec<Dependency>,
}

/// A direct dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) name: String,
    /// Whether it is only for tests, examples and benches.
    pub(super) dev: bool,
}

impl Member {
    pub(super) fn new(root: &Path, package: &Package) -> Result<Self> {
        let relative = |path: &Path| {
            let path = path
                .strip_prefix(root)
                .context("a crate is outside the repository")?;
            Ok::<_, anyhow::Error>(path.to_string_lossy().into_owned())
        };
        let manifest = package.manifest_path.as_std_path();
        let folder = manifest
            .parent()
            .context("the manifest has no parent folder")?;
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

    /// The name of its folder.
    pub(super) fn name(&self) -> &str {
        self.folder.rsplit('/').next().unwrap_or_default()
    }

    /// Whether it is part of the product.
    pub(super) fn is_product(&self) -> bool {
        self.folder.starts_with("crates/")
    }

    /// The workspace crates it depends on, and whether only for tests.
    pub(super) fn workspace_dependencies(&self) -> impl Iterator<Item = (&str, bool)> {
        self.dependencies
            .iter()
            .filter_map(|dependency| Some((dependency.name.strip_prefix(PREFIX)?, dependency.dev)))
    }

    fn problem(&self, message: String) -> Problem {
        Problem::file(format!("{}/Cargo.toml", self.folder), message)
    }
}

pub(super) fn is_pure(member: &Member) -> bool {
    member.is_product() && PURE.contains(&member.name())
}

/// The rules about direct dependencies.
pub(super) fn check(members: &[Member]) -> Vec<Problem> {
    members.iter().flat_map(check_member).collect()
}

fn check_member(member: &Member) -> Vec<Problem> {
    let name = member.name();
    let mut problems = Vec::new();
    let expected = match member.folder.as_str() {
        "xtask" => "xtask".to_owned(),
        _ => format!("{PREFIX}{name}"),
    };
    if member.package != expected {
        problems.push(member.problem(format!(
            "the crate in this folder must be named `{expected}`"
        )));
    }
    for (other, dev) in member.workspace_dependencies() {
        if name == "model" && !dev {
            problems.push(member.problem(format!(
                "`model` depends on `{other}`, but must not depend on any workspace crate"
            )));
        }
        if other == "testkit" && member.is_product() && !dev {
            problems.push(
                member.problem("`testkit` is for tests: make it a dev-dependency".to_owned()),
            );
        }
        for (from, to, why) in NEVER {
            if name == *from && to.contains(&other) && !dev {
                problems
                    .push(member.problem(format!("`{name}` must not depend on `{other}`: {why}")));
            }
        }
    }
    for dependency in &member.dependencies {
        let dependency = dependency.name.as_str();
        for (which, users, why) in RESERVED {
            if which.contains(&dependency) && !users.contains(&name) {
                problems.push(
                    member.problem(format!("`{name}` must not depend on `{dependency}`: {why}")),
                );
            }
        }
    }
    problems
}

/// Finds impure dependencies of a pure crate. `tree` is the output of `cargo tree --prefix depth`.
pub(super) fn check_reach(member: &Member, tree: &str) -> Vec<Problem> {
    let mut path: Vec<&str> = Vec::new();
    let mut problems = Vec::new();
    for line in tree.lines() {
        let name_at = line
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(line.len());
        let (depth, rest) = line.split_at(name_at);
        let (Ok(depth), Some(name)) = (depth.parse::<usize>(), rest.split(' ').next()) else {
            continue;
        };
        path.truncate(depth);
        path.push(name);
        if IMPURE.contains(&name) {
            problems.push(member.problem(format!(
                "`{}` must not depend on `{name}`: {}",
                member.name(),
                path.join(" → ")
            )));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(folder: &str, dependencies: &[(&str, bool)]) -> Member {
        let name = folder.rsplit('/').next().unwrap();
        Member {
            package: format!("{PREFIX}{name}"),
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
    fn forbidden_dependencies_are_found() {
        finds("crates/model", ("sesame-api", false), "any workspace crate");
        finds("crates/xds", ("sesame-envoy", false), "carries bytes");
        finds("crates/cli", ("sesame-testkit", false), "dev-dependency");
        finds("crates/translate", ("envoy-types", false), "at the edge");
        finds("crates/translate", ("envoy-types", true), "at the edge");
        finds("crates/cli", ("kube", false), "Kubernetes client");
    }

    #[test]
    fn permitted_dependencies_pass() {
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
    fn crates_are_named_after_their_folders() {
        let mut wrong = member("crates/model", &[]);
        wrong.package = "sesame-modell".to_owned();
        let problems = check(&[wrong]);
        assert!(problems[0].message.contains("`sesame-model`"));
        let mut xtask = member("xtask", &[]);
        xtask.package = "xtask".to_owned();
        assert_eq!(check(&[xtask]), []);
    }

    #[test]
    fn an_impure_dependency_is_reported_with_its_path() {
        let tree = "0sesame-api v0.1.0 (/x)\n1serde v1\n2serde_core v1\n1jiff v0\n2odd v1\n3tokio v1\n1tokio-like v1\n";
        let problems = check_reach(&member("crates/api", &[]), tree);
        let [problem] = problems.as_slice() else {
            panic!("{problems:?}");
        };
        assert!(problem.message.ends_with("sesame-api → jiff → odd → tokio"));
    }
}
