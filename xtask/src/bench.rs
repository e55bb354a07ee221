//! `cargo xtask bench`: builds and runs the benchmarks with optimizations.

use std::path::PathBuf;

use anyhow::Result;

use sesame_tools::cargo::{self, Profile, cargo};
use sesame_tools::{cluster, envoy};

/// Arguments that don't need the `sesame` binary, which takes minutes to build.
const WITHOUT_BINARY: &[&str] = &["translate", "throughput", "--help", "-h"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Use this Envoy instead of the downloaded one
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// Measure `sesame serve` with a real API server, which is built on first use
    #[arg(long)]
    api_server: bool,
    /// Build profile of the measured `sesame`
    #[arg(long, value_enum, default_value_t = Profile::Dist)]
    profile: Profile,
    /// Arguments for the bench; see `-- --help`
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
    cargo::run(cargo(build), "cannot build the bench")?;
    let mut bench = cargo::built("release", "sesame-bench");
    bench.env("SESAME_ENVOY", envoy);
    if needs_binary(args) {
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
    cargo::run(bench, "the bench failed")
}

/// Whether the bench needs a `sesame` binary that isn't given by `--sesame`.
fn needs_binary(args: &Args) -> bool {
    let is = |arg: &String, other: &str| arg.split('=').next() == Some(other);
    let named = |other: &str| args.rest.iter().any(|arg| is(arg, other));
    let needed =
        args.api_server || named("rss") || !WITHOUT_BINARY.iter().any(|other| named(other));
    needed && !named("--sesame")
}
