//! `cargo xtask`: the entry point for building, trying out and testing Sesame. Each subcommand is a file with the same
//! name or a module of `sesame-tools`.
//!
//! In: a command line. Out: exit status 0, or 1 with an error message.

// Command-line tools print.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod conformance;
mod demo;
mod deploy;
mod e2e;
mod fuzz;
mod install;
mod nightly;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use sesame_tools::{cluster, envoy, image};

/// Build, try and test Sesame.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Run an example with a real Envoy, and check some responses
    Demo(demo::Args),
    /// Run all tests that don't need a cluster
    Test(test::Args),
    /// Run benchmarks
    Bench(bench::Args),
    /// Download the Envoy that Sesame is tested with, and print its path
    Envoy(envoy::Args),
    /// Build images of Sesame and Envoy
    Image(image::Args),
    /// Manage a Kubernetes cluster for tests
    Cluster(cluster::Args),
    /// Run the Gateway API's conformance suite in a cluster
    Conformance(Box<conformance::Args>),
    /// Run end-to-end tests of an installation in a cluster
    E2e(e2e::Args),
    /// Feed random input to the code that reads untrusted input
    Fuzz(fuzz::Args),
    /// Run the checks that take too long for every change
    Nightly(nightly::Args),
    /// Render deploy/manifests from deploy/chart, or check them
    Deploy(deploy::Args),
    /// Check the repository's structure, wording and formatting
    Tidy(tidy::Args),
}

impl Command {
    fn run(&self) -> Result<()> {
        match self {
            Self::Demo(args) => demo::run(args),
            Self::Test(args) => test::run(args),
            Self::Bench(args) => bench::run(args),
            Self::Envoy(args) => envoy::run(args),
            Self::Image(args) => image::run(args),
            Self::Cluster(args) => cluster::run(args),
            Self::Conformance(args) => conformance::run(args),
            Self::E2e(args) => e2e::run(args),
            Self::Fuzz(args) => fuzz::run(args),
            Self::Nightly(args) => nightly::run(args),
            Self::Deploy(args) => deploy::run(args),
            Self::Tidy(args) => tidy::run(args),
        }
    }
}

fn main() -> ExitCode {
    match Command::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
