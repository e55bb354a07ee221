//! `cargo xtask deploy`: what a cluster gets applied. `deploy/chart` is the source, `deploy/manifests` is made of it.
//!
//! In: the chart, Helm. Out: the manifests, or the news that they are stale or not as they should be. `rbac` compares what
//! they grant with what an API server saw.

mod chart;
#[cfg(test)]
mod example;
pub(crate) mod helm;
mod lint;
pub(crate) mod rbac;

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::cargo;

/// Options of `cargo xtask deploy`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Change nothing: fail if the manifests are not what the chart makes
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print the path of the Helm that the chart is tested with
    Helm,
    /// Compare what Sesame is granted with what an API server saw of it
    Rbac(rbac::Args),
}

/// Makes or checks the manifests, or does what the subcommand says.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        None => chart::run(&helm::obtain()?, args.check),
        Some(Command::Helm) => {
            println!("{}", helm::obtain()?.display());
            Ok(())
        }
        Some(Command::Rbac(args)) => rbac::run(args),
    }
}

/// Checks the manifests where Helm has been built already: building it takes a minute that not every test has.
pub(crate) fn check_if_built() -> Result<()> {
    match helm::built()? {
        Some(helm) => chart::run(&helm, true),
        None => Ok(()),
    }
}

/// The manifests that are applied without Helm.
pub(crate) fn manifests() -> PathBuf {
    cargo::root().join("deploy/manifests/sesame.yaml")
}

/// The objects of a text of YAML documents. Documents that hold nothing are left out.
fn objects(text: &str) -> Result<Vec<Value>> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(text)?;
    if let Some(odd) = objects.iter().find(|object| !object["kind"].is_string()) {
        bail!("a document is no object of Kubernetes: {odd}");
    }
    Ok(objects)
}
