//! The `sesame` binary: one file per subcommand.
//!
//! In: a command line. Out: the result on standard output, everything else on standard error, and an exit status:
//! 0 for success, 1 for an error, 2 for an invalid command line.
//!
//! [`args`] parses the command line, [`settings`] resolves defaults and the environment. `sesame-control` does the
//! work of the subcommands.

mod args;
mod bootstrap;
mod completion;
mod config;
mod local;
mod logging;
mod operator;
mod output;
mod serve;
mod settings;
mod sidecar;
mod signals;
mod status;
mod table;
mod translate;
mod uninstall;
mod version;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};

/// After the initial sync, most of the heap is free but fragmented. jemalloc packs small allocations densely and
/// returns free memory to the system. Its settings are in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.command {
        Command::Local(args) => local::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Operator(args) => operator::run(args),
        Command::Uninstall(args) => uninstall::run(args),
        Command::Status(args) => status::run(args),
        Command::Translate(args) => translate::run(args),
        Command::Bootstrap(args) => bootstrap::run(args),
        Command::EnvoySidecar(args) => sidecar::run(args),
        Command::Version(args) => version::run(args),
        Command::Completion(args) => completion::run(args),
    };
    match result {
        Ok(code) => code,
        // A closed pipe is not an error.
        Err(error) if output::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::warn(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
