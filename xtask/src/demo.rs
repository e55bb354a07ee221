//! `cargo xtask demo`: the quickstart, running: builds Sesame, gets Envoy, and hands over to `examples/demo`.

use std::path::PathBuf;

use anyhow::Result;

use crate::cargo::{self, cargo};
use crate::envoy;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Check the answers and leave: exit status 0 if all are right, 1 if not
    #[arg(long)]
    once: bool,
    /// Use this Envoy instead of fetching one
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let envoy = envoy::obtain(args.envoy.as_deref())?;
    let build = [
        "build",
        "--locked",
        "--package",
        "sesame-cli",
        "--package",
        "sesame-examples",
    ];
    cargo::run(cargo(build), "Sesame can't be built")?;
    let mut demo = cargo::built("debug", "demo");
    if args.once {
        demo.arg("--once");
    }
    demo.env("SESAME_ENVOY", envoy);
    cargo::run(demo, "the demo fails")
}
