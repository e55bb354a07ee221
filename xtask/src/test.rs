//! `cargo xtask test`: all that is checked before a change lands, the cheapest first.

use std::path::PathBuf;

use anyhow::Result;

use crate::cargo::{self, cargo};
use crate::{cluster, deploy, envoy, tidy};

/// The variable by which tests find Envoy.
const ENVOY: &str = "SESAME_ENVOY";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Use this Envoy instead of fetching one
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// Sets of objects that the property tests make (they choose themselves unless told)
    #[arg(long, value_name = "N")]
    cases: Option<u32>,
    /// Handed on to `cargo test`: -p CRATE, the name of a test, -- --nocapture …; leaves out the checks of form
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
        cargo::run(cargo(clippy), "clippy finds fault with the code")?;
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
    cargo::run(test, "tests fail")
}
