//! `cargo xtask test`: all checks and tests that don't need a cluster, the fastest first.

use std::path::PathBuf;

use anyhow::Result;

use crate::{deploy, tidy};
use sesame_tools::cargo::{self, cargo};
use sesame_tools::{cluster, envoy};

/// The environment variable with Envoy's path, for tests.
const ENVOY: &str = "SESAME_ENVOY";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Use this Envoy instead of the downloaded one
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// Number of cases per property test [default: set by each test]
    #[arg(long, value_name = "N")]
    cases: Option<u32>,
    /// Of the hostile objects, measure those whose names contain this text, and 100 copies of some; --hostile= for all
    #[arg(long, value_name = "TEXT")]
    hostile: Option<String>,
    /// Arguments for `cargo test`: -p CRATE, a test's name, -- --nocapture …; skips tidy and clippy
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let envoy = envoy::obtain(args.envoy.as_deref())?;
    if args.rest.is_empty() {
        tidy::run(&tidy::Args {})?;
        deploy::check_if_built()?;
        let clippy = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ];
        cargo::run(cargo(clippy), "clippy failed")?;
    }
    let built = cluster::api_server()?;
    let mut test = cargo(["test", "--workspace", "--locked"]);
    test.args(&args.rest)
        .env(ENVOY, envoy)
        .env(cluster::PROGRAMS_VARIABLE, built.programs())
        .env(cluster::DEFINITIONS_VARIABLE, built.definitions());
    if let Some(cases) = args.cases {
        test.env("SESAME_CASES", cases.to_string());
    }
    if let Some(names) = &args.hostile {
        test.env("HOSTILE", names);
    }
    cargo::run(test, "tests failed")
}
