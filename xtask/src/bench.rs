//! `cargo xtask bench`: measures, in builds that optimise, and prints a table. Nothing is asserted: clocks belong to benches.

use std::path::PathBuf;

use anyhow::Result;

use crate::cargo::{self, Profile, cargo};
use crate::{cluster, envoy};

/// Arguments of the bench with which no `sesame` of its own is measured, which takes minutes to build.
const WITHIN: &[&str] = &[
    "translate",
    "propagate",
    "steady",
    "throughput",
    "--help",
    "-h",
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Use this Envoy instead of fetching one
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// Measure `sesame serve` with a real API server, which is built if there is none
    #[arg(long)]
    api_server: bool,
    /// How the `sesame` that is measured as a process of its own is built
    #[arg(long, value_enum, default_value_t = Profile::Dist)]
    profile: Profile,
    /// Handed on to the bench; `-- --help` tells
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let envoy = envoy::obtain(args.envoy.as_deref())?;
    let build = [
        "build",
        "--release",
        "--locked",
        "--package",
        "sesame-bench",
    ];
    cargo::run(cargo(build), "the bench can't be built")?;
    let mut bench = cargo::built("release", "sesame-bench");
    bench.env("SESAME_ENVOY", envoy);
    if measures_apart(args) {
        bench.arg("--sesame").arg(cargo::sesame(args.profile)?);
    }
    if args.api_server {
        let built = cluster::api_server()?;
        bench
            .arg("--api-server")
            .env(cluster::PROGRAMS_VARIABLE, built.programs())
            .env(cluster::DEFINITIONS_VARIABLE, built.definitions());
    }
    bench.args(&args.rest);
    cargo::run(bench, "the bench fails")
}

/// Whether a `sesame` is measured as a process of its own, and it is on us to build it.
fn measures_apart(args: &Args) -> bool {
    let is = |arg: &String, other: &str| arg.split('=').next() == Some(other);
    let named = |other: &str| args.rest.iter().any(|arg| is(arg, other));
    let apart = args.api_server || named("rss") || !WITHIN.iter().any(|other| named(other));
    apart && !named("--sesame")
}
