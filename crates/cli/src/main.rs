//! The binary `sesame`: one file a subcommand.
//!
//! In: a command line. Out: what was asked for on standard output, everything else on standard error, and an exit status:
//! 0 if all is well, 1 if something is wrong with the input or the machine, 2 if the command line can't be understood.
//!
//! [`args`] is what was typed, [`settings`] what that means on this machine. Each subcommand hands over to
//! `sesame-control`.

mod args;
mod bootstrap;
mod completion;
mod local;
mod logging;
mod output;
mod serve;
mod settings;
mod sidecar;
mod signals;
mod status;
mod table;
mod translate;
mod version;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};

/// After everything has been read, most of what that took is free, in pieces between what is kept: unlike the system's
/// allocator this one packs small things densely and gives back the rest. `.cargo/config.toml` sets how.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.command {
        Command::Local(args) => local::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Status(args) => status::run(args),
        Command::Translate(args) => translate::run(args),
        Command::Bootstrap(args) => bootstrap::run(args),
        Command::EnvoySidecar(args) => sidecar::run(args),
        Command::Version(args) => version::run(args),
        Command::Completion(args) => completion::run(args),
    };
    match done {
        Ok(code) => code,
        // Whoever read our output has seen enough, which is no failure of ours.
        Err(error) if output::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
