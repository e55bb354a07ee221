//! `cargo xtask deploy`: generates the CRDs of Sesame's own kinds, and renders `deploy/manifests` from `deploy/chart`.
//!
//! In: the types in `sesame-api`, the chart, Helm. Out: the CRDs and the manifests, or an error if they are stale or
//! break a rule. `rbac` compares the manifests' permissions with an API server's audit log.

mod chart;
mod crds;
#[cfg(test)]
mod example;
pub(crate) mod helm;
mod lint;
pub(crate) mod rbac;

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::Value;

use sesame_tools::cargo;

/// Options of `cargo xtask deploy`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Fail if the manifests differ from the rendered chart, instead of writing them
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Build Helm and print its path
    Helm,
    /// Compare Sesame's permissions with an API server's audit log
    Rbac(rbac::Args),
}

/// Renders or checks the manifests, or runs the subcommand.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        None => {
            crds::run(args.check)?;
            chart::run(&helm::obtain()?, args.check)
        }
        Some(Command::Helm) => {
            println!("{}", helm::obtain()?.display());
            Ok(())
        }
        Some(Command::Rbac(args)) => rbac::run(args),
    }
}

/// Checks the manifests if Helm has already been built, since building it takes minutes.
pub(crate) fn check_if_built() -> Result<()> {
    match helm::built()? {
        Some(helm) => chart::run(&helm, true),
        None => Ok(()),
    }
}

/// Path of the manifests.
pub(crate) fn manifests() -> PathBuf {
    cargo::root().join("deploy/manifests/sesame.yaml")
}

/// The chart's objects with these values, each as `NAME=VALUE`, in the manifests' namespace.
pub(crate) fn rendered(values: &[&str]) -> Result<Vec<Value>> {
    rendered_as(chart::RELEASE, chart::NAMESPACE, values)
}

/// The same for another release and namespace.
pub(crate) fn rendered_as(release: &str, namespace: &str, values: &[&str]) -> Result<Vec<Value>> {
    let values: Vec<&str> = values.iter().flat_map(|value| ["--set", *value]).collect();
    objects(&chart::rendered(
        &helm::obtain()?,
        (release, namespace),
        &values,
    )?)
}

/// Parses YAML documents; empty ones are skipped.
fn objects(text: &str) -> Result<Vec<Value>> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(text)?;
    if let Some(odd) = objects.iter().find(|object| !object["kind"].is_string()) {
        bail!("not a Kubernetes object: {odd}");
    }
    Ok(objects)
}
