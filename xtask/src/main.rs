//! `cargo xtask`: the one entry point to build, try and check Sesame. Each subcommand is a file of its name.
//!
//! In: a command line. Out: exit status 0, or 1 and a sentence on standard error that says what failed and what to do.

// A command-line tool talks to its user by printing.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod cargo;
mod cluster;
mod conformance;
mod demo;
mod deploy;
mod e2e;
mod envoy;
mod image;
mod install;
mod progress;
mod test;
mod tidy;
mod wheel;

use std::process::ExitCode;

use clap::Parser;

/// Build, try and check Sesame.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Run the quickstart: Sesame, a real Envoy, backends, and requests whose answers are shown
    Demo(demo::Args),
    /// Check everything that is checked before a change lands
    Test(test::Args),
    /// Measure, in a release build
    Bench(bench::Args),
    /// Fetch the Envoy that Sesame is tested with, and print its path
    Envoy(envoy::Args),
    /// Pack images of Sesame and of Envoy
    Image(image::Args),
    /// Build, start, ask and end a Kubernetes cluster for tests
    Cluster(cluster::Args),
    /// Run the Gateway API's conformance suite against Sesame in a cluster
    Conformance(conformance::Args),
    /// Install Sesame in a cluster, and see that requests are answered whatever happens to it
    E2e(e2e::Args),
    /// Make deploy/manifests of deploy/chart, or check what is there
    Deploy(deploy::Args),
    /// Check the repository's structure and formatting
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
