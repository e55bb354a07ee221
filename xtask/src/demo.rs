//! `cargo xtask demo`: builds Sesame, downloads Envoy, and runs `examples/demo`.

use std::path::PathBuf;

use anyhow::Result;

use sesame_tools::cargo::{self, cargo};
use sesame_tools::envoy;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Exit after checking the responses: with status 0 if all are correct, otherwise 1
    #[arg(long)]
    once: bool,
    /// Run examples/ingress, with an Ingress and HTTPProxies, instead of the quickstart
    #[arg(long)]
    ingress: bool,
    /// Use this Envoy instead of the downloaded one
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
    cargo::run(cargo(build), "cannot build Sesame")?;
    let mut demo = cargo::built("debug", "demo");
    if args.once {
        demo.arg("--once");
    }
    if args.ingress {
        demo.arg("--ingress");
    }
    demo.env("SESAME_ENVOY", envoy);
    cargo::run(demo, "the demo failed")
}
