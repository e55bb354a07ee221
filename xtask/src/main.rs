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
mod test;
mod tidy;

use std::process::ExitCode;

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
    Conformance(conformance::Args),
    /// Run end-to-end tests of an installation in a cluster
    E2e(e2e::Args),
    /// Feed random input to the code that reads untrusted input
    Fuzz(fuzz::Args),
    /// Render deploy/manifests from deploy/chart, or check them
    Deploy(deploy::Args),
    /// Check the repository's structure, wording and formatting
    Tidy(tidy::Args),
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Envoy(args) => envoy::run(&args),
        Command::Image(args) => image::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Conformance(args) => conformance::run(&args),
        Command::E2e(args) => e2e::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Deploy(args) => deploy::run(&args),
        Command::Tidy(args) => tidy::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
