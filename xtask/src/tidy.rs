//! `cargo xtask tidy`: rules that the compiler doesn't check.
//!
//! In: the repository's files and Cargo's metadata. Out: problems as `file:line: what is wrong`.
//! Each check is a pure function in a separate module; this file gathers their inputs.

mod crates;
mod graph;
mod manifests;
mod modules;

mod sources;
mod words;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use self::graph::Member;
use sesame_tools::progress::Step;

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    /// Relative to the repository.
    path: String,
    /// Starts at 1; `None` for the whole file.
    line: Option<usize>,
    /// What is wrong and, where it isn't obvious, how to fix it.
    message: String,
}

impl Problem {
    fn file(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line: None,
            message: message.into(),
        }
    }

    fn line(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self {
            line: Some(line),
            ..Self::file(path, message)
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

/// A text file in the repository.
#[derive(Clone, Debug)]
struct Source {
    /// Relative to the repository, with `/` as separator.
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Lines with their numbers, starting at 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

/// Options of `cargo xtask tidy`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Runs all checks and prints the problems.
pub(crate) fn run(_: &Args) -> Result<()> {
    let step = Step::new("Checking the repository's structure");
    let root = root()?;
    let sources = read_sources(&root)?;
    let members = members(&root)?;
    let mut problems = Vec::new();
    problems.extend(sources.iter().flat_map(sources::check));
    problems.extend(sources::stale_exceptions(&sources));
    problems.extend(sources.iter().flat_map(words::check));
    problems.extend(modules::check(&sources, &members));
    problems.extend(manifests::check(&sources));
    problems.extend(graph::check(&members));
    problems.extend(crates::check(&sources, &members));
    for member in members.iter().filter(|member| graph::is_pure(member)) {
        let tree = dependency_tree(&root, &member.package)?;
        problems.extend(graph::check_reach(member, &tree));
    }
    problems.extend(unformatted(&root)?);
    problems.sort();
    problems.dedup();
    if problems.is_empty() {
        step.done();
        return Ok(());
    }
    drop(step);
    for problem in &problems {
        println!("{problem}");
    }
    bail!("tidy failed; number of problems: {}", problems.len());
}

/// The repository's root.
fn root() -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest.parent().context("xtask has no parent folder")?;
    Ok(root.to_owned())
}

/// All text files that Git tracks or would track after `git add`.
fn read_sources(root: &Path) -> Result<Vec<Source>> {
    let list = output(Command::new("git").current_dir(root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let mut sources = Vec::new();
    for path in list.split('\0').filter(|path| !path.is_empty()) {
        let full = root.join(path);
        // Skips symbolic links, and files that are deleted but still in the index.
        if !full.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            continue;
        }
        let bytes = fs::read(&full).with_context(|| format!("cannot read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            sources.push(Source {
                path: path.to_owned(),
                text,
            });
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

/// The workspace's members.
fn members(root: &Path) -> Result<Vec<Member>> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .current_dir(root)
        .no_deps()
        .exec()
        .context("`cargo metadata` failed")?;
    let packages = metadata.packages.iter();
    packages.map(|package| Member::new(root, package)).collect()
}

/// A package's normal dependencies, direct and indirect, with the features that it enables itself.
fn dependency_tree(root: &Path, package: &str) -> Result<String> {
    output(
        Command::new(env!("CARGO"))
            .current_dir(root)
            .args(["tree", "--package", package, "--target", "all"])
            .args(["--edges", "normal,no-proc-macro", "--prefix", "depth"]),
    )
}

/// The files that rustfmt would change.
fn unformatted(root: &Path) -> Result<Vec<Problem>> {
    let result = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["fmt", "--all", "--check", "--", "-l"])
        .stdin(Stdio::null())
        .output()
        .context("cannot run `cargo fmt`")?;
    let list = String::from_utf8_lossy(&result.stdout);
    let problems: Vec<Problem> = list
        .lines()
        .map(|path| {
            let path = path.strip_prefix(&format!("{}/", root.display()));
            Problem::file(path.unwrap_or("?"), "not formatted: run `cargo fmt --all`")
        })
        .collect();
    // rustfmt exits with status 1 both for files that differ and for files that it can't read.
    ensure!(
        result.status.success() || !problems.is_empty(),
        "`cargo fmt` failed: {}",
        String::from_utf8_lossy(&result.stderr)
    );
    Ok(problems)
}

fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let result = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    ensure!(
        result.status.success(),
        "{program} failed: {}",
        String::from_utf8_lossy(&result.stderr)
    );
    String::from_utf8(result.stdout).with_context(|| format!("{program} printed invalid UTF-8"))
}
